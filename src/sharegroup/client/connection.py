"""One connection to one broker: requests out, answers in, matched by correlation id.

Requests are pipelined: `send` writes at once, in plain code, so the order of calls is the
order on the wire, and the answers come in that order too.  A broker serves the requests of
one connection one after the other; a fetch that is parked there holds up whatever is sent
behind it, which is why the owner keeps connections of their own for different purposes.

Every message is the newest version of its kind; what goes out is brought down to what the
broker serves (ApiVersions, asked on opening) and what comes in is brought up again.

A connection that failed in any way is over: an answer that can't be read, an unknown
correlation id, a timeout (its answer might still come and be taken for another's).  Everything
that waits then gets NetworkException, which means in doubt: sent, and nobody knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from kio.schema.api_versions.v3.request import ApiVersionsRequest

import sharegroup
from sharegroup.client.config import ClientConfig
from sharegroup.errors import (
    NONE,
    NetworkException,
    RequestTimedOut,
    UnsupportedVersion,
    error_for,
)
from sharegroup.wire.apis import API_VERSIONS, APIS, request_class, response_class
from sharegroup.wire.apis import response_header_version as header_version_of
from sharegroup.wire.convert import downgrade, upgrade
from sharegroup.wire.decoder import DecodeError, decode
from sharegroup.wire.encoder import encode_request
from sharegroup.wire.framing import FrameError, Frames
from sharegroup.wire.headers import decode_response_header

IN_FLIGHT_MAX = 64
"""Requests under way on one connection; further ones wait their turn."""

RESPONSE_BYTES_MIN = 4
WRITE_BUFFER_BYTES = 1024 * 1024


class Versions(NamedTuple):
    """The range of versions of one API that a broker serves, both inclusive."""

    oldest: int
    newest: int


class _Waiting(NamedTuple):
    future: asyncio.Future[Any]
    key: int
    version: int


class Connection(asyncio.Protocol):
    """See the module's text.  Made by `open_connection`, over at the first failure."""

    def __init__(self, address: tuple[str, int], config: ClientConfig) -> None:
        self.address = address
        self._config = config
        self._frames = Frames(config.response_bytes_max, RESPONSE_BYTES_MIN)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._correlation_id = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._failure: Exception | None = None
        self._versions: Mapping[int, Versions] = {}

    @property
    def peer(self) -> str:
        """Host and port, for messages."""
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def is_open(self) -> bool:
        """Whether a request may still be sent."""
        return self._failure is None

    def version_of(self, key: int) -> int:
        """The newest version that both sides speak; UnsupportedVersion when there is none."""
        api = APIS[key]
        served = self._versions.get(key)
        if served is None:
            raise UnsupportedVersion(
                f"broker {self.peer} does not serve {api.name} (api key {key}); "
                f"needed is version {api.oldest} to {api.newest}"
            )
        version = min(api.newest, served.newest)
        if version < max(api.oldest, served.oldest):
            raise UnsupportedVersion(
                f"broker {self.peer} serves {api.name} versions {served.oldest} to "
                f"{served.newest}; this client speaks {api.oldest} to {api.newest}"
            )
        return version

    async def request(self, message: Any, *, timeout_ms: int | None = None) -> Any:
        """Send a message (of its newest version) and return the answer (of its newest)."""
        version = self.version_of(message.__api_key__)
        if version != message.__version__:
            message = downgrade(message, request_class(message.__api_key__, version))
        answer = await self.request_as_is(message, timeout_ms=timeout_ms)
        newest = response_class(message.__api_key__, APIS[message.__api_key__].newest)
        return answer if type(answer) is newest else upgrade(answer, newest)

    async def request_as_is(self, message: Any, *, timeout_ms: int | None = None) -> Any:
        """Send a message of the version the broker serves; the answer has that version too."""
        limit_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000), self._slots:
                return await self.send(message)
        except TimeoutError:
            name = APIS[message.__api_key__].name
            error = NetworkException(f"broker {self.peer}: no answer to {name} in {limit_ms} ms")
            self.fail(error)
            raise error from None

    def send(self, message: Any) -> asyncio.Future[Any]:
        """Write a request now; the future gets the answer, in the request's version."""
        if self._failure is not None or self._transport is None:
            raise NetworkException(f"broker {self.peer}: {self._failure or 'not connected'}")
        assert len(self._waiting) < IN_FLIGHT_MAX, f"{self.peer}: too many requests under way"
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._correlation_id] = _Waiting(
            future, message.__api_key__, message.__version__
        )
        self._transport.writelines(
            encode_request(self._correlation_id, self._config.client_id, message)
        )
        return future

    def send_only(self, message: Any) -> None:
        """Write a request that gets no answer (Produce with acks=0)."""
        if self._failure is not None or self._transport is None:
            raise NetworkException(f"broker {self.peer}: {self._failure or 'not connected'}")
        self._transport.writelines(encode_request(0, self._config.client_id, message))

    async def drained(self) -> None:
        """Wait while the transport's buffer is full."""
        await self._writable.wait()

    def fail(self, error: Exception) -> None:
        """End the connection; everything that waits gets NetworkException."""
        if self._failure is not None:
            return
        self._failure = error
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.future.done():
                one.future.set_exception(NetworkException(f"broker {self.peer}: {error}"))
                # Whoever sent it may have been cancelled; then nobody will ask.
                one.future.exception()
        self._writable.set()

    def close(self) -> None:
        """End it from this side."""
        self.fail(NetworkException("closed by this client"))

    async def negotiate(self) -> None:
        """Ask what the broker serves; the first request of every connection."""
        request = ApiVersionsRequest(
            client_software_name="sharegroup", client_software_version=sharegroup.__version__
        )
        answer = await self.request_as_is(request)
        if answer.error_code == UnsupportedVersion.code:
            answer = await self.request_as_is(request_class(API_VERSIONS, 0)())
        if answer.error_code != NONE:
            raise error_for(answer.error_code, f"broker {self.peer} refused ApiVersions")
        self._versions = {
            one.api_key: Versions(one.min_version, one.max_version) for one in answer.api_keys
        }

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's, not the class.
        transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(error or NetworkException("the broker closed the connection"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, chunk: bytes) -> None:
        self._frames.feed(chunk)
        try:
            while (frame := self._frames.next()) is not None:
                self._answered(frame)
        except (FrameError, DecodeError) as error:
            self.fail(error)

    def _answered(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            raise DecodeError(f"an answer to request {correlation_id}, which was never sent")
        try:
            answer = self._decoded(frame, waiting)
        except DecodeError:
            self._waiting[correlation_id] = waiting  # It gets its error with the others.
            raise
        if not waiting.future.done():
            waiting.future.set_result(answer)

    def _decoded(self, frame: memoryview, waiting: _Waiting) -> Any:
        _, position = decode_response_header(frame, header_version_of(waiting.key, waiting.version))
        version = waiting.version
        if waiting.key == API_VERSIONS and frame[position : position + 2] == _VERSION_REFUSED:
            version = 0  # KIP-511: the refusal always has the oldest form.
        answer, end = decode(response_class(waiting.key, version), frame, position)
        if end != len(frame):
            name = APIS[waiting.key].name
            raise DecodeError(f"{name} response: {len(frame) - end} bytes follow its end")
        return answer


_VERSION_REFUSED = UnsupportedVersion.code.to_bytes(2, "big")


async def open_connection(address: tuple[str, int], config: ClientConfig) -> Connection:
    """Connect and negotiate, within ``connect_timeout_ms``; NetworkException when it fails."""
    loop = asyncio.get_running_loop()
    host, port = address
    connection = Connection(address, config)
    try:
        async with asyncio.timeout(config.connect_timeout_ms / 1000):
            await loop.create_connection(lambda: connection, host, port)
            await connection.negotiate()
    except TimeoutError:
        connection.close()
        raise RequestTimedOut(
            f"broker {host}:{port}: no connection in {config.connect_timeout_ms} ms"
        ) from None
    except OSError as error:
        connection.close()
        raise NetworkException(f"broker {host}:{port}: {error}") from error
    except BaseException:
        connection.close()
        raise
    return connection
