"""A small HTTP/1.1 server for a fixed set of pages: metrics, health checks and test faults.

It runs on the event loop of the program that it reports on, so a blocked loop does not answer.
A connection serves one request, then it is closed.  Pages answer GET and HEAD, actions answer POST;
the arguments of both are in the query string of the path:

    connect --> head of the request --> the page's response, at once or in chunks --> close
       |                |                                |
       |                `-- request_bytes_max,           `-- answer_seconds_max in all,
       |                    request_seconds_max              stall_seconds_max for each chunk
       `-- connections_max: a new connection replaces the oldest one whose request is incomplete

So connections, memory and time are bounded, whatever the clients do.  Bodies of requests are not
read.  There is neither TLS nor a password; `sharegroup.http_hosts` keeps web pages away.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from sharegroup.http_hosts import HttpHosts

log = logging.getLogger(__name__)

READ_BYTES = 4 * 1024
TEXT = "text/plain; charset=utf-8"
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of metrics in Prometheus' text format."""

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """The limits of one endpoint; each of them ends or refuses a connection."""

    connections_max: int
    request_bytes_max: int
    """Maximum size of the head of a request."""
    request_seconds_max: float
    """Maximum time from the connection to the end of the request's head."""
    answer_seconds_max: float
    """Maximum time from there until the client has taken the whole response."""
    stall_seconds_max: float
    """Maximum time for which a client takes nothing of a response that is sent in chunks."""


Pieces = Callable[[], AsyncGenerator[bytes, None]]
"""Makes the body of a response piece by piece."""


class HttpResponse(NamedTuple):
    """The content of a response: status, body and content type."""

    status: int
    body: bytes | Pieces
    """The whole body, or a function that makes it while it is sent."""
    content_type: str = TEXT

    @classmethod
    def json(cls, status: int, facts: Mapping[str, Any]) -> HttpResponse:
        """Return a response with these facts as JSON."""
        text = json.dumps(facts, indent=2, default=str)
        return cls(status, f"{text}\n".encode(), "application/json")


Page = Callable[[], Awaitable[HttpResponse]]

Query = Mapping[str, str]
"""The parameters of a query string by name; of a repeated parameter the last value."""

QueryPage = Callable[[Query], Awaitable[HttpResponse]]
"""A page or an action that depends on the query string."""

QUERY_PARAMETERS_MAX = 32


class _Request(NamedTuple):
    """The first line of a request; a text that is not HTTP has the version ""."""

    method: str
    path: str
    query: str
    version: str
    headers: Mapping[str, list[str]] | None
    """The values by the name in lower case; None if a line is not a header."""


class HttpEndpoint:
    """An HTTP server on one port with a fixed set of pages."""

    __slots__ = (
        "_actions",
        "_hosts",
        "_limits",
        "_pages",
        "_query_pages",
        "_reading",
        "_server",
        "_tasks",
        "host",
        "port",
    )

    def __init__(
        self,
        pages: Mapping[str, Page],
        limits: HttpLimits,
        *,
        query_pages: Mapping[str, QueryPage] | None = None,
        actions: Mapping[str, QueryPage] | None = None,
    ) -> None:
        """``query_pages`` are called with the query of a GET request, ``actions`` of a POST."""
        self._pages = dict(pages)
        self._query_pages = dict(query_pages or {})
        self._actions = dict(actions or {})
        self._limits = limits
        self._hosts = HttpHosts(frozenset(), is_on_loopback=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        """Connections whose request is not complete, the oldest first."""
        self.host = ""
        self.port = 0
        """The port on which it listens."""

    async def listen(self, host: str, port: int) -> None:
        """Start to listen; raises OSError if the port is not available."""
        try:
            self._server = await asyncio.start_server(
                self._connected, host, port, limit=self._limits.request_bytes_max
            )
        except OSError as error:
            raise type(error)(error.errno, f"can't listen on {host}:{port}: {error}") from error
        self.host = host
        self.port = self._server.sockets[0].getsockname()[1]
        addresses = [socket.getsockname()[0] for socket in self._server.sockets]
        self._hosts = HttpHosts.of(host, addresses, os.environ)

    def add(self, pages: Mapping[str, Page]) -> None:
        """Add pages to this endpoint."""
        self._pages |= pages

    @property
    def url(self) -> str:
        """The base URL of the pages."""
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
        if len(self._tasks) >= self._limits.connections_max and not self._evict():
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._exchange(reader, writer))
        self._tasks.add(task)
        self._reading[task] = writer
        task.add_done_callback(self._forget)

    def _evict(self) -> bool:
        """Close the oldest connection whose request is not complete; False if there is none."""
        if not self._reading:
            return False
        task, writer = next(iter(self._reading.items()))
        task.cancel()
        writer.transport.abort()  # A cancelled task that has not begun would not close it.
        self._forget(task)
        return True

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._reading.pop(task, None)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._limits.request_seconds_max):
                head = await _read_head(reader, self._limits.request_bytes_max)
            task = asyncio.current_task()
            assert task is not None
            self._reading.pop(task, None)
            # Not evicted from here on: a client that is slow to read has this time, and no more.
            async with asyncio.timeout(self._limits.answer_seconds_max):
                await self._answer(head, writer)
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, EOFError, OSError) as error:
            log.debug("event=http_request_failed error=%r", error)
            writer.transport.abort()
        except BaseException:
            writer.transport.abort()  # The client must not take a part of a response for the whole.
            raise

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        request = _request_of(head)
        response = await self._response(request, is_whole=_HEAD_END.search(head) is not None)
        with_body = request.method != "HEAD"
        if isinstance(response.body, bytes):
            length = f"Content-Length: {len(response.body)}\r\n"
            writer.write(_head(response, length) + (response.body if with_body else b""))
            await writer.drain()
            return
        # HTTP/1.0 has no chunks: there the end of the connection is the end of the body.
        is_chunked = request.version == "HTTP/1.1"
        coding = "Transfer-Encoding: chunked\r\n" if is_chunked else ""
        writer.write(_head(response, coding))
        if with_body:
            try:
                await self._write_pieces(writer, response.body, is_chunked=is_chunked)
            except (TimeoutError, OSError):
                raise  # Of the connection.
            except Exception:  # A bug in a page; the response has begun, so it is cut off.
                log.exception("event=page_failed path=%s", request.path)
                writer.transport.abort()
                return
        await writer.drain()

    async def _response(self, request: _Request, *, is_whole: bool) -> HttpResponse:
        if request.version not in ("HTTP/1.0", "HTTP/1.1"):
            return HttpResponse(400, b"expected an HTTP/1.0 or HTTP/1.1 request\n")
        if not is_whole:
            bytes_max = self._limits.request_bytes_max
            return HttpResponse(431, f"the head is longer than {bytes_max} bytes\n".encode())
        if request.headers is None:
            return HttpResponse(400, b"expected lines with Name: value in the head\n")
        hosts, origins = request.headers.get("host", ()), request.headers.get("origin", ())
        changes = request.method not in ("GET", "HEAD")
        if (reason := self._hosts.refusal(hosts, origins, changes=changes)) is not None:
            return HttpResponse(403, f"{reason}\n".encode())
        try:
            return await self._answer_of(request)
        except Exception as error:  # A bug in a page; the response reports it, too.
            log.exception("event=page_failed path=%s", request.path)
            return HttpResponse(500, f"{type(error).__name__}: {error}\n".encode())

    async def _answer_of(self, request: _Request) -> HttpResponse:
        """Call the page or action of a path; refuse other paths, methods and queries."""
        path = request.path
        if request.method not in ("GET", "HEAD", *(["POST"] if self._actions else [])):
            return HttpResponse(405, b"only GET is answered\n")
        if request.method != "POST" and (page := self._pages.get(path)) is not None:
            return await page()
        others = self._actions if request.method == "POST" else self._query_pages
        query_page = others.get(path)
        if query_page is None:
            paths = {*others, *(self._pages if request.method != "POST" else ())}
            known_paths = ", ".join(sorted(paths))
            return HttpResponse(404, f"not found; the paths are {known_paths}\n".encode())
        try:
            query = dict(
                parse_qsl(
                    request.query,
                    keep_blank_values=True,
                    strict_parsing=bool(request.query),
                    max_num_fields=QUERY_PARAMETERS_MAX,
                )
            )
        except ValueError as error:
            return HttpResponse(400, f"expected ?name=value&...: {error}\n".encode())
        return await query_page(query)

    async def _write_pieces(
        self, writer: asyncio.StreamWriter, pieces: Pieces, *, is_chunked: bool
    ) -> None:
        async with aclosing(pieces()) as body:
            async for piece in body:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
                async with asyncio.timeout(self._limits.stall_seconds_max):
                    await writer.drain()
                await asyncio.sleep(0)  # A drain with room in the buffer does not give way.
        if is_chunked:
            writer.write(b"0\r\n\r\n")


async def _read_head(reader: asyncio.StreamReader, bytes_max: int) -> bytes:
    """Read a request up to the end of its head, or up to the limit if its first line is complete.

    Raises EOFError if the connection or the limit ends before the first line does.
    """
    head = b""
    while _HEAD_END.search(head) is None:
        if len(head) > bytes_max:
            if b"\n" in head:
                break  # It will be refused with a reason.
            raise EOFError(f"the first line is longer than {bytes_max} bytes")
        received = await reader.read(READ_BYTES)
        if not received:
            raise EOFError("the connection was closed before the request was complete")
        head += received
    return head


def _request_of(head: bytes) -> _Request:
    text = _HEAD_END.split(head, maxsplit=1)[0].decode("latin-1")
    line, *header_lines = (line.removesuffix("\r") for line in text.split("\n"))
    method, _, rest = line.partition(" ")
    target, _, version = rest.partition(" ")
    path, _, query = target.partition("?")
    return _Request(method, path, query, version, _headers(header_lines))


def _headers(lines: list[str]) -> dict[str, list[str]] | None:
    headers: dict[str, list[str]] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            return None
        headers.setdefault(match[1].lower(), []).append(match[2].rstrip(" \t"))
    return headers


def _head(response: HttpResponse, framing: str) -> bytes:
    phrase = HTTPStatus(response.status).phrase
    return (
        f"HTTP/1.1 {response.status} {phrase}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"{framing}"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    ).encode()
