"""What is in the segments of the logs that were asked for, piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from sharegroup.cli.formats.writing import Row, as_json
from sharegroup.cli.inspecting.coordinator_json import INTERNAL_TOPICS, coordinator_json
from sharegroup.cli.inspecting.data_directory import FoundLog
from sharegroup.cli.inspecting.segment_file import Damage, FoundBatch, SegmentFile
from sharegroup.wire.batches import NO_PRODUCER_ID, BatchHeader
from sharegroup.wire.compression import CODECS
from sharegroup.wire.records import Record

CODEC_NAMES = {number: name for name, number in CODECS.items()}
OFFSET_MAX = 2**63 - 1


class Wanted(NamedTuple):
    """Which part of a data directory: all, where nothing is named; offsets ``[first, end)``."""

    topics: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    first: int = 0
    end: int = OFFSET_MAX

    def logs(self, found: Iterable[FoundLog]) -> list[FoundLog]:
        """Those among the logs whose topic (by name or id) and partition are wanted."""
        return [
            log
            for log in found
            if (not self.topics or log.topic in self.topics or log.topic_id in self.topics)
            and (not self.partitions or log.partition in self.partitions)
        ]

    def overlaps(self, first: int, end: int) -> bool:
        return first < self.end and self.first < end


class Segment(NamedTuple):
    """One segment of a log and its file; ``is_last`` is the one that is written to."""

    log: FoundLog
    base_offset: int
    path: Path
    is_last: bool


def segments(log: FoundLog, wanted: Wanted) -> Iterator[Segment]:
    """The segments that hold wanted offsets, oldest first."""
    found = log.segments()
    ends = [following for _, (following, _) in pairwise(found)]
    for (base_offset, path), end in zip(found, [*ends, OFFSET_MAX], strict=True):
        if wanted.overlaps(base_offset, end):
            yield Segment(log, base_offset, path, end == OFFSET_MAX)


def segment_row(
    segment: Segment, pieces: Iterable[FoundBatch | Damage], size: int, wanted: Wanted
) -> dict[str, Any]:
    """One line about a segment, from all of its pieces."""
    batches, records, codecs = 0, 0, set()
    first_offset = end_offset = first_time = last_time = None
    state = "ok"
    for piece in pieces:
        if isinstance(piece, Damage):
            state = state_of(segment, piece) if state != "damaged" else state
            continue
        header = piece.header
        if not wanted.overlaps(header.base_offset, header.end_offset):
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
    """One line about a batch, with the facts of Kafka's ``kafka-dump-log``."""
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


def record_document(log: FoundLog, header: BatchHeader, record: Record) -> dict[str, Any]:
    """One record as JSON: of an internal topic what it means, of another what it holds."""
    time = record.timestamp
    row = Row(
        topic=log.topic,
        partition=log.partition,
        offset=record.offset,
        timestamp_ms=-1 if time is None else time,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
    document = as_json(row)
    classes = INTERNAL_TOPICS.get(log.topic)
    if classes is not None and not header.is_control:
        for name in ("key", "value", "key_base64", "value_base64", "headers"):
            document.pop(name, None)
        document |= coordinator_json(classes, record.key, record.value)
    if header.is_control:
        document["control"] = True
    return document


def state_of(segment: Segment, damage: Damage) -> str:
    """``torn`` where a crash, or a broker at this moment, stopped writing; else ``damaged``."""
    may_be_cut = segment.is_last and damage.reaches_end
    return "torn" if may_be_cut and damage.offset >= segment.log.recovery_point else "damaged"


def damage_text(segment: Segment, damage: Damage) -> str:
    """Where damage begins, what it is, and what follows from it, for a person."""
    where = (
        f"topic {segment.log.topic!r} partition {segment.log.partition}, {segment.path.name} "
        f"from byte {damage.position}, offset {damage.offset}: {damage.reason}"
    )
    if state_of(segment, damage) == "torn":
        return (
            f"{where}; the last {damage.end - damage.position} bytes are being written, or a "
            "crash tore them and the broker's next start cuts them off"
        )
    if damage.reaches_end:
        return f"{where}; nothing readable follows in this segment: restore it from a copy"
    return f"{where}; readable again from byte {damage.end}"


def open_segment(segment: Segment) -> SegmentFile:
    """The segment's file; the caller closes it."""
    return SegmentFile(segment.path, segment.base_offset)
