"""The asks of a process that wait for their replies.

    ask ----> request, with the address ----> a worker handles the record
     '<-- future <-- reader of one partition of <app>.replies <-- reply

The reader is started by the first ask, at the end of the partition, before the request is sent.  It
ends with the application's connections.  Replies of other processes in the partition are passed
over; those to an ask of this process that no longer waits are counted and dropped.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Protocol

from sharegroup.errors import KafkaError
from sharegroup.worker.results.reply import Reply, ReplyAddress

ASKS_MAX = 10_000
"""The number of asks of a process that may wait at a time."""
PUBLIC = "sharegroup.worker"
STOPPED = "the application stopped"

log = logging.getLogger(__name__)


class AskFailed(Exception):
    """The handler failed finally: its record became a dead letter, or was rejected."""

    __module__ = PUBLIC

    def __init__(self, handler: str, reply: Reply) -> None:
        super().__init__(handler, reply)
        self.error_class = reply.error_class
        """The class of the handler's last error with its module; empty without an error."""
        self.error_text = reply.error_text
        self.reason = reply.reason
        """Why the record was given up, as its dead letter has it."""
        self.attempts = reply.attempts
        self._handler = handler

    def __str__(self) -> str:
        error = ": ".join(text for text in (self.error_class, self.error_text) if text)
        return (
            f"{self._handler} failed after {self.attempts} attempts ({self.reason})"
            f"{': ' if error else ''}{error}"
        )


class AskTimeout(TimeoutError):
    """No reply came in the time; the record may still be handled."""

    __module__ = PUBLIC


class TooManyAsks(RuntimeError):
    """The number of asks that wait in this process has reached its limit."""

    __module__ = PUBLIC


class AskEnded(RuntimeError):
    """The application stopped, or replies could not be read any more, while an ask waited."""

    __module__ = PUBLIC


class ReplyLog(Protocol):
    """Reads one partition of a topic for replies, from its end on."""

    async def start(self) -> int:
        """Go to the end of a partition, and return its number; raises KafkaError."""

    async def read(self) -> Sequence[Reply]:
        """Wait for replies and return them; raises KafkaError if no more can be read."""

    async def close(self) -> None:
        """Close the connections."""


OpenReplyLog = Callable[[str], ReplyLog]
"""Makes the reader of a topic for replies; it is not started."""


class Asks:
    """The asks of this process that wait, and the reader of their replies."""

    def __init__(self, topic: str, open_log: OpenReplyLog, *, asks_max: int = ASKS_MAX) -> None:
        self._topic = topic
        self._open_log = open_log
        self._asks_max = asks_max
        self._process = secrets.token_hex(8)
        self._count = 0
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._starting: asyncio.Task[None] | None = None
        """Starts the reader; None if that is done, or was not begun."""
        self._is_closed = False
        self._partition = 0
        self._reader: asyncio.Task[None] | None = None
        self._log: ReplyLog | None = None
        """What the reader reads; None if nothing is open."""
        self.unawaited = 0
        """Replies to asks of this process that no longer waited."""

    @property
    def waiting(self) -> int:
        """The number of asks that wait for a reply."""
        return len(self._waiting)

    async def begin(self) -> tuple[ReplyAddress, asyncio.Future[Reply]]:
        """Begin an ask; returns where its reply goes, and what becomes the reply.

        Call `end` afterwards.  Raises KafkaError if the topic for replies cannot be read, and
        AskEnded after `close`.
        """
        await self._read_by_now()
        if len(self._waiting) >= self._asks_max:
            raise TooManyAsks(
                f"{len(self._waiting)} asks wait for their replies in this process; expected at "
                f"most {self._asks_max}: start fewer at a time, or send and look results up later"
            )
        self._count += 1
        address = ReplyAddress(self._partition, f"{self._process}.{self._count}")
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[address.ask_id] = reply
        return address, reply

    def end(self, address: ReplyAddress) -> None:
        """End an ask, with a reply or without."""
        reply = self._waiting.pop(address.ask_id, None)
        if reply is not None:
            reply.cancel()

    async def close(self) -> None:
        """End the reader and all asks."""
        self._is_closed = True
        tasks = [task for task in (self._starting, self._reader) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._close_log()  # A reader that was cancelled before its first step has not.
        self._fail(STOPPED)

    async def _read_by_now(self) -> None:
        """Wait until replies are read.

        One start serves all asks, and goes on if they end: otherwise asks that wait for a shorter
        time than a start takes would never get a reply.
        """
        while self._reader is None and not self._is_closed:
            if self._starting is None:
                self._starting = asyncio.create_task(self._start(), name="replies-start")
                self._starting.add_done_callback(self._started)
            starting = self._starting
            await asyncio.wait((starting,))
            if not starting.cancelled():
                starting.result()
        if self._is_closed:
            raise AskEnded(f"ask: {STOPPED}; the request was not sent")

    def _started(self, starting: asyncio.Task[None]) -> None:
        self._starting = None
        if not starting.cancelled():
            starting.exception()  # Marks it as retrieved: maybe no ask waits that would raise it.

    async def _start(self) -> None:
        reply_log = self._open_log(self._topic)
        try:
            self._partition = await reply_log.start()
        except BaseException:
            await reply_log.close()
            raise
        self._log = reply_log
        self._reader = asyncio.create_task(self._read(reply_log), name="replies")

    async def _read(self, reply_log: ReplyLog) -> None:
        why = STOPPED
        try:
            while True:
                for reply in await reply_log.read():
                    self._take(reply)
        except KafkaError as error:
            why = f"replies in topic {self._topic!r} cannot be read: {error}"
            log.warning(
                "event=replies.unread topic=%s error=%r action='the next ask reads again'",
                self._topic,
                error,
            )
        except Exception as error:
            why = f"replies cannot be read: {error!r}"
            log.exception("event=replies.failed action='report this bug of sharegroup'")
        finally:
            self._reader = None  # Before the first wait: an ask that begins meanwhile reads anew.
            self._fail(why)
            await self._close_log()

    async def _close_log(self) -> None:
        reply_log, self._log = self._log, None
        if reply_log is None:
            return
        try:
            await reply_log.close()
        except KafkaError as error:  # Nothing is lost: it has no group and commits nothing.
            log.debug("event=replies.unclosed topic=%s error=%r", self._topic, error)

    def _take(self, reply: Reply) -> None:
        if not reply.ask_id.startswith(f"{self._process}."):
            return  # Of another process that reads this partition, too.
        waiting = self._waiting.pop(reply.ask_id, None)
        if waiting is None or waiting.done():
            self.unawaited += 1
            log.debug("event=reply.unawaited id=%s count=%s", reply.ask_id, self.unawaited)
            return
        waiting.set_result(reply)

    def _fail(self, why: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for reply in waiting.values():
            if not reply.done():
                reply.set_exception(AskEnded(f"ask: {why}; the record may still be handled"))
                reply.exception()  # The same: an ask whose request failed awaits no reply.
