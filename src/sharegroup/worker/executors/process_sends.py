"""Sends of handlers in other processes: over the pipe to the worker, whose producer writes them.

    child     `PipeOutbox.send` --SendRequest-->  thread  -->  event loop: the outbox of the worker
              its future        <--SendReply----  thread  <--  where it was written, or the error

The thread in the worker is the one that waits for the answer of the call (`processes`).  It returns
the answer only after all sends of the call have ended, so a record is not accepted before.  A send
that a handler has not awaited, and that fails then, is a failure of the handler.

Both sides are bounded by `PENDING_MAX`: then the child waits before it sends more.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Unpack

from sharegroup.errors import NetworkException
from sharegroup.worker.executors.error_copies import Portable, portable, restored
from sharegroup.worker.ports import (
    Outbox,
    RealTimeClock,
    SendOptions,
    WorkerClock,
    WrittenRecord,
)
from sharegroup.worker.records.record import CURRENT_OUTBOX

PENDING_MAX = 100
"""Maximum number of sends of one call that are not answered; their answers fit into the pipe."""


@dataclass(frozen=True, slots=True)
class SendRequest:
    """A record to write, as the child sends it to the worker."""

    number: int
    topic: str
    value: bytes | None
    options: SendOptions


class Written(NamedTuple):
    """Where a record was written; a `ports.WrittenRecord`."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SendReply:
    """The outcome of a send, as the worker sends it to the child."""

    number: int
    written: Written | None
    error: Portable | None


class Sending(NamedTuple):
    """What the worker has for the sends of a handler in another process."""

    outbox: Outbox
    clock: WorkerClock

    def outbox_now(self) -> Outbox:
        """Return the outbox of the handler that runs, as a sender in this process would."""
        return CURRENT_OUTBOX.get() or self.outbox

    @property
    def ahead_ms(self) -> int:
        """By how much the worker's time is ahead of the system's, as in `App.test`."""
        return self.clock.wall_ms() - RealTimeClock().wall_ms()


class AheadClock(RealTimeClock):
    """The system's clock, with the wall time of the worker, which may be virtual."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return super().wall_ms() + self.ahead_ms


class PipeOutbox:
    """Sends records through the pipe of a child process; an `Outbox`."""

    __slots__ = ("_connection", "_numbers", "_pending", "_room", "_runner")

    def __init__(self, connection: Connection, runner: asyncio.Runner) -> None:
        self._connection = connection
        self._runner = runner
        self._numbers = count()
        self._pending: dict[int, asyncio.Future[Written]] = {}
        self._room = asyncio.Event()

    async def send(
        self, topic: str, value: bytes | None, **options: Unpack[SendOptions]
    ) -> WrittenRecord:
        """Have the worker write a record; returns where it was written, once it is durable."""
        while len(self._pending) >= PENDING_MAX:
            self._room.clear()
            await self._room.wait()
        loop = asyncio.get_running_loop()
        number, answer = next(self._numbers), loop.create_future()
        request = pickle.dumps(SendRequest(number, topic, value, options))
        if not self._pending:
            loop.add_reader(self._connection.fileno(), self._read)
        self._pending[number] = answer
        self._connection.send_bytes(request)
        written: Written = await answer
        return written

    def answered(self, reply: SendReply) -> None:
        """Tell the sender what came of its record."""
        answer = self._pending.pop(reply.number)
        self._room.set()
        if not self._pending:
            self._runner.get_loop().remove_reader(self._connection.fileno())
        if answer.done():
            return  # The handler waits for it no longer.
        if reply.error is not None:
            answer.set_exception(restored(reply.error))
        else:
            assert reply.written is not None, "a send has an error or a place"
            answer.set_result(reply.written)

    def run(self, sending: Coroutine[Any, Any, WrittenRecord], seconds: float) -> WrittenRecord:
        """Run a send for a caller that blocks; raises TimeoutError after its time."""
        loop = self._runner.get_loop()
        if loop.is_running():  # The caller is in another thread of this process.
            return asyncio.run_coroutine_threadsafe(sending, loop).result(seconds)
        return self._runner.run(_limited(sending, seconds), context=copy_context())

    def _read(self) -> None:
        try:
            reply: SendReply = pickle.loads(self._connection.recv_bytes())  # noqa: S301  The worker's.
        except (EOFError, OSError):
            self._runner.get_loop().remove_reader(self._connection.fileno())
            for answer in self._pending.values():
                if not answer.done():
                    answer.set_exception(NetworkException("the worker of this process has ended"))
            return
        self.answered(reply)


class CallSends:
    """The sends of one call, in the worker; used by the thread that waits for the answer."""

    __slots__ = ("_context", "_loop", "_outbox", "_pending", "_replies", "_wake", "_writes")

    def __init__(self, outbox: Callable[[], Outbox]) -> None:
        self._outbox = outbox
        self._loop = asyncio.get_running_loop()
        # That of the handler: sends of a route with ``exactly_once`` belong to its record.
        self._context: Context = copy_context()
        self._pending = 0
        self._replies: deque[SendReply] = deque()
        self._wake = self._writes = -1

    @property
    def pending(self) -> int:
        """The number of sends that were begun and are not answered."""
        return self._pending

    def begin(self, request: SendRequest) -> None:
        """Have the event loop write a record."""
        if self._wake < 0:
            self._wake, self._writes = os.pipe()
        self._pending += 1
        self._loop.call_soon_threadsafe(self._send, request, context=self._context)

    @property
    def wakes(self) -> int:
        """The file descriptor that is readable when there are replies."""
        return self._wake

    def replies(self) -> list[SendReply]:
        """Take the replies that have come."""
        taken = []
        while self._replies:
            os.read(self._wake, 1)
            taken.append(self._replies.popleft())
        self._pending -= len(taken)
        return taken

    def close(self) -> None:
        """Forget the replies that are still to come."""
        if self._wake >= 0:
            self._loop.call_soon_threadsafe(self._close)

    def _send(self, request: SendRequest) -> None:
        asyncio.ensure_future(self._written(request)).add_done_callback(self._ended)

    async def _written(self, request: SendRequest) -> SendReply:
        try:
            sending: Awaitable[WrittenRecord] = self._outbox().send(
                request.topic, request.value, **request.options
            )
            written = await sending
        except Exception as error:  # noqa: BLE001  It is raised in the child.
            return SendReply(request.number, None, portable(error))
        place = Written(written.topic, written.partition, written.offset, written.timestamp_ms)
        return SendReply(request.number, place, None)

    def _ended(self, task: asyncio.Task[SendReply]) -> None:
        if self._writes < 0 or task.cancelled():
            return  # Nobody waits: the process was killed, or the loop ends.
        # In this order, and from one thread: `replies` reads one byte for each reply.
        os.write(self._writes, b"\0")
        self._replies.append(task.result())

    def _close(self) -> None:
        os.close(self._wake)
        os.close(self._writes)
        self._wake = self._writes = -1


async def _limited(sending: Awaitable[WrittenRecord], seconds: float) -> WrittenRecord:
    async with asyncio.timeout(seconds):
        return await sending
