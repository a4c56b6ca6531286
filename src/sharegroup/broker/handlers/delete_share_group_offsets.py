"""DeleteShareGroupOffsets (92): an empty group forgets some topics."""

from __future__ import annotations

from kio.schema.delete_share_group_offsets.v0.request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kio.schema.delete_share_group_offsets.v0.response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode

from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, TopicName


async def handle(
    parts: Parts, context: Context, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    group_id = GroupId(request.group_id)
    parts.share_group_coordinator.check_empty(group_id)
    topics = {one.topic_name: one for one in request.topics}
    return DeleteShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        responses=tuple([await _topic(parts, group_id, wanted) for wanted in topics.values()]),
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
        return DeleteShareGroupOffsetsResponseTopic(
            topic_name=wanted.topic_name,
            topic_id=topic_id,
            error_code=error_code(error),
            error_message=str(error),
        )
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=wanted.topic_name, topic_id=topic_id, error_code=ErrorCode.none
    )
