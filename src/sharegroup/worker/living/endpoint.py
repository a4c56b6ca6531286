"""Answers GET on a port: health for whoever restarts the process, metrics for Prometheus.

On the worker's own event loop, on purpose: an endpoint in a thread of its own would call a
process alive whose loop a handler blocks.  HTTP is h11's business; there is one request to a
connection, a limit on the request's bytes and seconds, and a limit on the connections.  A web
server such as uvicorn would bring an application's interface, signals and a loop of its own to
answer four fixed paths.

It listens on loopback unless told otherwise, and knows neither TLS nor passwords.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

try:
    import h11
except ImportError as error:
    raise ImportError(
        "a worker's health and metrics need h11: pip install 'sharegroup[worker]'"
    ) from error

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 32
REQUEST_BYTES_MAX = 16 * 1024
READ_BYTES = 4 * 1024
EXCHANGE_SECONDS_MAX = 10.0


class Answer(NamedTuple):
    """What a path says now."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"

    @classmethod
    def json(cls, status: int, facts: Mapping[str, Any]) -> Answer:
        """Facts for a program."""
        text = json.dumps(facts, indent=2, default=str)
        return cls(status, f"{text}\n".encode(), "application/json")


Page = Callable[[], Awaitable[Answer]]


class Endpoint:
    """Some pages on one port."""

    __slots__ = ("_pages", "_server", "_tasks", "host", "port")

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = dict(pages)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.host = ""
        self.port = 0
        """The port that was taken."""

    async def listen(self, host: str, port: int) -> None:
        """Answer from now on; OSError when the port is somebody else's."""
        try:
            self._server = await asyncio.start_server(self._connected, host, port)
        except OSError as error:
            raise type(error)(error.errno, f"can't listen on {host}:{port}: {error}") from error
        self.host = host
        self.port = self._server.sockets[0].getsockname()[1]

    def add(self, pages: Mapping[str, Page]) -> None:
        """More pages on the same port."""
        self._pages |= pages

    @property
    def url(self) -> str:
        """Where the pages are."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._exchange(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(EXCHANGE_SECONDS_MAX):
                protocol = h11.Connection(h11.SERVER, REQUEST_BYTES_MAX)
                answer, head_only = await self._answer(await _request(protocol, reader))
                writer.write(_written(protocol, answer, head_only=head_only))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except h11.RemoteProtocolError as error:
            writer.write(_bare(error.error_status_hint, str(error)))
            writer.close()
        except (TimeoutError, EOFError, OSError) as error:
            log.debug("event=request_failed error=%r", error)
            writer.transport.abort()
        except BaseException:
            writer.transport.abort()
            raise

    async def _answer(self, request: h11.Request) -> tuple[Answer, bool]:
        if request.method not in (b"GET", b"HEAD"):
            return Answer(405, b"only GET is answered\n"), False
        path = request.target.partition(b"?")[0].decode("latin-1")
        page = self._pages.get(path)
        if page is None:
            there_are = ", ".join(sorted(self._pages))
            return Answer(404, f"there are {there_are}\n".encode()), request.method == b"HEAD"
        try:
            return await page(), request.method == b"HEAD"
        except Exception as error:  # A page is the worker's own; whoever asks should know.
            log.exception("event=page_failed path=%s", path)
            return Answer(500, f"{type(error).__name__}: {error}\n".encode()), False


async def _request(protocol: h11.Connection, reader: asyncio.StreamReader) -> h11.Request:
    """The head of a request, and its end; a body is read and passed over."""
    request: h11.Request | None = None
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            some = await reader.read(READ_BYTES)
            if not some:
                raise EOFError("the connection ended before the request did")
            protocol.receive_data(some)
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None, "h11 gives a request before its end"
            return request


def _written(protocol: h11.Connection, answer: Answer, *, head_only: bool) -> bytes:
    headers = [
        ("Content-Type", answer.content_type),
        ("Content-Length", str(len(answer.body))),
        ("Cache-Control", "no-store"),
        ("Connection", "close"),
    ]
    reason = HTTPStatus(answer.status).phrase.encode()
    head = h11.Response(status_code=answer.status, headers=headers, reason=reason)
    parts = [protocol.send(head)]
    if not head_only:
        parts.append(protocol.send(h11.Data(data=answer.body)))
    parts.append(protocol.send(h11.EndOfMessage()))
    return b"".join(part for part in parts if part)


def _bare(status: int, why: str) -> bytes:
    """An answer to what is no HTTP: there is no protocol to follow."""
    body = f"{why}\n".encode("ascii", "replace")
    head = f"HTTP/1.1 {status} Bad Request\r\nContent-Length: {len(body)}\r\nConnection: close"
    return head.encode() + b"\r\n\r\n" + body
