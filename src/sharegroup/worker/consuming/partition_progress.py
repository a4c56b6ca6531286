"""The progress of a consumer group in one partition: the offset to commit, and its metadata.

    log      | done | done | runs | done | runs | done | not delivered
                           ^ offset to commit                     ^ next_offset
                                  '------------ finished ---'

Only contiguous offsets are committed; the finished records above are in the commit's metadata
(`commit_metadata`), so that the next owner skips them.

**Delivery counts.**  A share group's broker counts deliveries; here nobody does.  So a commit also
says, before records are delivered, up to which offset they may be delivered (`reserve`).  The next
owner after a crash delivers the unfinished records below that offset with a higher delivery count,
and the worker's rules for records that may have ended their process apply to them (ADR 0035).  An
owner that gives its partition up by itself takes the reservation back.

Reservations are ahead of the deliveries, so the usual commits are enough for them.  A reservation
ends exactly at the delivered records while these were delivered before, and in an idle partition.

Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from sharegroup.client.share.session.offset_set import OffsetSet, Range
from sharegroup.worker.consuming.commit_metadata import (
    CHARACTERS_MAX,
    NOTHING,
    OFFSETS_MAX,
    CommitState,
    DeliveryRange,
    written,
)
from sharegroup.worker.retrying.tier_log import Committed

RESERVED_MIN = 256
"""Records that are reserved ahead, at least."""
RESERVED_MAX = 100_000
FULL_PART = 0.75
"""Of the metadata's characters: from here on only records below the highest finished one run."""


class Rewound(Exception):
    """The log has other records now at offsets that were delivered, as after it was truncated."""


class PartitionProgress:
    """The finished, delivered and reserved records of one owned partition."""

    __slots__ = (
        "_asked", "_committed_next", "_finished", "_fresh", "_holes", "_low", "_prior",
        "_reserved", "ceiling", "next_offset",
    )  # fmt: skip

    def __init__(self, offset: int | None, state: CommitState) -> None:
        """``offset`` is the committed one; None without a commit."""
        self._low = offset
        """The lowest offset that is not finished; None before the first record."""
        self.next_offset = offset
        """The offset behind the delivered records; None before the first record."""
        self._finished = state.finished
        self._fresh: list[int] = []
        """Finished records that are not in `_finished` yet."""
        self._holes: list[Range] = []
        """Finished offsets without a record."""
        self._prior = state.deliveries
        """The delivery counts of earlier owners."""
        self._reserved = self._asked = -1
        """The end of the committed reservation, and of the one in the last `to_commit`."""
        self._committed_next: int | None = None
        """`next_offset` at the last `to_commit`."""
        self.ceiling: int | None = None
        """Only records below this offset are delivered, because the metadata is nearly full."""

    # Delivery.

    def deliver(self, offset: int) -> int | None:
        """Note that a record is next; returns its delivery count, or None if it is finished.

        Raises Rewound, and changes nothing, if the offset is below that of the record before.
        """
        if offset != self.next_offset:
            self._jump(offset)
        self.next_offset = offset + 1
        assert self._low is not None, "the first record has set it"
        # An earlier owner has finished it, and a commit may have passed it since.
        if offset < self._low or (self._finished and _has(self._finished, offset)):
            return None
        return self.prior_count(offset) + 1 if self._prior else 1

    def _jump(self, offset: int) -> None:
        expected = self.next_offset
        if expected is None:
            self._low = offset
        elif offset > expected:
            self._holes.append((expected, offset))
        else:
            raise Rewound(f"expected offset {expected} or above, found {offset}")

    def deliver_range(self, first: int, end: int) -> None:
        """Note that offsets without readable records are next."""
        self.deliver(first)
        self.next_offset = end

    def finish_range(self, first: int, end: int) -> None:
        """Note that these offsets are finished."""
        self._holes.append((first, end))

    def has_finished(self, offset: int) -> bool:
        """Whether a record is finished; for tests, as it may take long."""
        return (
            offset in self._fresh
            or (self._low is not None and offset < self._low)
            or _has(self._finished, offset)
        )

    def prior_count(self, offset: int) -> int:
        """The number of deliveries of a record by earlier owners."""
        index = bisect_right(self._prior, offset, key=_end_of)
        return self._prior[index].times if index < len(self._prior) else 0

    @property
    def fresh(self) -> list[int]:
        """Finished records are appended here: a call for each would cost as much as its work."""
        return self._fresh

    @property
    def is_reserved(self) -> bool:
        """Whether a commit has the reservation of all delivered records."""
        return self.next_offset is None or self.next_offset <= self._reserved

    @property
    def span(self) -> int:
        """The number of offsets from the lowest unfinished one, as of the last commit, on."""
        return 0 if self._low is None or self.next_offset is None else self.next_offset - self._low

    @property
    def is_ahead(self) -> bool:
        """Whether more than the delivered records are reserved.

        In an idle partition the next commit ends that: after a crash, new records would count as
        delivered before.
        """
        return self.next_offset is not None and self._reserved > self.next_offset

    def below(self, offset: int) -> PartitionProgress:
        """Return the progress of a new owner in a log that has other records from ``offset`` on.

        What is finished below stays finished, and what is not is delivered again.
        """
        if self._low is None or offset <= self._low:
            return PartitionProgress(offset, NOTHING)
        self._fold()
        low = min(self._low, offset)
        prior = tuple(
            DeliveryRange(min(entry.end, offset), entry.times)
            for index, entry in enumerate(self._prior)
            if index == 0 or self._prior[index - 1].end < offset
        )
        state = CommitState(self._finished.between(low, offset), prior, is_open=False)
        return PartitionProgress(low, state)

    # Commits.

    def to_commit(
        self, *, reserves: int, is_open: bool = True, characters_max: int = CHARACTERS_MAX
    ) -> Committed | None:
        """Return the offset and the metadata to commit; None before the first record.

        ``reserves`` is the number of records to reserve ahead.  Without ``is_open`` the
        reservation ends, because the partition is given up.
        """
        if self._low is None or self.next_offset is None:
            return None
        self._fold()
        low = self._low
        self._asked = self._reservation(self.next_offset, reserves) if is_open else -1
        self._committed_next = self.next_offset
        state = CommitState(self._finished, tuple(self._deliveries(low)), is_open)
        metadata = written(low, state, characters_max=characters_max)
        self._set_ceiling(low, len(metadata), characters_max)
        return Committed(low, metadata)

    def committed(self) -> None:
        """Note that the last `to_commit` was committed."""
        self._reserved = self._asked

    def _fold(self) -> None:
        """Add what was finished since the last commit to the finished set, and move `_low`."""
        assert self._low is not None
        if self._fresh or self._holes:
            fresh = OffsetSet.of_offsets(sorted(self._fresh))
            self._finished = self._finished | fresh | OffsetSet.of(self._holes)
            self._fresh.clear()
            self._holes.clear()
        if self._finished and self._finished.ranges[0][0] <= self._low:
            self._low = self._finished.ranges[0][1]
            self._finished = OffsetSet(self._finished.ranges[1:])
        self._prior = tuple(entry for entry in self._prior if entry.end > self._low)

    def _reservation(self, next_offset: int, reserves: int) -> int:
        # Records that earlier owners had: each delivery counts, so none is reserved ahead.
        if self._prior and next_offset < self._prior[-1].end:
            return next_offset
        if next_offset == self._committed_next:
            return next_offset  # Nothing was delivered since: the partition is idle.
        return max(self._reserved, next_offset + min(max(reserves, RESERVED_MIN), RESERVED_MAX))

    def _deliveries(self, low: int) -> Iterator[DeliveryRange]:
        first = low
        reserved = self._asked
        for end, times in (*self._prior, DeliveryRange(max(reserved, first), 0)):
            if first < reserved < end:
                yield DeliveryRange(reserved, times + 1)
                yield DeliveryRange(end, times)
            elif end > first:
                yield DeliveryRange(end, times + (end <= reserved))
            first = max(first, end)

    def _set_ceiling(self, low: int, characters: int, characters_max: int) -> None:
        highest = self._finished.ranges[-1][1] if self._finished else low
        is_full = (
            characters >= FULL_PART * characters_max or highest - low >= FULL_PART * OFFSETS_MAX
        )
        # Without room for any metadata, nothing is gained by waiting: records run twice.
        self.ceiling = highest if is_full and self._finished else None


def _has(offsets: OffsetSet, offset: int) -> bool:
    index = bisect_right(offsets.ranges, offset, key=_range_end)
    return index < len(offsets.ranges) and offsets.ranges[index][0] <= offset


def _end_of(entry: DeliveryRange) -> int:
    return entry.end


def _range_end(entry: Range) -> int:
    return entry[1]
