"""Encodes and decodes the records of consumer groups of KIP-848 in ``__consumer_offsets``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sharegroup.broker.cluster.coordinator_log import KeyAndValue
from sharegroup.core.groups.consumer import records as core
from sharegroup.core.groups.consumer.records import (
    AssignmentEpochs,
    MemberState,
    ModernGroupRecord,
    ModernGroupRecordType,
    Tombstone,
)
from sharegroup.core.groups.share.records import by_topic
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName
from sharegroup.wire.internal_topics import modern_group_records as wire
from sharegroup.wire.internal_topics.coordinator_records import (
    decode_record,
    encode_key,
    encode_value,
)

OF_MEMBERS = frozenset(
    {
        ModernGroupRecordType.MEMBER_METADATA,
        ModernGroupRecordType.TARGET_ASSIGNMENT_MEMBER,
        ModernGroupRecordType.CURRENT_MEMBER_ASSIGNMENT,
    }
)
"""The record types whose key has a member id besides the group id."""


def encode(record: ModernGroupRecord) -> KeyAndValue:
    """Return the stored key and value of a record; the value of a tombstone is None."""
    if isinstance(record, Tombstone):
        return _key(record.record_type, record.group_id, record.member_id, record.pattern), None
    record_type, value = _ENCODERS[type(record)](record)
    key = _key(
        record_type,
        record.group_id,
        getattr(record, "member_id", None),
        getattr(record, "pattern", None),
    )
    return key, encode_value(value)


def decode(key: bytes, value: bytes | None) -> ModernGroupRecord | None:
    """Return the stored record, or None for a record type that this version does not know."""
    decoded = decode_record(wire.MODERN_GROUP_RECORDS, key, value)
    if decoded is None:
        return None
    stored_key, stored = decoded
    record_type = ModernGroupRecordType(int.from_bytes(key[:2], "big"))
    group_id = GroupId(stored_key.group_id)
    member_id = MemberId(stored_key.member_id) if record_type in OF_MEMBERS else None
    pattern = getattr(stored_key, "regular_expression", None)
    if stored is None:
        return Tombstone(record_type, group_id, member_id, pattern)
    return _DECODERS[record_type](group_id, pattern if member_id is None else member_id, stored)


def _key(
    record_type: ModernGroupRecordType,
    group_id: GroupId,
    member_id: MemberId | None,
    pattern: str | None,
) -> bytes:
    key_class, _ = wire.MODERN_GROUP_RECORDS[record_type]
    if record_type in OF_MEMBERS:
        return encode_key(key_class(group_id=group_id, member_id=member_id))
    if record_type is ModernGroupRecordType.REGULAR_EXPRESSION:
        return encode_key(key_class(group_id=group_id, regular_expression=pattern))
    return encode_key(key_class(group_id=group_id))


# From core to the wire


def _metadata(record: core.ModernGroupMetadata) -> tuple[ModernGroupRecordType, Any]:
    return ModernGroupRecordType.METADATA, wire.ConsumerGroupMetadataValue(
        epoch=record.epoch, metadata_hash=record.metadata_hash
    )


def _member_metadata(record: core.ModernGroupMemberMetadata) -> tuple[ModernGroupRecordType, Any]:
    classic = record.classic
    return ModernGroupRecordType.MEMBER_METADATA, wire.ConsumerGroupMemberMetadataValue(
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=record.subscribed_topic_names,
        subscribed_topic_regex=record.subscribed_topic_regex,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        server_assignor=record.server_assignor,
        classic_member_metadata=(
            None
            if classic is None
            else wire.ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=tuple(
                    wire.ClassicProtocol(name=name, metadata=metadata)
                    for name, metadata in classic.protocols
                ),
            )
        ),
    )


def _target_metadata(
    record: core.ModernGroupTargetAssignmentMetadata,
) -> tuple[ModernGroupRecordType, Any]:
    return (
        ModernGroupRecordType.TARGET_ASSIGNMENT_METADATA,
        wire.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=record.assignment_epoch,
            assignment_timestamp=record.assignment_timestamp,
        ),
    )


def _target_member(
    record: core.ModernGroupTargetAssignmentMember,
) -> tuple[ModernGroupRecordType, Any]:
    return (
        ModernGroupRecordType.TARGET_ASSIGNMENT_MEMBER,
        wire.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=tuple(
                wire.TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic(record.partitions).items()
            )
        ),
    )


def _current(record: core.ModernGroupCurrentMemberAssignment) -> tuple[ModernGroupRecordType, Any]:
    return (
        ModernGroupRecordType.CURRENT_MEMBER_ASSIGNMENT,
        wire.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=record.member_epoch,
            previous_member_epoch=record.previous_member_epoch,
            state=record.state,
            assigned_partitions=_stored_epochs(record.assigned),
            partitions_pending_revocation=_stored_epochs(record.pending_revocation),
        ),
    )


def _regular_expression(
    record: core.ModernGroupRegularExpression,
) -> tuple[ModernGroupRecordType, Any]:
    return ModernGroupRecordType.REGULAR_EXPRESSION, wire.ConsumerGroupRegularExpressionValue(
        topics=tuple(sorted(record.topic_names)),
        version=record.version,
        timestamp=record.resolved_wall_ms,
    )


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


_ENCODERS: dict[type[Any], Callable[[Any], tuple[ModernGroupRecordType, Any]]] = {
    core.ModernGroupMetadata: _metadata,
    core.ModernGroupMemberMetadata: _member_metadata,
    core.ModernGroupTargetAssignmentMetadata: _target_metadata,
    core.ModernGroupTargetAssignmentMember: _target_member,
    core.ModernGroupCurrentMemberAssignment: _current,
    core.ModernGroupRegularExpression: _regular_expression,
}


# From the wire to core


def _loaded_member(
    group_id: GroupId, member_id: MemberId, stored: wire.ConsumerGroupMemberMetadataValue
) -> core.ModernGroupMemberMetadata:
    classic = stored.classic_member_metadata
    return core.ModernGroupMemberMetadata(
        group_id,
        member_id,
        stored.instance_id,
        stored.rack_id,
        stored.client_id,
        stored.client_host,
        tuple(sorted({TopicName(name) for name in stored.subscribed_topic_names})),
        stored.subscribed_topic_regex or "",
        stored.rebalance_timeout_ms,
        stored.server_assignor,
        None
        if classic is None
        else core.ClassicMember(
            classic.session_timeout_ms,
            tuple(
                (protocol.name, bytes(protocol.metadata))
                for protocol in classic.supported_protocols
            ),
        ),
    )


def _loaded_target(
    group_id: GroupId, member_id: MemberId, stored: wire.ConsumerGroupTargetAssignmentMemberValue
) -> core.ModernGroupTargetAssignmentMember:
    partitions = frozenset(
        TopicIdPartition(TopicId(topic.topic_id), partition)
        for topic in stored.topic_partitions
        for partition in topic.partitions
    )
    return core.ModernGroupTargetAssignmentMember(group_id, member_id, partitions)


def _loaded_current(
    group_id: GroupId, member_id: MemberId, stored: wire.ConsumerGroupCurrentMemberAssignmentValue
) -> core.ModernGroupCurrentMemberAssignment:
    known_states = tuple(MemberState)
    return core.ModernGroupCurrentMemberAssignment(
        group_id,
        member_id,
        stored.member_epoch,
        stored.previous_member_epoch,
        MemberState(stored.state) if stored.state in known_states else MemberState.UNKNOWN,
        _loaded_epochs(stored.assigned_partitions, stored.member_epoch),
        _loaded_epochs(stored.partitions_pending_revocation, stored.member_epoch),
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


_DECODERS: dict[ModernGroupRecordType, Callable[[GroupId, Any, Any], ModernGroupRecord]] = {
    ModernGroupRecordType.METADATA: lambda group_id, _, stored: core.ModernGroupMetadata(
        group_id, stored.epoch, stored.metadata_hash
    ),
    ModernGroupRecordType.PARTITION_METADATA: lambda group_id, _, _stored: core.PartitionMetadata(
        group_id
    ),
    ModernGroupRecordType.MEMBER_METADATA: _loaded_member,
    ModernGroupRecordType.TARGET_ASSIGNMENT_METADATA: lambda group_id, _, stored: (
        core.ModernGroupTargetAssignmentMetadata(
            group_id, stored.assignment_epoch, stored.assignment_timestamp
        )
    ),
    ModernGroupRecordType.TARGET_ASSIGNMENT_MEMBER: _loaded_target,
    ModernGroupRecordType.CURRENT_MEMBER_ASSIGNMENT: _loaded_current,
    ModernGroupRecordType.REGULAR_EXPRESSION: lambda group_id, pattern, stored: (
        core.ModernGroupRegularExpression(
            group_id,
            pattern,
            frozenset(map(TopicName, stored.topics)),
            stored.version,
            stored.timestamp,
        )
    ),
}
