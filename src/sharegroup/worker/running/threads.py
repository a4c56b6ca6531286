"""Plain functions in threads, one thread for each handler that may run at a time.

A thread can't be cancelled.  What Python offers is an exception that is raised in it at the next
byte code that it executes (`PyThreadState_SetAsyncExc`): a loop in Python ends at once, a call
into C that blocks only when it returns.  Until then the thread, and with it the worker's slot,
is taken; whoever waits here waits as long.

    lane          call() ---------- cancelled: interrupt ------------- ended
    thread           | handler ............. Interrupted raised ...... |

While an exception waits for its thread CPython 3.11 looks for it in all threads, at each call, and
goes on looking after it was taken back, until one is raised somewhere; under a tracer or a profiler
it does nothing else any more.  So an interruption stands for a moment only, again and again, and is
always ended by one that is raised and caught (`_look_no_more`).

Threads are daemons, so that one that never returns does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import inspect
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

IDLE_THREADS_NAME = "sharegroup-handler"

STANDS_SECONDS = 0.05
"""A thread that executes Python is raised in long before."""
AGAIN_SECONDS = 1.0
"""One that was in C meanwhile is interrupted again after so long."""


class Interrupted(BaseException):
    """Raised in a handler's thread when its time is over, or its lock is lost."""


class _Call:
    """One call on its way through a thread."""

    __slots__ = (
        "_is_interrupted", "_lock", "_thread_id", "arguments", "context", "function", "future",
        "loop",
    )  # fmt: skip

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        self._is_interrupted = False

    def run(self) -> None:
        """In the thread."""
        result: Any = None
        error: BaseException | None = None
        try:
            try:
                self._begun()
                result = self.context.run(self.function, *self.arguments)
            finally:
                self._ended()
        except BaseException as raised:  # noqa: BLE001  It is handed to who waits.
            error = raised
        # The loop may be closed by now: then nobody waits for this.
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._tell, result, error)

    def interrupt(self) -> None:
        """Raise `Interrupted` in the handler, if it runs still, or before it begins."""
        with self._lock:
            self._is_interrupted = True
            if self._thread_id is not None:
                _raise_in(self._thread_id, Interrupted)
                self.loop.call_later(STANDS_SECONDS, self._take_back)

    def _take_back(self) -> None:
        """On the loop: it was raised by now, or its thread is in C."""
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

    def _ended(self) -> None:
        with self._lock:
            self._thread_id = None
            was_interrupted = self._is_interrupted
        if was_interrupted:
            _look_no_more()  # One that was on its way would hit the next handler.

    def _tell(self, result: Any, error: BaseException | None) -> None:
        if error is not None:
            self.future.set_exception(_as_error(error))
        elif inspect.iscoroutine(result):
            result.close()
            self.future.set_exception(
                TypeError("the handler returned a coroutine: declare it with `async def`")
            )
        else:
            self.future.set_result(result)


class HandlerThreads:
    """So many threads, begun when they are needed first."""

    __slots__ = ("_calls", "_closed", "_count", "_idle", "_max", "_there_is_one")

    def __init__(self, count: int) -> None:
        self._max = count
        self._count = 0
        self._idle = 0
        self._calls: deque[_Call] = deque()
        self._there_is_one = threading.Condition()
        self._closed = False

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns or raises in a thread; cancelled, only when it has ended."""
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
                    raise  # Nobody waits for a thread that never ends.
            if cancelled and not call.future.done():
                call.interrupt()
        if cancelled:
            call.future.exception()
            raise asyncio.CancelledError
        return call.future.result()

    def close(self) -> None:
        """Let the threads end when what they do has ended."""
        with self._there_is_one:
            self._closed = True
            self._there_is_one.notify_all()

    def _submit(self, call: _Call) -> None:
        with self._there_is_one:
            self._calls.append(call)
            if self._idle < len(self._calls) and self._count < self._max:
                self._count += 1
                name = f"{IDLE_THREADS_NAME}-{self._count}"
                threading.Thread(target=self._run, name=name, daemon=True).start()
            self._there_is_one.notify()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call.run()
            del call  # Else the last record lives as long as the thread is idle.

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


def _as_error(error: BaseException) -> BaseException:
    """StopIteration can't be put into a future."""
    if isinstance(error, StopIteration):
        wrapped = RuntimeError("the handler raised StopIteration")
        wrapped.__cause__ = error
        return wrapped
    return error


def _raise_in(thread_id: int, error: type[BaseException] | None) -> None:
    target = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), target)


def _look_no_more() -> None:
    """Have an exception raised in this thread, instead of any that waits for it, and catch it."""
    try:
        _raise_in(threading.get_ident(), Interrupted)
        for _ in range(1_000):
            pass  # It is raised here at the latest.
    except Interrupted:
        pass
