"""Records of one partition that were handed out as columns, with the acknowledgement of each.

    offsets   7   8   9  12  13  14        ascending; gaps are left out
    types     A   A   -   R   -   -        A accepted, R released, - open; later: sent

There is no object for a single record: a batch, or a filtered part of it, is settled by a few
numpy calls, and neighbours of one type are sent as runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.session.acknowledgements import AckRun

OPEN = -1
SENT = -2
SUPERSEDED = -3
"""The record was delivered again under another lock: settling this delivery has no effect."""

OffsetColumn = npt.NDArray[np.int64]


class HeldColumns:
    """Records that were handed out together as columns, with their acknowledgement types."""

    __slots__ = ("_types", "locks", "offsets", "open")

    def __init__(self, offsets: OffsetColumn, locks: Sequence[tuple[AcquisitionLock, int]]) -> None:
        assert len(offsets) > 0
        self.locks = locks
        """The locks, each with the number of its records."""
        self.open = len(offsets)
        """The number of records that are not settled."""
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

    def find(self, offsets: OffsetColumn) -> npt.NDArray[np.bool_]:
        """Return which of these offsets are in the columns and not sent yet."""
        # For an offset above the last one `searchsorted` returns the length, which is no index.
        indexes = np.minimum(np.searchsorted(self.offsets, offsets), len(self.offsets) - 1)
        is_found: npt.NDArray[np.bool_] = (self.offsets[indexes] == offsets) & (
            self._types[indexes] != SENT
        )
        return is_found

    def has_sent(self) -> bool:
        """Whether some records cannot be settled any more: they were sent or forgotten."""
        return bool((self._types == SENT).any())

    def settle(self, offsets: OffsetColumn | None, ack_type: int) -> list[AckRun]:
        """Settle these offsets, which must be in the columns, or with None all of them.

        Sets or changes the type of all that were not sent.  Returns superseded ones as runs.
        """
        where = slice(None) if offsets is None else np.searchsorted(self.offsets, offsets)
        types = self._types[where]
        is_stale = types == SUPERSEDED
        open_count = int(np.count_nonzero(is_stale | (types == OPEN)))
        stale = self.offsets[where][is_stale]
        self._types[where] = np.where(is_stale | (types == SENT), SENT, ack_type)
        self._count_down(open_count)
        return _runs(stale, np.full(len(stale), ack_type, dtype=np.int8))

    def settle_open(self, ack_type: int) -> None:
        """Settle all open records with this type."""
        self._types[self._types == OPEN] = ack_type
        self._count_down(self.open)

    def supersede(self, offsets: OffsetColumn | Sequence[int]) -> None:
        """Mark the open records among these offsets as superseded by another delivery."""
        offsets = np.asarray(offsets, dtype=np.int64)
        is_here = self.find(offsets)
        indexes = np.searchsorted(self.offsets, offsets[is_here])
        self._types[indexes[self._types[indexes] == OPEN]] = SUPERSEDED

    def take(self) -> list[AckRun]:
        """Return the settled records as runs, and mark them as sent."""
        ready = self._types >= 0
        if ready.all():
            runs = _runs(self.offsets, self._types)
        else:
            runs = _runs(self.offsets[ready], self._types[ready])
        self._types[ready] = SENT
        return runs

    def has_settled(self) -> bool:
        """Whether `take` would return acknowledgements."""
        return bool((self._types >= 0).any())

    def open_runs(self, locks: Iterable[AcquisitionLock], ack_type: int) -> list[AckRun]:
        """Return the open records under these locks as runs of this type."""
        runs: list[AckRun] = []
        for lock in locks:
            low, high = np.searchsorted(self.offsets, (lock.first, lock.end))
            open_offsets = self.offsets[low:high][self._types[low:high] == OPEN]
            runs += _runs(open_offsets, np.full(len(open_offsets), ack_type, dtype=np.int8))
        return runs

    def forget(self) -> None:
        """Forget the open records; they cannot be settled any more."""
        self._types[self._types < 0] = SENT
        self._count_down(self.open)

    def _count_down(self, count: int) -> None:
        self.open -= count
        assert self.open >= 0, f"{self.open} records open after {count} were settled"
        # All locks at once, because the lock of a settled record is not looked up. So a lock counts
        # as open while any record of these columns is.
        if count and not self.open:
            for lock, lock_count in self.locks:
                lock.open -= lock_count


def _runs(offsets: OffsetColumn, types: npt.NDArray[np.int8]) -> list[AckRun]:
    """Join neighbouring offsets of one type to runs; ``offsets`` ascend."""
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
