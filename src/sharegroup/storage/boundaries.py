"""Where record batches begin: what is kept in memory, and how the rest is found again.

A read asks: which batches hold these offsets, and where are they in the file?  For the newest
batches of a log the answer is in memory (the *tail*, filled by appends).  For older ones a
*window* of batches is read from the segment's headers, beginning at the nearest index entry,
and a few windows are kept, one for each place where somebody reads along.

    segment     |b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|b|
    in memory           [ window  ]        [ window ]    [  tail    ]

Where compaction took batches out there is a *hole*: an entry of no bytes between two batches.
A read that begins in a hole begins with the batch behind it.

Both are bounded per log, in batches, so memory does not depend on how much is stored or how
small the batches are: at most `TAIL_BATCHES_MAX` + `WINDOWS_MAX` x `WINDOW_BATCHES` boundaries
of 16 bytes, about 50 KiB.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from sharegroup.storage.batch_scan import ChunkReader, PlacedBatch, header_at, is_whole
from sharegroup.storage.segment import Segment

TAIL_BATCHES_MAX = 2_048
WINDOW_BATCHES = 256
WINDOWS_MAX = 4


@dataclass(frozen=True, slots=True)
class BatchSpans:
    """Batches in order: the ``i``-th holds offsets ``[firsts[i], ends[i])``.

    Between two of them, and before the first, offsets may be missing: compaction took their
    records.
    """

    firsts: list[int]
    ends: list[int]
    total_bytes: int

    def __len__(self) -> int:
        return len(self.firsts)


class Boundaries:
    """Consecutive batches of one segment: their first offsets and positions."""

    __slots__ = ("end_offset", "end_position", "firsts", "positions", "segment")

    def __init__(self, segment: Segment, *, end_offset: int, end_position: int) -> None:
        self.segment = segment
        self.firsts = array("q")
        self.positions = array("q")
        self.end_offset = end_offset
        self.end_position = end_position

    def __len__(self) -> int:
        return len(self.firsts)

    def covers(self, segment: Segment, offset: int) -> bool:
        firsts = self.firsts
        return self.segment is segment and len(firsts) > 0 and firsts[0] <= offset < self.end_offset

    def add(self, first: int, position: int, *, end_offset: int, end_position: int) -> None:
        """Count in the batch that follows."""
        self.firsts.append(first)
        self.positions.append(position)
        self.end_offset = end_offset
        self.end_position = end_position

    def drop_first(self, count: int) -> None:
        del self.firsts[:count]
        del self.positions[:count]

    def truncate(self, end_offset: int) -> None:
        """Forget the batches from ``end_offset`` on, which is a boundary."""
        if end_offset >= self.end_offset:
            return
        keep = bisect_left(self.firsts, end_offset)
        if keep < len(self.firsts):
            self.end_position = self.positions[keep]
        self.end_offset = end_offset
        del self.firsts[keep:]
        del self.positions[keep:]

    def ending_at(self, index: int) -> int:
        """The position where the batch before ``index`` ends."""
        return self.positions[index] if index < len(self.positions) else self.end_position

    def select(self, offset: int, *, end: int, bytes_max: int, count_max: int) -> tuple[int, int]:
        """The batches ``[low, high)`` from the one with ``offset`` on, within the limits.

        The first is always taken, if it begins before ``end``; so does the last.
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
            high = bisect_right(positions, limit, low + 1, high) - 1
        return low, max(high, low + 1)

    def is_hole(self, index: int) -> bool:
        """Whether there is nothing but the batch that follows.

        No bytes at the end are no hole: the file is shorter than it was.
        """
        positions = self.positions
        return index + 1 < len(positions) and positions[index] == positions[index + 1]

    def ends(self, low: int, high: int) -> list[int]:
        """The end offsets of the batches ``[low, high)``."""
        found = self.firsts[low + 1 : high + 1].tolist()
        if len(found) < high - low:
            found.append(self.end_offset)
        return found


class BatchMap:
    """The boundaries of one log that are in memory; see the module's text."""

    __slots__ = ("_tail", "_windows")

    def __init__(self) -> None:
        self._tail: Boundaries | None = None
        self._windows: list[Boundaries] = []

    def append(self, batch: PlacedBatch) -> None:
        """Count in a batch at the end of the active segment."""
        tail = self._tail
        assert tail is not None
        tail.add(
            batch.base_offset,
            batch.position,
            end_offset=batch.end_offset,
            end_position=batch.end_position,
        )
        if len(tail) > TAIL_BATCHES_MAX:
            tail.drop_first(TAIL_BATCHES_MAX // 2)

    def begin(self, segment: Segment) -> None:
        """``segment`` takes the appends from now on."""
        if self._tail is not None:
            self._keep(self._tail)
        self._tail = Boundaries(segment, end_offset=segment.end_offset, end_position=segment.size)

    def truncate(self, active: Segment) -> None:
        """The log ends with ``active`` now, which may have become shorter."""
        end_offset = active.end_offset
        self._windows = [w for w in self._windows if w.end_offset <= end_offset]
        if self._tail is not None and self._tail.segment is active:
            self._tail.truncate(end_offset)
        else:
            self._tail = None
            self.begin(active)

    def forget(self, segment: Segment) -> None:
        """``segment`` is gone."""
        self._windows = [w for w in self._windows if w.segment is not segment]
        if self._tail is not None and self._tail.segment is segment:
            self._tail = None

    def around(self, segment: Segment, offset: int) -> Boundaries:
        """Boundaries that cover ``offset``, which the segment holds."""
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
    """Read headers until ``offset`` and some batches more are covered.

    Unless the segment has holes, every batch must begin where the one before it ended.  Where
    that fails the file is damaged: what lies between two readable places then counts as one
    batch, which nobody can read (its checksum fails) and which everybody can step over.
    """
    read = ChunkReader(segment.log.read).read
    first, position = _start(segment, offset)
    window = Boundaries(segment, end_offset=first, end_position=position)
    here = header_at(read, position, limit=segment.size)
    if segment.has_holes:
        first = _add_hole(window, here, first)
    while position < segment.size and first < segment.end_offset:
        if here is None or first + here.offset_count > segment.end_offset:
            following_first, following_position = _after_damage(segment, position, first)
            following = header_at(read, following_position, limit=segment.size)
        else:
            following_first, following_position = first + here.offset_count, here.end_position
            following = header_at(read, following_position, limit=segment.size)
            # A batch that does not follow: it lies about its base offset, or the one before
            # about its count.  The checksum covers the count only.
            if (
                following is not None
                and first < following.base_offset != following_first
                and not segment.has_holes
                and not is_whole(segment.log.read(here.size, position))
            ):
                following_first = following.base_offset
        window.add(first, position, end_offset=following_first, end_position=following_position)
        first, position, here = following_first, following_position, following
        if len(window) >= WINDOW_BATCHES:
            if window.end_offset > offset:
                break
            window.drop_first(WINDOW_BATCHES // 2)
        if segment.has_holes:
            first = _add_hole(window, here, first)
    if position >= segment.size and first < segment.end_offset:
        # The file is shorter than it was: what is missing counts as one damaged batch.
        end = segment.end_offset
        window.add(first, position, end_offset=end, end_position=position)
    return window


def _add_hole(window: Boundaries, following: PlacedBatch | None, first: int) -> int:
    """Where the batch begins that follows at ``first``, or behind the hole that begins there."""
    if following is None or following.base_offset <= first:
        return first
    if following.end_offset > window.segment.end_offset:
        return first  # No hole, it lies about its place.
    position = following.position
    window.add(first, position, end_offset=following.base_offset, end_position=position)
    return following.base_offset


def _start(segment: Segment, offset: int) -> tuple[int, int]:
    """The offset and position of a sound batch that holds ``offset`` or comes before it."""
    number = segment.index.count_through(offset - segment.base_offset)
    while number > 0:
        number -= 1
        found = _indexed_batch(segment, number)
        if found is not None:
            return found.base_offset, found.position
    return segment.base_offset, 0


def _after_damage(segment: Segment, position: int, first: int) -> tuple[int, int]:
    """The offset and position of the next sound batch that the index knows, or the end."""
    number = segment.index.count_through(first - segment.base_offset)
    for candidate in range(number, len(segment.index)):
        found = _indexed_batch(segment, candidate)
        if found is not None and found.position > position and found.base_offset > first:
            return found.base_offset, found.position
    return segment.end_offset, segment.size


def _indexed_batch(segment: Segment, number: int) -> PlacedBatch | None:
    """The batch of an index entry; None when its header does not agree with the entry."""
    entry = segment.index.entry(number)
    found = segment.header_at(entry.value)
    if found is None or found.end_offset - 1 - segment.base_offset != entry.key:
        return None
    return found
