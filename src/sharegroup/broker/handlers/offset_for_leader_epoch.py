"""OffsetForLeaderEpoch (23): returns the end offset of a leader epoch (KIP-320).

The partitions of this broker never lose their leader, so their records have one leader epoch, whose
end is the end of the log.  A consumer that asks after a change of the metadata learns that its
position is still valid.
"""

from __future__ import annotations

from functools import partial

from kio.schema.errors import ErrorCode
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

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission, is_allowed_on_cluster
from sharegroup.broker.security.rights import UNLIMITED
from sharegroup.errors import KafkaError
from sharegroup.ids import LEADER_EPOCH, TopicName
from sharegroup.steps import STEP_MASK, Steps, of_each

FEW = 15
"""Bit mask: a step ends after every 16 partitions, because each may open a log."""


def handle(
    parts: Parts, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Steps[OffsetForLeaderEpochResponse]:
    rights = context.rights
    is_broker = is_allowed_on_cluster(rights, required.CLUSTER_ACTION, is_audited=False)
    describe = Permission(UNLIMITED if is_broker else rights, required.DESCRIBE_TOPICS)
    topics = []
    for number, topic in enumerate(request.topics):
        denial = describe.denial(topic.topic)
        ends = []
        for wanted in topic.partitions:
            if denial is None:
                ends.append(_partition(parts, TopicName(topic.topic), wanted))
            else:
                ends.append(_failed(wanted, denial))
            if len(ends) & FEW == FEW:
                yield
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(ends)))
        if number & FEW == FEW:
            yield
    return OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


def refuse(
    request: OffsetForLeaderEpochRequest, error: KafkaError
) -> Steps[OffsetForLeaderEpochResponse]:
    topics = []
    for number, topic in enumerate(request.topics):
        failed = yield from of_each(partial(_failed, error=error), topic.partitions)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=failed))
        if number & STEP_MASK == STEP_MASK:
            yield
    return OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


def _partition(parts: Parts, name: TopicName, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        _, log = parts.topics.named(name, wanted.partition)
        parts.topics.check_leader_epoch(log.key, wanted.current_leader_epoch)
    except KafkaError as error:
        return _failed(wanted, error)
    epoch, end = -1, -1
    # Of an epoch that nobody has begun the broker knows nothing, as in Kafka.
    if LEADER_EPOCH <= wanted.leader_epoch <= parts.topics.leader_epoch(log.key):
        epoch, end = wanted.leader_epoch, log.high_watermark
    return EpochEndOffset(
        error_code=ErrorCode.none,
        partition=wanted.partition,
        leader_epoch=i32(epoch),
        end_offset=i64(end),
    )


def _failed(wanted: OffsetForLeaderPartition, error: KafkaError) -> EpochEndOffset:
    return EpochEndOffset(error_code=error_code(error), partition=wanted.partition)
