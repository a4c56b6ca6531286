"""Finds and reads the record batches of one log.

Every read is one ``pread`` of whole batches.  Batches that this process has written, or checked
when it started, are returned unchecked.  The disk may have damaged batches of an earlier run, so
their checksums are compared when they are read (2.7 microseconds for 64 KiB).  The latest range of
compared batches is remembered, because a task of Spark reads what was acquired without its records.
The read of a damaged batch raises `CorruptMessage`; the batches behind it remain readable.  Damage
may look like a batch of gigabytes, so a large one is compared in pieces before it is read into
memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

from sharegroup.errors import CorruptMessage, KafkaStorageError
from sharegroup.storage.segment.batch_scan import headers, is_whole, is_whole_at
from sharegroup.storage.segment.boundaries import BatchMap, BatchSpans, Boundaries, ListedBatch
from sharegroup.storage.segment.read_ahead import PIECE_BYTES_MAX, Place, ReadAhead
from sharegroup.storage.segment.segment import Segment
from sharegroup.storage.segment.whole_read import read_whole

NO_LIMIT = 2**62

UNCHECKED_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of a batch of an earlier run that is read before its checksum was compared."""

Piece = tuple[Boundaries, int, int]
"""The batches with the indexes ``[low, high)`` of a window."""


class LogReader:
    """Reads the batches of one log.

    The caller has checked that the offsets are in the log.
    """

    __slots__ = ("_ahead", "_compared", "_map", "_name", "_segments", "_verified_from")

    def __init__(
        self,
        name: str,
        segments: list[Segment],
        batch_map: BatchMap,
        *,
        verified_from: int,
        ahead: ReadAhead,
    ) -> None:
        """``segments`` is the log's own list in ascending order; the log changes it."""
        self._name = name
        self._segments = segments
        self._map = batch_map
        self._verified_from = verified_from
        self._compared = (0, 0)
        """The offsets [first, end) of an earlier run whose batches were found sound."""
        self._ahead = ahead

    def spans(self, offset: int, *, end: int, bytes_max: int, count_max: int) -> BatchSpans:
        """Return the offsets of the batches from the one that holds ``offset`` up to ``end``.

        The batches are found by their headers.  There are at most ``count_max``, with at most
        ``bytes_max`` bytes; the first is included even if it is larger.
        """
        firsts: list[int] = []
        ends: list[int] = []
        positions = array("q")
        total = position = 0
        for window, low, high in self._pieces(
            offset, end=end, bytes_max=bytes_max, count_max=count_max
        ):
            if window.segment.has_holes:
                batches = [index for index in range(low, high) if not window.is_hole(index)]
                firsts += (window.firsts[index] for index in batches)
                ends += (window.ends(index, index + 1)[0] for index in batches)
                positions.extend(window.positions[index] for index in batches)
            else:
                firsts += window.firsts[low:high].tolist()
                ends += window.ends(low, high)
                positions += window.positions[low:high]
            position = window.ending_at(high)
            total += position - window.positions[low]
        positions.append(position)
        return BatchSpans(firsts, ends, total, positions)

    def bytes_from(self, offset: int, *, end: int) -> int:
        """Return the size in bytes of the batches in ``[offset, end)``.

        Returns `NO_LIMIT` if they span segments. Reads at most two pieces of batch headers.
        """
        if offset >= end:
            return 0
        segment = self._segment_at(offset)
        if end > segment.end_offset:
            return NO_LIMIT
        window = self._around(segment, offset)
        low, high = window.select(offset, end=end, bytes_max=NO_LIMIT, count_max=1)
        if low == high:
            return 0
        if end == segment.end_offset:
            return segment.size - window.positions[low]
        return self._around(segment, end).position_of(end) - window.positions[low]

    def read(self, offset: int, *, end: int, bytes_max: int) -> bytes:
        """Read whole batches, from the batch that holds ``offset`` up to ``end``.

        Returns no bytes if there is no batch before ``end``. Stops before a damaged batch; raises
        CorruptMessage if the first batch is damaged.
        """
        located = self._find(offset, end=end, bytes_max=bytes_max)
        if located is None:
            return b""
        first, last_end, place = located
        data = self._read(place)
        sound = self._sound_bytes(data, first, last_end, place[0])
        if sound == 0:
            raise self._damaged(first)
        return data if sound == len(data) else data[:sound]

    def read_whole(self, offset: int, *, piece_bytes: int) -> Iterator[bytes]:
        """Iterate over all batches from ``offset`` on; see `storage.segment.whole_read`."""
        return read_whole(
            self._segments,
            offset,
            verified_from=self._verified_from,
            name=self._name,
            piece_bytes=piece_bytes,
        )

    def read_range(self, first: int, *, end: int) -> bytes:
        """Return the batches that cover ``[first, end)``, without a limit of bytes.

        Pieces that `read_ahead` has read are used.  Raises CorruptMessage for a damaged batch.
        """
        parts: list[bytes] = []
        while first < end:
            located = self._find(first, end=end, bytes_max=NO_LIMIT)
            if located is not None:
                part_first, part_end, place = located
                piece = self._ahead.take(place)
                if piece is None:
                    piece = self._sound(part_first, part_end, place)
                parts.append(piece)
            first = self._segment_at(first).end_offset
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def listed(self, first: int, *, end: int) -> list[ListedBatch] | None:
        """Return the batches that `read_range` would read, without reading them.

        None if an earlier run of this process may have left damaged ones, so they must be read.
        """
        if not self._is_verified(first, end):
            return None
        batches: list[ListedBatch] = []
        while first < end:
            for window, low, high in self._pieces(
                first, end=end, bytes_max=NO_LIMIT, count_max=NO_LIMIT
            ):
                batches += window.listed(low, high)
            first = self._segment_at(first).end_offset
        return batches

    def read_ahead(self, first: int, *, end: int) -> None:
        """Read the batches that `read_range` will be asked for, within one segment."""
        if not self._segments or first < self._segments[0].base_offset:
            return  # The records were deleted in the meantime.
        located = self._find(first, end=end, bytes_max=PIECE_BYTES_MAX)
        if located is None:
            return
        part_first, part_end, place = located
        if place[2] <= PIECE_BYTES_MAX and place not in self._ahead:
            self._ahead.keep(place, self._sound(part_first, part_end, place))

    def _sound(self, first: int, end: int, place: Place) -> bytes:
        """Read the batches [first, end) at a place. CorruptMessage if one is damaged."""
        data = self._read(place)
        # No bytes at all are damage, too: the file has become shorter.
        if self._sound_bytes(data, first, end, place[0]) < max(len(data), 1):
            raise self._damaged(first)
        return data

    def _find(self, offset: int, *, end: int, bytes_max: int) -> tuple[int, int, Place] | None:
        """Return the offsets and the place of the batches within the limits, in one segment.

        Returns None if there is no batch before ``end``.
        """
        segment, first, last_end, position, size = None, offset, offset, 0, 0
        for window, low, high in self._pieces(
            offset, end=end, bytes_max=bytes_max, count_max=NO_LIMIT
        ):
            if segment is None:
                segment, first = window.segment, window.firsts[low]
                position = window.positions[low]
            last_end = window.ends(high - 1, high)[0]
            size = window.ending_at(high) - position
        if segment is None:
            return None
        if size > UNCHECKED_BYTES_MAX and not self._is_verified(first, last_end):
            self._check_first(segment, first, position)
        return first, last_end, (segment, position, size)

    def _check_first(self, segment: Segment, first: int, position: int) -> None:
        """Raise CorruptMessage if the batch that begins with ``first`` is large and damaged."""
        window = self._around(segment, first)
        low, _ = window.select(first, end=first + 1, bytes_max=0, count_max=1)
        size = window.ending_at(low + 1) - position
        if size <= UNCHECKED_BYTES_MAX:
            return
        try:
            header = segment.header_at(position)
            is_batch = header is not None and header.size == size
            if is_batch and is_whole_at(segment.log.read, position, size):
                return
        except OSError as error:
            raise self._unread(segment, position, error) from error
        raise self._damaged(first)

    def _pieces(self, offset: int, *, end: int, bytes_max: int, count_max: int) -> Iterator[Piece]:
        """Iterate by window over the batches from the one with ``offset`` on, in one segment."""
        if offset >= end or count_max <= 0:
            return
        segment = self._segment_at(offset)
        stop = min(end, segment.end_offset)
        has_yielded = False
        while offset < stop and count_max > 0:
            window = self._around(segment, offset)
            low, high = window.select(offset, end=stop, bytes_max=bytes_max, count_max=count_max)
            if low == high:
                return
            # Only the very first batch may exceed the limit, not the first of a later window.
            if has_yielded and window.size_of(low, high) > bytes_max:
                return
            yield window, low, high
            # A limit or `end` was reached within this window, so the next one has nothing for this
            # read.
            offset = window.end_offset
            if offset >= stop or high < len(window):
                return
            has_yielded = True
            bytes_max, count_max = bytes_max - window.size_of(low, high), count_max - (high - low)

    def _segment_at(self, offset: int) -> Segment:
        """Return the segment that holds ``offset``."""
        segments = self._segments
        # Most reads are of the newest records.
        if segments[-1].base_offset <= offset:
            return segments[-1]
        index = bisect_right(segments, offset, key=_base_offset) - 1
        assert index >= 0, f"{self._name}: offset {offset} lies before the first segment"
        return segments[index]

    def _around(self, segment: Segment, offset: int) -> Boundaries:
        try:
            return self._map.around(segment, offset)
        except OSError as error:
            raise KafkaStorageError(f"{self._name} offset={offset}: {error}") from error

    def _read(self, place: Place) -> bytes:
        segment, position, size = place
        try:
            return segment.log.read(size, position)
        except OSError as error:
            raise self._unread(segment, position, error) from error

    def _is_verified(self, first: int, end: int) -> bool:
        """Return whether this process has written, or compared, the batches [first, end)."""
        if first >= self._verified_from:
            return True
        return self._compared[0] <= first and min(end, self._verified_from) <= self._compared[1]

    def _note_compared(self, first: int, end: int) -> None:
        """Note that batches are sound; only one range is kept, which grows with each read."""
        known_first, known_end = self._compared
        if first <= known_end and known_first <= end:
            first, end = min(first, known_first), max(end, known_end)
        self._compared = first, end

    def _sound_bytes(self, data: bytes, first: int, end: int, segment: Segment) -> int:
        """Return how many leading bytes of ``data``, the batches [first, end), are sound."""
        if data and self._is_verified(first, end):
            return len(data)
        view, position, expected = memoryview(data), 0, first
        for batch in headers(lambda size, at: data[at : at + size], 0, limit=len(data)):
            # The checksum of a batch does not cover its base offset, so that is compared apart.
            follows = batch.base_offset == expected or (
                segment.has_holes and expected < batch.base_offset < segment.end_offset
            )
            if not follows or not is_whole(view[position : batch.end_position]):
                break
            position, expected = batch.end_position, batch.end_offset
        if position:
            self._note_compared(first, expected)
        return position

    def _unread(self, segment: Segment, position: int, error: OSError) -> KafkaStorageError:
        return KafkaStorageError(
            f"{self._name} segment={segment.base_offset} position={position}: {error}"
        )

    def _damaged(self, offset: int) -> CorruptMessage:
        return CorruptMessage(
            f"{self._name} offset={offset}: a batch on disk does not match its checksum"
        )


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
