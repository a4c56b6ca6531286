"""DescribeQuorum (55): describes the quorum of the metadata log.

This broker is its only voter and its leader.  The metadata log is the catalog's journal: its end is
the number of events in it, all of which are durable when a response tells of them.
"""

from __future__ import annotations

from functools import partial

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.request import PartitionData as WantedPartition
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i32, i64, u16

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError, UnknownTopicOrPartition
from sharegroup.ids import LEADER_EPOCH
from sharegroup.steps import Steps, of_each

METADATA_TOPIC = "__cluster_metadata"
"""Kafka's name for the metadata log; no topic of that name exists here."""


def handle(
    parts: Parts, context: RequestContext, request: DescribeQuorumRequest
) -> Steps[DescribeQuorumResponse]:
    asked = [(topic.topic_name, topic.partitions) for topic in request.topics[:2]]
    if len(asked) != 1 or asked[0][0] != METADATA_TOPIC or _indexes(asked[0][1]) != [0]:
        error = UnknownTopicOrPartition(
            f"the only metadata log is partition 0 of {METADATA_TOPIC!r}; the request names "
            f"{len(request.topics)} topics, the first with other partitions or another name"
        )
        return (yield from _described(request, error, ErrorCode.none))
    partition = _quorum(parts)
    node = parts.node
    listener = Listener(name="PLAINTEXT", host=node.host, port=u16(node.port))
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=(TopicData(topic_name=request.topics[0].topic_name, partitions=(partition,)),),
        nodes=(Node(node_id=BrokerId(node.node_id), listeners=(listener,)),),
    )


def refuse(request: DescribeQuorumRequest, error: KafkaError) -> Steps[DescribeQuorumResponse]:
    return _described(request, error, error_code(error))


def _indexes(partitions: tuple[WantedPartition, ...]) -> list[int]:
    return [partition.partition_index for partition in partitions[:2]]


def _quorum(parts: Parts) -> PartitionData:
    now_ms, end = i64(parts.clock.wall_ms()), i64(parts.topics.event_count)
    this_voter = ReplicaState(
        replica_id=BrokerId(parts.node.node_id),
        replica_directory_id=None,
        log_end_offset=end,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return PartitionData(
        partition_index=i32(0),
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=BrokerId(parts.node.node_id),
        leader_epoch=i32(LEADER_EPOCH),
        high_watermark=end,
        current_voters=(this_voter,),
        observers=(),
    )


def _described(
    request: DescribeQuorumRequest, error: KafkaError, code: ErrorCode
) -> Steps[DescribeQuorumResponse]:
    """Return the response with an error for each partition; ``code`` is that of the whole."""
    topics = []
    for topic in request.topics:
        failed = yield from of_each(partial(_failed, error=error), topic.partitions)
        topics.append(TopicData(topic_name=topic.topic_name, partitions=failed))
        yield
    return DescribeQuorumResponse(
        error_code=code, error_message=str(error), topics=tuple(topics), nodes=()
    )


def _failed(wanted: WantedPartition, error: KafkaError) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition_index,
        error_code=error_code(error),
        error_message=str(error),
        leader_id=BrokerId(-1),
        leader_epoch=i32(-1),
        high_watermark=i64(-1),
        current_voters=(),
        observers=(),
    )
