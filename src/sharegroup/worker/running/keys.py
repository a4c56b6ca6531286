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

    __slots__ = ("_behind", "waiting")

    def __init__(self) -> None:
        self._behind: dict[Any, list[InHand]] = {}
        self.waiting = 0

    def admit(self, one: InHand) -> bool:
        """Whether it may run; else it waits behind its key."""
        if one.key is None:
            return True
        behind = self._behind.get(one.key)
        if behind is None:
            self._behind[one.key] = []
            return True
        insort(behind, one, key=_place)
        self.waiting += 1
        return False

    def done(self, one: InHand) -> InHand | None:
        """It is settled; what may run now in its place."""
        if one.key is None:
            return None
        behind = self._behind[one.key]
        if not behind:
            del self._behind[one.key]
            return None
        self.waiting -= 1
        return behind.pop(0)

    def take(self, *, delivered_below: int) -> list[InHand]:
        """What waits and was delivered less often; it doesn't wait any more, and has no key."""
        taken = []
        for key, behind in self._behind.items():
            taken += [one for one in behind if one.delivery.delivery_count < delivered_below]
            self._behind[key] = [
                one for one in behind if one.delivery.delivery_count >= delivered_below
            ]
        for one in taken:
            one.key = None
        self.waiting -= len(taken)
        return taken

    def __iter__(self) -> Iterator[InHand]:
        return (one for behind in self._behind.values() for one in behind)


def _place(one: InHand) -> tuple[str, int, int]:
    delivery = one.delivery
    return delivery.topic, delivery.partition, delivery.offset
