"""DeleteShareGroupOffsets (92): deletes the offsets of topics in an empty share group."""

from __future__ import annotations

from uuid import UUID

from kio.schema.delete_share_group_offsets.v0.request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kio.schema.delete_share_group_offsets.v0.response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode

from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, TopicName


def handle(
    parts: Parts, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> Later[DeleteShareGroupOffsetsResponse]:
    read = Permission(context.rights, required.READ_TOPICS)
    return Later(_delete(parts, request, read))


async def _delete(
    parts: Parts, request: DeleteShareGroupOffsetsRequest, read: Permission
) -> DeleteShareGroupOffsetsResponse:
    group_id = GroupId(request.group_id)
    parts.share_group_coordinator.check_empty(group_id)
    topics = {topic.topic_name: topic for topic in request.topics}
    responses = []
    for wanted in topics.values():
        await parts.slices.turn()
        denial = read.denial(wanted.topic_name)
        responses.append(
            await _topic(parts, group_id, wanted)
            if denial is None
            else _failed(wanted, None, denial)
        )
    return DeleteShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, responses=tuple(responses)
    )


def refuse(
    request: DeleteShareGroupOffsetsRequest, error: KafkaError
) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        error_message=str(error),
        responses=(),
    )


async def _topic(
    parts: Parts, group_id: GroupId, wanted: DeleteShareGroupOffsetsRequestTopic
) -> DeleteShareGroupOffsetsResponseTopic:
    topic = parts.topics.catalog.find(TopicName(wanted.topic_name))
    topic_id = None if topic is None else topic.topic_id
    try:
        found = parts.topics.catalog.topic(TopicName(wanted.topic_name))
        await parts.share_group_coordinator.delete_offsets(group_id, found)
    except KafkaError as error:
        return _failed(wanted, topic_id, error)
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=wanted.topic_name, topic_id=topic_id, error_code=ErrorCode.none
    )


def _failed(
    wanted: DeleteShareGroupOffsetsRequestTopic, topic_id: UUID | None, error: KafkaError
) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=wanted.topic_name,
        topic_id=topic_id,
        error_code=error_code(error),
        error_message=str(error),
    )
