"""What happens to a log's folder when it is opened.

The *recovery point* is an offset below which everything was on disk when it was written down.

    segments   [.............................][.............|.....]
                                                            ^ recovery point
               trusted: not read, nothing is cut            scanned: the first batch that is
                                                            not whole ends the log

Above it, a batch that is not whole, or does not follow the one before, is where writing
stopped: the log is cut there.  Below it such a batch would be damage; it is left in place, the
read that meets it fails, and everything around it stays readable (`log_reader`).

Index entries, producers and transactions of the scanned part are taken in again.  A producer
snapshot is made durable before every recovery point, so state is that of the newest snapshot
plus the scan.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise

from sharegroup.core.producer_state import NO_PRODUCER_ID, ProducerStates
from sharegroup.errors import CorruptMessage
from sharegroup.storage.batch_scan import PlacedBatch, is_whole, placed_in
from sharegroup.storage.boundaries import load_window
from sharegroup.storage.checkpoint_files import read_file
from sharegroup.storage.files import Buffer, Files
from sharegroup.storage.producer_snapshot import decode_producers
from sharegroup.storage.producers import count_in, marker_of
from sharegroup.storage.segment import INDEX_INTERVAL_BYTES, RELATIVE_OFFSET_MAX, Segment
from sharegroup.storage.stored_file import OpenFiles
from sharegroup.storage.swap import COMPACTED, finish_swaps
from sharegroup.wire.batches import HEADER_BYTES
from sharegroup.wire.markers import TransactionMarker

log = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
SNAPSHOT_SUFFIX = ".snapshot"

SCAN_BYTES = 1 << 20
"""Recovery reads the log in pieces of this size."""

_OFFSET = struct.Struct(">q")

Produced = tuple[PlacedBatch, TransactionMarker | None, Segment | None]
"""A batch of a producer, its marker, and the segment whose index lacks it."""


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """What a log's folder holds at start."""

    segments: list[Segment]
    start_offset: int
    end_offset: int
    recovery_point: int
    verified_from: int
    """Batches from here on were checked against their checksums by this process."""
    producers: ProducerStates


def load_log(
    opened: OpenFiles, folder: str, *, start_offset: int, recovery_point: int, now_ms: int
) -> LoadedLog:
    """Open the folder of a log, or an empty log where there is none."""
    names = opened.files.names(folder) if opened.files.exists(folder) else []
    names = finish_swaps(opened.files, folder, names)
    bases = [int(name.removesuffix(LOG_SUFFIX)) for name in names if name.endswith(LOG_SUFFIX)]
    if not bases:
        return LoadedLog([], start_offset, start_offset, start_offset, 0, ProducerStates())
    segments = [Segment(opened, folder, base) for base in bases]
    while len(segments) > 1 and segments[1].base_offset <= start_offset:
        # Deleted records: a crash may have kept some of these files and not others, and the
        # hole between must not look like the end of the log.
        segments.pop(0).remove()
    for segment in segments[:-1]:
        segment.has_holes = COMPACTED in names
    active = _open_trusted(frozenset(names), segments, recovery_point)
    scan = _Scan(segments[active].end_offset)
    _scan_from(segments, active, scan)
    end_offset = segments[-1].end_offset
    for segment in segments:
        segment.touched_ms = now_ms
    states = _producers(opened.files, folder, names, segments, scan, now_ms=now_ms)
    if scan.batches or scan.cut_bytes:
        _make_durable(opened.files, folder, segments[active:])
        log.info(
            "event=log_recovered folder=%s scanned_from=%d end_offset=%d batches=%d cut_bytes=%d",
            folder.rpartition("/")[2],
            scan.first_offset,
            end_offset,
            scan.batches,
            scan.cut_bytes,
        )
    return LoadedLog(
        segments,
        start_offset=min(max(start_offset, segments[0].base_offset), end_offset),
        end_offset=end_offset,
        recovery_point=scan.first_offset,
        verified_from=scan.first_offset,
        producers=states,
    )


@dataclass(slots=True)
class _Scan:
    """What was found above the recovery point."""

    first_offset: int
    batches: int = 0
    cut_bytes: int = 0
    produced: list[Produced] = field(default_factory=list)
    """The batches of producers that have an id."""


def _open_trusted(names: frozenset[str], segments: list[Segment], recovery_point: int) -> int:
    """Take in what lies below the recovery point; the number of the segment it lies in.

    ``names`` are those of the folder: a log may have thousands of segments.
    """
    active = max(bisect_right(segments, recovery_point, key=_base_offset) - 1, 0)
    unsound = []
    for segment, following in pairwise(segments[: active + 1]):
        segment.end_offset = following.base_offset
        segment.size = segment.log.size()
        if not _load_indexes(names, segment):
            unsound.append(segment)
        segment.load_max_timestamp()
    segment = segments[active]
    segment.size = segment.log.size()
    segment.end_offset = max(recovery_point, segment.base_offset)
    if not _load_indexes(names, segment):
        unsound.append(segment)
    segment.size = _position_of_end(segment)
    if unsound:
        _index_transactions_anew(segments[: active + 1], unsound)
    last_relative = segment.end_offset - 1 - segment.base_offset
    segment.index.truncate(segment.index.count_through(last_relative))
    segment.forget_times_from(segment.end_offset)
    segment.aborted.entries.truncate(segment.aborted.count_before(segment.end_offset))
    return active


def _load_indexes(names: frozenset[str], segment: Segment) -> bool:
    """Read the index files; make missing ones from the log.

    Whether the one of aborted transactions can be believed: it is made from the whole log.
    """
    index, time_index = segment.index, segment.time_index
    found = index.file.name in names
    if found:
        index.load(value_max=segment.size)
    if time_index.file.name in names:
        time_index.load(value_max=RELATIVE_OFFSET_MAX)
    if not found and segment.size > INDEX_INTERVAL_BYTES:
        _index_anew(segment)
    return segment.aborted.file.name not in names or segment.aborted.load()


def _index_anew(segment: Segment) -> None:
    size, end_offset = segment.size, segment.end_offset
    batches = list(segment.headers(0))
    segment.size = 0
    for batch in batches:
        if batch.end_offset <= end_offset:
            segment.add_to_indexes(batch)
    segment.size, segment.end_offset = size, end_offset


def _index_transactions_anew(segments: list[Segment], unsound: list[Segment]) -> None:
    """Find the aborted transactions of some segments again, from the headers of all batches.

    Nothing is read anew below the recovery point by the next start, which believes what it finds:
    so the new index is durable before the old one goes.
    """
    log.warning("event=transactions_indexed_anew folder=%s", segments[0].log.path)
    for segment in unsound:
        segment.aborted.entries.forget()
    states = ProducerStates()
    for segment in segments:
        lacks_entries = segment if segment in unsound else None
        for batch in segment.headers(0):
            if batch.producer_id != NO_PRODUCER_ID and batch.end_offset <= segment.end_offset:
                marker = _marker_in(segment, batch)
                count_in(states, batch, marker, segment=lacks_entries, now_ms=0)
    for segment in unsound:
        segment.aborted.entries.replace()


def _position_of_end(segment: Segment) -> int:
    """Where the batch that begins at the segment's end offset is, or would be."""
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
    found = _find_batch(segment, end_offset, last_position)
    segment.is_sealed = found is None
    return segment.size if found is None else found


def _find_batch(segment: Segment, base_offset: int, position: int) -> int | None:
    """Search the bytes from ``position`` on for a whole batch with this base offset."""
    data = segment.log.read(segment.size - position, position)
    at = data.find(_OFFSET.pack(base_offset))
    while at >= 0:
        header = segment.header_at(position + at)
        if header is not None and is_whole(data[at : at + header.size]):
            return header.position
        at = data.find(_OFFSET.pack(base_offset), at + 1)
    return None


def _scan_from(segments: list[Segment], active: int, scan: _Scan) -> None:
    """Take in whole batches; cut the log where they end."""
    expected = segments[active].end_offset
    for number in range(active, len(segments)):
        segment = segments[number]
        if number > active:
            segment.index.reset()
            segment.time_index.reset()
            segment.aborted.entries.reset()
        file_size = segment.log.size()
        follows = number == active or segment.base_offset == expected
        if follows and not segment.is_sealed:
            _scan_segment(segment, file_size, scan)
        if not follows or segment.size < file_size:
            scan.cut_bytes += file_size - segment.size
            _cut(segments, number if follows else number - 1)
            return
        expected = segment.end_offset


def _make_durable(files: Files, folder: str, segments: list[Segment]) -> None:
    """Sync what was found: after `kill -9` it may be in the system's memory only.

    It is readable from now on, and nothing may be readable that the power can take away.
    """
    for segment in segments:
        segment.log.sync_now()
    files.sync_directory(folder)
    files.sync_directory(folder.rpartition("/")[0])


def _cut(segments: list[Segment], last: int) -> None:
    """The log ends with the segment number ``last``, at its size."""
    segments[last].log.truncate(segments[last].size)
    while len(segments) > last + 1:
        segments.pop().remove()


def _scan_segment(segment: Segment, file_size: int, scan: _Scan) -> None:
    """Count in the whole batches that follow one another from ``segment.size`` on."""
    chunk, chunk_position, chunk_bytes = memoryview(b""), segment.size, SCAN_BYTES
    while segment.size < file_size:
        at = segment.size - chunk_position
        header = placed_in(chunk[at : at + HEADER_BYTES], position=segment.size, limit=file_size)
        if header is None or at + header.size > len(chunk):
            if at == 0 and len(chunk) >= (HEADER_BYTES if header is None else header.size):
                return
            # The chunk ends here; go on with one that begins here and holds the whole batch.
            chunk_bytes = SCAN_BYTES if header is None else max(SCAN_BYTES, header.size)
            chunk = memoryview(segment.log.read(chunk_bytes, segment.size))
            chunk_position = segment.size
            if len(chunk) < HEADER_BYTES:
                return
            continue
        follows = header.base_offset == segment.end_offset or (
            segment.has_holes and header.base_offset > segment.end_offset
        )
        if not follows or not is_whole(chunk[at : at + header.size]):
            return
        segment.add_to_indexes(header)
        scan.batches += 1
        if header.producer_id != NO_PRODUCER_ID:
            marker = _marker(header, chunk[at : at + header.size])
            scan.produced.append((header, marker, segment))


def _producers(
    files: Files,
    folder: str,
    names: list[str],
    segments: list[Segment],
    scan: _Scan,
    *,
    now_ms: int,
) -> ProducerStates:
    """The newest snapshot that holds, and what was scanned above it."""
    end_offset = segments[-1].end_offset
    states, known_to, damaged = ProducerStates(), scan.first_offset, False
    for name in reversed([name for name in names if name.endswith(SNAPSHOT_SUFFIX)]):
        offset = int(name.removesuffix(SNAPSHOT_SUFFIX))
        if offset > scan.first_offset:
            # Its recovery point never became durable.  The scan tells all that it knows, and what
            # it does not: which transactions of the scanned part were aborted.
            files.remove(f"{folder}/{name}")
            continue
        try:
            found = decode_producers(read_file(files, f"{folder}/{name}"))
            states = ProducerStates.restored(found)
        except CorruptMessage as error:
            log.warning("event=snapshot_ignored file=%s/%s reason=%r", folder, name, str(error))
            files.remove(f"{folder}/{name}")
            damaged = True
            continue
        known_to = offset if damaged else max(offset, scan.first_offset)
        break
    else:
        known_to = segments[0].base_offset if damaged else known_to
    for batch, marker, segment in chain(_produced_below(segments, scan, known_to), scan.produced):
        if batch.base_offset >= known_to:
            count_in(states, batch, marker, segment=segment, now_ms=now_ms)
    states.settle(end_offset)
    return states


def _produced_below(segments: list[Segment], scan: _Scan, known_to: int) -> Iterator[Produced]:
    """Batches of producers from ``known_to`` to where the scan began, by their headers."""
    for segment in segments:
        if known_to < segment.end_offset and segment.base_offset < scan.first_offset:
            for batch in segment.headers(0):
                if batch.base_offset >= scan.first_offset:
                    return
                if batch.producer_id != NO_PRODUCER_ID:
                    yield batch, _marker_in(segment, batch), None


def _marker_in(segment: Segment, batch: PlacedBatch) -> TransactionMarker | None:
    if not batch.is_control:
        return None
    data = segment.log.read(batch.size, batch.position)
    return _marker(batch, data) if is_whole(data) else None


def _marker(batch: PlacedBatch, data: Buffer) -> TransactionMarker | None:
    """A marker that cannot be understood must not keep the log from being opened."""
    try:
        return marker_of(batch, data)
    except CorruptMessage as error:
        log.warning("event=marker_ignored offset=%d reason=%r", batch.base_offset, str(error))
        return None


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
