"""OffsetCommit (8): commits offsets of a consumer group; topics have ids from version 10 on."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from sharegroup.broker.access import requirements as required
from sharegroup.broker.access.permission import Permission
from sharegroup.broker.cluster.catalog import Catalog, Topic
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    count_ms,
    error_code,
)
from sharegroup.broker.parts import Parts
from sharegroup.core.groups.classic.consumer_groups import Committer
from sharegroup.core.groups.classic.records import OffsetAndMetadata, OffsetCommit
from sharegroup.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    OffsetMetadataTooLarge,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicName
from sharegroup.steps import STEP_MASK, Steps
from sharegroup.wire.codec.apis import response_module

if TYPE_CHECKING:
    from kio.schema.offset_commit.v10.request import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )
    from kio.schema.offset_commit.v10.response import OffsetCommitResponse

    from sharegroup.wire.messages.txn_offset_commit_v6 import (
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
    )

    CommitTopic = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
    CommitPartition = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


# The offsets of an OffsetCommit or TxnOffsetCommit request, checked before any is committed.


PIECE_OFFSETS = 128
"""Offsets that are written as one batch."""


@dataclass(slots=True)
class OffsetPlan:
    """The offsets of a request that can be committed, and the errors of the others."""

    offsets: list[OffsetCommit] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    """The position in the request of each of ``offsets``; see ``refused``."""
    refused: dict[tuple[int, int], KafkaError] = field(default_factory=dict)
    """Errors by position in the request: index of the topic, index of the partition in it."""


def plan_offsets(
    catalog: Catalog,
    group_id: GroupId,
    topics: Iterable[CommitTopic],
    *,
    read: Permission,
    note_bytes_max: int,
    now_ms: int,
    expires_ms: int | None = None,
) -> Steps[OffsetPlan]:
    """Check each offset: its topic, its partition, and the length of its metadata.

    ``expires_ms`` is the time until which old clients want the offsets to be kept.
    """
    plan = OffsetPlan()
    count = 0
    for place, wanted in enumerate(topics):
        partitions: Iterable[CommitPartition] = wanted.partitions
        for index, partition in enumerate(partitions):
            count += 1
            if count & STEP_MASK == 0:
                yield
            note = partition.committed_metadata or ""
            try:
                topic = _topic(catalog, wanted, partition.partition_index, read)
                if len(note) > note_bytes_max:
                    raise OffsetMetadataTooLarge(
                        f"group {group_id!r}, {topic.name}-{partition.partition_index}: "
                        f"metadata of {len(note)} is longer than {note_bytes_max}"
                    )
            except KafkaError as error:
                # Without the traceback, which would keep this frame, and so the request.
                plan.refused[place, index] = error.with_traceback(None)
                continue
            committed = OffsetAndMetadata(
                partition.committed_offset,
                getattr(partition, "committed_leader_epoch", -1),
                note,
                now_ms,
                expires_ms,
                # No record version of Kafka has both: version 1 has the end, version 4 the topic
                # id.
                topic.topic_id if expires_ms is None else None,
            )
            plan.places.append((place, index))
            plan.offsets.append(
                OffsetCommit(group_id, topic.name, partition.partition_index, committed)
            )
    return plan


def topic_field(topic: Any) -> dict[str, Any]:
    """Return the field by which a request names a topic, for its response."""
    field_name = "topic_id" if hasattr(topic, "topic_id") else "name"
    return {field_name: getattr(topic, field_name)}


def _topic(catalog: Catalog, wanted: CommitTopic, partition: int, read: Permission) -> Topic:
    """Return the topic that the request names; raise if it lacks the partition."""
    name: str | None = getattr(wanted, "name", None)
    if name is not None:
        read.require(name)
        # After the permission: an unknown topic and a hidden one must get the same error.
        found = catalog.topic(TopicName(name))
    else:
        topic_id: UUID | None = getattr(wanted, "topic_id", None)
        by_id = None if topic_id is None else catalog.by_id(TopicId(topic_id))
        if by_id is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}")
        read.require(by_id.name, topic_id)
        found = by_id
    if not 0 <= partition < found.partition_count:
        raise UnknownTopicOrPartition(
            f"topic {found.name!r} has partitions 0 to {found.partition_count - 1}, not {partition}"
        )
    return found


API_KEY = 8
THROTTLE_VERSION = 3
GROUP_NOT_FOUND_VERSION = 9


def handle(
    parts: Parts, context: RequestContext, request: OffsetCommitRequest
) -> Steps[Later[OffsetCommitResponse]]:
    """Commit offsets in pieces, each of which is written on its own and may fail.

    After a crash the offsets of some pieces may be missing, but no response confirmed them.
    """
    plan = yield from _plan(parts, context, request)
    pieces: list[tuple[list[tuple[int, int]], Awaitable[None] | KafkaError | None]] = []
    for begin in range(0, len(plan.offsets), PIECE_OFFSETS):
        end = begin + PIECE_OFFSETS
        pending = _commit(parts, context, request, plan.offsets[begin:end])
        pieces.append((plan.places[begin:end], pending))
        yield
    return Later(_respond(parts, request, plan, pieces))


def _commit(
    parts: Parts, context: RequestContext, request: OffsetCommitRequest, offsets: list[OffsetCommit]
) -> Awaitable[None] | KafkaError | None:
    """Write offsets as one batch, or return the error that prevents it."""
    if not offsets:
        return None
    committer = Committer(
        GroupId(request.group_id),
        MemberId(request.member_id),
        getattr(request, "group_instance_id", None),
        request.generation_id_or_member_epoch,
        context.limited_user,
    )
    try:
        return parts.consumer_group_coordinator.commit(
            committer, tuple(offsets), api_version=context.api_version
        )
    except GroupIdNotFound as error:
        # Older members know ILLEGAL_GENERATION for a group that is gone
        # (`OffsetMetadataManager.java`).
        if context.api_version >= GROUP_NOT_FOUND_VERSION or committer.generation < 0:
            return error.with_traceback(None)
        return IllegalGeneration(str(error))
    except KafkaError as error:
        return error.with_traceback(None)


def _plan(parts: Parts, context: RequestContext, request: OffsetCommitRequest) -> Steps[OffsetPlan]:
    now_ms = parts.clock.wall_ms()
    # Clients from before 2018 set the retention of an offset; -1 means the broker's default.
    retention = getattr(request, "retention_time", None)
    retention_ms = -1 if retention is None else count_ms(retention)
    return plan_offsets(
        parts.topics.catalog,
        GroupId(request.group_id),
        request.topics,
        read=Permission(context.rights, required.READ_TOPICS),
        note_bytes_max=parts.config.consumer_group.offset_metadata_bytes_max,
        now_ms=now_ms,
        expires_ms=None if retention_ms < 0 else now_ms + retention_ms,
    )


async def _respond(
    parts: Parts,
    request: OffsetCommitRequest,
    plan: OffsetPlan,
    pieces: list[tuple[list[tuple[int, int]], Awaitable[None] | KafkaError | None]],
) -> OffsetCommitResponse:
    for places, pending in pieces:
        error = await _failure(pending) if isinstance(pending, Awaitable) else pending
        if error is not None:
            plan.refused.update(dict.fromkeys(places, error))
        if len(pieces) > 1:
            await parts.slices.turn()
    return await parts.slices.finish(_response(request, plan, None))


async def _failure(pending: Awaitable[None]) -> KafkaError | None:
    try:
        await pending
    except KafkaError as error:
        return error
    return None


def _response(
    request: OffsetCommitRequest, plan: OffsetPlan, error: KafkaError | None
) -> Steps[OffsetCommitResponse]:
    """Return the response; ``error`` applies to all offsets that the plan did not refuse."""
    messages = response_module(API_KEY, request.__version__)
    default_code = ErrorCode.none if error is None else error_code(error)
    named_topics: Iterable[OffsetCommitRequestTopic] = request.topics
    topics = []
    count = 0
    for place, wanted in enumerate(named_topics):
        named: Iterable[OffsetCommitRequestPartition] = wanted.partitions
        partitions = []
        for index, partition in enumerate(named):
            count += 1
            if count & STEP_MASK == 0:
                yield
            refused = plan.refused.get((place, index))
            partitions.append(
                messages.OffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=default_code if refused is None else error_code(refused),
                )
            )
        topics.append(
            messages.OffsetCommitResponseTopic(**topic_field(wanted), partitions=tuple(partitions))
        )
    throttle = {} if request.__version__ < THROTTLE_VERSION else {"throttle_time": NO_THROTTLE}
    response: OffsetCommitResponse = messages.OffsetCommitResponse(**throttle, topics=tuple(topics))
    return response


SERVED = {
    8: ApiHandler(
        handle,
        handling=Handling.CHANGES_IN_STEPS,
        gates=(required.READ_GROUP,),
        checks=(required.READ_TOPICS,),
        is_native=True,
    )
}
