"""Between what the share coordinator decides and the bytes of ``__share_group_state``.

Inside, ranges are half-open and records are core's; on disk they are Kafka's ShareSnapshot and
ShareUpdate, whose last offsets are inclusive.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, assert_never

from sharegroup.broker.coordinator_log import KeyAndValue
from sharegroup.core.delivery import RecordState, StateBatch
from sharegroup.core.share_state_records import (
    ShareSnapshot,
    ShareStateRecord,
    ShareTombstone,
    ShareUpdate,
)
from sharegroup.ids import GroupId, SharePartitionKey, TopicId
from sharegroup.wire import share_state_records as wire
from sharegroup.wire.coordinator_records import (
    SHARE_STATE_RECORDS,
    decode_record,
    encode_key,
    encode_value,
)


def encode(record: ShareStateRecord) -> KeyAndValue:
    """Key and value as they are stored."""
    match record:
        case ShareUpdate():
            return _key(wire.ShareUpdateKey, record.key), encode_value(
                wire.ShareUpdateValue(
                    snapshot_epoch=record.snapshot_epoch,
                    leader_epoch=record.leader_epoch,
                    start_offset=record.start_offset,
                    delivery_complete_count=record.delivery_complete_count,
                    state_batches=tuple(map(_stored, record.batches)),
                )
            )
        case ShareSnapshot():
            return _key(wire.ShareSnapshotKey, record.key), encode_value(
                wire.ShareSnapshotValue(
                    snapshot_epoch=record.snapshot_epoch,
                    state_epoch=record.state_epoch,
                    leader_epoch=record.leader_epoch,
                    start_offset=record.start_offset,
                    delivery_complete_count=record.delivery_complete_count,
                    create_timestamp=record.create_timestamp,
                    write_timestamp=record.write_timestamp,
                    state_batches=tuple(map(_stored, record.batches)),
                )
            )
        case ShareTombstone():
            return _key(wire.ShareSnapshotKey, record.key), None
        case _:
            assert_never(record)


def decode(key: bytes, value: bytes | None) -> ShareStateRecord | None:
    """The record, or None for a type that this version does not know."""
    decoded = decode_record(SHARE_STATE_RECORDS, key, value)
    if decoded is None:
        return None
    stored_key, stored = decoded
    own_key = SharePartitionKey(
        GroupId(stored_key.group_id), TopicId(stored_key.topic_id), stored_key.partition
    )
    if stored is None:
        return ShareTombstone(own_key)
    batches = tuple(map(_loaded, stored.state_batches))
    if isinstance(stored, wire.ShareUpdateValue):
        return ShareUpdate(
            own_key,
            stored.snapshot_epoch,
            stored.leader_epoch,
            stored.start_offset,
            stored.delivery_complete_count,
            batches,
        )
    return ShareSnapshot(
        key=own_key,
        snapshot_epoch=stored.snapshot_epoch,
        state_epoch=stored.state_epoch,
        leader_epoch=stored.leader_epoch,
        start_offset=stored.start_offset,
        delivery_complete_count=stored.delivery_complete_count,
        create_timestamp=stored.create_timestamp,
        write_timestamp=stored.write_timestamp,
        batches=batches,
    )


@lru_cache(maxsize=4096)
def _key(key_class: type[Any], key: SharePartitionKey) -> bytes:
    """The bytes of a key; a share partition that is acknowledged has the same ones every time."""
    return encode_key(
        key_class(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    )


def _stored(batch: StateBatch) -> wire.StateBatch:
    return wire.StateBatch(
        first_offset=batch.first,
        last_offset=batch.end - 1,
        delivery_state=batch.state,
        delivery_count=batch.delivery_count,
    )


def _loaded(batch: wire.StateBatch) -> StateBatch:
    return StateBatch(
        batch.first_offset,
        batch.last_offset + 1,
        RecordState(batch.delivery_state),
        batch.delivery_count,
    )
