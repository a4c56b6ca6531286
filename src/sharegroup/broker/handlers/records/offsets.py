"""Requests about positions in logs (2, 23): by timestamp, and by leader epoch."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Protocol

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kio.static.primitive import i32, i64

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import Permission, is_allowed_on_cluster
from sharegroup.broker.access.rights import UNLIMITED
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import HasRecordJobs, HasTopics
from sharegroup.errors import InvalidRequest, KafkaError, UnsupportedVersion
from sharegroup.ids import LEADER_EPOCH, TopicName
from sharegroup.steps import Steps, paced
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.segment.timestamps import Allowance
from sharegroup.wire.batches.record_walk import Walk, WalkStep

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The version from which on a request may ask for a special offset; the others are dates."""

NOT_FOUND = (-1, -1)
READ_COMMITTED = 1

ASKED_TWICE = InvalidRequest("the partition is more than once in the request")

PARTITIONS_PER_PAUSE = 16
"""Partitions between two pauses, because a lookup may open the partition's log."""


class OffsetsParts(HasRecordJobs, HasTopics, Protocol):
    """What these requests touch of the broker."""


def list_offsets(
    parts: OffsetsParts, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Later[ListOffsetsResponse]:
    """ListOffsets (2): returns the first offset at or after a timestamp, or a special offset.

    For a client that reads only committed records, the log ends at its last stable offset.

    A lookup by timestamp may have to decompress and scan a large batch, and one request may
    contain 30,000 lookups. So the work is done in pieces (`record_jobs`). The bytes that are
    decoded for one request are limited. Further lookups are answered with REQUEST_TIMED_OUT, which
    clients retry.
    """
    answer = _answer(parts, context, request)
    response = parts.record_jobs.run(answer, context.connection_id, context.limited_user)
    return Later(response) if isinstance(response, asyncio.Task) else response


def _answer(
    parts: OffsetsParts, context: RequestContext, request: ListOffsetsRequest
) -> Walk[ListOffsetsResponse]:
    """Build the response in pieces."""
    committed_only = request.isolation_level == READ_COMMITTED
    describe = Permission(context.rights, required.DESCRIBE_TOPICS)
    allowance = Allowance(parts.record_jobs.bytes_max)
    mention_counts = Counter(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    done = 0
    topics: list[ListOffsetsTopicResponse] = []
    for topic in request.topics:
        name = TopicName(topic.name)
        denial = describe.denial(name)
        answers: list[ListOffsetsPartitionResponse] = []
        for wire_partition in topic.partitions:
            if denial is not None:
                answers.append(_not_listed(wire_partition.partition_index, denial))
            elif mention_counts[topic.name, wire_partition.partition_index] > 1:
                # As in `ReplicaManager.fetchOffset`, each mention gets this error.
                answers.append(_not_listed(wire_partition.partition_index, ASKED_TWICE))
            else:
                answers.append(
                    (
                        yield from _listed(
                            parts.topics,
                            name,
                            wire_partition,
                            allowance,
                            context.api_version,
                            committed_only=committed_only,
                        )
                    )
                )
            done += 1
            if done % PARTITIONS_PER_PAUSE == 0:
                yield WalkStep.PAUSE
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(answers)))
    return ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


def _listed(
    topics: Topics,
    name: TopicName,
    wire_partition: ListOffsetsPartition,
    allowance: Allowance,
    version: int,
    *,
    committed_only: bool,
) -> Walk[ListOffsetsPartitionResponse]:
    try:
        _check_timestamp(wire_partition.timestamp, version)
        _, log = topics.named(name, wire_partition.partition_index)
        # A client whose metadata is of another leader epoch has to refresh it first (KIP-320).
        topics.check_leader_epoch(log.key, wire_partition.current_leader_epoch)
        end = log.last_stable_offset if committed_only else log.high_watermark
        timestamp, offset = yield from _find(log, wire_partition.timestamp, end, allowance)
    except KafkaError as error:
        return _not_listed(wire_partition.partition_index, error)
    return ListOffsetsPartitionResponse(
        partition_index=wire_partition.partition_index,
        error_code=ErrorCode.none,
        timestamp=i64(timestamp),
        offset=i64(offset),
        leader_epoch=i32(topics.leader_epoch(log.key) if offset >= 0 else -1),
    )


def _check_timestamp(timestamp: int, version: int) -> None:
    """Raise UnsupportedVersion for a special offset that this version does not have."""
    if timestamp >= 0:
        return
    oldest = SINCE_VERSION.get(timestamp)
    if oldest is None:
        raise UnsupportedVersion(f"{timestamp} is neither a timestamp nor a special offset")
    if version < oldest:
        raise UnsupportedVersion(
            f"the special offset {timestamp} needs ListOffsets {oldest}, not version {version}"
        )


def _find(
    log: PartitionLog, timestamp: int, end: int, allowance: Allowance
) -> Walk[tuple[int, int]]:
    """Return the timestamp and offset of a lookup; -1 stands for a missing value.

    ``end`` is the offset after the last visible record.
    """
    if timestamp == LATEST:
        return -1, end
    # Without remote storage the local log is the whole log.
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.start_offset
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOT_FOUND  # There is no remote storage.
    if timestamp == MAX_TIMESTAMP:
        position = yield from log.times.latest(allowance)
    else:
        position = yield from log.times.first_not_older(timestamp, allowance)
    # The indexes cover the whole log, also records that this client may not see yet.
    return NOT_FOUND if position is None or position.offset >= end else position


def _not_listed(partition: i32, error: KafkaError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, error_code=error_code(error))


FEW = 16
"""A step ends after every 16 partitions, because each may open a log."""


def offset_for_leader_epoch(
    parts: OffsetsParts, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Steps[OffsetForLeaderEpochResponse]:
    """OffsetForLeaderEpoch (23): returns the end offset of a leader epoch (KIP-320).

    The partitions of this broker never lose their leader, so their records have one leader epoch,
    whose end is the end of the log. A consumer that asks after a change of the metadata learns
    that its position is still valid.
    """
    rights = context.rights
    # Replicas send it with CLUSTER_ACTION.  Consumers send it since KIP-320, and need only DESCRIBE
    # on the topics, so a missing CLUSTER_ACTION is no denial yet.
    is_broker = is_allowed_on_cluster(rights, required.CLUSTER_ACTION, is_audited=False)
    describe = Permission(UNLIMITED if is_broker else rights, required.DESCRIBE_TOPICS)
    topics = []
    for topic, pause_after in paced(request.topics, FEW):
        denial = describe.denial(topic.topic)
        ends = []
        for wire_partition, pause in paced(topic.partitions, FEW):
            if denial is None:
                ends.append(_end_of_epoch(parts.topics, TopicName(topic.topic), wire_partition))
            else:
                ends.append(_no_end(wire_partition, denial))
            if pause:
                yield
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(ends)))
        if pause_after:
            yield
    return OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


def _end_of_epoch(
    topics: Topics, name: TopicName, wire_partition: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        _, log = topics.named(name, wire_partition.partition)
        topics.check_leader_epoch(log.key, wire_partition.current_leader_epoch)
    except KafkaError as error:
        return _no_end(wire_partition, error)
    epoch, end = -1, -1
    # Of an epoch that nobody has begun the broker knows nothing, as in Kafka.
    if LEADER_EPOCH <= wire_partition.leader_epoch <= topics.leader_epoch(log.key):
        # Not the end of the log: nothing is visible before it is durable (docs/differences.md).
        epoch, end = wire_partition.leader_epoch, log.high_watermark
    return EpochEndOffset(
        error_code=ErrorCode.none,
        partition=wire_partition.partition,
        leader_epoch=i32(epoch),
        end_offset=i64(end),
    )


def _no_end(wire_partition: OffsetForLeaderPartition, error: KafkaError) -> EpochEndOffset:
    return EpochEndOffset(error_code=error_code(error), partition=wire_partition.partition)


SERVED = {
    2: ApiHandler(
        list_offsets,
        checks=(required.DESCRIBE_TOPICS,),
    ),
    23: ApiHandler(
        offset_for_leader_epoch,
        handling=Handling.READS_IN_STEPS,
        checks=(required.CLUSTER_ACTION, required.DESCRIBE_TOPICS),
        refused={"leader_epoch": -1},
    ),
}
