"""Encodes the records of share groups for ``__consumer_offsets``, and decodes them.

It converts core's records of share groups (types 10 to 15) to Kafka's records and back.  The lists
of topics that are being initialized or deleted are always written empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sharegroup.broker.cluster.coordinator_log import KeyAndValue
from sharegroup.core.groups.share import records as core
from sharegroup.core.groups.share.assignor import Assignment
from sharegroup.core.groups.share.records import ShareGroupRecord, ShareGroupRecordType, Tombstone
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName
from sharegroup.wire.internal_topics import share_group_records as wire
from sharegroup.wire.internal_topics.coordinator_records import (
    decode_record,
    encode_key,
    encode_value,
)

STABLE = 0
"""The member state in Kafka's records; members of share groups have no other state."""

OF_MEMBERS = frozenset(
    {
        ShareGroupRecordType.MEMBER_METADATA,
        ShareGroupRecordType.TARGET_ASSIGNMENT_MEMBER,
        ShareGroupRecordType.CURRENT_MEMBER_ASSIGNMENT,
    }
)
"""The record types whose key has a member id besides the group id."""


def encode(record: ShareGroupRecord) -> KeyAndValue:
    """Return the stored key and value of a record; the value of a tombstone is None."""
    if isinstance(record, Tombstone):
        return _key(record.record_type, record.group_id, record.member_id), None
    record_type, value = _ENCODERS[type(record)](record)
    member_id = record.member_id if record_type in OF_MEMBERS else None  # type: ignore[union-attr]
    return _key(record_type, record.group_id, member_id), encode_value(value)


def decode(key: bytes, value: bytes | None) -> ShareGroupRecord | None:
    """Return the stored record, or None for a record type that this version does not know."""
    decoded = decode_record(wire.SHARE_GROUP_RECORDS, key, value)
    if decoded is None:
        return None
    stored_key, stored = decoded
    record_type = ShareGroupRecordType(int.from_bytes(key[:2], "big"))
    group_id = GroupId(stored_key.group_id)
    member_id = MemberId(stored_key.member_id) if record_type in OF_MEMBERS else None
    if stored is None:
        return Tombstone(record_type, group_id, member_id)
    return _DECODERS[record_type](group_id, member_id, stored)


def _key(record_type: ShareGroupRecordType, group_id: GroupId, member_id: MemberId | None) -> bytes:
    key_class, _ = wire.SHARE_GROUP_RECORDS[record_type]
    if member_id is None:
        return encode_key(key_class(group_id=group_id))
    return encode_key(key_class(group_id=group_id, member_id=member_id))


def _member_metadata(record: core.ShareGroupMemberMetadata) -> tuple[ShareGroupRecordType, Any]:
    return ShareGroupRecordType.MEMBER_METADATA, wire.ShareGroupMemberMetadataValue(
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=record.subscribed_topic_names,
    )


def _metadata(record: core.ShareGroupMetadata) -> tuple[ShareGroupRecordType, Any]:
    return ShareGroupRecordType.METADATA, wire.ShareGroupMetadataValue(
        epoch=record.epoch, metadata_hash=record.metadata_hash
    )


def _target_metadata(
    record: core.ShareGroupTargetAssignmentMetadata,
) -> tuple[ShareGroupRecordType, Any]:
    return (
        ShareGroupRecordType.TARGET_ASSIGNMENT_METADATA,
        wire.ShareGroupTargetAssignmentMetadataValue(
            assignment_epoch=record.assignment_epoch,
            assignment_timestamp=record.assignment_timestamp,
        ),
    )


def _target_member(
    record: core.ShareGroupTargetAssignmentMember,
) -> tuple[ShareGroupRecordType, Any]:
    return (
        ShareGroupRecordType.TARGET_ASSIGNMENT_MEMBER,
        wire.ShareGroupTargetAssignmentMemberValue(
            topic_partitions=_stored_assignment(record.partitions)
        ),
    )


def _current(record: core.ShareGroupCurrentMemberAssignment) -> tuple[ShareGroupRecordType, Any]:
    return (
        ShareGroupRecordType.CURRENT_MEMBER_ASSIGNMENT,
        wire.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=record.member_epoch,
            previous_member_epoch=record.previous_member_epoch,
            state=STABLE,
            assigned_partitions=_stored_assignment(record.partitions),
        ),
    )


def _state_partitions(
    record: core.ShareGroupStatePartitionMetadata,
) -> tuple[ShareGroupRecordType, Any]:
    return (
        ShareGroupRecordType.STATE_PARTITION_METADATA,
        wire.ShareGroupStatePartitionMetadataValue(
            initializing_topics=(),
            initialized_topics=tuple(
                wire.TopicPartitionsInfo(
                    topic_id=topic.topic_id,
                    topic_name=topic.name,
                    partitions=tuple(sorted(topic.partitions)),
                )
                for topic in record.initialized
            ),
            deleting_topics=(),
        ),
    )


def _stored_assignment(assignment: Assignment) -> tuple[wire.TopicPartitions, ...]:
    return tuple(
        wire.TopicPartitions(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in core.by_topic(assignment).items()
    )


def _loaded_assignment(topics: Iterable[wire.TopicPartitions]) -> Assignment:
    return frozenset(
        TopicIdPartition(TopicId(topic.topic_id), partition)
        for topic in topics
        for partition in topic.partitions
    )


def _loaded_topic(topic: wire.TopicPartitionsInfo) -> core.InitializedTopic:
    return core.InitializedTopic(
        TopicId(topic.topic_id), TopicName(topic.topic_name), frozenset(topic.partitions)
    )


_ENCODERS: dict[type[Any], Callable[[Any], tuple[ShareGroupRecordType, Any]]] = {
    core.ShareGroupMemberMetadata: _member_metadata,
    core.ShareGroupMetadata: _metadata,
    core.ShareGroupTargetAssignmentMetadata: _target_metadata,
    core.ShareGroupTargetAssignmentMember: _target_member,
    core.ShareGroupCurrentMemberAssignment: _current,
    core.ShareGroupStatePartitionMetadata: _state_partitions,
}

_DECODERS: dict[ShareGroupRecordType, Callable[[GroupId, Any, Any], ShareGroupRecord]] = {
    ShareGroupRecordType.MEMBER_METADATA: lambda group_id, member_id, stored: (
        core.ShareGroupMemberMetadata(
            group_id,
            member_id,
            stored.rack_id,
            stored.client_id,
            stored.client_host,
            tuple(map(TopicName, stored.subscribed_topic_names)),
        )
    ),
    ShareGroupRecordType.METADATA: lambda group_id, _, stored: core.ShareGroupMetadata(
        group_id, stored.epoch, stored.metadata_hash
    ),
    ShareGroupRecordType.TARGET_ASSIGNMENT_METADATA: lambda group_id, _, stored: (
        core.ShareGroupTargetAssignmentMetadata(
            group_id, stored.assignment_epoch, stored.assignment_timestamp
        )
    ),
    ShareGroupRecordType.TARGET_ASSIGNMENT_MEMBER: lambda group_id, member_id, stored: (
        core.ShareGroupTargetAssignmentMember(
            group_id, member_id, _loaded_assignment(stored.topic_partitions)
        )
    ),
    ShareGroupRecordType.CURRENT_MEMBER_ASSIGNMENT: lambda group_id, member_id, stored: (
        core.ShareGroupCurrentMemberAssignment(
            group_id,
            member_id,
            stored.member_epoch,
            stored.previous_member_epoch,
            _loaded_assignment(stored.assigned_partitions),
        )
    ),
    ShareGroupRecordType.STATE_PARTITION_METADATA: lambda group_id, _, stored: (
        core.ShareGroupStatePartitionMetadata(
            group_id, tuple(map(_loaded_topic, stored.initialized_topics))
        )
    ),
}
