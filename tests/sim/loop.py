"""An event loop on virtual time that knows which process each callback belongs to.

Time stands still while there is something to do and then jumps to the next timer.  What runs
at the same instant runs in the order in which it was asked for, so a run is a function of its
inputs.

A simulated *process* is whatever stops, goes on and ends together: the broker, or one client.
A callback belongs to the process in whose context it was made (a context variable, which tasks
and callbacks inherit).  Pausing a process keeps its callbacks back, timers included, as SIGSTOP
does, while time goes on for everybody else; ending one drops them, as SIGKILL does.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol

from sharegroup.testing.virtual_time import Stuck

AT_ONE_INSTANT_MAX = 20_000
"""Callbacks without any time passing: more than this, and the program runs in a circle."""

ROUNDING_US = 0.000_1
"""Times come as seconds in floats."""

EXECUTOR_SECONDS = 0.000_5
"""Time that work in a thread takes."""

TIMERS_CANCELLED_MIN = 200
BURIAL_SECONDS = 60.0


class Process:
    """Something that is paused, resumed and ended as one."""

    __slots__ = ("context", "held", "is_cut_off", "is_ended", "is_paused", "name", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_cut_off = False
        """Whatever it still does reaches neither disk nor network."""
        self.is_ended = False
        self.is_paused = False
        self.held: deque[asyncio.Handle] = deque()
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """Unfinished ones, in the order in which they began."""
        self.context: Context = copy_context()
        self.context.run(_OWNER.set, self)

    def __repr__(self) -> str:
        return f"<{self.name}>"


_OWNER: ContextVar[Process | None] = ContextVar("owner", default=None)


class Net(Protocol):
    """What the loop asks of the network; see `tests.sim.network`."""

    def listen(self, factory: Callable[[], Any], host: str, port: int, owner: Process) -> Any: ...

    async def connect(self, factory: Callable[[], Any], port: int, owner: Process) -> Any: ...


class SimLoop(asyncio.BaseEventLoop):
    """See the module's text."""

    def __init__(self) -> None:
        super().__init__()
        self._now_us = 0
        self._at_this_instant = 0
        self.network: Net | None = None
        self.failures: list[BaseException] = []
        """What no task and no callback caught."""
        self.set_exception_handler(self._note_failure)
        self.set_task_factory(_make_task)

    def time(self) -> float:
        return self._now_us / 1_000_000

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        """Whoever waits at all waits for a microsecond or more.

        A clock that stands still would let him find that it is a little too soon, for ever.
        """
        if when > self.time():
            when = max(when, (self._now_us + 1) / 1_000_000)
        return super().call_at(when, callback, *args, context=context)

    @property
    def now_us(self) -> int:
        """Microseconds since the run began."""
        return self._now_us

    @property
    def now_ms(self) -> int:
        return self._now_us // 1_000

    def block(self, seconds: float) -> None:
        """Whoever runs now holds up everybody for this long, as a blocking call does."""
        self._now_us += round(seconds * 1_000_000)

    def start(self, process: Process, coroutine: Any, *, name: str = "") -> asyncio.Task[Any]:
        """Run a coroutine as part of a process."""
        task: asyncio.Task[Any] = self.create_task(
            coroutine, name=name or process.name, context=process.context
        )
        return task

    def pause(self, process: Process) -> None:
        process.is_paused = True

    def resume(self, process: Process) -> None:
        """Let everything that was held back happen now, in the order in which it was due."""
        process.is_paused = False
        while process.held:
            self._ready.append(process.held.popleft())

    def end(self, process: Process) -> None:
        """Nothing of the process runs any more."""
        process.is_ended = process.is_cut_off = True
        process.held.clear()

    def bury(self, processes: list[Process]) -> None:
        """Let the unfinished tasks of ended processes run to their ends, once all is over.

        It is for Python's sake, which complains of tasks that nobody finished.
        """
        for process in processes:
            self.end(process)
            process.is_ended = process.is_paused = False
        tasks = [task for process in processes for task in process.tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks, timeout=BURIAL_SECONDS))

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Threads would be no function of the inputs: the work is done here, a little later."""
        future = self.create_future()

        def work() -> None:
            if future.done():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  Raised where the result is awaited.
                future.set_exception(error)

        self.call_later(EXECUTOR_SECONDS, work)
        return future

    # What asyncio's base class asks for.

    def _run_once(self) -> None:
        if not self._ready:
            self._jump()
        self._collect_due()
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(_OWNER)
            if process is not None and (process.is_ended or process.is_paused):
                if process.is_paused and not process.is_ended:
                    process.held.append(handle)
                continue
            self._at_this_instant += 1
            handle._run()
        if self._at_this_instant > AT_ONE_INSTANT_MAX:
            raise Stuck(f"{self._at_this_instant} callbacks at {self.time():.6f} s")

    def _jump(self) -> None:
        """Move the clock to the next timer."""
        timers = self._scheduled
        while timers and timers[0]._cancelled:
            self._drop_first()
        if not timers:
            raise Stuck("every task waits and no timer is set")
        due_us = math.ceil(timers[0]._when * 1_000_000 - ROUNDING_US)
        if due_us > self._now_us:
            self._now_us = due_us
            self._at_this_instant = 0

    def _collect_due(self) -> None:
        timers, limit = self._scheduled, (self._now_us + ROUNDING_US) / 1_000_000
        while timers and timers[0]._when <= limit:
            handle = self._drop_first()
            if not handle._cancelled:
                self._ready.append(handle)
        cancelled = self._timer_cancelled_count
        if cancelled > TIMERS_CANCELLED_MIN and 2 * cancelled > len(timers):
            self._scheduled = [handle for handle in timers if not handle._cancelled]
            heapq.heapify(self._scheduled)
            self._timer_cancelled_count = 0

    def _drop_first(self) -> asyncio.TimerHandle:
        handle: asyncio.TimerHandle = heapq.heappop(self._scheduled)
        handle._scheduled = False
        if handle._cancelled:
            self._timer_cancelled_count -= 1
        return handle

    def _write_to_self(self) -> None:
        """There is one thread only: nobody has to be woken."""

    def _note_failure(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context["message"])
        if _owner() is None or not _owner().is_cut_off:
            self.failures.append(error)

    # Sockets

    def remove_reader(self, fd: object) -> bool:
        """Nothing is read by descriptor; a listener stops when it is closed."""
        return False

    async def create_server(
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        assert self.network is not None
        return self.network.listen(factory, host, port, _owner())

    async def create_connection(
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        assert self.network is not None
        return await self.network.connect(factory, port, _owner())


def _owner() -> Any:
    return _OWNER.get()


def _make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
) -> asyncio.Task[Any]:
    """A task that its process knows."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    process = (options.get("context") or copy_context()).get(_OWNER)
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda _: process.tasks.pop(task, None))
    return task
