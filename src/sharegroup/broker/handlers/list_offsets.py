"""ListOffsets (2): the first offset at or after a time, or one of the special ones.

For who reads committed records only, the log ends at its last stable offset.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.static.primitive import i32, i64

from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError
from sharegroup.ids import TopicName
from sharegroup.storage.partition_log import PartitionLog

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
NOT_FOUND = (-1, -1)
READ_COMMITTED = 1


def handle(parts: Parts, context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    committed_only = request.isolation_level == READ_COMMITTED
    return ListOffsetsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    _partition(parts, TopicName(topic.name), one, committed_only=committed_only)
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def refuse(request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(_failed(one.partition_index, error) for one in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _partition(
    parts: Parts, name: TopicName, wanted: ListOffsetsPartition, *, committed_only: bool
) -> ListOffsetsPartitionResponse:
    try:
        _, log = parts.topics.named(name, wanted.partition_index)
        end = log.last_stable_offset if committed_only else log.high_watermark
        timestamp, offset = _find(log, wanted.timestamp, end)
    except KafkaError as error:
        return _failed(wanted.partition_index, error)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.none,
        timestamp=i64(timestamp),
        offset=i64(offset),
        leader_epoch=i32(0 if offset >= 0 else -1),
    )


def _find(log: PartitionLog, timestamp: int, end: int) -> tuple[int, int]:
    """(timestamp, offset) below ``end``; -1 for what there is not."""
    if timestamp == LATEST:
        return -1, end
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.start_offset
    if timestamp <= LATEST_TIERED:
        return NOT_FOUND
    if timestamp == MAX_TIMESTAMP:
        found = log.latest_timestamp()
    else:
        found = log.offset_for_timestamp(timestamp)
    return NOT_FOUND if found is None or found[1] >= end else found


def _failed(partition: i32, error: KafkaError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, error_code=error_code(error))
