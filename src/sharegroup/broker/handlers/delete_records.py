"""DeleteRecords (21): move the start of a log; records below it are gone for every group.

All partitions of a request are checked first and then moved with one write.
"""

from __future__ import annotations

from typing import NamedTuple

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i64

from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError, OffsetOutOfRange, PolicyViolation
from sharegroup.ids import TopicName
from sharegroup.storage.partition_log import PartitionLog

HIGH_WATERMARK = -1
"""The offset that a client sends to delete everything."""


class Moved(NamedTuple):
    """A log that is to begin at ``end``."""

    partition: i32
    log: PartitionLog
    end: int


class Refused(NamedTuple):
    """A partition that stays as it is."""

    partition: i32
    error: KafkaError


async def handle(
    parts: Parts, context: Context, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    found = [
        (topic.name, [_find(parts, TopicName(topic.name), one) for one in topic.partitions])
        for topic in request.topics
    ]
    moved = [one for _, partitions in found for one in partitions if isinstance(one, Moved)]
    failure = await _move(parts, moved)
    return DeleteRecordsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            DeleteRecordsTopicResult(
                name=name, partitions=tuple(_result(one, failure) for one in partitions)
            )
            for name, partitions in found
        ),
    )


def refuse(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(_failed(one.partition_index, error) for one in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _find(parts: Parts, name: TopicName, wanted: DeleteRecordsPartition) -> Moved | Refused:
    index = wanted.partition_index
    try:
        topic, log = parts.topics.named(name, index)
        if topic.is_internal:
            raise PolicyViolation(f"{name!r} is internal: its records cannot be deleted")
        if parts.topics.settings(topic).is_compacted_only:
            raise PolicyViolation(f"{name!r} has cleanup.policy=compact: nothing is deleted there")
        end = log.high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
        if not 0 <= end <= log.high_watermark:
            raise OffsetOutOfRange(
                f"{name}-{index}: cannot delete before offset {end}; the log holds "
                f"{log.start_offset} to {log.high_watermark}"
            )
    except KafkaError as error:
        return Refused(index, error)
    return Moved(index, log, end)


async def _move(parts: Parts, moved: list[Moved]) -> KafkaError | None:
    try:
        # A partition that is named twice begins at the larger offset.
        ends = {one.log.key: one.end for one in sorted(moved, key=lambda one: one.end)}
        await parts.topics.delete_before(ends)
    except KafkaError as error:
        return error
    return None


def _result(one: Moved | Refused, failure: KafkaError | None) -> DeleteRecordsPartitionResult:
    if isinstance(one, Refused):
        return _failed(one.partition, one.error)
    if failure is not None:
        return _failed(one.partition, failure)
    return DeleteRecordsPartitionResult(
        partition_index=one.partition,
        low_watermark=i64(one.log.start_offset),
        error_code=ErrorCode.none,
    )


def _failed(partition: i32, error: KafkaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=i64(-1), error_code=error_code(error)
    )
