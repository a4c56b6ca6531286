"""OffsetDelete (47): deletes offsets of a consumer group in topics that it does not read."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Protocol

from kio.schema.errors import ErrorCode
from kio.schema.offset_delete.v0.request import OffsetDeleteRequest, OffsetDeleteRequestPartition
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import Permission
from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import HasClassicGroups, HasSlices, HasTopics
from sharegroup.errors import GroupIdNotFound, KafkaError
from sharegroup.ids import GroupId, TopicName
from sharegroup.steps import Steps, of_each, paced

PIECE_OFFSETS = 128
"""Offsets of a wide request that are deleted with one write."""

Partitions = dict[TopicName, list[int]]

Piece = tuple[Partitions, Awaitable[dict[TopicName, KafkaError]] | KafkaError]
"""Partitions of a request, and the deletion of their offsets, or the error that prevented it."""


class OffsetDeleteParts(HasClassicGroups, HasSlices, HasTopics, Protocol):
    """What these requests touch of the broker."""


@dataclass(slots=True)
class Refused:
    """The errors of topics that the group still reads, and of partitions whose write failed."""

    topics: dict[TopicName, KafkaError] = field(default_factory=dict)
    partitions: dict[tuple[TopicName, int], KafkaError] = field(default_factory=dict)

    def error(self, topic: TopicName, partition: int) -> KafkaError | None:
        return self.topics.get(topic) or self.partitions.get((topic, partition))


def handle(
    parts: OffsetDeleteParts, context: RequestContext, request: OffsetDeleteRequest
) -> Steps[Later[OffsetDeleteResponse]]:
    """Delete offsets in pieces, each of which is written on its own and may fail."""
    coordinator, group_id = parts.classic_group_coordinator, GroupId(request.group_id)
    read = Permission(context.rights, required.READ_TOPICS)
    named = (
        (topic.name, partition)
        for topic in request.topics
        if read.allows(topic.name)
        for partition in topic.partitions
    )
    # A missing group fails the whole request, even a request without partitions.
    first = _by_topic(islice(named, PIECE_OFFSETS))
    pieces: list[Piece] = [(first, coordinator.delete_offsets(group_id, first))]
    while partitions := _by_topic(islice(named, PIECE_OFFSETS)):
        yield
        try:
            pieces.append((partitions, coordinator.delete_offsets(group_id, partitions)))
        except GroupIdNotFound:  # The group was deleted with its offsets.
            break
        except KafkaError as error:
            pieces.append((partitions, error.with_traceback(None)))
    return Later(_respond(parts, request, pieces, read))


def _by_topic(named: Iterable[tuple[str, OffsetDeleteRequestPartition]]) -> Partitions:
    partitions: Partitions = {}
    for name, partition in named:
        partitions.setdefault(TopicName(name), []).append(partition.partition_index)
    return partitions


async def _respond(
    parts: OffsetDeleteParts, request: OffsetDeleteRequest, pieces: list[Piece], read: Permission
) -> OffsetDeleteResponse:
    """Answer when the pieces are durable; raise if all of them failed."""
    refused, failed_count = Refused(), 0
    for partitions, pending in pieces:
        try:
            if isinstance(pending, KafkaError):
                raise pending
            refused.topics |= await pending
        except KafkaError as error:
            failed_count += 1
            if failed_count == len(pieces):
                raise
            failed = error.with_traceback(None)
            refused.partitions.update(
                ((topic, index), failed) for topic in partitions for index in partitions[topic]
            )
        if len(pieces) > 1:
            await parts.slices.turn()
    return await parts.slices.finish(_response(parts.topics.catalog, request, refused, read))


def _response(
    catalog: Catalog,
    request: OffsetDeleteRequest,
    refused: Refused,
    read: Permission,
) -> Steps[OffsetDeleteResponse]:
    topics = []
    for topic, pause in paced(request.topics):
        name = TopicName(topic.name)
        if (denial := read.denial(name)) is not None:
            make = partial(_failed, denial)
        else:
            catalog_topic = catalog.find(name)
            partition_count = 0 if catalog_topic is None else catalog_topic.partition_count
            make = partial(_partition, refused, name, partition_count)
        partitions = yield from of_each(make, topic.partitions)
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        if pause:
            yield
    return OffsetDeleteResponse(
        error_code=ErrorCode.none, throttle_time=NO_THROTTLE, topics=tuple(topics)
    )


def _partition(
    refused: Refused,
    topic: TopicName,
    partition_count: int,
    partition: OffsetDeleteRequestPartition,
) -> OffsetDeleteResponsePartition:
    index = partition.partition_index
    return OffsetDeleteResponsePartition(
        partition_index=index,
        error_code=_code(refused.error(topic, index), is_known=index < partition_count),
    )


def _failed(
    error: KafkaError, partition: OffsetDeleteRequestPartition
) -> OffsetDeleteResponsePartition:
    return OffsetDeleteResponsePartition(
        partition_index=partition.partition_index, error_code=error_code(error)
    )


def _code(refused: KafkaError | None, *, is_known: bool) -> ErrorCode:
    if not is_known:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none if refused is None else error_code(refused)


SERVED = {
    47: ApiHandler(
        handle,
        handling=Handling.CHANGES_IN_STEPS,
        gates=(required.DELETE_GROUP,),
        checks=(required.READ_TOPICS,),
    )
}
