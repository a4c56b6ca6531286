"""Between what the share coordinator decides and the bytes of ``__share_group_state``.

Inside, ranges are half-open and records are core's; on disk they are Kafka's ShareSnapshot and
ShareUpdate, whose last offsets are inclusive.  Updates, by far the most, go by `share_update`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain
from typing import Any, assert_never

from sharegroup.broker.cluster.coordinator_log import KeyAndValue
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
    PREFIX_BYTES,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from sharegroup.wire.share_update import UpdateFields, decode_update, encode_update
from sharegroup.wire.small_batches import KeyedRecord

SNAPSHOT = b"\0\0"
"""How the key of a snapshot begins, and of a tombstone, which is a snapshot of nothing."""

HELD_MAX = 50_000
"""Records that a start holds back at a time, some 20 MB of them."""

KEYS_MAX = 20_000
"""Keys that are remembered in both forms: a log has millions of records of the same few."""


def encode(record: ShareStateRecord) -> KeyAndValue:
    """Key and value as they are stored."""
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


def needed(stored: Iterable[KeyedRecord]) -> Iterator[KeyedRecord]:
    """Of stored records those that a start needs, each share partition's in order.

    What a snapshot or a tombstone makes superfluous is passed over undecoded where they lie close
    together, which is most of a log that was not pruned for a while.  Some of it may come along:
    records are held back to wait for a snapshot, and no more than `HELD_MAX` of them.
    """
    held: dict[bytes, list[KeyedRecord]] = {}
    count = 0
    for record in stored:
        key = record[1]
        name = key[PREFIX_BYTES:]
        own = held.get(name)
        if own is None:
            held[name] = [record]
        elif key[:PREFIX_BYTES] == SNAPSHOT:
            count -= len(own)
            held[name] = [record]
        else:
            own.append(record)
        count += 1
        if count >= HELD_MAX:
            yield from chain.from_iterable(held.values())
            held.clear()
            count = 0
    yield from chain.from_iterable(held.values())


def decode(key: bytes, value: bytes | None) -> ShareStateRecord | None:
    """The record, or None for a type that this version does not know."""
    known = _known_key(key)
    if known is None:
        return None
    key_class, own_key = known
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
    value = encode_update(
        UpdateFields(
            update.snapshot_epoch,
            update.leader_epoch,
            update.start_offset,
            update.delivery_complete_count,
            [(first, end - 1, state, count) for first, end, state, count in update.batches],
        )
    )
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
    found = decode_update(value)
    if found is not None:
        snapshot_epoch, leader_epoch, start_offset, complete, stored = found
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
    """The bytes of a key; a share partition that is acknowledged has the same ones every time."""
    return encode_key(
        key_class(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    )


@lru_cache(maxsize=KEYS_MAX)
def _known_key(key: bytes) -> tuple[type[Any], SharePartitionKey] | None:
    """The class of a key and what it names; None for a type that is not known."""
    message = decode_key(wire.SHARE_STATE_RECORDS, key)
    if message is None:
        return None
    own = SharePartitionKey(GroupId(message.group_id), TopicId(message.topic_id), message.partition)
    return type(message), own


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
        _state(batch.delivery_state),
        batch.delivery_count,
    )


_state = cache(RecordState)
"""A state by its code; an enumeration's own look-up takes five times as long."""
