"""OffsetDelete (47): a consumer group forgets how far it is in topics that it does not read."""

from __future__ import annotations

from collections.abc import Awaitable

from kio.schema.errors import ErrorCode
from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, TopicName


def handle(
    parts: Parts, context: Context, request: OffsetDeleteRequest
) -> Awaitable[OffsetDeleteResponse]:
    pending = parts.consumer_group_coordinator.delete_offsets(
        GroupId(request.group_id),
        {
            TopicName(topic.name): tuple(one.partition_index for one in topic.partitions)
            for topic in request.topics
        },
    )
    return _respond(parts.topics.catalog, request, pending)


def refuse(request: OffsetDeleteRequest, error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error_code(error), throttle_time=NO_THROTTLE, topics=())


async def _respond(
    catalog: Catalog,
    request: OffsetDeleteRequest,
    pending: Awaitable[dict[TopicName, KafkaError]],
) -> OffsetDeleteResponse:
    refused = await pending
    topics = []
    for topic in request.topics:
        name = TopicName(topic.name)
        found = catalog.find(name)
        known = 0 if found is None else found.partition_count
        topics.append(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=one.partition_index,
                        error_code=_code(refused.get(name), is_known=one.partition_index < known),
                    )
                    for one in topic.partitions
                ),
            )
        )
    return OffsetDeleteResponse(
        error_code=ErrorCode.none, throttle_time=NO_THROTTLE, topics=tuple(topics)
    )


def _code(refused: KafkaError | None, *, is_known: bool) -> ErrorCode:
    if not is_known:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none if refused is None else error_code(refused)
