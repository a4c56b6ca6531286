"""Records of one key one after the other, in this process.

    dispatched:   a1  b1  a2  a3  c1
    may run:      a1  b1  c1            a2 and a3 wait until a1 is settled, then a2 goes first

What waits behind a key is kept in the order of its offsets: a record that comes again, after its
lock ended, goes before those that were written after it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Any

from sharegroup.worker.running.in_hand import InHand


class Keys:
    """Which keys have a record that is ready or runs, and what waits behind it."""

    __slots__ = ("_queues", "waiting")

    def __init__(self) -> None:
        self._queues: dict[Any, list[InHand]] = {}
        """Of each key the record that may run, and then those that wait for its end."""
        self.waiting = 0

    def admit(self, one: InHand) -> bool:
        """Whether it may run; else it waits behind its key."""
        if one.key is None:
            return True
        queue = self._queues.get(one.key)
        if queue is None:
            self._queues[one.key] = [one]
            return True
        insort(queue, one, lo=1, key=_place)
        self.waiting += 1
        return False

    def done(self, one: InHand) -> InHand | None:
        """It is settled, or lost; what may run now in its place."""
        if one.key is None:
            return None
        queue = self._queues[one.key]
        if queue[0] is not one:
            queue.remove(one)  # It only waited: whoever runs does so still.
            self.waiting -= 1
            return None
        del queue[0]
        if not queue:
            del self._queues[one.key]
            return None
        self.waiting -= 1
        return queue[0]

    def take(self, *, delivered_below: int) -> list[InHand]:
        """What waits and was delivered less often; it doesn't wait any more, and has no key."""
        taken = [one for one in self if one.delivery.delivery_count < delivered_below]
        for queue in self._queues.values():
            queue[1:] = [one for one in queue[1:] if one.delivery.delivery_count >= delivered_below]
        for one in taken:
            one.key = None
        self.waiting -= len(taken)
        return taken

    def __iter__(self) -> Iterator[InHand]:
        """What waits."""
        return (one for queue in self._queues.values() for one in queue[1:])


def _place(one: InHand) -> tuple[str, int, int]:
    delivery = one.delivery
    return delivery.topic, delivery.partition, delivery.offset
