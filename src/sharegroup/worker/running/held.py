"""Records that wait here, under their locks, for their next try.

The soonest is at the top of a heap, and one task sleeps until it is due.  What waits is counted
by partition too, because every lock that is held is one that a broker can't give to others.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

from sharegroup.worker.ports import Clock
from sharegroup.worker.running.in_hand import InHand

SOONER_SECONDS = 0.001
"""The sleep is begun anew only for what is due at least so much earlier."""

Ready = Callable[[InHand], None]


class Held:
    """See the module's text."""

    __slots__ = (
        "_added",
        "_by_partition",
        "_clock",
        "_heap",
        "_order",
        "_sleep",
        "_until",
        "bytes",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, InHand, Ready]] = []
        self._order = count()
        self._by_partition: Counter[tuple[str, int]] = Counter()
        self._added = asyncio.Event()
        self._sleep: asyncio.Task[None] | None = None
        self._until = 0.0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[InHand]:
        return (one for _, _, one, _ in self._heap)

    def of_partition(self, topic: str, partition: int) -> int:
        """How many of this partition wait."""
        return self._by_partition[topic, partition]

    def add(self, one: InHand, due: float, ready: Ready) -> None:
        """Call ``ready`` with it when it is due, in the seconds of the clock."""
        heapq.heappush(self._heap, (due, next(self._order), one, ready))
        self._by_partition[one.place] += 1
        self.bytes += one.weight
        self._added.set()
        if self._sleep is not None and due < self._until - SOONER_SECONDS:
            self._sleep.cancel()

    def take_oldest(self, topic_partition: tuple[str, int], below: int) -> list[InHand]:
        """All of a partition with offsets below this; they don't wait any more."""

        def is_old(one: InHand) -> bool:
            return one.place == topic_partition and one.delivery.offset < below

        taken = [one for one in self if is_old(one)]
        self._heap = [entry for entry in self._heap if not is_old(entry[2])]
        heapq.heapify(self._heap)
        for one in taken:
            self._forget(one)
        return taken

    def take_all(self) -> list[InHand]:
        """All that wait, the soonest first; they don't any more."""
        taken = [one for _, _, one, _ in sorted(self._heap, key=lambda entry: entry[:2])]
        self._heap.clear()
        self._by_partition.clear()
        self.bytes = 0
        return taken

    async def run(self) -> None:
        """Let go of what is due, for ever."""
        while True:
            if not self._heap:
                self._added.clear()
                await self._added.wait()
                continue
            self._until = self._heap[0][0]
            if self._until > self._clock.now():
                await self._sleep_until(self._until)
            else:
                _, _, one, ready = heapq.heappop(self._heap)
                self._forget(one)
                ready(one)

    async def _sleep_until(self, when: float) -> None:
        self._sleep = asyncio.ensure_future(self._clock.sleep_until(when))
        try:
            await asyncio.wait({self._sleep})
        finally:
            self._sleep.cancel()
            self._sleep = None

    def _forget(self, one: InHand) -> None:
        where = one.place
        self._by_partition[where] -= 1
        if not self._by_partition[where]:
            del self._by_partition[where]
        self.bytes -= one.weight
