"""Encodes the records of consumer groups for ``__consumer_offsets``, and decodes them."""

from __future__ import annotations

from sharegroup.broker.cluster.coordinator_log import KeyAndValue
from sharegroup.core.groups.classic.records import (
    ConsumerGroupRecord,
    GroupMetadata,
    GroupTombstone,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetTombstone,
    StoredMember,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicName
from sharegroup.wire.internal_topics import consumer_group_records as wire
from sharegroup.wire.internal_topics.coordinator_records import (
    decode_record,
    encode_key,
    encode_value,
)


def encode(record: ConsumerGroupRecord) -> KeyAndValue:
    """Return the stored key and value of a record; the value of a tombstone is None."""
    match record:
        case OffsetCommit():
            return _offset_key(record), encode_value(_offset_value(record.committed))
        case OffsetTombstone():
            return _offset_key(record), None
        case GroupMetadata():
            key = encode_key(wire.GroupMetadataKey(group=record.group_id))
            return key, encode_value(_group_value(record))
        case GroupTombstone():
            return encode_key(wire.GroupMetadataKey(group=record.group_id)), None


def decode(key: bytes, value: bytes | None) -> ConsumerGroupRecord | None:
    """Return the stored record, or None for a record type that this version does not know."""
    decoded = decode_record(wire.CONSUMER_GROUP_RECORDS, key, value)
    if decoded is None:
        return None
    stored_key, stored = decoded
    group_id = GroupId(stored_key.group)
    if isinstance(stored_key, wire.GroupMetadataKey):
        return GroupTombstone(group_id) if stored is None else _loaded_group(group_id, stored)
    topic, partition = TopicName(stored_key.topic), stored_key.partition
    if stored is None:
        return OffsetTombstone(group_id, topic, partition)
    return OffsetCommit(group_id, topic, partition, _loaded_offset(stored))


def _offset_key(record: OffsetCommit | OffsetTombstone) -> bytes:
    return encode_key(
        wire.OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
    )


def _offset_value(
    committed: OffsetAndMetadata,
) -> wire.OffsetCommitValue | wire.ExpiringOffsetCommitValue:
    if committed.topic_id is not None:
        assert committed.expires_ms is None, f"{committed}: no record holds both"
        return wire.OffsetCommitValue(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.committed_ms,
            topic_id=committed.topic_id,
        )
    assert committed.expires_ms is not None, f"{committed}: neither a topic id nor an end"
    return wire.ExpiringOffsetCommitValue(
        offset=committed.offset,
        metadata=committed.metadata,
        commit_timestamp=committed.committed_ms,
        expire_timestamp=committed.expires_ms,
    )


def _loaded_offset(
    stored: wire.OffsetCommitValue | wire.ExpiringOffsetCommitValue,
) -> OffsetAndMetadata:
    if isinstance(stored, wire.ExpiringOffsetCommitValue):
        return OffsetAndMetadata(
            stored.offset,
            -1,
            stored.metadata,
            stored.commit_timestamp,
            expires_ms=stored.expire_timestamp,
            topic_id=None,
        )
    return OffsetAndMetadata(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        expires_ms=None,
        topic_id=TopicId(stored.topic_id),
    )


def _group_value(record: GroupMetadata) -> wire.GroupMetadataValue:
    return wire.GroupMetadataValue(
        protocol_type=record.protocol_type,
        generation=record.generation,
        protocol=record.protocol,
        leader=record.leader,
        current_state_timestamp=record.since_ms,
        members=tuple(
            wire.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in record.members
        ),
    )


def _loaded_group(group_id: GroupId, stored: wire.GroupMetadataValue) -> GroupMetadata:
    return GroupMetadata(
        group_id,
        stored.protocol_type,
        stored.generation,
        stored.protocol,
        None if stored.leader is None else MemberId(stored.leader),
        stored.current_state_timestamp,
        tuple(
            StoredMember(
                MemberId(member.member_id),
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout,
                member.rebalance_timeout,
                member.subscription,
                member.assignment,
            )
            for member in stored.members
        ),
    )
