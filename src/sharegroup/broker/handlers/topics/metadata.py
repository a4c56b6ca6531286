"""Metadata (3): describes this broker and the requested topics, and may create missing topics.

A request creates at most `AUTO_CREATED_MAX` topics.  Its other topics get
UNKNOWN_TOPIC_OR_PARTITION, as in Kafka while a topic is being created.  Clients then ask again, and
the next topics are created.  Such topics use only a part of the allowed partitions, so CreateTopics
always has room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName as WireTopicName
from kio.static.primitive import i32

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import (
    Permission,
    is_allowed_on_cluster,
    operations_on_cluster,
)
from sharegroup.broker.access.quotas import Mutations
from sharegroup.broker.access.rights import NOT_ASKED, Rights
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.config_values import check_topic_name
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    error_code,
    milliseconds,
)
from sharegroup.broker.handlers.parts import HasConfig, HasNode, HasQuotas, HasSlices, HasTopics
from sharegroup.core.security.principal import Principal
from sharegroup.errors import (
    AuthorizationException,
    InvalidRequest,
    KafkaError,
    ThrottlingQuotaExceeded,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.protocol_enums import AclResourceType
from sharegroup.steps import STEP_ELEMENTS, STEP_MASK, Steps, paced
from sharegroup.wire.messages.metadata_with_cluster import (
    MetadataRequestWithCluster,
    MetadataResponseWithCluster,
)

VERSION_WITHOUT_NULL_TOPICS = 0
"""The version in which an empty list requests all topics; later versions use null."""

AUTO_CREATED_MAX = 100
"""Topics that one request creates; each waits for the disk and delays other changes."""

NONE_REFUSED: Mapping[str, KafkaError] = MappingProxyType({})


class MetadataParts(HasConfig, HasNode, HasQuotas, HasSlices, HasTopics, Protocol):
    """What these requests touch of the broker."""


class _Query(NamedTuple):
    """A request, and what its principal may see."""

    parts: MetadataParts
    request: MetadataRequest
    wanted: Sequence[MetadataRequestTopic] | None
    """The requested topics; None for all topics."""
    rights: Rights
    describe: Permission
    user: Principal | None
    """The user whose part of all partitions limits topics that are created."""
    mutations: Mutations
    """The topics that the request creates, as its client's quota counts them."""

    def operations(self, name: str) -> i32:
        """Return the value of the field for the operations on a topic."""
        if not self.request.include_topic_authorized_operations:
            return NOT_ASKED
        return self.rights.authorized_operations(AclResourceType.TOPIC, name)


def handle(
    parts: MetadataParts, context: RequestContext, request: MetadataRequest
) -> Steps[MetadataResponse | Later[MetadataResponse]]:
    wanted = request.topics
    if context.api_version == VERSION_WITHOUT_NULL_TOPICS and not wanted:
        wanted = None
    rights = context.rights
    # A topic that is not named is left out of all topics, without an audit.
    describe = Permission(rights, required.DESCRIBE_TOPICS, is_audited=wanted is not None)
    mutations = parts.quotas.mutations(context, is_strict=True)
    query = _Query(parts, request, wanted, rights, describe, context.limited_user, mutations)
    creates = request.allow_auto_topic_creation and parts.config.server.auto_create_topics
    # Among very many topics the missing ones are found in steps, by `_with_created`.
    if (wanted and creates) and (
        len(wanted) > STEP_ELEMENTS or any(_is_missing(parts.topics, topic) for topic in wanted)
    ):
        return Later(_with_created(query, wanted))
    return (yield from _described(query))


def refuse(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=(),
        topics=tuple(
            _unknown(topic.name, topic.topic_id, error_code(error))
            for topic in request.topics or ()
        ),
        error_code=error_code(error),
    )


def _is_missing(topics: Topics, wanted: MetadataRequestTopic) -> bool:
    """Whether the request names a topic that does not exist and so may be created."""
    name = wanted.name
    return (
        wanted.topic_id is None
        and name is not None
        and topics.catalog.find(TopicName(name)) is None
    )


async def _with_created(query: _Query, wanted: Sequence[MetadataRequestTopic]) -> MetadataResponse:
    """Create the missing topics as far as that is allowed, and return the response."""
    parts = query.parts
    create = Permission(query.rights, required.CREATE_TOPICS)
    may_create = is_allowed_on_cluster(query.rights, required.CREATE_IN_CLUSTER, is_audited=False)
    refused: dict[str, KafkaError] = {}
    created_count = 0
    for topic in wanted:
        name = topic.name
        await parts.slices.turn()
        if name is None or name in refused or not _is_missing(parts.topics, topic):
            continue
        if not query.describe.allows(name):
            continue  # The response has the error.
        if created_count == AUTO_CREATED_MAX:
            break
        try:
            if not may_create:
                create.require(name)
            await _create(query, TopicName(name))
            created_count += 1
        except TopicAlreadyExists:
            pass  # Another request created it while this one waited for its turn.
        except KafkaError as error:
            refused[name] = error.with_traceback(None)
    return await parts.slices.finish(_described(query, refused))


async def _create(query: _Query, name: TopicName) -> None:
    """Create a topic with the default number of partitions, if the limit permits it."""
    parts, user = query.parts, query.user
    partitions = parts.config.server.partitions_default
    parts.topics.check_automatic(name, partitions, user)
    if parts.quotas.is_on:
        parts.topics.check_new(name, partitions=partitions, settings={}, user=user)
        try:
            query.mutations.record(partitions)
        except ThrottlingQuotaExceeded as error:
            # As in Kafka, where the controller refuses it: clients ask again for such a topic.
            raise UnknownTopicOrPartition(f"topic {name!r} is not created: {error}") from error
    await parts.topics.create(name, partitions=partitions, settings={}, user=user)


def _described(
    query: _Query, refused: Mapping[str, KafkaError] = NONE_REFUSED
) -> Steps[MetadataResponse]:
    """Build the response in steps."""
    parts, wanted = query.parts, query.wanted
    topics = []
    for topic in parts.topics.catalog.topics() if wanted is None else ():
        if query.describe.allows(topic.name):
            topics.append((yield from _known(parts, topic, query.operations(topic.name))))
        yield
    # Each topic once: a small request that repeats a large topic must not get a huge response.
    named = set[tuple[str | None, UUID | None]]()
    for wanted_topic, pause in paced(wanted or ()):
        key = (wanted_topic.name, wanted_topic.topic_id)
        if key not in named:
            named.add(key)
            topics.append((yield from _topic(query, wanted_topic, refused)))
        if pause:
            yield
    return _response(query, topics)


def _topic(
    query: _Query, wanted: MetadataRequestTopic, refused: Mapping[str, KafkaError]
) -> Steps[MetadataResponseTopic]:
    try:
        topic = _find(query, wanted, refused)
    except AuthorizationException as error:
        return _unknown(wanted.name, wanted.topic_id, error_code(error))
    except KafkaError as error:
        operations = query.operations(wanted.name or "")
        return _unknown(wanted.name, wanted.topic_id, error_code(error), operations)
    return (yield from _known(query.parts, topic, query.operations(topic.name)))


def _find(query: _Query, wanted: MetadataRequestTopic, refused: Mapping[str, KafkaError]) -> Topic:
    catalog = query.parts.topics.catalog
    if wanted.topic_id is not None:
        existing_topic = catalog.by_id(TopicId(wanted.topic_id))
        if existing_topic is None:
            raise UnknownTopicId(f"there is no topic with id {wanted.topic_id}")
        query.describe.require(existing_topic.name, wanted.topic_id)
        return existing_topic
    if wanted.name is None:
        raise InvalidRequest("a topic needs a name or an id")
    name = TopicName(wanted.name)
    query.describe.require(name)
    topic = catalog.find(name)
    if topic is not None:
        return topic
    if name in refused:
        raise refused[name]
    check_topic_name(name)  # An invalid name is another error than a missing topic.
    raise UnknownTopicOrPartition(f"there is no topic {name!r}")


def _known(parts: MetadataParts, topic: Topic, operations: i32) -> Steps[MetadataResponseTopic]:
    node = BrokerId(parts.node.node_id)
    nodes = (node,)
    partitions = []
    for index in range(topic.partition_count):
        partitions.append(
            MetadataResponsePartition(
                error_code=ErrorCode.none,
                partition_index=i32(index),
                leader_id=node,
                leader_epoch=i32(
                    parts.topics.leader_epoch(TopicIdPartition(topic.topic_id, index))
                ),
                replica_nodes=nodes,
                isr_nodes=nodes,
            )
        )
        if index & STEP_MASK == STEP_MASK:
            yield
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=WireTopicName(topic.name),
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=operations,
    )


def _unknown(
    name: WireTopicName | None,
    topic_id: UUID | None,
    code: ErrorCode,
    operations: i32 = NOT_ASKED,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        partitions=(),
        topic_authorized_operations=operations,
    )


def _response(query: _Query, topics: Iterable[MetadataResponseTopic]) -> MetadataResponse:
    parts, request = query.parts, query.request
    node = parts.node
    make: Callable[..., MetadataResponse] = MetadataResponse
    if isinstance(request, MetadataRequestWithCluster):
        operations = operations_on_cluster(query.rights, request)
        make = partial(MetadataResponseWithCluster, cluster_authorized_operations=operations)
    return make(
        throttle_time=milliseconds(query.mutations.throttle_ms),
        brokers=(
            MetadataResponseBroker(
                node_id=BrokerId(node.node_id), host=node.host, port=i32(node.port), rack=node.rack
            ),
        ),
        cluster_id=parts.topics.catalog.cluster_id,
        controller_id=BrokerId(node.node_id),
        topics=tuple(topics),
        error_code=ErrorCode.none,
    )


SERVED = {
    3: ApiHandler(
        handle,
        refuse,
        handling=Handling.READS_IN_STEPS,
        checks=(
            required.DESCRIBE_TOPICS,
            required.CREATE_TOPICS,
            required.CREATE_IN_CLUSTER,
            required.DESCRIBE_CLUSTER,
        ),
        upgraded_class=MetadataRequestWithCluster,
    )
}
