"""DescribeTopicPartitions (75): describes topics page by page (KIP-966).

A response describes at most as many partitions as the request allows, and at most
`RESPONSE_PARTITIONS_MAX`.  If there are more, its cursor says where the next request continues.
Topics come in the order of their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName as WireTopicName
from kio.static.primitive import i32

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import Permission
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.config_values import check_topic_name
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import HasNode, HasTopics
from sharegroup.errors import InvalidRequest, InvalidTopic, KafkaError, UnknownTopicOrPartition
from sharegroup.ids import TopicIdPartition, TopicName
from sharegroup.protocol_enums import AclResourceType
from sharegroup.steps import STEP_MASK, Steps, paced

RESPONSE_PARTITIONS_MAX = 2_000
"""Kafka's default of ``max.request.partition.size.limit``."""


class DescribeTopicPartitionsParts(HasNode, HasTopics, Protocol):
    """What these requests touch of the broker."""


def handle(
    parts: DescribeTopicPartitionsParts,
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
) -> Steps[DescribeTopicPartitionsResponse]:
    rights = context.rights
    # A topic that is not named is left out of all topics, without an audit.
    describe = Permission(rights, required.DESCRIBE_TOPICS, is_audited=bool(request.topics))
    names = yield from _wanted(parts.topics, request, describe)
    # At least one, also for a limit of 0, so that each page moves the cursor on.
    room = max(1, min(RESPONSE_PARTITIONS_MAX, request.response_partition_limit))
    first = 0 if request.cursor is None else int(request.cursor.partition_index)
    start_name = "" if request.cursor is None else request.cursor.topic_name
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor = None
    for name in names:
        if (denial := describe.denial(name)) is not None:
            topics.append(_failed(WireTopicName(name), error_code(denial)))
            yield
            continue
        if room == 0:
            next_cursor = Cursor(topic_name=WireTopicName(name), partition_index=i32(0))
            break
        begin = first if name == start_name else 0
        topic = parts.topics.catalog.find(TopicName(name))
        if topic is None:
            # A topic that was deleted between two pages of all topics is not an error.
            if request.topics:
                topics.append(_unknown(name))
            yield
            continue
        end = min(topic.partition_count, begin + room)
        operations = rights.authorized_operations(AclResourceType.TOPIC, name)
        topics.append((yield from _known(parts, topic, range(begin, end), operations)))
        room -= max(0, end - begin)
        if end < topic.partition_count:
            next_cursor = Cursor(topic_name=WireTopicName(name), partition_index=i32(end))
            break
        yield
    return DescribeTopicPartitionsResponse(
        throttle_time=NO_THROTTLE, topics=tuple(topics), next_cursor=next_cursor
    )


def _wanted(
    topics: Topics, request: DescribeTopicPartitionsRequest, describe: Permission
) -> Steps[Sequence[str]]:
    """Return the names of the topics from the cursor on, sorted, each once.

    All topics are those that the principal may describe.
    """
    cursor = request.cursor
    start_name = "" if cursor is None else cursor.topic_name
    if cursor is not None and cursor.partition_index < 0:
        raise InvalidRequest(f"the cursor's partition {cursor.partition_index} is negative")
    names = set[str]()
    if request.topics:
        for topic, pause in paced(request.topics):
            names.add(topic.name)
            if pause:
                yield
        if cursor is not None and start_name not in names:
            raise InvalidRequest(f"the cursor's topic {start_name!r} is not in the list of topics")
    else:
        for existing_topic, pause in paced(tuple(topics.catalog.topics())):
            if describe.allows(existing_topic.name):
                names.add(existing_topic.name)
            if pause:
                yield
    # By name, because the cursor is a name: topics that are created between two pages move no
    # others.
    return sorted(name for name in names if name >= start_name)


def _known(
    parts: DescribeTopicPartitionsParts, topic: Topic, numbers: range, operations: i32
) -> Steps[DescribeTopicPartitionsResponseTopic]:
    nodes = (BrokerId(parts.node.node_id),)
    partitions = []
    for number in numbers:
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.none,
                partition_index=i32(number),
                leader_id=nodes[0],
                leader_epoch=i32(
                    parts.topics.leader_epoch(TopicIdPartition(topic.topic_id, number))
                ),
                replica_nodes=nodes,
                isr_nodes=nodes,
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=(),
            )
        )
        if number & STEP_MASK == STEP_MASK:
            yield
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.none,
        name=WireTopicName(topic.name),
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=operations,
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    error: KafkaError = UnknownTopicOrPartition(f"there is no topic {name!r}")
    try:
        check_topic_name(TopicName(name))
    except InvalidTopic as invalid:
        error = invalid
    return _failed(WireTopicName(name), error_code(error))


def _failed(name: WireTopicName, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=None, partitions=()
    )


SERVED = {
    75: ApiHandler(
        handle,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_TOPICS,),
    )
}
