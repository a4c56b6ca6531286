"""The offsets of an OffsetCommit or TxnOffsetCommit request, checked before any is committed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sharegroup.broker.access.permission import Permission
from sharegroup.broker.cluster.catalog import Catalog, Topic
from sharegroup.core.groups.classic.records import OffsetAndMetadata, OffsetCommit
from sharegroup.errors import (
    KafkaError,
    OffsetMetadataTooLarge,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharegroup.ids import GroupId, TopicId, TopicName
from sharegroup.steps import STEP_MASK, Steps

if TYPE_CHECKING:
    # The newest version stands for all.  At run time only those that clients use are imported.
    from kio.schema.offset_commit.v10.request import (
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    from sharegroup.wire.messages.txn_offset_commit_v6 import (
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
    )

    CommitTopic = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
    CommitPartition = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition

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
