"""Converts share state records between core's classes and the bytes of ``__share_group_state``.

In core, ranges are half-open.  On disk, the records are Kafka's ShareSnapshot and ShareUpdate,
whose last offsets are inclusive.  Updates, by far the most records, use the faster `share_update`
unless a batch has a tagged field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain
from typing import Any, assert_never

from sharegroup.core.delivery.delivery import RecordState, StateBatch
from sharegroup.core.delivery.stored.share_states import (
    ShareSnapshot,
    ShareStateRecord,
    ShareTombstone,
    ShareUpdate,
)
from sharegroup.ids import GroupId, SharePartitionKey, TopicId
from sharegroup.wire.batches.small_batches import KeyedRecord
from sharegroup.wire.internal_topics import share_state_records as wire
from sharegroup.wire.internal_topics.coordinator_records import (
    PREFIX_BYTES,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from sharegroup.wire.internal_topics.share_update import UpdateFields, decode_update, encode_update

KeyAndValue = tuple[bytes, bytes | None]
"""A stored record; a value of None deletes the key."""

SNAPSHOT = b"\0\0"
"""The first bytes of the key of a snapshot, and of a tombstone, which deletes a snapshot."""

HELD_MAX = 50_000
"""Records that are held back at a time during a start, by default: about 20 MB of them."""

KEYS_MAX = 20_000
"""Keys that are cached in both forms: a log has millions of records with the same few keys."""


def encode(record: ShareStateRecord) -> KeyAndValue:
    """Return key and value of a record as they are stored."""
    match record:
        case ShareUpdate():
            return _key(wire.ShareUpdateKey, record.key), _update_value(record)
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


def needed(stored: Iterable[KeyedRecord], *, held_max: int = HELD_MAX) -> Iterator[KeyedRecord]:
    """Yield the stored records that a start needs, those of each share partition in order.

    Records before a snapshot or a tombstone are skipped undecoded if they are close to it.  In a
    log that was not pruned for a while these are the most.  Some superfluous records may be
    yielded, too, because at most ``held_max`` records are held back to wait for a snapshot.
    """
    held_records: dict[bytes, list[KeyedRecord]] = {}
    count = 0
    for record in stored:
        key = record[1]
        name = key[PREFIX_BYTES:]
        own_records = held_records.get(name)
        if own_records is None:
            held_records[name] = [record]
        elif key[:PREFIX_BYTES] == SNAPSHOT:
            # Superfluous, because a snapshot has the whole state and a tombstone ends it.
            count -= len(own_records)
            held_records[name] = [record]
        else:
            own_records.append(record)
        count += 1
        if count >= held_max:
            # All at once, so the records of each share partition stay in order.
            yield from chain.from_iterable(held_records.values())
            held_records.clear()
            count = 0
    yield from chain.from_iterable(held_records.values())


def decode(key: bytes, value: bytes | None) -> ShareStateRecord | None:
    """Decode a record; return None for a type that this version does not know."""
    key_and_class = _known_key(key)
    if key_and_class is None:
        return None
    key_class, own_key = key_and_class
    if value is None:
        return ShareTombstone(own_key)
    if key_class is wire.ShareUpdateKey:
        return _update(own_key, value)
    stored = decode_value(wire.ShareSnapshotValue, value)
    return ShareSnapshot(
        key=own_key,
        snapshot_epoch=stored.snapshot_epoch,
        state_epoch=stored.state_epoch,
        leader_epoch=stored.leader_epoch,
        start_offset=stored.start_offset,
        delivery_complete_count=stored.delivery_complete_count,
        create_timestamp=stored.create_timestamp,
        write_timestamp=stored.write_timestamp,
        batches=tuple(map(_loaded, stored.state_batches)),
    )


def _update_value(update: ShareUpdate) -> bytes:
    """Return the value of an update."""
    _, snapshot_epoch, leader_epoch, start_offset, complete, batches = update
    plain = [
        (first, end - 1, state, count)
        for first, end, state, count, due_ms, reason in batches
        if not due_ms and not reason
    ]
    if len(plain) == len(batches):
        fields = UpdateFields(snapshot_epoch, leader_epoch, start_offset, complete, plain)
        value = encode_update(fields)
        if value is not None:
            return value
    return encode_value(
        wire.ShareUpdateValue(
            snapshot_epoch=update.snapshot_epoch,
            leader_epoch=update.leader_epoch,
            start_offset=update.start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=tuple(map(_stored, update.batches)),
        )
    )


def _update(key: SharePartitionKey, value: bytes) -> ShareUpdate:
    fields = decode_update(value)
    if fields is not None:
        snapshot_epoch, leader_epoch, start_offset, complete, stored = fields
        batches = tuple(
            [StateBatch(first, last + 1, _state(code), n) for first, last, code, n in stored]
        )
        return ShareUpdate(key, snapshot_epoch, leader_epoch, start_offset, complete, batches)
    whole = decode_value(wire.ShareUpdateValue, value)
    return ShareUpdate(
        key,
        whole.snapshot_epoch,
        whole.leader_epoch,
        whole.start_offset,
        whole.delivery_complete_count,
        tuple(map(_loaded, whole.state_batches)),
    )


@lru_cache(maxsize=KEYS_MAX)
def _key(key_class: type[Any], key: SharePartitionKey) -> bytes:
    """Return the bytes of a key; cached, because each write of a share partition needs the same."""
    return encode_key(
        key_class(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    )


@lru_cache(maxsize=KEYS_MAX)
def _known_key(key: bytes) -> tuple[type[Any], SharePartitionKey] | None:
    """Return the class of a key and its share partition; None for an unknown type."""
    message = decode_key(wire.SHARE_STATE_RECORDS, key)
    if message is None:
        return None
    share_partition = SharePartitionKey(
        GroupId(message.group_id), TopicId(message.topic_id), message.partition
    )
    return type(message), share_partition


def _stored(batch: StateBatch) -> wire.StoredStateBatch:
    return wire.StoredStateBatch(
        first_offset=batch.first,
        last_offset=batch.end - 1,
        delivery_state=batch.state,
        delivery_count=batch.delivery_count,
        redelivery_time_ms=batch.due_ms,
        archive_reason=batch.reason,
    )


def _loaded(batch: wire.StoredStateBatch) -> StateBatch:
    return StateBatch(
        batch.first_offset,
        batch.last_offset + 1,
        _state(batch.delivery_state),
        batch.delivery_count,
        batch.redelivery_time_ms,
        batch.archive_reason,
    )


_state = cache(RecordState)
"""A record state by its code; the enumeration's own look-up takes five times as long."""
