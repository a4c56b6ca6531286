"""The stored form of the records of consumer groups of KIP-848 in ``__consumer_offsets``."""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.broker.groups.stored_records import (
    RecordCodec,
    StoredForm,
    loaded_assignment,
    stored_assignment,
)
from sharegroup.core.groups.modern import records as core
from sharegroup.core.groups.modern.records import (
    AssignmentEpochs,
    MemberState,
    ModernGroupRecord,
    ModernGroupRecordType,
    ModernGroupTombstone,
)
from sharegroup.core.groups.share.records import GroupEpoch, TargetAssignment, TargetAssignmentEpoch
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.wire.internal_topics import modern_group_records as wire


def _stored_classic(classic: core.ClassicMember | None) -> wire.ClassicMemberMetadata | None:
    if classic is None:
        return None
    return wire.ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=tuple(
            wire.ClassicProtocol(name=name, metadata=metadata)
            for name, metadata in classic.protocols
        ),
    )


def _loaded_classic(classic: wire.ClassicMemberMetadata | None) -> core.ClassicMember | None:
    if classic is None:
        return None
    return core.ClassicMember(
        classic.session_timeout_ms,
        tuple(
            (protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols
        ),
    )


def _loaded_names(names: Iterable[str]) -> tuple[TopicName, ...]:
    return tuple(sorted({TopicName(name) for name in names}))


def _loaded_state(state: int) -> MemberState:
    return MemberState(state) if state in tuple(MemberState) else MemberState.UNKNOWN


def _stored_epochs(partitions: AssignmentEpochs) -> tuple[wire.AssignedTopicPartitions, ...]:
    epochs: dict[TopicId, dict[int, int]] = {}
    # By identity: equal topic ids are nearly always the same object, and hashing them is slow.
    found: dict[int, dict[int, int]] = {}
    for (topic_id, number), epoch in partitions.items():
        key = id(topic_id)
        if key not in found:
            found[key] = epochs.setdefault(topic_id, {})
        found[key][number] = epoch
    return tuple(
        wire.AssignedTopicPartitions(
            topic_id=topic_id,
            partitions=tuple(numbers := sorted(epochs[topic_id])),
            assignment_epochs=tuple(map(epochs[topic_id].__getitem__, numbers)),
        )
        for topic_id in sorted(epochs)
    )


def _loaded_epochs(
    topics: Iterable[wire.AssignedTopicPartitions], member_epoch: int
) -> AssignmentEpochs:
    """Return partitions with their epochs; Kafka before 4.3 wrote no epochs, as if all were new."""
    epochs: dict[TopicIdPartition, int] = {}
    for topic in topics:
        numbers = topic.assignment_epochs or (member_epoch,) * len(topic.partitions)
        for partition, epoch in zip(topic.partitions, numbers, strict=True):
            epochs[TopicIdPartition(TopicId(topic.topic_id), partition)] = epoch
    return epochs


_FORMS = {
    ModernGroupRecordType.METADATA: StoredForm(GroupEpoch),
    ModernGroupRecordType.PARTITION_METADATA: StoredForm(
        core.PartitionMetadata, {"topics": lambda _: ()}
    ),
    ModernGroupRecordType.MEMBER_METADATA: StoredForm(
        core.ModernGroupMemberMetadata,
        {"classic_member_metadata": lambda record: _stored_classic(record.classic)},
        {
            "subscribed_topic_names": lambda value: _loaded_names(value.subscribed_topic_names),
            "subscribed_topic_regex": lambda value: value.subscribed_topic_regex or "",
            "classic": lambda value: _loaded_classic(value.classic_member_metadata),
        },
    ),
    ModernGroupRecordType.TARGET_ASSIGNMENT_METADATA: StoredForm(TargetAssignmentEpoch),
    ModernGroupRecordType.TARGET_ASSIGNMENT_MEMBER: StoredForm(
        TargetAssignment,
        {"topic_partitions": lambda record: stored_assignment(record.partitions)},
        {"partitions": lambda value: loaded_assignment(value.topic_partitions)},
    ),
    ModernGroupRecordType.CURRENT_MEMBER_ASSIGNMENT: StoredForm(
        core.ModernGroupCurrentMemberAssignment,
        {
            "assigned_partitions": lambda record: _stored_epochs(record.assigned),
            "partitions_pending_revocation": lambda record: _stored_epochs(
                record.pending_revocation
            ),
        },
        {
            "state": lambda value: _loaded_state(value.state),
            "assigned": lambda value: _loaded_epochs(value.assigned_partitions, value.member_epoch),
            "pending_revocation": lambda value: _loaded_epochs(
                value.partitions_pending_revocation, value.member_epoch
            ),
        },
    ),
    ModernGroupRecordType.REGULAR_EXPRESSION: StoredForm(
        core.ModernGroupRegularExpression,
        {
            "topics": lambda record: tuple(sorted(record.topic_names)),
            "timestamp": lambda record: record.resolved_wall_ms,
        },
        {
            "topic_names": lambda value: frozenset(map(TopicName, value.topics)),
            "resolved_wall_ms": lambda value: value.timestamp,
        },
    ),
}

_CODEC = RecordCodec[ModernGroupRecord](wire.MODERN_GROUP_RECORDS, _FORMS, ModernGroupTombstone)
encode, decode = _CODEC.encode, _CODEC.decode
