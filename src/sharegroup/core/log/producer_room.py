"""The limit on the number of producers that all partitions remember together.

Producer ids are free for any client, and each costs memory in every partition that it writes to.
Above the limit, partitions forget the producers that were silent for longest. The partitions with
the most producers forget first: they are cut to the same number, so producers of one partition do
not push out those of another. A producer with an open transaction is not forgotten.

A forgotten producer is treated like one that was silent for ``producer.id.expiration.ms``: its next
batch is accepted with any sequence. The only loss is that a duplicate is not recognised.
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol

ALL_PRODUCERS_MAX = 22_000
"""Number of producers of all partitions, by default; each takes up to `PRODUCER_BYTES`."""

PRODUCER_BYTES = 1_120
"""Memory of a producer in one partition with five batches, measured; 420 with one batch."""

_SPARE_PART = 8
"""Divisor of the limit that gives the room made at once, so few new producers need a search."""

FORGOTTEN_AT_ONCE = 256
"""Most producers that are forgotten at once to have spare room; that takes about 0.5 ms."""


class Remembering(Protocol):
    """The producers of one partition."""

    def __len__(self) -> int: ...

    @property
    def silent_count(self) -> int:
        """The number of producers that may be forgotten."""

    def forget_oldest(self, count: int) -> int:
        """Forget up to ``count`` producers that were silent for longest; return how many."""


class ProducerRoom:
    """The number of producers that some partitions remember, and its limit.

    There may be 20,000 partitions, so a search for those with the most producers would be slow.
    Partitions are therefore grouped by their number of producers to forget.
    """

    __slots__ = (
        "_by_silent",
        "_search_above",
        "_silent",
        "count",
        "forgotten_count",
        "producers_max",
        "search_count",
    )

    def __init__(self, producers_max: int = ALL_PRODUCERS_MAX) -> None:
        self.producers_max = producers_max
        self._search_above = producers_max
        self.count = 0
        """Number of producers, counted once for each partition."""
        self.forgotten_count = 0
        """Number of producers that were forgotten to make room."""
        self.search_count = 0
        """Number of searches for producers to forget."""
        self._silent: dict[Remembering, int] = {}
        """The number of producers that may be forgotten, for each partition where it is not 0."""
        self._by_silent: dict[int, dict[Remembering, None]] = {}
        """The partitions grouped by that number."""

    def limit_to(self, producers_max: int) -> None:
        """Set another limit."""
        self.producers_max = self._search_above = producers_max

    def join(self, member: Remembering) -> None:
        """Count the producers of one more partition."""
        self.update(member, len(member))

    def leave(self, member: Remembering) -> None:
        """Stop counting the producers of a partition that has joined."""
        self.count -= len(member)
        self._group(member, 0)

    def update(self, member: Remembering, count: int) -> None:
        """Add ``count``, which may be negative, for ``member``; make room if there are too many.

        Call it also when the number of producers that may be forgotten changes.
        """
        self.count += count
        self._group(member, member.silent_count)
        if self.count > self._search_above:
            spare = self.producers_max // _SPARE_PART
            self._make_room(
                min(
                    self.producers_max,
                    max(self.producers_max - spare, self.count - FORGOTTEN_AT_ONCE),
                )
            )
            # Producers with an open transaction cannot be forgotten. If they exceed the limit, the
            # next search waits for more producers, because it would find nothing now.
            above = self.count + spare if self.count > self.producers_max else 0
            self._search_above = max(self.producers_max, above)

    def _group(self, member: Remembering, silent: int) -> None:
        """Move the partition to the group with ``silent`` producers to forget."""
        before = self._silent.get(member, 0)
        if before == silent:
            return
        if before:
            group = self._by_silent[before]
            del group[member]
            if not group:
                del self._by_silent[before]
        if silent:
            self._silent[member] = silent
            self._by_silent.setdefault(silent, {})[member] = None
        else:
            del self._silent[member]

    def _make_room(self, count_max: int) -> None:
        """Cut the partitions with the most producers to one number, until ``count_max`` remain."""
        self.search_count += 1
        while self.count > count_max and self._by_silent:
            largest = max(self._by_silent)
            group = self._by_silent[largest]
            next_largest = max(
                (silent for silent in self._by_silent if silent < largest), default=0
            )
            surplus = self.count - count_max
            share = min(largest - next_largest, -(-surplus // len(group)))
            # With more partitions than producers to forget, some forget one and others none.
            for member in list(islice(group, surplus)):
                forgotten = member.forget_oldest(min(share, self.count - count_max))
                self.count -= forgotten
                self.forgotten_count += forgotten
                self._group(member, member.silent_count)
                if self.count <= count_max:
                    break
