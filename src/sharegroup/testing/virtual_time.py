"""Virtual time for asyncio: a loop that jumps to the next timer instead of sleeping.

It is for code that waits only for timers and other tasks, without sockets and threads. If every
task waits and no timer is set, the program could never continue. The loop then raises `Stuck`
instead of hanging.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
import time
from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from typing import Any, TypeVar

from sharegroup.faults.running_clock import ClockTimer, advance_ms

# A clock that tests advance by hand, so that a lock of 30 seconds expires at once.


class ManualClock:
    """A clock that stands still until `advance`; timers fire in the order of their due times.

    >>> clock = ManualClock()
    >>> timer = clock.call_at_ms(clock.now_ms() + 30_000, lambda: print("expired"))
    >>> clock.advance(29.9)
    >>> clock.advance(0.1)
    expired
    """

    __slots__ = ("_due", "_now_ms", "_order", "_wall_offset_ms")

    def __init__(self) -> None:
        self._now_ms = 1_000_000
        self._wall_offset_ms = time.time_ns() // 1_000_000 - self._now_ms
        self._order = count()
        self._due: list[tuple[int, int, ClockTimer]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return self._now_ms + self._wall_offset_ms

    def call_at_ms(self, when_ms: int, callback: Callable[[], None]) -> ClockTimer:
        timer = ClockTimer(callback)
        heapq.heappush(self._due, (when_ms, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Advance the clock and fire the due timers.

        Call it on the thread of the broker's event loop.  ValueError if it is negative.
        """
        until_ms = self._now_ms + advance_ms(seconds)
        while self._due and self._due[0][0] <= until_ms:
            due_ms, _, timer = heapq.heappop(self._due)
            self._now_ms = max(self._now_ms, due_ms)
            timer.fire()
        # A timer may have advanced the clock further.
        self._now_ms = max(self._now_ms, until_ms)


T = TypeVar("T")


class Stuck(Exception):
    """Every task waits and no timer is set, so the program would hang for ever."""


class _TimeTravel(selectors.BaseSelector):
    """A selector that advances the clock by ``timeout`` seconds instead of sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        entry = self._keys[fileobj] = selectors.SelectorKey(fileobj, descriptor, events, data)
        return entry

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # asyncio passes None if there are neither ready callbacks nor timers.
        if timeout is None:
            raise Stuck("every task waits and no timer is set")
        # ``timeout`` is the time until the next timer, or 0 if callbacks are ready.
        self.now += max(timeout, 0.0)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time; ``loop.time()`` starts at 0."""

    def __init__(self) -> None:
        self._travel = _TimeTravel()
        super().__init__(self._travel)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._travel.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` to its end without waiting for anything.

    >>> import asyncio
    >>> run(asyncio.sleep(3600, "an hour later"))
    'an hour later'
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
