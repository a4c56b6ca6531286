"""One event loop in a thread of its own, shared by all blocking clients of a process.

    any thread                           the loop's thread
      run(coroutine) ----------------->  runs it as a task
      ...waits...      <---------------  its result
      with lock: record.accept()         waits in select, without the lock

The loop holds a lock whenever it runs, and lets go of it while it waits for sockets.  So a
thread that holds the lock may call the clients' plain methods, those that never await, without
being sent through the loop: settling a record costs a tenth of a microsecond and not a hundred.
What such a call wakes (a fetch that waits for room) is noticed by the loop's ``call_soon``, and
the loop is woken from its wait by `wake`.

The thread starts with the first client and ends, joined, with the last.  A process that was
forked has none of it: clients made before the fork say so.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from sharegroup.client.records import IllegalStateError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _YieldingSelector(selectors.DefaultSelector):
    """Lets go of a lock while it waits."""

    def __init__(self, lock: threading.RLock) -> None:
        super().__init__()
        self._lock = lock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._lock.release()
        try:
            return super().select(timeout)
        finally:
            self._lock.acquire()


class _Loop(asyncio.SelectorEventLoop):
    """Remembers whether somebody outside of its thread gave it something to do."""

    def __init__(self, lock: threading.RLock) -> None:
        super().__init__(_YieldingSelector(lock))
        self.thread_id = 0
        self.given = False

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        if threading.get_ident() != self.thread_id:
            self.given = True
        return super().call_soon(callback, *args, context=context)


class LoopThread:
    """See the module's text."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """To be held while plain methods of clients are called; `wake` afterwards."""
        self._users_lock = threading.Lock()
        self._users = 0
        self._loop: _Loop | None = None
        self._thread: threading.Thread | None = None
        self._is_forked = False
        if hasattr(os, "register_at_fork"):  # Where processes can be forked.
            os.register_at_fork(after_in_child=self._forget)

    def enter(self) -> None:
        """One more client; the first one starts the thread."""
        with self._users_lock:
            if self._loop is None:
                self._users = 0
                self._is_forked = False
                self._loop = _Loop(self.lock)
                started = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop, started), name="sharegroup", daemon=True
                )
                self._thread.start()
                started.wait()
            self._users += 1

    def leave(self) -> None:
        """One client less; with the last one the thread ends."""
        with self._users_lock:
            self._users -= 1
            if self._users or self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns; an interrupt of this thread cancels it."""
        loop = self._loop
        if loop is None or threading.get_ident() == loop.thread_id:
            coroutine.close()
            raise IllegalStateError(f"a blocking client can't be called {self._why_not()}")
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # No effect when the error was the coroutine's own.
            raise

    def _why_not(self) -> str:
        if self._loop is not None:
            return "by a client's own callback"
        return "in a forked process" if self._is_forked else "after it was closed"

    def wake(self) -> None:
        """Have the loop look at what was given to it under the lock."""
        loop = self._loop
        if loop is not None and loop.given:
            loop.given = False
            loop.call_soon_threadsafe(_nothing)

    def _run(self, loop: _Loop, started: threading.Event) -> None:
        loop.thread_id = threading.get_ident()
        with self.lock:
            asyncio.set_event_loop(loop)
            loop.call_soon(started.set)
            loop.run_forever()
            left = asyncio.all_tasks(loop)  # Interrupted calls whose cancellation has just begun.
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def _forget(self) -> None:
        """After a fork: the thread is not here, and may have held the locks."""
        self.lock = threading.RLock()
        self._users_lock = threading.Lock()
        self._loop = self._thread = None
        self._is_forked = True


def _nothing() -> None:
    """What wakes a loop."""


LOOP_THREAD = LoopThread()
