"""Handlers in processes of their own, for work that keeps a processor busy.

One thread here for each process there: it sends a payload, waits for the answer, and notices by
the end of the pipe that the process has died.  That is a failure of the one record whose handler
ran in it, and of no other; a new process is begun at once.

    lane --> thread --- payload, delivery, story ---> child: decode nothing, call, answer
                   <-- result, or the exception with its traceback, and what was decided by hand

Children are spawned, so that they inherit no loop, no threads and no sockets; they find the
handler by its module and name.  They die with their parent, whatever ends it, and leave signals
to it: a stop of the worker lets them finish what they do.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import threading
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import Any

from sharegroup.worker.declared.handler import HandlerShape
from sharegroup.worker.records.record import Record
from sharegroup.worker.running.process_main import Answer, Call, RemoteTraceback, records_of, serve
from sharegroup.worker.running.shared_lock import SharedLock
from sharegroup.worker.running.threads import HandlerThreads

log = logging.getLogger(__name__)

SPAWN = multiprocessing.get_context("spawn")
LOOK_SECONDS = 0.1
"""How soon a process sees that a lock was renewed, and the worker that it is to be."""
END_SECONDS = 5.0
"""How long a child may take for its handler's ``close`` before it is killed."""


class HandlerCrashed(Exception):
    """The process in which a handler ran has ended: out of memory, a fault in native code,
    ``os._exit``.  ``exit_code`` below 0 is the signal that ended it."""

    __module__ = "sharegroup.worker"  # Where users have it from.

    def __init__(self, handler: str, exit_code: int | None) -> None:
        super().__init__(handler, exit_code)
        self.handler = handler
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"the process of handler {self.handler} ended with exit code {self.exit_code}"


class _Child:
    """One process and the pipe to it; used by one thread, killed by any."""

    __slots__ = ("_is_ready", "_lock", "_shape", "connection", "process")

    def __init__(self, shape: HandlerShape) -> None:
        self._shape = shape
        self._lock = SharedLock(SPAWN)
        self.connection, theirs = SPAWN.Pipe()
        self.process: BaseProcess = SPAWN.Process(
            target=serve,
            args=(theirs, self._lock, shape.module, shape.qualified_name),
            name=f"sharegroup-{shape.name}",
        )
        self.process.start()
        theirs.close()
        self._is_ready = False

    def wait_ready(self) -> None:
        """Return when it has found and opened the handler; raises why it could not."""
        if not self._is_ready:
            answer = self._exchange(None, None)
            if answer.error is not None:
                answer.error.__cause__ = RemoteTraceback(answer.traceback)
                self.end()
                raise answer.error
            self._is_ready = True

    def ask(self, call: Call, locks: _Locks | None) -> Answer:
        """Have the handler called; HandlerCrashed when the process ends before it answers."""
        return self._exchange(call, locks)

    def _exchange(self, call: Call | None, locks: _Locks | None) -> Answer:
        try:
            if call is not None:
                self._lock.begin()
                self.connection.send(call)
            while locks is not None and not self.connection.poll(LOOK_SECONDS):
                locks.look(self._lock)
            answer = self.connection.recv()
        except (EOFError, OSError) as error:
            self.process.join()
            raise HandlerCrashed(self._shape.name, self.process.exitcode) from error
        assert isinstance(answer, Answer), f"expected an Answer, got {type(answer).__name__}"
        return answer

    def end(self) -> None:
        """Let it close its handler and end; kill it when it does not."""
        self.connection.close()
        self.process.join(END_SECONDS)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


class _Locks:
    """Of the records that a handler in another process takes; looked at by a thread."""

    __slots__ = ("_loop", "_records")

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._loop = asyncio.get_running_loop()

    def look(self, shared: SharedLock) -> None:
        """Tell when they end, and renew them if that was asked for."""
        shared.tell(min(one.deadline for one in self._records))
        if shared.asked():
            self._loop.call_soon_threadsafe(self._renew)

    def _renew(self) -> None:
        for one in self._records:
            if not one.delivery.is_lost:
                one.renew()


class _Run:
    """One call on its way: the process that it runs in, for whoever has to end it."""

    __slots__ = ("child", "is_over")

    def __init__(self) -> None:
        self.child: _Child | None = None
        self.is_over = False
        """Whether nobody waits for it any more."""


class HandlerProcesses:
    """So many processes, begun when they are needed first."""

    def __init__(self, shape: HandlerShape, count: int) -> None:
        self._shape = shape
        self._count = count
        self._threads = HandlerThreads(count)
        self._idle: list[_Child] = []
        self._is_closed = False
        self._lock = threading.Lock()
        self.call: Callable[..., Any] = self._call

    async def start(self) -> None:
        """Begin all processes; raises why the handler can't be found or opened there."""
        ready = (self._threads.call(self._begin_one) for _ in range(self._count))
        await asyncio.gather(*ready)

    async def close(self) -> None:
        """End all processes."""
        self._threads.close()
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        await asyncio.gather(*(asyncio.to_thread(child.end) for child in idle))

    async def _call(self, payload: Any, record: Any = None) -> Any:
        call, records = Call.of(payload, record), records_of(record)
        locks = _Locks(records) if records else None
        run = _Run()
        asking = asyncio.ensure_future(self._threads.call(self._ask, call, locks, run))
        try:
            answer = await asyncio.shield(asking)
        except asyncio.CancelledError:
            # Its time is over, or its lock lost: there is no gentler way to end it.
            with self._lock:
                run.is_over = True
                if run.child is not None:
                    run.child.process.kill()
            await _ended(asking)
            raise
        assert isinstance(answer, Answer), "who was not cancelled has one"
        for one, decision in zip(records, answer.decisions, strict=True):
            one.decision = decision
        if answer.error is not None:
            answer.error.__cause__ = RemoteTraceback(answer.traceback)
            raise answer.error
        return answer.result

    def _begin_one(self) -> None:
        """In a thread."""
        child = _Child(self._shape)
        child.wait_ready()
        self._let_idle(child)

    def _let_idle(self, child: _Child) -> None:
        """For the next call; of a worker that has stopped meanwhile there is none."""
        with self._lock:
            if not self._is_closed:
                self._idle.append(child)
                return
        child.end()

    def _ask(self, call: Call, locks: _Locks | None, run: _Run) -> Answer | None:
        """In the thread; None: it was over before it began."""
        with self._lock:
            if run.is_over:
                return None
            child = run.child = self._idle.pop() if self._idle else _Child(self._shape)
        try:
            child.wait_ready()
            answer = child.ask(call, locks)
        except HandlerCrashed:
            child.connection.close()
            self._let_idle(_Child(self._shape))  # It is ready when it is needed.
            log.warning(
                "event=handler.crashed handler=%s exit_code=%s",
                self._shape.name,
                child.process.exitcode,
            )
            raise
        finally:
            with self._lock:
                run.child = None  # From here on it is not this call's to kill.
        self._let_idle(child)
        return answer


async def _ended(asking: asyncio.Future[Any]) -> None:
    while not asking.done():
        try:
            await asyncio.wait({asking})
        except asyncio.CancelledError:
            continue  # It is ending as fast as it can.
    asking.exception()
