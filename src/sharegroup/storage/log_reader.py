"""Finding and reading the batches of one log.

Every read is one ``pread`` of whole batches.  What this process has written, or checked when
it started, is handed on as it is.  Older batches lie on the disk since some earlier run, and
the disk may have damaged them: their checksums are compared on every read (2.7 microseconds
for 64 KiB).  A damaged batch answers `CorruptMessage`; the ones behind it can be read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from sharegroup.errors import CorruptMessage, KafkaStorageError
from sharegroup.storage.batch_scan import headers, is_whole
from sharegroup.storage.boundaries import BatchMap, BatchSpans, Boundaries
from sharegroup.storage.read_ahead import PIECE_BYTES_MAX, Place, ReadAhead
from sharegroup.storage.segment import Segment
from sharegroup.storage.whole_read import read_whole

NO_LIMIT = 2**62

Piece = tuple[Boundaries, int, int]
"""The batches ``[low, high)`` of a window."""


class LogReader:
    """See the module's text.  The caller has checked that the offsets are in the log."""

    __slots__ = ("_ahead", "_map", "_name", "_segments", "_verified_from")

    def __init__(
        self,
        name: str,
        segments: list[Segment],
        batch_map: BatchMap,
        *,
        verified_from: int,
        ahead: ReadAhead,
    ) -> None:
        """``segments`` is the log's own list, ascending; the log changes it."""
        self._name = name
        self._segments = segments
        self._map = batch_map
        self._verified_from = verified_from
        self._ahead = ahead

    def spans(self, offset: int, *, end: int, bytes_max: int, count_max: int) -> BatchSpans:
        firsts: list[int] = []
        ends: list[int] = []
        total = 0
        for window, low, high in self._pieces(
            offset, end=end, bytes_max=bytes_max, count_max=count_max
        ):
            if window.segment.has_holes:
                batches = [index for index in range(low, high) if not window.is_hole(index)]
                firsts += (window.firsts[index] for index in batches)
                ends += (window.ends(index, index + 1)[0] for index in batches)
            else:
                firsts += window.firsts[low:high].tolist()
                ends += window.ends(low, high)
            total += window.ending_at(high) - window.positions[low]
        return BatchSpans(firsts, ends, total)

    def read(self, offset: int, *, end: int, bytes_max: int) -> bytes:
        """Empty where there is no batch up to ``end``."""
        found = self._find(offset, end=end, bytes_max=bytes_max)
        if found is None:
            return b""
        first, place = found
        data = self._read(place)
        sound = self._sound_bytes(data, first, place[0])
        if sound == 0:
            raise self._damaged(first)
        return data if sound == len(data) else data[:sound]

    def read_whole(self, offset: int) -> Iterator[bytes]:
        """Everything from ``offset`` on; see `storage.whole_read`."""
        return read_whole(
            self._segments, offset, verified_from=self._verified_from, name=self._name
        )

    def read_range(self, first: int, *, end: int) -> bytes:
        parts: list[bytes] = []
        while first < end:
            found = self._find(first, end=end, bytes_max=NO_LIMIT)
            if found is not None:
                part_first, place = found
                piece = self._ahead.take(place)
                parts.append(self._sound(part_first, place) if piece is None else piece)
            first = self._segment_at(first).end_offset
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_ahead(self, first: int, *, end: int) -> None:
        """Have ready what `read_range` will be asked for, as far as it lies in one segment."""
        if not self._segments or first < self._segments[0].base_offset:
            return  # Deleted meanwhile.
        found = self._find(first, end=end, bytes_max=PIECE_BYTES_MAX)
        if found is None:
            return
        part_first, place = found
        if place[2] <= PIECE_BYTES_MAX and place not in self._ahead:
            self._ahead.keep(place, self._sound(part_first, place))

    def _sound(self, first: int, place: Place) -> bytes:
        """What lies there, which should begin with ``first``; CorruptMessage if any is damaged."""
        data = self._read(place)
        if self._sound_bytes(data, first, place[0]) < max(len(data), 1):
            raise self._damaged(first)
        return data

    def _find(self, offset: int, *, end: int, bytes_max: int) -> tuple[int, Place] | None:
        """The first offset of whole batches, and where they are, in one segment."""
        segment, first, position, size = None, offset, 0, 0
        for window, low, high in self._pieces(
            offset, end=end, bytes_max=bytes_max, count_max=NO_LIMIT
        ):
            if segment is None:
                segment, first = window.segment, window.firsts[low]
                position = window.positions[low]
            size = window.ending_at(high) - position
        return None if segment is None else (first, (segment, position, size))

    def _pieces(self, offset: int, *, end: int, bytes_max: int, count_max: int) -> Iterator[Piece]:
        """Batches from the one that holds ``offset`` on, window by window, in one segment."""
        if offset >= end or count_max <= 0:
            return
        segment = self._segment_at(offset)
        stop = min(end, segment.end_offset)
        taken = False
        while offset < stop and count_max > 0:
            window = self._around(segment, offset)
            low, high = window.select(offset, end=stop, bytes_max=bytes_max, count_max=count_max)
            if low == high:
                return
            size = window.ending_at(high) - window.positions[low]
            if taken and size > bytes_max:
                return
            yield window, low, high
            if high < len(window):
                return
            taken = True
            offset = window.end_offset
            bytes_max, count_max = bytes_max - size, count_max - (high - low)

    def _segment_at(self, offset: int) -> Segment:
        """The segment that holds ``offset``."""
        index = bisect_right(self._segments, offset, key=_base_offset) - 1
        assert index >= 0, f"{self._name}: offset {offset} lies before the first segment"
        return self._segments[index]

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
            raise KafkaStorageError(
                f"{self._name} segment={segment.base_offset} position={position}: {error}"
            ) from error

    def _sound_bytes(self, data: bytes, first: int, segment: Segment) -> int:
        """How many bytes of ``data``, which should begin with ``first``, are whole batches."""
        if first >= self._verified_from:
            return len(data)
        view, position, expected = memoryview(data), 0, first
        for batch in headers(lambda size, at: data[at : at + size], 0, limit=len(data)):
            follows = batch.base_offset == expected or (
                segment.has_holes and expected < batch.base_offset < segment.end_offset
            )
            if not follows or not is_whole(view[position : batch.end_position]):
                break
            position, expected = batch.end_position, batch.end_offset
        return position

    def _damaged(self, offset: int) -> CorruptMessage:
        return CorruptMessage(
            f"{self._name} offset={offset}: a batch on disk does not match its checksum"
        )


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
