"""Runs synchronous handlers in threads, one thread for each concurrent handler.

A thread cannot be cancelled.  Python can only raise an exception in it at the next bytecode that
it executes (`PyThreadState_SetAsyncExc`).  This ends a loop in Python immediately, but a blocking
C call only when it returns.  Until then the thread and the worker's slot stay occupied, and the
caller of `HandlerThreads.call` waits.

    slot          call() ---------- cancelled: interrupt ------------- ended
    thread           | handler ............. Interrupted raised ...... |

While such an exception is pending, CPython 3.11 checks for it in all threads at each call.  It
continues to check after the exception was withdrawn, until one is raised in some thread.  Under a
tracer or a profiler it then does nothing else any more.  So an interruption is pending only for
a moment and is repeated; after each one an exception is raised and caught (`_look_no_more`).

Threads are daemons, so a handler that never returns does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

IDLE_THREADS_NAME = "sharegroup-handler"

STANDS_SECONDS = 0.05
"""Maximum time that an interruption is pending; it ends sooner in a thread that executes Python."""
AGAIN_SECONDS = 1.0
"""After this time a thread that was in a C call is interrupted again."""


class Interrupted(BaseException):
    """Raised in a handler's thread when the handler has timed out or its lock is lost."""


class _Call:
    """One call of a function in a thread."""

    __slots__ = (
        "_is_interrupted", "_lock", "_thread_id", "also", "arguments", "context", "function",
        "future", "loop",
    )  # fmt: skip

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        # As `asyncio.to_thread` does: its log lines name the record (`records.record`).
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        self._is_interrupted = False
        self.also: Callable[[], None] | None = None
        """Called by `interrupt`; None if the function has no work elsewhere."""

    def run(self) -> None:
        """Call the function; runs in the thread."""
        result: Any = None
        error: BaseException | None = None
        try:
            try:
                self._begun()
                result = self.context.run(self.function, *self.arguments)
            finally:
                # An interruption may be raised in here, too; the outer `try` catches it.
                self._ended()
        except BaseException as raised:  # noqa: BLE001  It is passed to the caller.
            error = raised
        # If the loop is closed, no caller waits for the result.
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._tell, result, error)

    def interrupt(self) -> None:
        """Raise `Interrupted` in the running handler, or before the handler begins."""
        with self._lock:
            self._is_interrupted = True
            if self._thread_id is not None:
                _raise_in(self._thread_id, Interrupted)
                self.loop.call_later(STANDS_SECONDS, self._take_back)
            also = self.also  # The thread may set it to None at any time.
        if also is not None:
            also()

    def _take_back(self) -> None:
        """Withdraw a pending interruption; runs on the event loop.

        By now it was raised, or the thread is in a C call.
        """
        with self._lock:
            if self._thread_id is None:
                return
            _raise_in(self._thread_id, None)
        _look_no_more()

    def _begun(self) -> None:
        with self._lock:
            if self._is_interrupted:
                raise Interrupted
            self._thread_id = threading.get_ident()
            _OF_THREAD.call = self

    def _ended(self) -> None:
        with self._lock:
            self._thread_id = _OF_THREAD.call = None
            was_interrupted = self._is_interrupted
        if was_interrupted:
            _look_no_more()  # A pending interruption would hit the next handler.

    def _tell(self, result: Any, error: BaseException | None) -> None:
        if error is not None:
            self.future.set_exception(as_error(error))
        elif inspect.iscoroutine(result):
            result.close()
            self.future.set_exception(
                TypeError("the handler returned a coroutine: declare it with `async def`")
            )
        else:
            self.future.set_result(result)


class HandlerThreads:
    """Up to ``count`` threads, each started when it is first needed."""

    __slots__ = ("_calls", "_closed", "_count", "_idle", "_max", "_there_is_one")

    def __init__(self, count: int) -> None:
        self._max = count
        self._count = 0
        self._idle = 0
        self._calls: deque[_Call] = deque()
        self._there_is_one = threading.Condition()
        self._closed = False

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function in a thread; returns or raises what it returns or raises.

        When the caller is cancelled, this interrupts the function and returns only after it ended.
        """
        call = _Call(function, arguments)
        self._submit(call)
        cancelled = False
        while not call.future.done():
            try:
                await asyncio.wait({call.future}, timeout=AGAIN_SECONDS if cancelled else None)
            except asyncio.CancelledError:
                cancelled = True
                if self._closed:
                    call.interrupt()
                    # Otherwise asyncio logs the exception of a thread that ends later.
                    call.future.add_done_callback(asyncio.Future.exception)
                    raise  # The worker stops and does not wait for a thread that may never end.
            if cancelled and not call.future.done():
                call.interrupt()
        if cancelled:
            call.future.exception()
            raise asyncio.CancelledError
        return call.future.result()

    def close(self) -> None:
        """Let each thread end after its current call."""
        with self._there_is_one:
            self._closed = True
            self._there_is_one.notify_all()

    def _submit(self, call: _Call) -> None:
        with self._there_is_one:
            self._calls.append(call)
            # Not `if not self._idle`: an idle thread that was notified counts as idle until it
            # runs.
            if self._idle < len(self._calls) and self._count < self._max:
                name = f"{IDLE_THREADS_NAME}-{self._count + 1}"
                try:
                    threading.Thread(target=self._run, name=name, daemon=True).start()
                except RuntimeError:
                    # The system has no more threads.  The caller fails the record, so its handler
                    # must not run later.
                    if not self._count:
                        self._calls.pop()
                        raise
                else:
                    # Only now: a thread that was counted and does not exist would be missed until
                    # the end of the worker.
                    self._count += 1
            self._there_is_one.notify()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call.run()
            del call  # Otherwise an idle thread keeps its last record in memory.

    def _next(self) -> _Call | None:
        with self._there_is_one:
            self._idle += 1
            try:
                while not self._calls:
                    if self._closed:
                        return None
                    self._there_is_one.wait()
                return self._calls.popleft()
            finally:
                self._idle -= 1


_OF_THREAD = threading.local()
"""Its ``call`` is the `_Call` that runs in this thread."""


@contextmanager
def also_interrupting(function: Callable[[], None]) -> Iterator[None]:
    """Call ``function``, too, when the handler of this thread is interrupted during the block.

    For handlers that wait for work in other threads: an interruption does not arrive in a wait.
    It is called on the worker's event loop, maybe several times, and must not block.
    """
    call: _Call | None = getattr(_OF_THREAD, "call", None)
    if call is None:  # The handler is called by something else, such as a test.
        yield
        return
    call.also = function
    try:
        yield
    finally:
        call.also = None


def as_error(error: BaseException) -> BaseException:
    """Return the error in a form that a future accepts; a future refuses StopIteration."""
    # Of the type, because `isinstance` asks an error of the application for its class.
    if issubclass(type(error), StopIteration):
        wrapped = RuntimeError("the handler raised StopIteration")
        wrapped.__cause__ = error
        return wrapped
    return error


def _raise_in(thread_id: int, error: type[BaseException] | None) -> None:
    target = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), target)


def _look_no_more() -> None:
    """Raise and catch an exception in this thread, so that CPython stops checking for one.

    It also replaces an interruption that is pending for this thread.
    """
    try:
        _raise_in(threading.get_ident(), Interrupted)
        for _ in range(1_000):
            pass  # The exception is raised here at the latest.
    except Interrupted:
        pass
