"""Opens the folder of a log and recovers the log after a crash.

The *recovery point* is an offset below which everything was on disk when the point was written.

    segments   [.............................][.............|.....]
                                                            ^ recovery point
               trusted: not read, nothing is cut            scanned: the first batch that is
                                                            not whole ends the log

Above it, a batch that is not whole, or does not follow the one before, marks the end of the writes.
The log is cut there, after the bytes behind it are set aside (`damage`).  Below it, such a batch is
damaged.  It is left in place: a read of it fails, and everything around it stays readable
(`log_reader`).

Index entries, producers and transactions of the scanned part are recreated.  A producer snapshot is
made durable before every recovery point, so the newest snapshot and the scan give the state.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import NamedTuple

from sharegroup.core.log.producer_room import ALL_PRODUCERS_MAX, ProducerRoom
from sharegroup.core.log.producer_state import ProducerStates
from sharegroup.errors import CorruptMessage
from sharegroup.storage.disk.checkpoint_files import read_file
from sharegroup.storage.disk.files import SEGMENT_BYTES_MAX, Buffer, Files
from sharegroup.storage.disk.folders import partition_of
from sharegroup.storage.disk.set_aside import SetAside
from sharegroup.storage.disk.stored_file import OpenFiles
from sharegroup.storage.recovery.damage import SEARCH_BYTES_MAX, cut_segment, cut_tail
from sharegroup.storage.recovery.producer_snapshot import SNAPSHOT_SUFFIX, decode_producers
from sharegroup.storage.recovery.producers import count_in, marker_of
from sharegroup.storage.segment.batch_scan import (
    PlacedBatch,
    headers,
    is_whole,
    is_whole_at,
    placed_in,
)
from sharegroup.storage.segment.boundaries import load_window
from sharegroup.storage.segment.index_file import RELATIVE_OFFSET_MAX
from sharegroup.storage.segment.segment import (
    INDEX_INTERVAL_BYTES,
    NO_TIMESTAMP,
    Segment,
    offset_of,
)
from sharegroup.storage.segment.swap import COMPACTED, finish_swaps
from sharegroup.wire.batches.batches import HEADER_BYTES, WITHOUT_PRODUCER
from sharegroup.wire.batches.markers import TransactionMarker

log = logging.getLogger(__name__)

LOG_SUFFIX = ".log"

SCAN_BYTES = 1 << 20
"""Recovery reads the log in pieces of this size."""

_OFFSET = struct.Struct(">q")

Produced = tuple[PlacedBatch, TransactionMarker | None, Segment | None]
"""A producer's batch, its transaction marker, and the segment whose index lacks the marker."""


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """The content of a log's folder after recovery."""

    segments: list[Segment]
    start_offset: int
    end_offset: int
    recovery_point: int
    verified_from: int
    """From this offset on this process has compared the batches with their checksums."""
    producers: ProducerStates


class CheckpointedOffsets(NamedTuple):
    """What the checkpoint files say of a log; an offset that they lack is 0."""

    start_offset: int
    recovery_point: int
    is_compacted: bool
    """Whether segments may have holes, even if the file `COMPACTED` is gone."""


def load_log(
    opened: OpenFiles,
    folder: str,
    offsets: CheckpointedOffsets,
    *,
    now_ms: int,
    set_aside: SetAside,
    producers_max: int = ALL_PRODUCERS_MAX,
) -> LoadedLog:
    """Open and recover the log in a folder; without a folder the log is empty."""
    files, recovery_point = opened.files, offsets.recovery_point
    names = files.names(folder) if files.exists(folder) else []
    # First: a crash in a swap leaves segments under temporary names (ADR 0011).
    names = finish_swaps(files, folder, names, recovery_point=recovery_point, set_aside=set_aside)
    bases = [base for name in names if (base := offset_of(name, LOG_SUFFIX)) is not None]
    if not bases:
        return _without_segments(folder, offsets)
    segments = [Segment(opened, folder, base) for base in bases]
    start_offset = _believed_start(segments, offsets)
    while len(segments) > 1 and segments[1].base_offset <= start_offset:
        # Deleted records: after a crash some of these files may exist and others may not.  Such a
        # gap must not look like the end of the log.
        segments.pop(0).remove()
    if offsets.is_compacted or COMPACTED in names:
        _expect_holes(files, folder, names, segments)
    active = _open_trusted(frozenset(names), segments, recovery_point)
    scan = _Scan(segments[active].end_offset)
    _scan_from(segments, active, scan, set_aside)
    end_offset = segments[-1].end_offset
    for segment in segments:
        # A file's own time is lost with every copy, so it proves no age (differences.md).
        segment.touched_ms = now_ms
    states, known_to = _newest_snapshot(files, folder, names, scan, ProducerRoom(producers_max))
    _count_producers(states, segments, scan, known_to, now_ms)
    if scan.batches or scan.cut_bytes:
        _make_durable(files, folder, segments[active:])
        _report(folder, end_offset, scan)
    return LoadedLog(
        segments,
        # The file of start offsets may be lost (then 0), and what was scanned may end below its
        # offset.
        start_offset=min(max(start_offset, segments[0].base_offset), end_offset),
        end_offset=end_offset,
        # Not the end: the new index entries are not on disk before a checkpoint (ADR 0001).
        recovery_point=scan.first_offset,
        verified_from=scan.first_offset,
        producers=states,
    )


def _expect_holes(files: Files, folder: str, names: list[str], segments: list[Segment]) -> None:
    # Compaction takes closed segments only, so a hole in the last one is damage (ADR 0011).
    for segment in segments[:-1]:
        segment.has_holes = True
    if COMPACTED not in names:
        # This time the offset of the last pass has told it, and that file may be lost next time.
        files.close(files.open(f"{folder}/{COMPACTED}", create=True))


def _report(folder: str, end_offset: int, scan: _Scan) -> None:
    log.info(
        "event=log_recovered folder=%s scanned_from=%d end_offset=%d batches=%d cut_bytes=%d",
        folder.rpartition("/")[2],
        scan.first_offset,
        end_offset,
        scan.batches,
        scan.cut_bytes,
    )


def _without_segments(folder: str, offsets: CheckpointedOffsets) -> LoadedLog:
    """Return an empty log that continues after the offsets of earlier records.

    A record with a reused offset would inherit the share groups' state of the earlier record.
    """
    first = max(offsets.start_offset, offsets.recovery_point)
    if offsets.recovery_point > offsets.start_offset:
        log.warning(
            "event=segments_missing folder=%s recovery_point=%d action='restore the folder from a "
            "copy before new records are written: its records are missing'",
            folder.rpartition("/")[2],
            offsets.recovery_point,
        )
    return LoadedLog([], first, first, first, 0, ProducerStates())


def _believed_start(segments: list[Segment], offsets: CheckpointedOffsets) -> int:
    """Return the start offset, or 0 if it cannot belong to this log.

    That is the case if it is above the end of the log: the log or the checkpoint file is that of
    another directory. With 0 no segment is removed.
    """
    last, start_offset = segments[-1], offsets.start_offset
    end = max(offsets.recovery_point, last.base_offset)
    # The cheap comparison first: `_end_of` reads all headers of the segment.
    if start_offset > end and start_offset > _end_of(last):
        log.warning(
            "event=start_offset_ignored file=%s start_offset=%d end_offset=%d",
            last.log.path,
            start_offset,
            _end_of(last),
        )
        return 0
    return start_offset


def _end_of(segment: Segment) -> int:
    """Return the offset where the last plausible batch of a segment ends."""
    size, end_offset = segment.log.size(), segment.base_offset
    for batch in headers(segment.log.read, 0, limit=size):
        end_offset = batch.end_offset
    return end_offset


@dataclass(slots=True)
class _Scan:
    """The result of the scan above the recovery point."""

    first_offset: int
    batches: int = 0
    cut_bytes: int = 0
    produced: list[Produced] = field(default_factory=list)
    """The batches of producers with a producer id."""


def _open_trusted(names: frozenset[str], segments: list[Segment], recovery_point: int) -> int:
    """Open the part below the recovery point; return the number of the segment that holds it.

    ``names`` are the names in the folder, listed once because a log may have thousands of segments.
    """
    active = max(bisect_right(segments, recovery_point, key=_base_offset) - 1, 0)
    unsound = []
    for segment, following in pairwise(segments[: active + 1]):
        segment.end_offset = following.base_offset
        segment.size = _file_size(segment)
        if not _load_indexes(names, segment):
            unsound.append(segment)
        segment.load_max_timestamp()
    segment = segments[active]
    segment.size = _file_size(segment)
    # The point may be below the first segment, if deletions have passed it since.
    segment.end_offset = max(recovery_point, segment.base_offset)
    if not _load_indexes(names, segment):
        unsound.append(segment)
    segment.size = _position_of_end(segment)
    if unsound:
        _index_transactions_anew(segments[: active + 1], unsound)
    # Entries above the recovery point are dropped: the scan adds those of the batches that it
    # finds.
    last_relative = segment.end_offset - 1 - segment.base_offset
    segment.index.truncate(segment.index.count_through(last_relative))
    segment.forget_times_from(segment.end_offset)
    segment.aborted.entries.truncate(segment.aborted.count_before(segment.end_offset))
    return active


def _file_size(segment: Segment) -> int:
    """Return the size of a segment's file, as far as batches can be in it.

    A sparse file can have any size: it must not count as records, for example in retention.
    """
    return min(segment.log.size(), SEGMENT_BYTES_MAX)


def _load_indexes(names: frozenset[str], segment: Segment) -> bool:
    """Read the index files; recreate missing offset and time indexes from the log.

    Returns whether the index of aborted transactions is valid, because recreating it takes the
    whole log.  A missing one counts as empty, as in Kafka, because most segments have none, and
    checking that would read all headers of all segments at each start.
    """
    index, time_index = segment.index, segment.time_index
    has_index = index.file.name in names
    if has_index:
        index.load(value_max=segment.size)
    if time_index.file.name in names:
        time_index.load(value_max=RELATIVE_OFFSET_MAX)
    # A smaller segment has no entry, so its file was never made.
    if not has_index and segment.size > INDEX_INTERVAL_BYTES:
        _index_anew(segment)
    elif not _times_agree(segment):
        _times_anew(segment)
    return segment.aborted.file.name not in names or segment.aborted.load(
        base_offset=segment.base_offset
    )


def _index_anew(segment: Segment) -> None:
    size, end_offset = segment.size, segment.end_offset
    batches = list(segment.headers(0))
    # `add_to_indexes` extends the segment, so it begins at 0.
    segment.size = 0
    for batch in batches:
        if batch.end_offset <= end_offset:
            segment.add_to_indexes(batch)
    segment.size, segment.end_offset = size, end_offset


def _times_agree(segment: Segment) -> bool:
    """Return whether the last entry of the time index matches a batch in the log.

    It is checked because retention deletes segments based on the time index.
    """
    last = segment.time_index.last
    if last is None:
        return segment.size == 0
    entry = segment.index.floor(last.value)
    offset = segment.base_offset + last.value
    for batch in segment.headers(0 if entry is None else entry.value):
        if batch.end_offset > offset:
            agrees = batch.end_offset == offset + 1 and batch.max_timestamp == last.key
            # The header of a damaged batch proves nothing against the index.
            return agrees or not is_whole_at(segment.log.read, batch.position, batch.size)
    return False


def _times_anew(segment: Segment) -> None:
    """Recreate the time index from the batches, unless one of them is damaged."""
    batches, end_max = list(segment.headers(0)), segment.base_offset + RELATIVE_OFFSET_MAX
    if not batches or batches[-1].end_position < segment.size:
        return
    # No entry can hold this offset: a header is damaged.
    if max(batch.end_offset for batch in batches) > end_max:
        return
    largest, indexed_to = NO_TIMESTAMP, 0
    newest: PlacedBatch | None = None
    segment.time_index.reset()
    for batch in batches:
        if batch.max_timestamp > largest:
            largest, newest = batch.max_timestamp, batch
        is_due = batch.end_position - indexed_to > INDEX_INTERVAL_BYTES or batch is batches[-1]
        if newest is not None and is_due:
            segment.time_index.append(largest, newest.end_offset - 1 - segment.base_offset)
            newest, indexed_to = None, batch.end_position


def _index_transactions_anew(segments: list[Segment], unsound: list[Segment]) -> None:
    """Recreate the indexes of aborted transactions of some segments from all batch headers.

    The next start trusts the indexes below the recovery point, so each new index must be durable
    before the old one is removed.
    """
    log.warning("event=transactions_indexed_anew folder=%s", segments[0].log.path)
    for segment in unsound:
        segment.aborted.entries.forget()
    states = ProducerStates()
    for segment in segments:
        lacks_entries = segment if segment in unsound else None
        for batch in segment.headers(0):
            is_counted = batch.end_offset <= segment.end_offset
            if is_counted and batch.producer_id not in WITHOUT_PRODUCER:
                marker = _marker_in(segment, batch)
                count_in(states, batch, marker, segment=lacks_entries, now_ms=0)
    for segment in unsound:
        segment.aborted.entries.replace()


def _position_of_end(segment: Segment) -> int:
    """Return the position of the segment's end offset in its file.

    If the batch before it is damaged, the batch at the end offset is searched for.
    """
    end_offset = segment.end_offset
    if end_offset == segment.base_offset:
        return 0
    window = load_window(segment, end_offset - 1)
    last_position = window.positions[-1]
    last = segment.header_at(last_position)
    if last is not None and last.end_position == window.end_position:
        return window.end_position
    log.warning(
        "event=log_damaged file=%s position=%d recovery_point=%d",
        segment.log.path,
        last_position,
        end_offset,
    )
    position = _find_batch(segment, end_offset, last_position)
    segment.is_sealed = position is None
    return segment.size if position is None else position


def _find_batch(segment: Segment, base_offset: int, position: int) -> int | None:
    """Search from ``position`` on for a whole batch with this base offset; return its position.

    Only `SEARCH_BYTES_MAX` bytes are searched, because most of a sparse file is a hole.
    """
    pattern = _OFFSET.pack(base_offset)
    for first in range(position, min(segment.size, position + SEARCH_BYTES_MAX), SCAN_BYTES):
        # A pattern across the border of two pieces is found in the first.
        data = segment.log.read(SCAN_BYTES + len(pattern) - 1, first)
        at = data.find(pattern)
        while at >= 0:
            header = segment.header_at(first + at)
            if header is not None and is_whole_at(segment.log.read, first + at, header.size):
                return header.position
            at = data.find(pattern, at + 1)
    return None


def _scan_from(segments: list[Segment], active: int, scan: _Scan, set_aside: SetAside) -> None:
    """Scan whole batches; cut the log where they end, and set aside the bytes behind."""
    expected = segments[active].end_offset
    for number in range(active, len(segments)):
        segment = segments[number]
        # A segment is missing or ends too early, so the log ends before this one.
        if number > active and segment.base_offset != expected:
            for cut in segments[number:]:
                scan.cut_bytes += cut.log.size()
                cut_segment(cut, expected, set_aside)
            del segments[number:]
            return
        if number > active:
            segment.index.reset()
            segment.time_index.reset()
            segment.aborted.entries.reset()
        file_size = segment.log.size()
        if not segment.is_sealed:
            _scan_segment(segment, _file_size(segment), scan)
        if segment.size < file_size:
            scan.cut_bytes += file_size - segment.size
            cut_tail(segment, file_size, set_aside)
        expected = segment.end_offset


def _make_durable(files: Files, folder: str, segments: list[Segment]) -> None:
    """Sync the scanned segments: after `kill -9` they may be only in the system's memory.

    Their records are readable from now on, so a loss of power must not remove them.
    """
    for segment in segments:
        segment.log.sync_now()
    files.sync_directory(folder)
    files.sync_directory(folder.rpartition("/")[0])


def _scan_segment(segment: Segment, file_size: int, scan: _Scan) -> None:
    """Extend the segment by the whole batches that follow one another from its size on."""
    chunk, chunk_position = memoryview(b""), -1
    while segment.size < file_size:
        at = segment.size - chunk_position
        header = placed_in(chunk[at : at + HEADER_BYTES], position=segment.size, limit=file_size)
        is_cut = header is None or at + header.size > len(chunk)
        if is_cut and chunk_position != segment.size:
            # The chunk ends within this batch: read one that begins here.
            chunk_position = segment.size
            chunk = memoryview(segment.log.read(SCAN_BYTES, chunk_position))
            continue
        if header is None:
            return
        follows = header.base_offset == segment.end_offset or (
            segment.has_holes and header.base_offset > segment.end_offset
        )
        if not follows:
            return
        batch = chunk[at : at + header.size]
        # A batch larger than a chunk is never in memory: its size may be damage.
        if not (
            is_whole_at(segment.log.read, segment.size, header.size) if is_cut else is_whole(batch)
        ):
            return
        segment.add_to_indexes(header)
        scan.batches += 1
        if header.producer_id not in WITHOUT_PRODUCER:
            scan.produced.append((header, _marker(header, batch), segment))


def _newest_snapshot(
    files: Files, folder: str, names: list[str], scan: _Scan, room: ProducerRoom
) -> tuple[ProducerStates, int]:
    """Return the producer states of the newest valid snapshot, and the offset that they reach.

    Without a valid snapshot the states are empty.  The offset is 0 then if a snapshot was damaged,
    so the producers of the whole log are counted.
    """
    damaged = False
    key = partition_of(folder.rpartition("/")[2])
    assert key is not None
    for name in reversed(names):
        offset = offset_of(name, SNAPSHOT_SUFFIX)
        if offset is None:
            continue
        if offset > scan.first_offset:
            # Its recovery point never became durable.  The scan gives the same state, and also the
            # aborted transactions of the scanned part, which a snapshot does not have.
            files.remove(f"{folder}/{name}")
            continue
        try:
            entries = decode_producers(read_file(files, f"{folder}/{name}"), key)
            states = ProducerStates.restored(entries, room)
        except CorruptMessage as error:
            log.warning("event=snapshot_ignored file=%s/%s reason=%r", folder, name, str(error))
            files.remove(f"{folder}/{name}")
            damaged = True
            continue
        # A checkpoint writes no snapshot if no producer has changed, so an older one is valid at
        # the recovery point as well, unless newer ones were damaged.
        return states, offset if damaged else max(offset, scan.first_offset)
    return ProducerStates(room), 0 if damaged else scan.first_offset


def _count_producers(
    states: ProducerStates, segments: list[Segment], scan: _Scan, known_to: int, now_ms: int
) -> None:
    """Update producer states by the batches from ``known_to`` on."""
    for batch, marker, segment in chain(_produced_below(segments, scan, known_to), scan.produced):
        if batch.base_offset >= known_to:
            count_in(states, batch, marker, segment=segment, now_ms=now_ms)
    # The scanned part is made durable before the log is used, so nothing of it will be undone.
    states.settle(segments[-1].end_offset)


def _produced_below(segments: list[Segment], scan: _Scan, known_to: int) -> Iterator[Produced]:
    """Iterate over producers' batches from ``known_to`` to the start of the scan, by headers."""
    for segment in segments:
        if known_to < segment.end_offset and segment.base_offset < scan.first_offset:
            for batch in segment.headers(0):
                if batch.base_offset >= scan.first_offset:
                    return
                if batch.producer_id not in WITHOUT_PRODUCER:
                    yield batch, _marker_in(segment, batch), None


def _marker_in(segment: Segment, batch: PlacedBatch) -> TransactionMarker | None:
    # Nothing below the recovery point has been checked, and a flipped bit must end no transaction.
    if not batch.is_control or not is_whole_at(segment.log.read, batch.position, batch.size):
        return None
    return _marker(batch, segment.log.read(batch.size, batch.position))


def _marker(batch: PlacedBatch, data: Buffer) -> TransactionMarker | None:
    """Return the marker in a batch, None if it is unreadable, so that the log can be opened."""
    try:
        return marker_of(batch, data)
    except CorruptMessage as error:
        log.warning("event=marker_ignored offset=%d reason=%r", batch.base_offset, str(error))
        return None


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
