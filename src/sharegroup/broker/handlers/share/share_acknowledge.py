"""ShareAcknowledge (79): acknowledges, releases or renews records without a fetch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Protocol

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import topic_permission
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    error_code,
    milliseconds,
)
from sharegroup.broker.handlers.parts import HasGroupSettings, HasNode
from sharegroup.broker.handlers.share import share_requests
from sharegroup.broker.handlers.share.share_requests import ShareRequestsParts
from sharegroup.broker.parts import Node
from sharegroup.errors import KafkaError
from sharegroup.ids import LEADER_EPOCH, GroupId, TopicId, TopicIdPartition
from sharegroup.steps import Steps, paced
from sharegroup.wire.messages.share_acknowledge_v2 import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

_id_number = attrgetter("int")
_partition_index = attrgetter("partition_index")

NO_LEADER = LeaderIdAndEpoch(leader_id=i32(0), leader_epoch=i32(0))
"""The value of the current leader if there is no leader error; Kafka also sends zeros."""


class ShareAcknowledgeParts(ShareRequestsParts, HasGroupSettings, HasNode, Protocol):
    """What these requests touch of the broker."""


def handle(
    parts: ShareAcknowledgeParts, context: RequestContext, request: ShareAcknowledgeRequest
) -> Steps[ShareAcknowledgeResponse | Later[ShareAcknowledgeResponse]]:
    """Decide the acknowledgements of each partition; with the final epoch also end the session.

    The acknowledgements come first.  Then the records that the member still holds are released.
    """
    key = share_requests.session_key(request.group_id, request.member_id)
    read = topic_permission(context.rights, required.READ_TOPICS, parts.topics.catalog)
    sender = share_requests.Acknowledger(key, read)
    named, acks = yield from share_requests.named_partitions(request)
    # First, because a wrong epoch fails the whole request.  As in Kafka, an accepted epoch is used
    # up, whatever becomes of the acknowledgements.
    closed = parts.share_sessions.acknowledge(key, request.share_session_epoch)
    started = yield from share_requests.start(
        parts, sender, acks, renewing=request.is_renew_ack, closed=closed
    )
    if closed is not None:
        share_requests.release(parts, closed)
    if started.waiting:
        # Nothing is confirmed before it is durable: a confirmed record must not be delivered again
        # after a crash.
        return Later(_respond_later(parts, key.group_id, named, started))
    outcomes = share_requests.counted(parts, started.outcomes)
    return (yield from _response_steps(parts, key.group_id, named, outcomes))


async def _respond_later(
    parts: ShareAcknowledgeParts,
    group_id: GroupId,
    named: dict[TopicIdPartition, None],
    started: share_requests.Started,
) -> ShareAcknowledgeResponse:
    acks = await share_requests.durable(parts, started)
    return await parts.slices.finish(_response_steps(parts, group_id, named, acks))


def _response_steps(
    parts: ShareAcknowledgeParts,
    group_id: GroupId,
    named: Iterable[TopicIdPartition],
    acks: share_requests.AcknowledgementErrors,
) -> Steps[ShareAcknowledgeResponse]:
    # Also a partition without acknowledgements is answered; Kafka leaves it out
    # (docs/differences.md).
    outcomes: share_requests.AcknowledgementErrors = dict.fromkeys(named)
    outcomes.update(acks)
    lock_ms = parts.group_settings.limits(group_id).lock_ms
    responses = yield from _responses(parts.node, outcomes)
    return ShareAcknowledgeResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        acquisition_lock_timeout=milliseconds(lock_ms),
        responses=responses,
        node_endpoints=_endpoints(parts, outcomes),
    )


def _endpoints(
    parts: ShareAcknowledgeParts, outcomes: share_requests.AcknowledgementErrors
) -> tuple[NodeEndpoint, ...]:
    if not share_requests.leader_is_news(*outcomes.values()):
        return ()
    node = parts.node
    return (NodeEndpoint(node_id=BrokerId(node.node_id), host=node.host, port=i32(node.port)),)


def _responses(
    node: Node, outcomes: Mapping[TopicIdPartition, KafkaError | None]
) -> Steps[tuple[ShareAcknowledgeTopicResponse, ...]]:
    """Return the outcome of each partition, sorted by topic id and partition."""
    by_topic: dict[TopicId, list[PartitionData]] = {}
    for ((topic_id, partition), error), pause in paced(outcomes.items()):
        answer = _partition(node, partition, error)
        by_topic.setdefault(topic_id, []).append(answer)
        if pause:
            yield
    topics: list[ShareAcknowledgeTopicResponse] = []
    for topic_id, pause in paced(sorted(by_topic, key=_id_number)):
        partitions = sorted(by_topic[topic_id], key=_partition_index)
        topics.append(
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
        )
        if pause:
            yield
    return tuple(topics)


def _partition(node: Node, partition: int, error: KafkaError | None) -> PartitionData:
    return PartitionData(
        partition_index=i32(partition),
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else str(error),
        current_leader=(
            LeaderIdAndEpoch(leader_id=i32(node.node_id), leader_epoch=i32(LEADER_EPOCH))
            if share_requests.leader_is_news(error)
            else NO_LEADER
        ),
    )


SERVED = {
    79: ApiHandler(
        handle,
        handling=Handling.CHANGES_IN_STEPS,
        gates=(required.READ_GROUP,),
        checks=(required.READ_TOPICS,),
    )
}
