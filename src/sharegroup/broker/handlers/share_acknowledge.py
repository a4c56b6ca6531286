"""ShareAcknowledge (79): settle, give back or keep records without fetching more."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from itertools import groupby

from kio.schema.errors import ErrorCode
from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest
from kio.schema.share_acknowledge.v2.response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from sharegroup.broker import share_requests
from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE, milliseconds
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, TopicPartition

LEADER_EPOCH = i32(0)
"""One broker leads every partition, for ever."""

NO_LEADER = LeaderIdAndEpoch(leader_id=i32(0), leader_epoch=i32(0))
"""What stands where nothing is wrong with the leader; Kafka sends zeros too."""


def handle(
    parts: Parts, context: Context, request: ShareAcknowledgeRequest
) -> Awaitable[ShareAcknowledgeResponse] | ShareAcknowledgeResponse:
    key = share_requests.session_key(request.group_id, request.member_id)
    closed = parts.share_sessions.acknowledge(key, request.share_session_epoch)
    acks = share_requests.acks_of(request.topics)
    started = share_requests.start(parts, key, acks, renewing=request.is_renew_ack)
    if closed is not None:
        share_requests.release(parts, closed)
    named = [partition for partition, _ in share_requests.requested(request.topics)]
    if started.waiting:
        return _respond_later(parts, key.group_id, named, started)
    return _respond(parts, key.group_id, named, share_requests.counted(parts, started.outcomes))


async def _respond_later(
    parts: Parts,
    group_id: GroupId,
    named: list[TopicPartition],
    started: share_requests.Started,
) -> ShareAcknowledgeResponse:
    return _respond(parts, group_id, named, await share_requests.durable(parts, started))


def _respond(
    parts: Parts,
    group_id: GroupId,
    named: list[TopicPartition],
    acks: share_requests.Outcomes,
) -> ShareAcknowledgeResponse:
    outcomes: share_requests.Outcomes = dict.fromkeys(named)
    outcomes.update(acks)
    lock_ms = parts.group_settings.limits(group_id).lock_ms
    return ShareAcknowledgeResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        acquisition_lock_timeout=milliseconds(lock_ms),
        responses=_responses(parts, outcomes),
        node_endpoints=_endpoints(parts, outcomes),
    )


def refuse(request: ShareAcknowledgeRequest, error: KafkaError) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        error_message=str(error),
        acquisition_lock_timeout=milliseconds(0),
        responses=(),
        node_endpoints=(),
    )


def _endpoints(parts: Parts, outcomes: share_requests.Outcomes) -> tuple[NodeEndpoint, ...]:
    if not share_requests.leader_is_news(*outcomes.values()):
        return ()
    node = parts.node
    return (NodeEndpoint(node_id=BrokerId(node.node_id), host=node.host, port=i32(node.port)),)


def _responses(
    parts: Parts, outcomes: Mapping[TopicPartition, KafkaError | None]
) -> tuple[ShareAcknowledgeTopicResponse, ...]:
    by_topic = groupby(sorted(outcomes), key=lambda one: one.topic_id)
    return tuple(
        ShareAcknowledgeTopicResponse(
            topic_id=topic_id,
            partitions=tuple(_partition(parts, one.partition, outcomes[one]) for one in partitions),
        )
        for topic_id, partitions in by_topic
    )


def _partition(parts: Parts, partition: int, error: KafkaError | None) -> PartitionData:
    return PartitionData(
        partition_index=i32(partition),
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else str(error),
        current_leader=(
            LeaderIdAndEpoch(leader_id=i32(parts.node.node_id), leader_epoch=LEADER_EPOCH)
            if share_requests.leader_is_news(error)
            else NO_LEADER
        ),
    )
