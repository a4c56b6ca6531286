"""The wire as a simulated client uses it: one connection, requests out, answers in.

Whatever goes wrong is `NoAnswer`: the request may have been served or not.  The connection is
over then; who asks again does so on a new one, while the old request may still be under way.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sharegroup.wire.codec.apis import response_class, response_header_version
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode_request
from sharegroup.wire.codec.framing import Frames
from sharegroup.wire.codec.headers import decode_response_header

ANSWER_BYTES_MAX = 100_000_000
PORT = 9092


class NoAnswer(Exception):
    """Nobody knows what became of the request."""


class Client:
    """A connection that is opened when it is needed, and again after it was lost."""

    def __init__(self, name: str, *, timeout_s: float = 3.0) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self._link: _Link | None = None
        self._correlation_id = 0

    async def ask(self, message: Any, *, timeout_s: float | None = None) -> Any:
        """The answer; NoAnswer when there is none in time."""
        try:
            async with asyncio.timeout(timeout_s or self.timeout_s):
                link = await self._connected()
                return await self._write(link, message)
        except (TimeoutError, OSError) as error:
            self.close()
            raise NoAnswer(f"{self.name}: {type(message).__name__}: {error!r}") from error

    async def tell(self, message: Any) -> None:
        """Send a request that gets no answer."""
        try:
            async with asyncio.timeout(self.timeout_s):
                link = await self._connected()
                self._write(link, message).cancel()
        except (TimeoutError, OSError) as error:
            self.close()
            raise NoAnswer(f"{self.name}: {type(message).__name__}: {error!r}") from error

    def close(self) -> None:
        """End the connection; what was sent may still arrive."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def pause_reading(self, seconds: float) -> None:
        """Read no answers for a while."""
        link = self._link
        if link is not None and link.transport is not None:
            link.transport.pause_reading()
            asyncio.get_running_loop().call_later(seconds, link.resume_reading)

    async def _connected(self) -> _Link:
        if self._link is None or self._link.is_over:
            loop = asyncio.get_running_loop()
            self._link = (await loop.create_connection(_Link, "broker", PORT))[1]
        return self._link

    def _write(self, link: _Link, message: Any) -> asyncio.Future[Any]:
        self._correlation_id += 1
        return link.send(self._correlation_id, self.name, message)


class _Link(asyncio.Protocol):
    """One connection, from its beginning to its end."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.is_over = False
        self._frames = Frames(ANSWER_BYTES_MAX)
        self._waiting: dict[int, tuple[asyncio.Future[Any], Any]] = {}

    def send(self, correlation_id: int, client_id: str, message: Any) -> asyncio.Future[Any]:
        if self.is_over:
            raise ConnectionResetError("the connection is over")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = (future, message)
        self.transport.writelines(encode_request(correlation_id, client_id, message))
        return future

    def close(self) -> None:
        self.is_over = True
        self._waiting.clear()
        self.transport.close()

    def resume_reading(self) -> None:
        if not self.is_over:
            self.transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._frames.feed(data)
        while not self.is_over and (frame := self._frames.next()) is not None:
            future, message = self._waiting.pop(int.from_bytes(frame[:4], "big"))
            key, version = message.__api_key__, message.__version__
            _, position = decode_response_header(frame, response_header_version(key, version))
            answer, _ = decode(response_class(key, version), frame, position)
            if not future.done():
                future.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = True
        waiting, self._waiting = self._waiting, {}
        for future, _ in waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the connection is over"))
