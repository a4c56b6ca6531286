"""DeleteRecords (21): move the start of a log; records below it are gone for every group."""

from __future__ import annotations

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

HIGH_WATERMARK = -1
"""The offset that a client sends to delete everything."""


async def handle(
    parts: Parts, context: Context, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        results = [
            await _partition(parts, TopicName(topic.name), wanted) for wanted in topic.partitions
        ]
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(results)))
    return DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


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


async def _partition(
    parts: Parts, name: TopicName, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        topic, log = parts.topics.named(name, wanted.partition_index)
        if topic.is_internal:
            raise PolicyViolation(f"{name!r} is internal: its records cannot be deleted")
        end = log.high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
        if not 0 <= end <= log.high_watermark:
            raise OffsetOutOfRange(
                f"{name}-{wanted.partition_index}: cannot delete before offset {end}; the log "
                f"holds {log.start_offset} to {log.high_watermark}"
            )
        await log.delete_before(end)
    except KafkaError as error:
        return _failed(wanted.partition_index, error)
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index,
        low_watermark=i64(log.start_offset),
        error_code=ErrorCode.none,
    )


def _failed(partition: i32, error: KafkaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=i64(-1), error_code=error_code(error)
    )
