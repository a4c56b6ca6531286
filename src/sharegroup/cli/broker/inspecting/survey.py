"""Describes segments, batches and records of selected logs, as rows and JSON documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sharegroup.cli.broker.inspecting.data_directory import FoundLog
from sharegroup.cli.broker.inspecting.segment_file import Damage, FoundBatch, SegmentFile
from sharegroup.cli.records.log_rows import coordinator_document, log_row
from sharegroup.ids import OFFSET_MAX
from sharegroup.internal_topics.coordinator_json import INTERNAL_TOPICS
from sharegroup.record_documents import as_json
from sharegroup.wire.batches.batches import NO_PRODUCER_ID, BatchHeader
from sharegroup.wire.batches.compression import CODECS
from sharegroup.wire.batches.markers import outcome_of
from sharegroup.wire.batches.records import DecodedRecord

CODEC_NAMES = {number: name for name, number in CODECS.items()}


class LogSelection(NamedTuple):
    """A selection of topics, partitions and offsets ``[first, end)``; empty sets select all."""

    topics: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    first: int = 0
    end: int = OFFSET_MAX

    def logs(self, found: Iterable[FoundLog]) -> list[FoundLog]:
        """Return the logs with a selected topic (by name or id) and partition."""
        return [
            log
            for log in found
            if (not self.topics or log.topic in self.topics or log.topic_id in self.topics)
            and (not self.partitions or log.partition in self.partitions)
        ]

    def overlaps(self, first: int, end: int) -> bool:
        """Return whether an offset of ``[first, end)`` is selected."""
        return first < self.end and self.first < end


class Segment(NamedTuple):
    """One segment of a log and its file; a broker appends to the one with ``is_last``."""

    log: FoundLog
    base_offset: int
    path: Path
    is_last: bool


def segments(log: FoundLog, selection: LogSelection) -> Iterator[Segment]:
    """Yield the segments with selected offsets, oldest first."""
    offsets_and_paths = log.segments()
    ends = [*(following for following, _ in offsets_and_paths[1:]), OFFSET_MAX]
    for (base_offset, path), end in zip(offsets_and_paths, ends, strict=False):
        if selection.overlaps(base_offset, end):
            yield Segment(log, base_offset, path, end == OFFSET_MAX)


def segment_row(
    segment: Segment, pieces: Iterable[FoundBatch | Damage], size: int, selection: LogSelection
) -> dict[str, Any]:
    """Return the row of a segment, computed from all its batches and damage."""
    batches, records, codecs = 0, 0, set()
    first_offset = end_offset = first_time = last_time = None
    state = "ok"
    for piece in pieces:
        if isinstance(piece, Damage):
            state = state_of(segment, piece) if state != "damaged" else state
            continue
        header = piece.header
        if not selection.overlaps(header.base_offset, header.end_offset):
            continue
        batches, records = batches + 1, records + header.record_count
        codecs.add(CODEC_NAMES.get(header.codec, str(header.codec)))
        first_offset = header.base_offset if first_offset is None else first_offset
        end_offset = header.end_offset
        times = [time for time in (first_time, header.first_timestamp) if time is not None]
        first_time, last_time = min(times), max(header.max_timestamp, last_time or -1)
    return {
        "topic": segment.log.topic,
        "partition": segment.log.partition,
        "segment": segment.base_offset,
        "bytes": size,
        "batches": batches,
        "records": records,
        "codec": ",".join(sorted(codecs)) or None,
        "first_offset": first_offset,
        "end_offset": end_offset,
        "first_timestamp": first_time,
        "last_timestamp": last_time,
        "state": state,
    }


def batch_row(segment: Segment, batch: FoundBatch) -> dict[str, Any]:
    """Return the row of a batch, with the facts that ``kafka-dump-log`` prints."""
    header = batch.header
    by_producer = header.producer_id != NO_PRODUCER_ID
    return {
        "topic": segment.log.topic,
        "partition": segment.log.partition,
        "segment": segment.base_offset,
        "position": batch.position,
        "bytes": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "codec": CODEC_NAMES.get(header.codec, str(header.codec)),
        "timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.has_log_append_time else "CreateTime",
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id if by_producer else None,
        "producer_epoch": header.producer_epoch if by_producer else None,
        "base_sequence": header.base_sequence if by_producer else None,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
    }


def record_document(log: FoundLog, header: BatchHeader, record: DecodedRecord) -> dict[str, Any]:
    """Return a record as a JSON document; records of internal topics are decoded."""
    row = log_row(log.topic, log.partition, record)
    if header.is_control:
        return {**as_json(row), "control": True, "marker": _marker_name(record.key)}
    classes = INTERNAL_TOPICS.get(log.topic)
    return as_json(row) if classes is None else coordinator_document(classes, row)


def _marker_name(key: bytes | None) -> str | None:
    """Return the outcome of the transaction that a control record ends; None if it ends none."""
    is_commit = outcome_of(key)
    return None if is_commit is None else "commit" if is_commit else "abort"


def state_of(segment: Segment, damage: Damage) -> str:
    """Return ``torn`` for an incomplete write at the end of a log, otherwise ``damaged``.

    A crash may have torn the write, or a broker is writing at this moment.
    """
    may_be_cut = segment.is_last and damage.reaches_end
    return "torn" if may_be_cut and damage.offset >= segment.log.recovery_point else "damaged"


def damage_text(segment: Segment, damage: Damage) -> str:
    """Return a message with the position, the reason and the consequence of damage."""
    location = (
        f"topic {segment.log.topic!r} partition {segment.log.partition}, {segment.path.name} "
        f"from byte {damage.position}, offset {damage.offset}: {damage.reason}"
    )
    if state_of(segment, damage) == "torn":
        return (
            f"{location}; the last {damage.end - damage.position} bytes are being written, or are "
            "incomplete because of a crash; then the next start of the broker removes them"
        )
    if damage.reaches_end:
        return f"{location}; nothing readable follows in this segment: restore it from a copy"
    return f"{location}; readable again from byte {damage.end}"


def open_segment(segment: Segment) -> SegmentFile:
    """Open the file of a segment; the caller closes it."""
    return SegmentFile(segment.path, segment.base_offset)


def opened_segments(
    log: FoundLog, selection: LogSelection
) -> Iterator[tuple[Segment, SegmentFile]]:
    """Yield the segments with selected offsets and their files, which the caller closes.

    A segment that a running broker has deleted since the folder was read is left out.
    """
    for segment in segments(log, selection):
        try:
            file = open_segment(segment)
        except FileNotFoundError:
            continue
        yield segment, file
