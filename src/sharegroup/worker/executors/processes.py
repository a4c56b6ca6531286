"""Runs handlers in child processes, for CPU-bound work.

Each child process has one thread in the worker.  The thread sends a decoded payload, waits for the
answer, and detects by the end of the pipe that the process has died.  Then only the record whose
handler ran in it has failed, and a new process is started at once.

    slot --> thread --- payload, delivery, story ---> child: call the handler, answer
                   <-- records to send (`process_sends`), any number
                   <-- result, or the exception with its traceback, and explicit decisions

Children are spawned, so they inherit no event loop, threads or sockets; they find the handler by
its module and name.  They end with their parent, whatever ends it (on Linux).  They ignore
signals, so a stop of the worker lets them finish their current calls.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from sharegroup.worker.decisions.messages import message_of
from sharegroup.worker.declarations.handler import HandlerShape
from sharegroup.worker.executors.error_copies import ErrorCopy, Portable, RemoteError, restored
from sharegroup.worker.executors.process_main import (
    HandlerCall,
    HandlerResult,
    RemoteTraceback,
    SharedLock,
    records_of,
    serve,
)
from sharegroup.worker.executors.process_sends import CallSends, Sending, SendReply, SendRequest
from sharegroup.worker.executors.threads import HandlerThreads, as_error
from sharegroup.worker.records.record import CURRENT_SLOT, Record

log = logging.getLogger(__name__)

SPAWN = multiprocessing.get_context("spawn")
LOOK_SECONDS = 0.1
"""The interval at which lock deadlines are passed to a child and its renewal requests are read."""
END_LOOK_SECONDS = 0.01
END_SECONDS = 5.0
"""Maximum time that a child may take to end, with its handler closed, before it is killed."""


class HandlerCrashed(Exception):
    """The process in which a handler ran has ended.

    Causes are for example a lack of memory, a fault in native code, or ``os._exit``.  A negative
    ``exit_code`` is the number of the signal that ended the process.
    """

    __module__ = "sharegroup.worker"  # Users import it from there.

    def __init__(self, handler: str, exit_code: int | None) -> None:
        super().__init__(handler, exit_code)
        self.handler = handler
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"the process of handler {self.handler} ended with exit code {self.exit_code}"


class _Child:
    """A child process and the pipe to it.  One thread uses it; any thread may kill it."""

    __slots__ = ("_end_seconds", "_lock", "_shape", "connection", "is_ready", "process")

    def __init__(self, shape: HandlerShape, end_seconds: float) -> None:
        self._shape = shape
        self._end_seconds = end_seconds
        self._lock = SharedLock(SPAWN)
        self.connection, child_end = SPAWN.Pipe()
        self.process: BaseProcess = SPAWN.Process(
            target=serve,
            args=(child_end, self._lock, shape.module, shape.qualified_name),
            name=f"sharegroup-{shape.name}",
        )
        self.process.start()
        # Otherwise the pipe would not end with the child, because this process had its other end
        # open.
        child_end.close()
        self.is_ready = False
        """Whether it has found and opened the handler."""

    def wait_ready(self) -> None:
        """Wait until the child has found and opened the handler; raises the error if it could not.

        Only the first successful call waits.
        """
        if not self.is_ready:
            answer = self._exchange(None, None)
            if answer.error is not None:
                error = restored(answer.error)
                error.__cause__ = RemoteTraceback(answer.traceback)
                self.end()
                raise error
            self.is_ready = True

    def ask(self, call: bytes, locks: _Locks | None, run: _Run) -> HandlerResult:
        """Call the handler in the child; raises HandlerCrashed if it ends before it answers."""
        try:
            return self._exchange(call, locks, run)
        finally:
            if run.sends is not None:
                run.sends.close()

    def _exchange(
        self, call: bytes | None, locks: _Locks | None, run: _Run | None = None
    ) -> HandlerResult:
        try:
            if call is not None:
                self._lock.begin()
                self.connection.send_bytes(call)
            while isinstance(answer := self._next(locks, run), SendRequest):
                sends = None if run is None else run.sends
                assert sends is not None, "the child sends only if it was told so"
                sends.begin(answer)
            failed = None if run is None else self._finish_sends(locks, run)
        except (EOFError, OSError) as error:
            # A thread of the handler may keep the process alive after its end of the pipe is gone.
            self._reap()
            raise HandlerCrashed(self._shape.name, self.process.exitcode) from error
        if failed is not None and answer.error is None:
            answer = replace(answer, error=failed)
        return answer

    def _next(self, locks: _Locks | None, run: _Run | None) -> HandlerResult | SendRequest:
        """Wait for the next message of the child, and send it the replies to its sends."""
        while run is not None and run.sends is not None and run.sends.pending:
            self._reply(run.sends)
            if self.connection in wait([self.connection, run.sends.wakes], LOOK_SECONDS):
                break
            if locks is not None:
                locks.look(self._lock)
        while locks is not None and not self.connection.poll(LOOK_SECONDS):
            locks.look(self._lock)
        pickled = self.connection.recv_bytes()
        try:
            answer: HandlerResult | SendRequest = pickle.loads(pickled)  # noqa: S301  The child's.
        except Exception as error:  # noqa: BLE001  Application classes may raise anything.
            answer = HandlerResult(error=RemoteError(f"unreadable here: {message_of(error, 500)}"))
        return answer

    def _finish_sends(self, locks: _Locks | None, run: _Run) -> Portable | None:
        """Wait for the sends that the handler has not awaited; returns the error of one."""
        failed = None
        # A call that was cancelled waits for nothing: its process was killed.
        while run.sends is not None and run.sends.pending and not run.is_over:
            wait([run.sends.wakes], LOOK_SECONDS)
            for reply in self._reply(run.sends):
                failed = failed or reply.error
            if locks is not None:
                locks.look(self._lock)
        return failed

    def _reply(self, sends: CallSends) -> list[SendReply]:
        replies = sends.replies()
        for reply in replies:
            self.connection.send_bytes(pickle.dumps(reply))
        return replies

    def end(self) -> None:
        """Let the child close its handler and end; kill it after its time."""
        # The end of the pipe tells the child to close its handler and to end.
        self.connection.close()
        self._reap()

    def _reap(self) -> None:
        """Wait for the end of the child; kill it after its time, and wait as long again."""
        if not self._ends_in_time():
            self.process.kill()
            # One that hangs inside the system ends only later, and nobody waits for it.
            self._ends_in_time()

    def _ends_in_time(self) -> bool:
        limit = time.monotonic() + self._end_seconds
        wait([self.process.sentinel], self._end_seconds)
        # Not `join`, which has no limit if the handler has closed the sentinel with other files.
        while self.process.exitcode is None and time.monotonic() < limit:
            time.sleep(END_LOOK_SECONDS)
        return self.process.exitcode is not None


class _Locks:
    """The locks of the records that a handler in a child process takes; used by a thread."""

    __slots__ = ("_loop", "_records")

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._loop = asyncio.get_running_loop()

    def look(self, shared: SharedLock) -> None:
        """Pass the earliest lock deadline to the child, and renew the locks if it asked for it."""
        shared.tell(min(record.deadline for record in self._records))
        if shared.asked():
            self._loop.call_soon_threadsafe(self._renew)

    def _renew(self) -> None:
        for record in self._records:
            if not record.delivery.is_lost:
                record.renew()


class _Run:
    """A pending call and the child process that it runs in, so that it can be killed."""

    __slots__ = ("child", "is_over", "sends")

    def __init__(self, sends: CallSends | None) -> None:
        self.child: _Child | None = None
        self.sends = sends
        """What the handler sends; None if there is no producer for it."""
        self.is_over = False
        """Whether the call was cancelled, so that no task waits for its answer."""


class HandlerProcesses:
    """Runs a handler in up to ``count`` child processes; the `Caller` of such a route."""

    def __init__(
        self,
        shape: HandlerShape,
        count: int,
        *,
        end_seconds: float = END_SECONDS,
        sending: Sending | None = None,
    ) -> None:
        self._shape = shape
        self._sending = sending
        self._count = count
        self._end_seconds = end_seconds
        # One for each child, because a thread reads the pipe of a child until it answers.
        self._threads = HandlerThreads(count)
        self._idle: list[_Child] = []
        self._starting: set[_Child] = set()
        """Children that a thread waits for until they have opened the handler."""
        self._is_closed = False
        self._lock = threading.Lock()
        self.call: Callable[..., Any] = self._call

    async def start(self) -> None:
        """Start all processes; raises the error if the handler cannot be found or opened there."""
        ready = (self._threads.call(self._begin_one) for _ in range(self._count))
        await asyncio.gather(*ready)

    async def close(self) -> None:
        """End all processes."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        try:
            await asyncio.gather(
                self._end_starting(), *(asyncio.to_thread(child.end) for child in idle)
            )
        finally:
            # Not before: Linux kills a child when the thread that began it ends (`prctl(2)`,
            # PR_SET_PDEATHSIG), and the child would not close its handler.
            self._threads.close()

    async def _end_starting(self) -> None:
        """Wait for the children that start, which end then; kill them after their time."""
        limit = time.monotonic() + self._end_seconds
        while self._starting and time.monotonic() < limit:  # noqa: ASYNC110  Threads start them.
            await asyncio.sleep(END_LOOK_SECONDS)
        with self._lock:
            # An `open` that never returns would keep this process alive, because Python waits for
            # its child processes when it ends.
            for child in self._starting:
                child.process.kill()

    async def _call(self, payload: Any, record: Any = None) -> Any:
        sending = self._sending
        call, records = HandlerCall.of(payload, record, sending), records_of(record)
        locks = _Locks(records) if records else None
        pending = _Run(None if sending is None else CallSends(sending.outbox_now))
        # The usual case takes no task: a child is ready as long as no handler has ended one.
        child = self._take_ready() or await self._wait_ready()
        asking = asyncio.ensure_future(self._threads.call(self._ask, call, locks, pending, child))
        try:
            # The thread cannot be cancelled: it reads the pipe until the child answers or ends.
            answer = await asyncio.shield(asking)
        except asyncio.CancelledError:
            # The handler timed out, or its lock was lost.  Only killing the process ends it.
            with self._lock:
                pending.is_over = True
                if pending.child is not None:
                    pending.child.process.kill()
            await _ended(asking)
            raise
        assert isinstance(answer, HandlerResult), "a call that was not cancelled has an answer"
        # Not strict: the answer to a call that could not be read there has no decisions.
        for taken, decision in zip(records, answer.decisions, strict=False):
            taken.decision = _restored(decision)
        if answer.error is not None:
            error = restored(answer.error)
            error.__cause__ = RemoteTraceback(answer.traceback)
            raise as_error(error)
        result = answer.result
        return [_restored(end) for end in result] if type(result) is list else result

    def _new_child(self) -> _Child:
        return _Child(self._shape, self._end_seconds)

    def _begin_one(self) -> None:
        """Start one process; runs in a thread."""
        child = self._new_child()
        try:
            self._wait_started(child)
        except HandlerCrashed:
            if not self._is_closed:
                raise
            return  # The stop has killed it, so it is no failure of the handler.
        self._let_idle(child)

    def _wait_started(self, child: _Child) -> None:
        """Wait until a child has opened the handler; `close` ends the wait by killing it."""
        with self._lock:
            self._starting.add(child)
        try:
            child.wait_ready()
        finally:
            with self._lock:
                self._starting.discard(child)

    async def _wait_ready(self) -> _Child:
        """Wait until a process has started, and take it.

        Its start is no time of the handler.  After one was killed for its time, the next handlers
        would be killed while their process starts, and be failures without ever having run.
        """
        slot = CURRENT_SLOT.get()
        with nullcontext() if slot is None else slot.waiting():
            while (child := self._take_ready()) is None:
                starting = asyncio.ensure_future(self._threads.call(self._make_ready))
                starting.add_done_callback(_retrieved)
                # A call that is cancelled leaves the process to the next one.
                await asyncio.shield(starting)
        return child

    def _take_ready(self) -> _Child | None:
        """Take an idle process that has started; None if there is none."""
        with self._lock:
            child = next((child for child in self._idle if child.is_ready), None)
            if child is not None:
                self._idle.remove(child)
            return child

    def _make_ready(self) -> None:
        """Wait until an idle process, or a new one, has started; runs in a thread."""
        with self._lock:
            if any(child.is_ready for child in self._idle):
                return
            starting = self._idle.pop() if self._idle else None
        child = self._new_child() if starting is None else starting
        try:
            self._wait_started(child)
        except HandlerCrashed:
            self._crashed(child)
            raise
        self._let_idle(child)

    def _crashed(self, child: _Child) -> None:
        """Start another process in place of one that has ended, so that the next call finds it."""
        child.connection.close()
        log.warning(
            "event=handler.crashed handler=%s exit_code=%s",
            self._shape.name,
            child.process.exitcode,
        )
        if self._is_closed:
            return
        try:
            self._let_idle(self._new_child())
        # The system has no process or descriptor to give now.  The next call tries again, and the
        # failure of this record stays a HandlerCrashed, which its retry policy may name.
        except OSError as error:
            log.warning("event=handler.not_started handler=%s error=%r", self._shape.name, error)

    def _let_idle(self, child: _Child) -> None:
        """Keep the child for the next call, or end it if the worker has stopped meanwhile."""
        with self._lock:
            if not self._is_closed:
                self._idle.append(child)
                return
        child.end()

    def _ask(
        self, call: HandlerCall, locks: _Locks | None, run: _Run, child: _Child
    ) -> HandlerResult | None:
        """Call the handler in a child; runs in a thread.

        Returns None if the call was cancelled before it began.
        """
        try:
            pickled = pickle.dumps(call)
        except BaseException:
            self._let_idle(child)  # A payload that cannot be pickled must not cost a process.
            raise
        with self._lock:
            has_begun = not run.is_over
            run.child = child if has_begun else None
        try:
            answer = child.ask(pickled, locks, run) if has_begun else None
        except HandlerCrashed:
            self._crashed(child)
            raise
        finally:
            with self._lock:
                run.child = None  # A cancellation of this call must not kill it any more.
        self._let_idle(child)
        return answer


def _restored(thing: Any) -> Any:
    return restored(thing) if isinstance(thing, ErrorCopy) else thing


async def _ended(asking: asyncio.Future[Any]) -> None:
    while not asking.done():
        try:
            await asyncio.wait({asking})
        except asyncio.CancelledError:
            continue  # The process was killed, so the call ends soon.
    # Otherwise asyncio logs the error of a call that was killed on purpose.
    _retrieved(asking)


def _retrieved(ended: asyncio.Future[Any]) -> None:
    if not ended.cancelled():
        ended.exception()
