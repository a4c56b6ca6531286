"""Slices: long computations on the event loop, a few milliseconds at a time (ADR 0021).

A request that names thousands of partitions would hold the event loop for seconds.  Its work is
written as steps (`sharegroup.steps`) and passed to `Slices.run`:

    run ──▶ `ATTEMPT_STEPS` at once ──▶ done: the result, as from a plain call
                │
                └── not done: the attempt is dropped, the work begins again and takes turns

So small requests are answered at once.  Large ones repeat the steps of the attempt and wait for
each other.  At most `WORKING_MAX` of them are under way, because each holds its partial results;
the others hold only their request.  Work is dropped when its connection closes.

All slices of one turn of the event loop share `SLICE_MS`.  Turns for attempts and turns for large
work alternate, so neither keeps the other from its turn.  A slice ends between two steps, so work
must be read-only, or check again what may have changed.

Tasks that change things between awaits call `turn` between bounded pieces instead.

While other requests are answered, large work rests after each slice for `RESTS` times as long.
Otherwise a few requests that name everything would take most of the loop's time, because each
other request waits for one slice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from sharegroup.broker.clock import Clock
from sharegroup.steps import ATTEMPT_STEPS, Steps, Unfinished, attempt

T = TypeVar("T")

SLICE_MS = 5
"""Milliseconds of one turn of the event loop for all sliced work together."""

RESTS = 3
"""The rest after a slice of large work, in slices, while other requests are answered."""

WORKING_MAX = 8
"""Large computations that are under way at the same time."""


Count = Callable[[float], None]
"""Called with the seconds for which one piece of work held the event loop without a pause."""


class _Work:
    """One computation; ``steps`` is None while it is not under way."""

    __slots__ = ("answer", "count", "make", "owner", "steps")

    def __init__(
        self,
        make: Callable[[], Steps[Any]],
        owner: Hashable,
        count: Count | None,
        answer: asyncio.Future[Any],
    ) -> None:
        self.make = make
        self.owner = owner
        self.count = count
        self.answer = answer
        self.steps: Steps[Any] | None = None

    def step(self) -> bool:
        """Make one step; return whether there are more."""
        # `drop` cancels only the answer and leaves the work in its queue.
        if self.answer.done():  # Cancelled.
            return False
        try:
            if self.steps is None:
                self.steps = self.make()
            next(self.steps)
        except StopIteration as end:
            self.answer.set_result(end.value)
        except Exception as error:  # noqa: BLE001  Raised where the answer is awaited.
            self.answer.set_exception(error)
        else:
            return True
        return False

    def took(self, ms: int) -> None:
        """Count the time of the steps since the last call."""
        if ms and self.count is not None:
            self.count(ms / 1000)

    def attempt(self) -> bool:
        """Make the first steps; return True if the work is done, otherwise drop them."""
        for _ in range(ATTEMPT_STEPS):
            if not self.step():
                return True
        self.steps = None
        return False


class Slices:
    """All sliced work of one broker."""

    __slots__ = (
        "_clock",
        "_end_ms",
        "_new",
        "_others",
        "_others_then",
        "_paused",
        "_queued",
        "_rest_due",
        "_rest_ms",
        "_resting",
        "_ticking",
        "_working",
        "slice_count",
    )

    def __init__(self, clock: Clock, others: Callable[[], float] = lambda: 0.0) -> None:
        """``others`` returns a number that changes with each request that is answered."""
        self._clock = clock
        self._others = others
        self._others_then = 0.0
        """The value of ``others`` at the end of the last slice."""
        self._rest_due = False
        """Whether there was a slice since the last rest."""
        self._rest_ms = 0
        self._resting = False
        self._end_ms = 0
        """The time at which this turn's slice ends; only valid while `_ticking`."""
        self._ticking = False
        """Whether work was done in this turn of the event loop, or there is more to do."""
        self._new: deque[_Work] = deque()
        """Work that was not attempted yet."""
        self._queued: deque[_Work] = deque()
        """Large work that is not under way."""
        self._working: deque[_Work] = deque()
        self._paused: deque[asyncio.Future[None]] = deque()
        """Tasks that wait in `turn`."""
        self.slice_count = 0
        """Turns of the event loop in which large work or a paused task continued."""

    def __len__(self) -> int:
        """Return the number of computations and tasks that wait for a turn."""
        return len(self._new) + len(self._queued) + len(self._working) + len(self._paused)

    def run(
        self, make: Callable[[], Steps[T]], owner: Hashable, count: Count | None = None
    ) -> T | asyncio.Future[T]:
        """Return the result of ``make()``'s steps if they are few, otherwise a future of it.

        ``make`` may be called twice.  `drop` ends the work of its ``owner``.  ``count`` is called
        for the steps that are made later.
        """
        # While large work rests, new work need not wait for a turn.
        if not self._resting and (self._new or not self._has_time()):
            return self._wait(self._new, make, owner, count)
        result = attempt(make())
        return self.later(make, owner, count) if isinstance(result, Unfinished) else result

    def later(
        self, make: Callable[[], Steps[T]], owner: Hashable, count: Count | None = None
    ) -> asyncio.Future[T]:
        """Return a future of the result of ``make()``'s steps, when they are known to be many."""
        return self._wait(self._queued, make, owner, count)

    def _wait(
        self,
        queue: deque[_Work],
        make: Callable[[], Steps[T]],
        owner: Hashable,
        count: Count | None,
    ) -> asyncio.Future[T]:
        work = _Work(make, owner, count, asyncio.get_running_loop().create_future())
        queue.append(work)
        self._has_time()  # Schedules the next turn.
        return work.answer

    async def turn(self) -> None:
        """Give way to the event loop if this turn's slice is over."""
        if not self._has_time():
            paused = asyncio.get_running_loop().create_future()
            self._paused.append(paused)
            await paused

    async def finish(self, steps: Steps[T]) -> T:
        """Run ``steps`` in turns with other work, for tasks that change things; return the
        result.
        """
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await self.turn()

    def drop(self, owner: Hashable) -> None:
        """Cancel the work of ``owner``, because its results are no longer needed."""
        if len(self):
            for queue in (self._new, self._queued, self._working):
                for work in queue:
                    if work.owner == owner:
                        work.answer.cancel()

    def _has_time(self) -> bool:
        """Return whether this turn of the event loop has time left for sliced work."""
        now_ms = self._clock.now_ms()
        if not self._ticking:
            self._ticking = True
            self._end_ms = now_ms + SLICE_MS
            asyncio.get_running_loop().call_soon(self._go_on)
        return now_ms < self._end_ms

    def _go_on(self) -> None:
        """Make a turn for large work, after one in which new work was attempted."""
        self._resting = False
        if not len(self):
            self._ticking = self._rest_due = False
            return
        # New work takes its turn first, and without other requests nobody needs the rest.
        if self._rest_due and not self._new and self._others() != self._others_then:
            self._rest()
            return
        loop = asyncio.get_running_loop()
        began_ms = self._clock.now_ms()
        self._end_ms = began_ms + SLICE_MS
        self.slice_count += 1
        loop.call_soon(self._attempt_new)
        self._work()
        # One step may take longer than a slice: the import of a large module takes 20 ms.
        self._rest_ms = RESTS * max(SLICE_MS, self._clock.now_ms() - began_ms)
        self._rest_due = True
        self._others_then = self._others()

    def _rest(self) -> None:
        """Leave the event loop to other requests; new work is attempted at once meanwhile."""
        self._rest_due = False
        self._resting = True
        self._end_ms = self._clock.now_ms()
        # A timer of the loop, not of the broker's clock: a test may stop that clock, and the pause
        # must end nevertheless.
        asyncio.get_running_loop().call_later(self._rest_ms / 1000, self._go_on)

    def _work(self) -> None:
        """Do one slice of large work, or let one paused task continue."""
        # Every second slice, so that neither paused tasks nor large work wait for the other kind.
        if self._paused and (self.slice_count & 1 or not (self._working or self._queued)):
            paused = self._paused.popleft()
            if not paused.done():
                paused.set_result(None)  # It runs in the next turn, with the time left there.
            return
        now_ms = self._clock.now_ms()
        while now_ms < self._end_ms:
            while self._queued and len(self._working) < WORKING_MAX:
                self._working.append(self._queued.popleft())
            if not self._working:
                return
            now_ms = self._work_until_end(self._working[0], now_ms)
        # The next slice begins with another computation, so a short one does not wait for a long
        # one.
        self._working.rotate(-1)

    def _work_until_end(self, work: _Work, began_ms: int) -> int:
        """Make steps until the slice is over or the work is done; return the time then, in ms."""
        has_more = True
        now_ms = began_ms
        while has_more and now_ms < self._end_ms:
            has_more = work.step()
            now_ms = self._clock.now_ms()
        if not has_more:
            self._working.popleft()
        work.took(now_ms - began_ms)
        return now_ms

    def _attempt_new(self) -> None:
        """Make a turn for new work; work that comes during this turn is attempted at once."""
        self._end_ms = self._clock.now_ms() + SLICE_MS
        asyncio.get_running_loop().call_soon(self._go_on)
        while self._new and self._clock.now_ms() < self._end_ms:
            work = self._new.popleft()
            began_ms = self._clock.now_ms()
            if not work.attempt():
                self._queued.append(work)
            work.took(self._clock.now_ms() - began_ms)
