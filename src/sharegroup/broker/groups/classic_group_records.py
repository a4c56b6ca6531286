"""The stored form of the records of classic groups and of committed offsets."""

from __future__ import annotations

from sharegroup.broker.cluster.coordinator_log import KeyAndValue
from sharegroup.broker.groups.stored_records import RecordCodec, StoredForm, conversion
from sharegroup.core.groups.classic import records as core
from sharegroup.core.groups.classic.records import ClassicGroupRecord
from sharegroup.wire.internal_topics import classic_group_records as wire

_MEMBER_NAMES = {
    "instance_id": "group_instance_id",
    "session_timeout_ms": "session_timeout",
    "rebalance_timeout_ms": "rebalance_timeout",
}
_loaded_member = conversion(core.StoredMember, wire.MemberMetadata, _MEMBER_NAMES)
_stored_member = conversion(
    wire.MemberMetadata, core.StoredMember, {name: own for own, name in _MEMBER_NAMES.items()}
)

_loaded_offsets = {
    wire.OffsetCommitValue: conversion(
        core.OffsetAndMetadata,
        wire.OffsetCommitValue,
        {"committed_ms": "commit_timestamp", "expires_ms": lambda _: None},
    ),
    wire.ExpiringOffsetCommitValue: conversion(
        core.OffsetAndMetadata,
        wire.ExpiringOffsetCommitValue,
        {
            "leader_epoch": lambda _: -1,
            "committed_ms": "commit_timestamp",
            "expires_ms": "expire_timestamp",
            "topic_id": lambda _: None,
        },
    ),
}

_FORMS = {
    1: StoredForm(
        core.OffsetCommit,
        {
            "offset": "committed.offset",
            "leader_epoch": "committed.leader_epoch",
            "metadata": "committed.metadata",
            "commit_timestamp": "committed.committed_ms",
            "expire_timestamp": "committed.expires_ms",
            "topic_id": "committed.topic_id",
        },
        {"committed": lambda value: _loaded_offsets[type(value)](value)},
        core.OffsetTombstone,
    ),
    2: StoredForm(
        core.GroupMetadata,
        {
            "current_state_timestamp": "since_ms",
            "members": lambda record: tuple(map(_stored_member, record.members)),
        },
        {
            "since_ms": "current_state_timestamp",
            "members": lambda value: tuple(map(_loaded_member, value.members)),
        },
        core.GroupTombstone,
    ),
}

_CODEC = RecordCodec[ClassicGroupRecord](wire.CLASSIC_GROUP_RECORDS, _FORMS)
decode = _CODEC.decode


def encode(record: ClassicGroupRecord) -> KeyAndValue:
    """Return the stored key and value of a record; the value of a tombstone is None."""
    if not isinstance(record, core.OffsetCommit):
        return _CODEC.encode(record)
    committed = record.committed
    has_id, expires = committed.topic_id is not None, committed.expires_ms is not None
    assert has_id is not expires, f"{committed}: a record holds either a topic id or an end"
    return _CODEC.encode(
        record, wire.ExpiringOffsetCommitValue if expires else wire.OffsetCommitValue
    )
