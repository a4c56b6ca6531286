"""Metadata (3): this broker, and the topics asked for; unknown ones may be made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId
from kio.schema.types import TopicName as WireTopicName
from kio.static.primitive import i32

from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.configuration.topic_name import check_topic_name
from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.operations import ON_TOPIC
from sharegroup.broker.parts import Parts
from sharegroup.errors import (
    InvalidRequest,
    KafkaError,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicId, TopicName

VERSION_WITHOUT_NULL_TOPICS = 0
"""In this version an empty list of topics, later null, asks for all of them."""


async def handle(parts: Parts, context: Context, request: MetadataRequest) -> MetadataResponse:
    wanted = request.topics
    if wanted is None or (context.api_version == VERSION_WITHOUT_NULL_TOPICS and not wanted):
        topics = [_known(parts, topic) for topic in parts.topics.catalog.topics()]
    else:
        create = request.allow_auto_topic_creation and parts.config.server.auto_create_topics
        # Once each: a small request that names a large topic often must not get a huge answer.
        topics = [await _topic(parts, one, create=create) for one in dict.fromkeys(wanted)]
    if request.include_topic_authorized_operations:
        topics = [replace(topic, topic_authorized_operations=ON_TOPIC) for topic in topics]
    return _response(parts, topics)


def refuse(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=(),
        topics=tuple(
            _unknown(one.name, one.topic_id, error_code(error)) for one in request.topics or ()
        ),
        error_code=error_code(error),
    )


async def _topic(
    parts: Parts, wanted: MetadataRequestTopic, *, create: bool
) -> MetadataResponseTopic:
    try:
        return _known(parts, await _find(parts, wanted, create=create))
    except KafkaError as error:
        return _unknown(wanted.name, wanted.topic_id, error_code(error))


async def _find(parts: Parts, wanted: MetadataRequestTopic, *, create: bool) -> Topic:
    if wanted.topic_id is not None:
        found = parts.topics.catalog.by_id(TopicId(wanted.topic_id))
        if found is None:
            raise UnknownTopicId(f"there is no topic with id {wanted.topic_id}")
        return found
    if wanted.name is None:
        raise InvalidRequest("a topic needs a name or an id")
    name = TopicName(wanted.name)
    topic = parts.topics.catalog.find(name)
    if topic is not None:
        return topic
    if not create:
        check_topic_name(name)  # What could never be a topic is told apart from what is not there.
        raise UnknownTopicOrPartition(f"there is no topic {name!r}")
    try:
        return await parts.topics.create(
            name, partitions=parts.config.server.partitions_default, settings={}
        )
    except TopicAlreadyExists:
        # Another request made it while this one waited for its turn.
        return parts.topics.catalog.topic(name)


def _known(parts: Parts, topic: Topic) -> MetadataResponseTopic:
    node = BrokerId(parts.node.node_id)
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=WireTopicName(topic.name),
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=ErrorCode.none,
                partition_index=i32(index),
                leader_id=node,
                leader_epoch=i32(0),
                replica_nodes=(node,),
                isr_nodes=(node,),
            )
            for index in range(topic.partition_count)
        ),
    )


def _unknown(
    name: WireTopicName | None, topic_id: UUID | None, code: ErrorCode
) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=())


def _response(parts: Parts, topics: Iterable[MetadataResponseTopic]) -> MetadataResponse:
    node = parts.node
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=(
            MetadataResponseBroker(
                node_id=BrokerId(node.node_id), host=node.host, port=i32(node.port)
            ),
        ),
        cluster_id=parts.topics.catalog.cluster_id,
        controller_id=BrokerId(node.node_id),
        topics=tuple(topics),
        error_code=ErrorCode.none,
    )
