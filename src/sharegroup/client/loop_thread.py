"""An event loop in a thread of its own, for code without an event loop.

All blocking clients of a process share one, `LOOP_THREAD`; Spark's calls use threads of their own.

    any thread                           the loop's thread
      run(coroutine) ----------------->  runs it as a task
      ...waits...      <---------------  its result
      with lock: record.accept()         waits in select, without the lock

The loop holds a lock while it runs and releases it while it waits for sockets.  So a thread that
holds the lock may call the clients' plain methods, those that never await, directly.  Settling a
record then costs 0.1 us instead of 100 us through the loop.  If such a call schedules a callback
(a fetch waits for room), the loop's ``call_soon`` notes it, and `wake` ends the loop's wait.

The thread starts with the first client, and is stopped and joined with the last.  It is a daemon,
so a process that forgets to close a client ends nevertheless.  A forked process does not have the
thread; clients made before the fork raise IllegalStateError there.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakSet

from sharegroup.client.records import IllegalStateError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _YieldingSelector(selectors.DefaultSelector):
    """A selector that releases a lock while it waits."""

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
    """An event loop that notes whether another thread has scheduled a callback."""

    def __init__(self, lock: threading.RLock) -> None:
        super().__init__(_YieldingSelector(lock))
        self.thread_id = 0
        self.given = False

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        # Unlike `call_soon_threadsafe`, this does not end a `select` that waits; `wake` does.
        if threading.get_ident() != self.thread_id:
            self.given = True
        return super().call_soon(callback, *args, context=context)


class LoopThread:
    """Runs an event loop in a thread, which starts with the first client and ends with the last."""

    def __init__(self, name: str = "sharegroup") -> None:
        self.name = name
        self.lock = threading.RLock()
        """The lock to hold while plain methods of clients are called; call `wake` afterwards."""
        self._users_lock = threading.Lock()
        self._users = 0
        self._loop: _Loop | None = None
        self._thread: threading.Thread | None = None
        self._is_forked = False
        _LOOP_THREADS.add(self)

    def enter(self) -> None:
        """Count one more client; the first one starts the thread."""
        with self._users_lock:
            if self._loop is None:
                # Not counted down in a forked process, whose clients left with the thread.
                self._users = 0
                self._is_forked = False
                self._loop = _Loop(self.lock)
                started = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop, started), name=self.name, daemon=True
                )
                self._thread.start()
                started.wait()
            self._users += 1

    def leave(self) -> None:
        """Count one client less; the last one cancels all running tasks and ends the thread."""
        with self._users_lock:
            self._users -= 1
            if self._users or self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result; an interrupt cancels it."""
        try:
            self.check_caller()
        except IllegalStateError:
            coroutine.close()
            raise
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Has no effect if the coroutine itself raised the error.
            raise

    def check_caller(self) -> None:
        """Raise IllegalStateError in the loop's thread.

        The loop would wait for ever for a result that only itself can produce.
        """
        loop = self._loop
        if loop is not None and threading.get_ident() == loop.thread_id:
            raise IllegalStateError("a blocking client can't be called by a client's own callback")

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop; cancelling the returned future cancels the coroutine."""
        loop = self._loop
        if loop is None:
            coroutine.close()
            why = "in a forked process" if self._is_forked else "after it was closed"
            raise IllegalStateError(f"a blocking client can't be called {why}")
        return asyncio.run_coroutine_threadsafe(coroutine, loop)

    def wake(self) -> None:
        """Wake the loop if callbacks were scheduled while the lock was held."""
        loop = self._loop
        if loop is not None and loop.given:
            loop.given = False
            loop.call_soon_threadsafe(_nothing)

    def _run(self, loop: _Loop, started: threading.Event) -> None:
        loop.thread_id = threading.get_ident()
        # The selector releases it while it waits, so plain methods run between two iterations only.
        with self.lock:
            asyncio.set_event_loop(loop)
            loop.call_soon(started.set)
            loop.run_forever()
            # Interrupted calls whose cancellation has just begun.
            remaining_tasks = asyncio.all_tasks(loop)
            for task in remaining_tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*remaining_tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def forget(self) -> None:
        """Reset in a forked process: it has no thread, and the thread may have held the locks."""
        self.lock = threading.RLock()
        self._users_lock = threading.Lock()
        self._loop = self._thread = None
        self._is_forked = True


def _nothing() -> None:
    """Do nothing; the call alone wakes the loop."""


def _forget_all() -> None:
    for loop_thread in _LOOP_THREADS:
        loop_thread.forget()


_LOOP_THREADS: WeakSet[LoopThread] = WeakSet()
if hasattr(os, "register_at_fork"):  # Only on systems that can fork.
    os.register_at_fork(after_in_child=_forget_all)

LOOP_THREAD = LoopThread()
"""The thread that all blocking clients of this process share."""
