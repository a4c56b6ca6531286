"""Maps offsets to the positions of record batches, partly in memory, partly from the headers.

A read needs to know which batches hold its offsets and where they are in the file.  For the newest
batches of a log this is in memory (the *tail*, filled by appends).  For older batches a *window* of
headers is read from the segment, beginning at the nearest index entry.  A few windows are kept,
one for each place that is being read.

    segment     |b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|
    in memory           [ window  ]        [ window ]    [  tail    ]

Where compaction removed batches there is a *hole*: an entry of zero bytes between two batches.
A read that begins in a hole begins with the batch behind it.

Tail and windows are bounded per log in batches, so memory does not depend on the size of the log
or of the batches: at most `TAIL_BATCHES_MAX` + `WINDOWS_MAX` x `WINDOW_BATCHES` boundaries of
16 bytes, about 50 KiB.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import sub
from typing import NamedTuple

from sharegroup.storage.segment.batch_scan import ChunkReader, PlacedBatch, header_at, is_whole_at
from sharegroup.storage.segment.segment import Segment

TAIL_BATCHES_MAX = 2_048
WINDOW_BATCHES = 256
WINDOWS_MAX = 4


@dataclass(frozen=True, slots=True)
class BatchSpans:
    """Batches in order: the ``i``-th holds offsets ``[firsts[i], ends[i])``.

    Between two batches, and before the first, offsets may be missing because compaction removed
    their records.
    """

    firsts: list[int]
    ends: list[int]
    total_bytes: int
    positions: Sequence[int] = ()
    """Where each batch begins in its segment, and then where the last one ends."""

    def __len__(self) -> int:
        return len(self.firsts)

    def size_of(self, first: int) -> int:
        """Return the size in bytes of the batch that begins at offset ``first``."""
        index = bisect_left(self.firsts, first)
        return self.positions[index + 1] - self.positions[index]


class ListedBatch(NamedTuple):
    """A batch of a log as its header describes it."""

    first: int
    end: int
    size: int
    is_control: bool


class Boundaries:
    """Consecutive batches of one segment: their first offsets and positions."""

    __slots__ = ("controls", "end_offset", "end_position", "firsts", "positions", "segment")

    def __init__(self, segment: Segment, *, end_offset: int, end_position: int) -> None:
        self.segment = segment
        self.firsts = array("q")
        self.positions = array("q")
        self.controls: set[int] = set()
        """The first offsets of the control batches; nearly always empty."""
        self.end_offset = end_offset
        self.end_position = end_position

    def __len__(self) -> int:
        return len(self.firsts)

    def covers(self, segment: Segment, offset: int) -> bool:
        """Return whether ``offset`` of this segment is in one of the batches."""
        firsts = self.firsts
        if self.segment is not segment or not firsts:
            return False
        return firsts[0] <= offset < self.end_offset

    def add(self, first: int, position: int, *, end_offset: int, end_position: int) -> None:
        """Add the batch that follows."""
        self.firsts.append(first)
        self.positions.append(position)
        self.end_offset = end_offset
        self.end_position = end_position

    def drop_first(self, count: int) -> None:
        """Forget the first ``count`` batches."""
        if self.controls:
            self.controls.difference_update(self.firsts[:count])
        del self.firsts[:count]
        del self.positions[:count]

    def truncate(self, end_offset: int) -> None:
        """Forget the batches from ``end_offset`` on. A batch must begin or end there."""
        if end_offset >= self.end_offset:
            return
        keep = bisect_left(self.firsts, end_offset)
        if keep < len(self.firsts):
            self.end_position = self.positions[keep]
        self.end_offset = end_offset
        if self.controls:
            self.controls.difference_update(self.firsts[keep:])
        del self.firsts[keep:]
        del self.positions[keep:]

    def ending_at(self, index: int) -> int:
        """Return the position where the batch before ``index`` ends."""
        return self.positions[index] if index < len(self.positions) else self.end_position

    def size_of(self, low: int, high: int) -> int:
        """Return the bytes of the batches ``[low, high)``."""
        return self.ending_at(high) - self.positions[low]

    def position_of(self, first: int) -> int:
        """Return the position of the first batch that begins at offset ``first`` or later."""
        return self.ending_at(bisect_left(self.firsts, first))

    def select(self, offset: int, *, end: int, bytes_max: int, count_max: int) -> tuple[int, int]:
        """Return the batches ``[low, high)`` from the one with ``offset`` on, within the limits.

        All of them begin before ``end``. The first is included even if it exceeds ``bytes_max``.
        """
        positions = self.positions
        low = bisect_right(self.firsts, offset) - 1
        while self.is_hole(low):
            low += 1
            if self.firsts[low] >= end:
                return low, low
        high = min(bisect_left(self.firsts, end, low + 1), low + count_max)
        limit = positions[low] + bytes_max
        if self.ending_at(high) > limit:
            # A batch ends where the next one begins, so the last one that begins within the limit
            # ends behind it.
            high = bisect_right(positions, limit, low + 1, high) - 1
        return low, max(high, low + 1)

    def is_hole(self, index: int) -> bool:
        """Return whether the entry is a hole: it has no bytes, and a batch follows it.

        An entry of no bytes at the end is not a hole: there the file has become shorter.
        """
        positions = self.positions
        return index + 1 < len(positions) and positions[index] == positions[index + 1]

    def ends(self, low: int, high: int) -> list[int]:
        """Return the end offsets of the batches ``[low, high)``."""
        ends = self.firsts[low + 1 : high + 1].tolist()
        if len(ends) < high - low:
            ends.append(self.end_offset)
        return ends

    def listed(self, low: int, high: int) -> list[ListedBatch]:
        """Return the batches ``[low, high)``, without holes."""
        firsts, positions = self.firsts[low:high], self.positions[low : high + 1]
        if high == len(self.positions):
            positions.append(self.end_position)
        return [
            ListedBatch(first, end, size, first in self.controls)
            for first, end, size in zip(
                firsts, self.ends(low, high), map(sub, positions[1:], positions), strict=False
            )
            if size
        ]


class BatchMap:
    """The boundaries of one log that are in memory: the tail and a few windows."""

    __slots__ = ("_tail", "_windows")

    def __init__(self) -> None:
        self._tail: Boundaries | None = None
        self._windows: list[Boundaries] = []

    def append(self, batch: PlacedBatch) -> None:
        """Add a batch at the end of the active segment."""
        tail = self._tail
        assert tail is not None
        tail.add(
            batch.base_offset,
            batch.position,
            end_offset=batch.end_offset,
            end_position=batch.end_position,
        )
        if batch.is_control:
            tail.controls.add(batch.base_offset)
        if len(tail.firsts) > TAIL_BATCHES_MAX:
            # Half of them at once: dropping one for each append would move the rest each time.
            tail.drop_first(TAIL_BATCHES_MAX // 2)

    def begin(self, segment: Segment) -> None:
        """Begin a new tail: ``segment`` takes the appends from now on."""
        if self._tail is not None:
            self._keep(self._tail)
        self._tail = Boundaries(segment, end_offset=segment.end_offset, end_position=segment.size)

    def truncate(self, active: Segment) -> None:
        """Forget the batches that were cut off a log; ``active`` is now its last segment."""
        end_offset = active.end_offset
        self._windows = [window for window in self._windows if window.end_offset <= end_offset]
        if self._tail is not None and self._tail.segment is active:
            self._tail.truncate(end_offset)
        else:
            self._tail = None
            self.begin(active)

    def forget(self, segment: Segment) -> None:
        """Forget the boundaries of a segment that was removed."""
        self._windows = [w for w in self._windows if w.segment is not segment]
        if self._tail is not None and self._tail.segment is segment:
            self._tail = None

    def around(self, segment: Segment, offset: int) -> Boundaries:
        """Return boundaries that cover ``offset``, which the segment holds."""
        if self._tail is not None and self._tail.covers(segment, offset):
            return self._tail
        for window in self._windows:
            if window.covers(segment, offset):
                return window
        window = load_window(segment, offset)
        self._keep(window)
        return window

    def _keep(self, window: Boundaries) -> None:
        if len(window):
            self._windows = [window, *self._windows[: WINDOWS_MAX - 1]]


def load_window(segment: Segment, offset: int) -> Boundaries:
    """Read headers until ``offset`` and some more batches are covered.

    Unless the segment has holes, every batch must begin where the one before it ended.  Otherwise
    the file is damaged.  The bytes between two sound batches then count as one batch.  It cannot be
    read, because its checksum does not match, but a reader can step over it.
    """
    read = ChunkReader(segment.log.read).read
    first, position = _start(segment, offset)
    window = Boundaries(segment, end_offset=first, end_position=position)
    batch = header_at(read, position, limit=segment.size)
    if segment.has_holes:
        first = _add_hole(window, batch, first)
    while position < segment.size and first < segment.end_offset:
        if batch is None or first + batch.offset_count > segment.end_offset:
            following_first, following_position = _after_damage(segment, position, first)
            following = header_at(read, following_position, limit=segment.size)
        else:
            following_first, following_position = first + batch.offset_count, batch.end_position
            following = header_at(read, following_position, limit=segment.size)
            if following is None or (
                first < following.base_offset != following_first and not segment.has_holes
            ):
                following_first, following_position = _doubtful_end(
                    segment, batch, following, first, following_first
                )
                following = header_at(read, following_position, limit=segment.size)
        window.add(first, position, end_offset=following_first, end_position=following_position)
        if batch is not None and batch.is_control:
            window.controls.add(first)
        first, position, batch = following_first, following_position, following
        if len(window) >= WINDOW_BATCHES:
            if window.end_offset > offset:
                break
            window.drop_first(WINDOW_BATCHES // 2)
        if segment.has_holes:
            first = _add_hole(window, batch, first)
    if position >= segment.size and first < segment.end_offset:
        # The file has become shorter: the missing part counts as one damaged batch.
        end = segment.end_offset
        window.add(first, position, end_offset=end, end_position=position)
    return window


def _doubtful_end(
    segment: Segment, batch: PlacedBatch, following: PlacedBatch | None, first: int, end_offset: int
) -> tuple[int, int]:
    """Return offset and position of the end of a batch behind which there is not the next one.

    Its header says that it ends with ``end_offset``; ``following`` is the header behind it.
    """
    if end_offset == segment.end_offset and batch.end_position == segment.size:
        return end_offset, batch.end_position
    # No checksum covers the length.  If the index has a batch before the end that it gives, it is
    # wrong, and sound batches would count as a part of this one.
    indexed_offset, indexed_position = _after_damage(segment, batch.position, first)
    if indexed_position < batch.end_position:
        return indexed_offset, indexed_position
    # The base offset of the next batch is wrong, or the count of this one.  The checksum covers
    # only the count, so it tells which one is wrong.
    if following is not None and not is_whole_at(segment.log.read, batch.position, batch.size):
        return following.base_offset, batch.end_position
    return end_offset, batch.end_position


def _add_hole(window: Boundaries, following: PlacedBatch | None, first: int) -> int:
    """Add a hole if there is one at ``first``; return the offset where the next batch begins."""
    if following is None or following.base_offset <= first:
        return first
    if following.end_offset > window.segment.end_offset:
        return first  # Not a hole: the base offset of the batch is damaged.
    position = following.position
    window.add(first, position, end_offset=following.base_offset, end_position=position)
    return following.base_offset


def _start(segment: Segment, offset: int) -> tuple[int, int]:
    """Return offset and position of a sound batch that holds ``offset`` or is before it."""
    number = segment.index.count_through(offset - segment.base_offset)
    while number > 0:
        number -= 1
        batch = _indexed_batch(segment, number)
        if batch is not None:
            return batch.base_offset, batch.position
    return segment.base_offset, 0


def _after_damage(segment: Segment, position: int, first: int) -> tuple[int, int]:
    """Return offset and position of the next sound batch in the index, or the segment's end."""
    number = segment.index.count_through(first - segment.base_offset)
    for candidate in range(number, len(segment.index)):
        batch = _indexed_batch(segment, candidate)
        if batch is not None and batch.position > position and batch.base_offset > first:
            return batch.base_offset, batch.position
    return segment.end_offset, segment.size


def _indexed_batch(segment: Segment, number: int) -> PlacedBatch | None:
    """Return the batch of an index entry, or None if its header does not match the entry."""
    entry = segment.index.entry(number)
    batch = segment.header_at(entry.value)
    # As in Kafka's offset index, the key is the last offset of the batch that begins at the
    # position.
    if batch is None or batch.end_offset - 1 - segment.base_offset != entry.key:
        return None
    return batch
