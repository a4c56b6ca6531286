"""Records of one partition that went out as columns, and what became of each.

    offsets   7   8   9  12  13  14        ascending; gaps are nobody's
    types     A   A   -   R   -   -        A accepted, R released, - open; later: sent

No record has an object or an entry of its own: settling a batch, or a filtered part of it, is
a handful of numpy calls, and what is sent are the runs of equal neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from sharegroup.client.acknowledgements import AckRun
from sharegroup.client.locks import AcquisitionLock

OPEN = -1
SENT = -2
SUPERSEDED = -3
"""Delivered here again under another lock: settling it has no effect."""

Offsets = npt.NDArray[np.int64]


class HeldColumns:
    """See the module's text."""

    __slots__ = ("_types", "locks", "offsets", "open")

    def __init__(self, offsets: Offsets, locks: Sequence[tuple[AcquisitionLock, int]]) -> None:
        assert len(offsets) > 0
        self.locks = locks
        """The locks with how many of the records each has."""
        self.open = len(offsets)
        """How many are not settled."""
        self.offsets = offsets
        self._types = np.full(len(offsets), OPEN, dtype=np.int8)
        for lock, count in locks:
            lock.open += count

    @property
    def first(self) -> int:
        """The lowest offset."""
        return int(self.offsets[0])

    @property
    def end(self) -> int:
        """The offset after the highest."""
        return int(self.offsets[-1]) + 1

    def find(self, offsets: Offsets) -> npt.NDArray[np.bool_]:
        """Which of these are here and not sent yet."""
        at = np.minimum(np.searchsorted(self.offsets, offsets), len(self.offsets) - 1)
        found: npt.NDArray[np.bool_] = (self.offsets[at] == offsets) & (self._types[at] != SENT)
        return found

    def settle(self, offsets: Offsets, ack_type: int) -> list[AckRun]:
        """Settle these, which are here; what of them was superseded, as runs."""
        at = np.searchsorted(self.offsets, offsets)
        stale = at[self._types[at] == SUPERSEDED]
        self._types[stale] = SENT
        at = at[self._types[at] != SENT]
        self._count_down(len(stale) + int(np.count_nonzero(self._types[at] == OPEN)))
        self._types[at] = ack_type
        return _runs(self.offsets[stale], np.full(len(stale), ack_type, dtype=np.int8))

    def settle_open(self, ack_type: int) -> None:
        """Settle everything that is not."""
        self._types[self._types == OPEN] = ack_type
        self._count_down(self.open)

    def supersede(self, offsets: Offsets | Sequence[int]) -> None:
        """These were delivered here again; what of them is open has no effect any more."""
        offsets = np.asarray(offsets, dtype=np.int64)
        here = self.find(offsets)
        at = np.searchsorted(self.offsets, offsets[here])
        self._types[at[self._types[at] == OPEN]] = SUPERSEDED

    def take(self) -> list[AckRun]:
        """What is settled and not sent, as runs; it counts as sent."""
        ready = self._types >= 0
        if ready.all():
            runs = _runs(self.offsets, self._types)
        else:
            runs = _runs(self.offsets[ready], self._types[ready])
        self._types[ready] = SENT
        return runs

    def has_settled(self) -> bool:
        """Whether `take` would return something."""
        return bool((self._types >= 0).any())

    def open_runs(self, locks: Iterable[AcquisitionLock], ack_type: int) -> list[AckRun]:
        """What is open under these locks, as runs of this type."""
        runs: list[AckRun] = []
        for lock in locks:
            low, high = np.searchsorted(self.offsets, (lock.first, lock.end))
            still = self.offsets[low:high][self._types[low:high] == OPEN]
            runs += _runs(still, np.full(len(still), ack_type, dtype=np.int8))
        return runs

    def forget(self) -> None:
        """The application gave up what it was handed."""
        self._types[self._types < 0] = SENT
        self._count_down(self.open)

    def _count_down(self, count: int) -> None:
        self.open -= count
        assert self.open >= 0, f"{self.open} records open after {count} were settled"
        if count and not self.open:
            for lock, its_count in self.locks:
                lock.open -= its_count


def _runs(offsets: Offsets, types: npt.NDArray[np.int8]) -> list[AckRun]:
    """Ascending offsets with the type of each, as runs of neighbours of one type."""
    if not len(offsets):
        return []
    breaks = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(types) != 0)) + 1
    first = np.concatenate(([0], breaks))
    last = np.concatenate((breaks, [len(offsets)])) - 1
    return [
        AckRun(low, high + 1, ack_type)
        for low, high, ack_type in zip(
            offsets[first].tolist(), offsets[last].tolist(), types[first].tolist(), strict=True
        )
    ]
