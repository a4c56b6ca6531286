"""The channel between a supervisor and one of its processes, with both ends of it.

    supervisor                              worker process
        /status                        -->
                                       <--  200 1234 application/json
                                            {"phase": "running", ...
        quiet | resume | stop | hurry  -->  (no answer)

Answers come in the order of their requests.  It is a pair of sockets without a name, which only the
two processes have, so no other user of the machine reads or writes it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from sharegroup.http_endpoint import HttpResponse, Page

log = logging.getLogger(__name__)

STATE = "/state"
"""The page for the supervisor only: the phase of the worker, and whether it takes records."""
LINE_BYTES_MAX = 1024
"""Maximum length of a request and of the first line of an answer."""
BODY_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of an answer; metrics of tens of thousands of handlers are smaller."""
ASKED_MAX = 16
"""Maximum number of requests without an answer; a process that hangs is asked no more."""


@asynccontextmanager
async def answering(
    descriptor: int, pages: Mapping[str, Page], calls: Mapping[str, Callable[[], None]]
) -> AsyncIterator[None]:
    """Answer the supervisor within the block: requests for pages, and calls by name."""
    channel = socket.socket(fileno=descriptor)
    reader, writer = await asyncio.open_connection(sock=channel, limit=LINE_BYTES_MAX)
    task = asyncio.create_task(_answer(reader, writer, pages, calls), name="supervised")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
        writer.close()


async def _answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    pages: Mapping[str, Page],
    calls: Mapping[str, Callable[[], None]],
) -> None:
    try:
        while line := await reader.readline():
            word = line.decode("ascii").rstrip("\n")
            if (call := calls.get(word)) is not None:
                call()
                continue
            response = await _response(word, pages)
            body = response.body
            assert isinstance(body, bytes), "pages of a worker are made at once"
            head = f"{response.status} {len(body)} {response.content_type}\n"
            writer.write(head.encode() + body)
            await writer.drain()
    except OSError as error:  # The lifeline sees the end of the supervisor, too, and acts on it.
        log.debug("event=channel_ended error=%r", error)


async def _response(path: str, pages: Mapping[str, Page]) -> HttpResponse:
    page = pages.get(path)
    if page is None:
        return HttpResponse(404, f"no page {path}\n".encode())
    try:
        return _small_enough(path, await page())
    except Exception as error:  # A bug in a page must not end the worker; the response reports it.
        log.exception("event=page_failed path=%s", path)
        return HttpResponse(500, f"{type(error).__name__}: {error}\n".encode())


def _small_enough(path: str, response: HttpResponse) -> HttpResponse:
    """Return the response, or an error in place of one for which the channel would end.

    The supervisor would take this process for one that hangs.
    """
    size = len(response.body) if isinstance(response.body, bytes) else 0
    if size <= BODY_BYTES_MAX:
        return response
    log.error(
        "event=page_too_large path=%s bytes=%s bytes_max=%s action='the page is left out; have "
        "fewer metrics, or labels with fewer values'",
        *(path, size, BODY_BYTES_MAX),
    )
    text = f"{path} has {size} bytes; expected up to {BODY_BYTES_MAX}\n"
    return HttpResponse(500, text.encode())


class Channel:
    """The supervisor's end: asks for pages and makes calls."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._asked: deque[asyncio.Future[HttpResponse | None]] = deque()
        self._reading = asyncio.create_task(self._read(reader), name="channel")

    @classmethod
    async def over(cls, ours: socket.socket) -> Channel:
        """Return the channel over this socket."""
        return cls(*await asyncio.open_connection(sock=ours, limit=LINE_BYTES_MAX))

    async def ask(self, path: str, seconds: float) -> HttpResponse | None:
        """Return a page of the process; None if there is no answer within this time."""
        if len(self._asked) >= ASKED_MAX or self._reading.done():
            # As long as for any other process that does not answer, so attempts can be counted.
            await asyncio.sleep(seconds)
            return None
        answer: asyncio.Future[HttpResponse | None] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self.call(path)
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            return None  # Its place in the order stays until the answer comes.

    def call(self, word: str) -> None:
        """Make a call by its name; a process that has ended hears nothing."""
        self._writer.write(f"{word}\n".encode())

    async def close(self) -> None:
        """Close it; requests without an answer have none."""
        self._reading.cancel()
        await asyncio.wait((self._reading,))
        self._writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while head := await reader.readline():
                status, length, content_type = head.decode("ascii").rstrip("\n").split(" ", 2)
                if int(length) > BODY_BYTES_MAX:
                    raise ValueError(f"an answer of {length} bytes; expected {BODY_BYTES_MAX}")  # noqa: TRY301  One text.
                body = await reader.readexactly(int(length))
                self._asked_first(HttpResponse(int(status), body, content_type))
        except (OSError, EOFError, ValueError) as error:
            # Of a process that was killed, or of one that the application made write nonsense.
            log.debug("event=channel_ended error=%r", error)
        finally:
            while self._asked:
                self._asked_first(None)

    def _asked_first(self, response: HttpResponse | None) -> None:
        if not self._asked:
            raise ValueError("an answer without a request")
        answer = self._asked.popleft()
        if not answer.done():
            answer.set_result(response)
