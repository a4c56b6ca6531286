"""DeleteTopics (20): deletes topics by name, or by id from version 6 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName as WireTopicName

from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE, milliseconds
from sharegroup.broker.parts import Parts
from sharegroup.broker.quotas import Mutations
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission, is_allowed_on_cluster
from sharegroup.broker.security.rights import UNLIMITED, Rights
from sharegroup.errors import (
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    UnknownTopicId,
)
from sharegroup.ids import TopicId, TopicName

if TYPE_CHECKING:
    # At run time only the versions that clients use are imported.
    from sharegroup.broker.message_versions import OlderDeleteTopicsRequest


STRICT_VERSION = 5
"""From this version on, clients know the error THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


def handle(
    parts: Parts, context: RequestContext, request: DeleteTopicsRequest
) -> Later[DeleteTopicsResponse]:
    mutations = parts.quotas.mutations(context, is_strict=context.api_version >= STRICT_VERSION)
    return Later(_delete_all(parts, context.rights, request, mutations))


async def _delete_all(
    parts: Parts, rights: Rights, request: DeleteTopicsRequest, mutations: Mutations
) -> DeleteTopicsResponse:
    if is_allowed_on_cluster(rights, required.DELETE_IN_CLUSTER, is_audited=False):
        rights = UNLIMITED
    describe = Permission(rights, required.DESCRIBE_TOPICS)
    delete = Permission(rights, required.DELETE_TOPICS)
    responses = []
    for wanted in request.topics:
        await parts.slices.turn()
        try:
            topic = _find(parts, wanted, describe)
            delete.require(topic.name, wanted.topic_id)
            _check(parts, topic)
            mutations.record(topic.partition_count)
            await parts.topics.delete(topic)
            responses.append(
                DeletableTopicResult(
                    name=WireTopicName(topic.name),
                    topic_id=topic.topic_id,
                    error_code=ErrorCode.none,
                )
            )
        except KafkaError as error:
            responses.append(_failed(wanted, error))
    return DeleteTopicsResponse(
        throttle_time=milliseconds(mutations.throttle_ms), responses=tuple(responses)
    )


def refuse(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(_failed(wanted, error) for wanted in request.topics),
    )


def from_older(
    request: OlderDeleteTopicsRequest, newest: type[DeleteTopicsRequest]
) -> DeleteTopicsRequest:
    """Convert a request from before version 6, which has only the names of topics."""
    return newest(
        topics=tuple(DeleteTopicState(name=name, topic_id=None) for name in request.topic_names),
        timeout=request.timeout,
    )


def _find(parts: Parts, wanted: DeleteTopicState, describe: Permission) -> Topic:
    catalog = parts.topics.catalog
    if wanted.name is not None and wanted.topic_id is not None:
        raise InvalidRequest("name a topic by its name or by its id, not by both")
    if wanted.name is not None:
        describe.require(wanted.name)
        return catalog.topic(TopicName(wanted.name))
    found = None if wanted.topic_id is None else catalog.by_id(TopicId(wanted.topic_id))
    if found is None:
        raise UnknownTopicId(f"there is no topic with id {wanted.topic_id}")
    return found


def _check(parts: Parts, topic: Topic) -> None:
    """Raise unless the topic can be deleted."""
    if topic.is_internal:
        raise InvalidTopic(f"{topic.name!r} is internal and cannot be deleted")
    if not parts.config.server.delete_topics:
        raise PolicyViolation("delete.topic.enable is false")


def _failed(wanted: DeleteTopicState, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=wanted.name,
        topic_id=wanted.topic_id,
        error_code=error_code(error),
        error_message=str(error),
    )
