"""OffsetCommit (8): commits offsets of a consumer group; topics have ids from version 10 on.

TxnOffsetCommit (`txn_offset_commit`) checks its offsets and answers in the same way.  All offsets
of a request are checked before any is committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode

from sharegroup.broker.access import checks as required
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
from sharegroup.broker.handlers.parts import (
    HasClassicGroups,
    HasClock,
    HasConfig,
    HasSlices,
    HasTopics,
)
from sharegroup.broker.load.slices import Slices
from sharegroup.core.groups.classic.classic_groups import Committer
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
from sharegroup.wire.codec.apis import api_of, response_module

if TYPE_CHECKING:
    # The newest version stands for all.  At run time only those that clients use are imported.
    from kio.schema.offset_commit.v10.request import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )
    from kio.schema.offset_commit.v10.response import OffsetCommitResponse

    from sharegroup.wire.messages.txn_offset_commit_v6 import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
    )

    CommitRequest = OffsetCommitRequest | TxnOffsetCommitRequest
    CommitTopic = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
    CommitPartition = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


API_KEY = 8
THROTTLE_VERSION = 3
GROUP_NOT_FOUND_VERSION = 9
PIECE_OFFSETS = 128
"""Offsets that are written as one batch."""

Piece = tuple[list[tuple[int, int]], Awaitable[None] | KafkaError | None]
"""The places of offsets in the request, and the write of them, or the error that prevented it."""


class OffsetCommitParts(HasClock, HasConfig, HasClassicGroups, HasSlices, HasTopics, Protocol):
    """What these requests touch of the broker."""


@dataclass(slots=True)
class OffsetPlan:
    """The offsets of a request that can be committed, and the errors of the others."""

    offsets: list[OffsetCommit] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    """The position in the request of each of ``offsets``; see ``refused``."""
    refused: dict[tuple[int, int], KafkaError] = field(default_factory=dict)
    """Errors by position in the request: index of the topic, index of the partition in it."""


def handle(
    parts: OffsetCommitParts, context: RequestContext, request: OffsetCommitRequest
) -> Steps[Later[OffsetCommitResponse]]:
    """Commit offsets in pieces, each of which is written on its own and may fail.

    After a crash the offsets of some pieces may be missing, but no response confirmed them.
    """
    plan = yield from plan_offsets(parts, context, request)
    pieces: list[Piece] = []
    for begin in range(0, len(plan.offsets), PIECE_OFFSETS):
        end = begin + PIECE_OFFSETS
        pending = _commit(parts, context, request, plan.offsets[begin:end])
        pieces.append((plan.places[begin:end], pending))
        yield
    return Later(_respond(parts.slices, request, plan, pieces))


def _commit(
    parts: OffsetCommitParts,
    context: RequestContext,
    request: OffsetCommitRequest,
    offsets: list[OffsetCommit],
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
        return parts.classic_group_coordinator.commit(
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


async def _respond(
    slices: Slices,
    request: OffsetCommitRequest,
    plan: OffsetPlan,
    pieces: list[Piece],
) -> OffsetCommitResponse:
    for places, pending in pieces:
        error = await _failure(pending) if isinstance(pending, Awaitable) else pending
        if error is not None:
            plan.refused.update(dict.fromkeys(places, error))
        if len(pieces) > 1:
            await slices.turn()
    response: OffsetCommitResponse = await slices.finish(
        response_steps(API_KEY, request, plan.refused)
    )
    return response


async def _failure(pending: Awaitable[None]) -> KafkaError | None:
    try:
        await pending
    except KafkaError as error:
        return error
    return None


def plan_offsets(
    parts: OffsetCommitParts, context: RequestContext, request: CommitRequest
) -> Steps[OffsetPlan]:
    """Check each offset: its topic, its partition, and the length of its metadata."""
    group_id, now_ms = GroupId(request.group_id), parts.clock.wall_ms()
    read = Permission(context.rights, required.READ_TOPICS)
    note_bytes_max = parts.config.consumer_group.offset_metadata_bytes_max
    expires_ms = _expires_ms(request, now_ms)
    plan = OffsetPlan()
    count = 0
    topics: Iterable[CommitTopic] = request.topics
    for place, named in enumerate(topics):
        partitions: Iterable[CommitPartition] = named.partitions
        for index, partition in enumerate(partitions):
            count += 1
            if count & STEP_MASK == 0:
                yield
            note = partition.committed_metadata or ""
            try:
                topic = _topic(parts.topics.catalog, named, partition.partition_index, read)
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


def _expires_ms(request: CommitRequest, now_ms: int) -> int | None:
    """Return when the offsets expire; None for the time that the broker sets.

    Clients from before 2018 set the retention of an offset; -1 means the broker's default.
    """
    retention = getattr(request, "retention_time", None)
    retention_ms = -1 if retention is None else count_ms(retention)
    return None if retention_ms < 0 else now_ms + retention_ms


def _topic(catalog: Catalog, named: CommitTopic, partition: int, read: Permission) -> Topic:
    """Return the topic that the request names; raise if it lacks the partition."""
    name: str | None = getattr(named, "name", None)
    if name is not None:
        read.require(name)
        # After the permission: an unknown topic and a hidden one must get the same error.
        topic = catalog.topic(TopicName(name))
    else:
        topic_id: UUID | None = getattr(named, "topic_id", None)
        by_id = None if topic_id is None else catalog.by_id(TopicId(topic_id))
        if by_id is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}")
        read.require(by_id.name, topic_id)
        topic = by_id
    if not 0 <= partition < topic.partition_count:
        raise UnknownTopicOrPartition(
            f"topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, not {partition}"
        )
    return topic


def response_steps(
    api_key: int, request: CommitRequest, refused: dict[tuple[int, int], KafkaError]
) -> Steps[Any]:
    """Make the response: the errors of the offsets in ``refused``, no error for the others."""
    messages = response_module(api_key, request.__version__)
    name = f"{api_of(api_key).name}Response"
    topic_class = getattr(messages, f"{name}Topic")
    partition_class = getattr(messages, f"{name}Partition")
    topics = []
    count = 0
    named_topics: Iterable[CommitTopic] = request.topics
    for place, named in enumerate(named_topics):
        id_field = "topic_id" if hasattr(named, "topic_id") else "name"
        partitions = []
        committed: Iterable[CommitPartition] = named.partitions
        for index, partition in enumerate(committed):
            count += 1
            if count & STEP_MASK == 0:
                yield
            error = refused.get((place, index))
            code = ErrorCode.none if error is None else error_code(error)
            partitions.append(
                partition_class(partition_index=partition.partition_index, error_code=code)
            )
        topics.append(
            topic_class(**{id_field: getattr(named, id_field)}, partitions=tuple(partitions))
        )
    has_throttle = api_key != API_KEY or request.__version__ >= THROTTLE_VERSION
    throttle = {"throttle_time": NO_THROTTLE} if has_throttle else {}
    return getattr(messages, name)(**throttle, topics=tuple(topics))


SERVED = {
    8: ApiHandler(
        handle,
        handling=Handling.CHANGES_IN_STEPS,
        gates=(required.READ_GROUP,),
        checks=(required.READ_TOPICS,),
        is_native=True,
    )
}
