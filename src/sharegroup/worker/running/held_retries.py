"""Records that are held in memory, under their locks, for a short retry.

The record that is due first is at the top of a heap, and `next_due` sleeps until it is due.  Held
records are also counted by partition, because they count towards the broker's limit of locks in
a partition.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from sharegroup.worker.declarations.route import Route
from sharegroup.worker.ports import WorkerClock
from sharegroup.worker.running.taken_record import TakenRecord

SOONER_SECONDS = 0.001
"""The sleep is restarted only for a record that is due earlier by more than this."""


class HeldRetry(NamedTuple):
    """A held record, and the time of its retry in seconds of the clock."""

    due: float
    record: TakenRecord


class HeldRetries:
    """The held records of one group, ordered by the time of their retry."""

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

    def __init__(self, clock: WorkerClock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, TakenRecord]] = []
        # Decides between equal times, because records have no order.
        self._order = count()
        self._by_partition: Counter[tuple[str, int]] = Counter()
        self._added = asyncio.Event()
        self._sleep: asyncio.Task[None] | None = None
        self._until = 0.0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[TakenRecord]:
        return (record for _, _, record in self._heap)

    def of_partition(self, topic: str, partition: int) -> int:
        """The number of held records of this partition."""
        return self._by_partition[topic, partition]

    def add(self, record: TakenRecord, due: float) -> None:
        """Hold a record until ``due``, in seconds of the clock."""
        heapq.heappush(self._heap, (due, next(self._order), record))
        self._by_partition[record.topic_partition] += 1
        self.bytes += record.weight
        self._added.set()
        # Only then: a record that is due later does not change when the next one is due.
        if self._sleep is not None and due < self._until - SOONER_SECONDS:
            self._sleep.cancel()

    def take_oldest(self, topic_partition: tuple[str, int], below: int) -> list[HeldRetry]:
        """Remove and return all held records of a partition with offsets below ``below``."""

        def is_old(record: TakenRecord) -> bool:
            return record.topic_partition == topic_partition and record.delivery.offset < below

        return self._take(is_old)

    def take_of(self, route: Route) -> list[HeldRetry]:
        """Remove and return all held records of a route."""
        return self._take(lambda record: record.route is route)

    def _take(self, is_taken: Callable[[TakenRecord], bool]) -> list[HeldRetry]:
        taken = [HeldRetry(due, record) for due, _, record in self._heap if is_taken(record)]
        self._heap = [entry for entry in self._heap if not is_taken(entry[2])]
        heapq.heapify(self._heap)
        for held in taken:
            self._forget(held.record)
        return taken

    def take_all(self) -> list[HeldRetry]:
        """Remove and return all held records, in the order of their due times."""
        entries = sorted(self._heap, key=lambda entry: entry[:2])
        taken = [HeldRetry(due, record) for due, _, record in entries]
        self._heap.clear()
        self._by_partition.clear()
        self.bytes = 0
        return taken

    async def next_due(self) -> TakenRecord:
        """Wait until a record is due; remove and return it."""
        while True:
            if not self._heap:
                self._added.clear()
                await self._added.wait()
                continue
            self._until = self._heap[0][0]
            if self._until > self._clock.now():
                await self._sleep_until(self._until)
            else:
                _, _, record = heapq.heappop(self._heap)
                self._forget(record)
                return record

    async def _sleep_until(self, when: float) -> None:
        self._sleep = asyncio.ensure_future(self._clock.sleep_until(when))
        try:
            # `wait` does not raise the cancellation by which `add` ends the sleep.
            await asyncio.wait({self._sleep})
        finally:
            self._sleep.cancel()
            self._sleep = None

    def _forget(self, record: TakenRecord) -> None:
        topic_partition = record.topic_partition
        self._by_partition[topic_partition] -= 1
        # A count of 0 would stay for each partition that this process ever had.
        if not self._by_partition[topic_partition]:
            del self._by_partition[topic_partition]
        self.bytes -= record.weight
