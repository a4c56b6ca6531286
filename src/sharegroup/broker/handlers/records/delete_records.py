"""DeleteRecords (21): advances log start offsets; the records below are deleted for all groups.

All partitions of a request are checked first and then changed with one write.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName as WireTopicName
from kio.static.primitive import i32, i64

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import Permission
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Later,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import HasSlices, HasTopics
from sharegroup.errors import KafkaError, OffsetOutOfRange, PolicyViolation
from sharegroup.ids import TopicIdPartition, TopicName
from sharegroup.steps import STEP_MASK, Steps, of_each
from sharegroup.storage.log.partition_log import PartitionLog

FEW = 15
"""Bit mask: a step ends after every 16 partitions or topics, because each may open a log."""

HIGH_WATERMARK = -1
"""The offset in a request that stands for the high watermark."""


class DeleteRecordsParts(HasSlices, HasTopics, Protocol):
    """What these requests touch of the broker."""


class MovedPartition(NamedTuple):
    """A log whose start offset becomes ``end``."""

    partition: i32
    log: PartitionLog
    end: int


class RefusedPartition(NamedTuple):
    """A partition that is not changed, with the reason."""

    partition: i32
    error: KafkaError


Decisions = list[tuple[WireTopicName, list[MovedPartition | RefusedPartition]]]
"""The topics of a request, each with the decisions for its partitions."""


def handle(
    parts: DeleteRecordsParts, context: RequestContext, request: DeleteRecordsRequest
) -> Later[DeleteRecordsResponse]:
    return Later(_delete(parts, request, Permission(context.rights, required.DELETE_TOPICS)))


async def _delete(
    parts: DeleteRecordsParts, request: DeleteRecordsRequest, delete: Permission
) -> DeleteRecordsResponse:
    decisions = await parts.slices.finish(_find_all(parts.topics, request, delete))
    failure = await _move(parts.topics, await parts.slices.finish(_ends(decisions)))
    return await parts.slices.finish(_response(decisions, failure))


def _find_all(
    topics: Topics, request: DeleteRecordsRequest, delete: Permission
) -> Steps[Decisions]:
    """Decide for each partition; topics that are deleted meanwhile are skipped later."""
    decisions = []
    for topic in request.topics:
        name, partitions = TopicName(topic.name), list[MovedPartition | RefusedPartition]()
        denial = delete.denial(name)
        for wire_partition in topic.partitions:
            if denial is None:
                partitions.append(_find(topics, name, wire_partition))
            else:
                partitions.append(RefusedPartition(wire_partition.partition_index, denial))
            if len(partitions) & FEW == FEW:
                yield
        decisions.append((topic.name, partitions))
        if len(decisions) & FEW == FEW:
            yield
    return decisions


def _response(decisions: Decisions, failure: KafkaError | None) -> Steps[DeleteRecordsResponse]:
    topics = []
    for name, partitions in decisions:
        results = yield from of_each(partial(_result, failure=failure), partitions)
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
        if len(topics) & FEW == FEW:
            yield
    return DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


def _find(
    topics: Topics, name: TopicName, wire_partition: DeleteRecordsPartition
) -> MovedPartition | RefusedPartition:
    index = wire_partition.partition_index
    try:
        topic, log = topics.named(name, index)
        if topic.is_internal:
            raise PolicyViolation(f"{name!r} is internal: its records cannot be deleted")
        # As in Kafka (spec wire-13): such a topic promises to keep the newest record of each key.
        if topics.settings(topic).is_compacted_only:
            raise PolicyViolation(
                f"{name!r} has cleanup.policy=compact: its records cannot be deleted"
            )
        end = (
            log.high_watermark if wire_partition.offset == HIGH_WATERMARK else wire_partition.offset
        )
        if not 0 <= end <= log.high_watermark:
            raise OffsetOutOfRange(
                f"{name}-{index}: cannot delete before offset {end}; the log holds "
                f"{log.start_offset} to {log.high_watermark}"
            )
    except KafkaError as error:
        return RefusedPartition(index, error.with_traceback(None))
    return MovedPartition(index, log, end)


def _ends(decisions: Decisions) -> Steps[dict[TopicIdPartition, int]]:
    """Return the new start offset of each log; of repeated partitions the larger offset counts."""
    ends: dict[TopicIdPartition, int] = {}
    partitions = (partition for _, partitions in decisions for partition in partitions)
    for index, partition in enumerate(partitions):
        if isinstance(partition, MovedPartition):
            ends[partition.log.key] = max(partition.end, ends.get(partition.log.key, 0))
        if index & STEP_MASK == STEP_MASK:
            yield
    return ends


async def _move(topics: Topics, ends: dict[TopicIdPartition, int]) -> KafkaError | None:
    try:
        await topics.delete_before(ends)
    except KafkaError as error:
        return error
    return None


def _result(
    decision: MovedPartition | RefusedPartition, failure: KafkaError | None
) -> DeleteRecordsPartitionResult:
    if isinstance(decision, RefusedPartition):
        return _failed(decision.partition, decision.error)
    if failure is not None:
        return _failed(decision.partition, failure)
    return DeleteRecordsPartitionResult(
        partition_index=decision.partition,
        low_watermark=i64(decision.log.start_offset),
        error_code=ErrorCode.none,
    )


def _failed(partition: i32, error: KafkaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=i64(-1), error_code=error_code(error)
    )


SERVED = {
    21: ApiHandler(
        handle,
        checks=(required.DELETE_TOPICS,),
        refused={"low_watermark": -1},
    )
}
