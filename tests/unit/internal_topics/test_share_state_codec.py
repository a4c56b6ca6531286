"""The records of the state topic as bytes, and which of them a start needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from sharegroup.core.delivery.delivery import Delta, RecordState, StateBatch
from sharegroup.core.delivery.stored.share_states import (
    ShareSnapshot,
    ShareStateRecord,
    ShareStates,
    ShareTombstone,
    ShareUpdate,
)
from sharegroup.errors import InvalidRequest
from sharegroup.ids import GroupId, SharePartitionKey, TopicId
from sharegroup.internal_topics.share_state_codec import decode, encode, needed
from sharegroup.wire.batches.small_batches import KeyedRecord

TOPIC = TopicId(UUID(int=7))
KEYS = [SharePartitionKey(GroupId(group), TOPIC, 0) for group in ("a", "ab", "ünï")]
BATCHES = (
    StateBatch(3, 5, RecordState.ACKNOWLEDGED, 1),
    StateBatch(9, 10, RecordState.ARCHIVING, 32_767),
)
TAGGED = (
    StateBatch(3, 5, RecordState.AVAILABLE, 1, due_ms=1_700_000_000_000),
    StateBatch(5, 7, RecordState.ARCHIVING, 2, reason=3),
    StateBatch(7, 9, RecordState.ACKNOWLEDGED, 2),
)
MANY = tuple(StateBatch(2 * n, 2 * n + 1, RecordState.ACKNOWLEDGED, 1) for n in range(300))

RECORDS: list[ShareStateRecord] = [
    ShareUpdate(KEYS[2], 7, 3, 2, 4, BATCHES),
    ShareUpdate(KEYS[0], 7, 3, -1, -1, ()),
    ShareUpdate(KEYS[0], 0, 0, 0, 0, MANY),
    ShareUpdate(KEYS[0], 0, 0, 0, 0, TAGGED),
    ShareSnapshot(KEYS[1], 7, 6, 5, 2, 4, 1_700_000_000_000, 1_700_000_000_001, TAGGED),
    ShareSnapshot(KEYS[1], 7, 6, 5, 2, 4, 1_700_000_000_000, 1_700_000_000_001, BATCHES),
    ShareTombstone(KEYS[1]),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_share_state_records_survive_a_round_trip(record: ShareStateRecord) -> None:
    assert decode(*encode(record)) == record


def test_batch_has_tagged_fields_only_if_it_has_a_due_time_or_a_reason() -> None:
    """The bytes by hand: a batch without them ends with the number 0 of its tagged fields."""
    bytes_of = {
        batch: encode(ShareUpdate(KEYS[0], 1, 2, 3, -1, (batch,)))[1]
        for batch in (*TAGGED, TAGGED[0]._replace(due_ms=0), TAGGED[1]._replace(reason=0))
    }
    tails = [
        None if value is None else value[18 + 1 + 19 : -1].hex() for value in bytes_of.values()
    ]
    due = (1_700_000_000_000).to_bytes(8, "big").hex()
    assert tails == [f"01904e08{due}", "01914e0103", "00", "00", "00"]


def test_largest_snapshot_fits_into_a_batch_of_a_mebibyte() -> None:
    """A share partition has 20,000 runs at most, of which none has both fields."""
    batches = tuple(
        batch._replace(first=n, end=n + 1) for n in range(20_000) for batch in TAGGED[:1]
    )
    snapshot = ShareSnapshot(KEYS[1], 7, 6, 5, 2, 4, 0, 0, batches)
    value = encode(snapshot)[1]
    assert value is not None
    assert 31 * 20_000 < len(value) < 2**20


def test_unknown_record_type_is_skipped() -> None:
    key, value = encode(RECORDS[0])
    assert decode(b"\0\7" + key[2:], value) is None


commands = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.sampled_from(["write", "write", "write", "write", "snapshot", "initialize", "delete"]),
        st.integers(0, 12),
        st.sampled_from([RecordState.AVAILABLE, RecordState.ACKNOWLEDGED]),
    ),
    max_size=40,
)


def log_of(said: Iterable[tuple[SharePartitionKey, str, int, RecordState]]) -> list[KeyedRecord]:
    """What a share coordinator writes when it is asked this."""
    states = ShareStates(updates_per_snapshot=3)
    log: list[KeyedRecord] = []
    for key, verb, number, state in said:
        arguments: dict[str, Any] = {"wall_ms": 0}
        if verb == "initialize":
            arguments |= {"state_epoch": 1, "start_offset": number}
        elif verb == "write":
            batch = StateBatch(number, number + 3, state, 1 + number % 2)
            arguments |= {"state_epoch": 1, "leader_epoch": 0}
            arguments |= {"delta": Delta(number // 3, number, (batch,))}
        elif verb == "delete":
            arguments = {}
        try:
            records = getattr(states, verb)(key, **arguments)
        except InvalidRequest:
            continue  # A write before the state was initialized.
        for record in records:
            states.replay(record, log_offset=len(log))
            log.append((len(log), *encode(record)))
    return log


def known(stored: Iterable[KeyedRecord]) -> dict[SharePartitionKey, Any]:
    states = ShareStates(updates_per_snapshot=3)
    for offset, key, value in stored:
        record = decode(key, value)
        assert record is not None
        states.replay(record, log_offset=offset)
    return {
        key: (
            states.read_summary(key),
            states.read(key, leader_epoch=None, wall_ms=0),
            states.needless_before([key], log_end=-1),
        )
        for key in states
    }


@given(commands, st.integers(1, 12))
def test_needed_records_give_the_same_state_as_the_whole_log(
    said: list[tuple[SharePartitionKey, str, int, RecordState]], held_max: int
) -> None:
    log = log_of(said)
    assert known(needed(log, held_max=held_max)) == known(log)


def test_records_before_the_newest_snapshot_are_skipped() -> None:
    key = KEYS[0]
    said = [(key, "initialize", 0, RecordState.AVAILABLE)]
    said += [(key, "write", number, RecordState.ACKNOWLEDGED) for number in range(9)]
    offsets = [offset for offset, _, _ in needed(log_of(said))]
    assert offsets == [8, 9], "snapshots are at 0, 4 and 8"


def test_deleted_share_partition_is_read_as_its_tombstone() -> None:
    key = KEYS[0]
    said = [(key, "initialize", 0, RecordState.AVAILABLE)]
    said += [(key, "write", 1, RecordState.ACKNOWLEDGED), (key, "delete", 0, RecordState.AVAILABLE)]
    [(offset, _, value)] = needed(log_of(said))
    assert (offset, value) == (2, None)
