"""Answers ``GET /metrics`` for Prometheus, on a port of its own: HTTP/1.1, and no more than that.

One request a connection.  One answer is made at a time, so that no number of scrapers makes the
broker work for them alone; each connection has a limit in bytes and in seconds.  The answer
goes out in chunks, as fast as it is taken.

Like the broker's listener it is for this machine, unless the broker was told otherwise: it
listens on the same address, and knows neither TLS nor passwords.
"""

from __future__ import annotations

import asyncio
import logging

from sharegroup.broker.metrics.loop_lag import LoopLag
from sharegroup.broker.metrics.values import Metrics
from sharegroup.broker.parts import Parts
from sharegroup.broker.server import Server
from sharegroup.storage.log_directory import LogDirectory

log = logging.getLogger(__name__)

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

CONNECTIONS_MAX = 10
REQUEST_BYTES_MAX = 8 * 1024
REQUEST_SECONDS_MAX = 10.0
ANSWER_SECONDS_MAX = 60.0


class MetricsEndpoint:
    """See the module's text."""

    __slots__ = ("_answering", "_loop_lag", "_metrics", "_server", "_tasks", "port")

    def __init__(self, parts: Parts, server: Server, directory: LogDirectory) -> None:
        self._loop_lag = LoopLag()
        self._metrics = Metrics(parts, server, directory, self._loop_lag)
        self._server: asyncio.Server | None = None
        self._answering = asyncio.Lock()
        self.port = 0
        """The port that was taken."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> None:
        """Answer from now on."""
        self._server = await asyncio.start_server(
            self._connected, host, port, limit=REQUEST_BYTES_MAX
        )
        self._loop_lag.start()
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("event=metrics_served url=http://%s:%d%s", host, self.port, PATH)

    async def stop(self) -> None:
        """Close the port and every connection."""
        self._loop_lag.stop()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                request = await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await self._answer(request, writer)
        except (TimeoutError, EOFError, OSError, asyncio.LimitOverrunError) as error:
            log.debug("event=scrape_failed error=%r", error)
            writer.transport.abort()
        except BaseException:
            writer.transport.abort()  # Whoever reads must not take a part for the whole.
            raise
        else:
            writer.close()

    async def _answer(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        method, _, rest = request.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        target, _, version = rest.partition(" ")
        if version not in ("HTTP/1.0", "HTTP/1.1"):
            await _refuse(writer, "400 Bad Request", "this is no HTTP/1.1")
        elif method not in ("GET", "HEAD"):
            await _refuse(writer, "405 Method Not Allowed", "only GET is answered")
        elif target.partition("?")[0] != PATH:
            await _refuse(writer, "404 Not Found", f"the metrics are at {PATH}")
        else:
            is_chunked = version == "HTTP/1.1"
            coding = "Transfer-Encoding: chunked\r\n" if is_chunked else ""
            writer.write(_head("200 OK", CONTENT_TYPE, coding))
            if method == "GET":
                await self._write_metrics(writer, is_chunked=is_chunked)
            await writer.drain()

    async def _write_metrics(self, writer: asyncio.StreamWriter, *, is_chunked: bool) -> None:
        async with self._answering:
            async for text in self._metrics.text():
                # A group's id may hold what UTF-8 does not.
                piece = text.encode("utf-8", "backslashreplace")
                if is_chunked:
                    piece = b"%x\r\n%b\r\n" % (len(piece), piece)
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)  # A drain with room in the buffer gives way to nobody.
            if is_chunked:
                writer.write(b"0\r\n\r\n")


async def _refuse(writer: asyncio.StreamWriter, status: str, why: str) -> None:
    writer.write(_head(status, "text/plain", f"Content-Length: {len(why) + 1}\r\n"))
    writer.write(f"{why}\n".encode())
    await writer.drain()


def _head(status: str, content_type: str, more: str) -> bytes:
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{more}Connection: close\r\n\r\n"
    ).encode()
