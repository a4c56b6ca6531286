"""OffsetCommit (8): a consumer group notes how far it is; topics by id from version 10 on."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE, count_ms
from sharegroup.broker.parts import Parts
from sharegroup.core.consumer_group_records import CommittedOffset, OffsetCommit
from sharegroup.core.consumer_groups import Committer
from sharegroup.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    OffsetMetadataTooLarge,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharegroup.ids import GroupId, MemberId, TopicId
from sharegroup.wire.apis import response_module

NATIVE = True
API_KEY = 8
THROTTLE_VERSION = 3
GROUP_NOT_FOUND_VERSION = 9
TOPIC_ID_VERSION = 10


@dataclass(slots=True)
class _Plan:
    """What is asked: the offsets that can be committed, and why the others cannot."""

    request: Any
    offsets: list[OffsetCommit] = field(default_factory=list)
    refused: dict[tuple[int, int], KafkaError] = field(default_factory=dict)
    """By position in the request: of the topic, of the partition in it."""


def handle(parts: Parts, context: Context, request: Any) -> Any:
    plan = _plan(parts, request)
    if not plan.offsets:
        return _response(plan, None)
    committer = Committer(
        GroupId(request.group_id),
        MemberId(request.member_id),
        getattr(request, "group_instance_id", None),
        request.generation_id_or_member_epoch,
    )
    try:
        pending = parts.consumer_group_coordinator.commit(committer, tuple(plan.offsets))
    except GroupIdNotFound as error:
        if context.api_version >= GROUP_NOT_FOUND_VERSION or committer.generation < 0:
            return _response(plan, error)
        return _response(plan, IllegalGeneration(str(error)))
    except KafkaError as error:
        return _response(plan, error)
    return _respond(plan, pending)


def refuse(request: Any, error: KafkaError) -> Any:
    return _response(_Plan(request), error)


def _plan(parts: Parts, request: Any) -> _Plan:
    plan = _Plan(request)
    now_ms = parts.clock.wall_ms()
    # Clients from before 2018 say themselves how long an offset is to be kept; -1 is no answer.
    retention = getattr(request, "retention_time", None)
    retention_ms = -1 if retention is None else count_ms(retention)
    expires_ms = None if retention_ms < 0 else now_ms + retention_ms
    note_bytes_max = parts.config.consumer_group.offset_metadata_bytes_max
    for place, wanted in enumerate(request.topics):
        for index, one in enumerate(wanted.partitions):
            note = one.committed_metadata or ""
            try:
                topic = _topic(parts, wanted, one.partition_index)
                if len(note) > note_bytes_max:
                    raise OffsetMetadataTooLarge(
                        f"group {request.group_id!r}, {topic.name}-{one.partition_index}: "
                        f"metadata of {len(note)} is longer than {note_bytes_max}"
                    )
            except KafkaError as error:
                plan.refused[place, index] = error
                continue
            committed = CommittedOffset(
                one.committed_offset,
                getattr(one, "committed_leader_epoch", -1),
                note,
                now_ms,
                expires_ms,
                topic.topic_id if expires_ms is None else None,
            )
            plan.offsets.append(
                OffsetCommit(GroupId(request.group_id), topic.name, one.partition_index, committed)
            )
    return plan


def _topic(parts: Parts, wanted: Any, partition: int) -> Topic:
    """The topic that is meant, if it has the partition."""
    catalog = parts.topics.catalog
    if wanted.__version__ >= TOPIC_ID_VERSION:
        found = None if wanted.topic_id is None else catalog.by_id(TopicId(wanted.topic_id))
        if found is None:
            raise UnknownTopicId(f"there is no topic with id {wanted.topic_id}")
    else:
        found = catalog.topic(wanted.name)
    if not 0 <= partition < found.partition_count:
        raise UnknownTopicOrPartition(
            f"topic {found.name!r} has partitions 0 to {found.partition_count - 1}, not {partition}"
        )
    return found


async def _respond(plan: _Plan, pending: Awaitable[None]) -> Any:
    try:
        await pending
    except KafkaError as error:
        return _response(plan, error)
    return _response(plan, None)


def _response(plan: _Plan, error: KafkaError | None) -> Any:
    """``error`` is what became of the offsets that could have been committed."""
    request = plan.request
    messages = response_module(API_KEY, request.__version__)
    rest = ErrorCode.none if error is None else error_code(error)
    topics = []
    for place, wanted in enumerate(request.topics):
        partitions = tuple(
            messages.OffsetCommitResponsePartition(
                partition_index=one.partition_index,
                error_code=(
                    error_code(plan.refused[place, index])
                    if (place, index) in plan.refused
                    else rest
                ),
            )
            for index, one in enumerate(wanted.partitions)
        )
        which = (
            {"topic_id": wanted.topic_id}
            if request.__version__ >= TOPIC_ID_VERSION
            else {"name": wanted.name}
        )
        topics.append(messages.OffsetCommitResponseTopic(**which, partitions=partitions))
    throttle = {} if request.__version__ < THROTTLE_VERSION else {"throttle_time": NO_THROTTLE}
    return messages.OffsetCommitResponse(**throttle, topics=tuple(topics))
