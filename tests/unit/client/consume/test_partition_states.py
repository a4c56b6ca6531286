"""States of partitions: positions, buffers, and the order in which records are taken."""

from __future__ import annotations

import pytest

from sharegroup.client.consume.consumer_record import (
    ConsumerRecord,
    RecordDeserializationError,
    UnreadableConsumerRecord,
)
from sharegroup.client.consume.fetched_records import FetchedRecords
from sharegroup.client.consume.partition_states import (
    COMMITTED,
    RESET,
    PartitionState,
    PartitionStates,
    lag_of,
    rewound,
    take_records,
)
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.option_values import OnUnreadableRecord
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from tests.unit.client.consume.test_fetched_records import batch

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = ConsumerConfig()


def states(*partitions: TopicPartition) -> PartitionStates:
    made = PartitionStates(partition_bytes_max=100, bytes_max=1_000)
    made.assign(partitions, COMMITTED)
    for state in made:
        state.seek(0)
    return made


def state_of(made: PartitionStates, where: TopicPartition) -> PartitionState:
    state = made.get(where)
    assert state is not None
    return state


def fill(made: PartitionStates, where: TopicPartition, data: bytes) -> None:
    state = state_of(made, where)
    made.add(state, FetchedRecords(where, state.fetch_offset, data, decompressed_bytes_max=1 << 20))


def taken(made: PartitionStates, limit: int, config: ConsumerConfig = CONFIG) -> list[bytes]:
    return [record.value for record in take_records(made, config, limit)]


def test_partitions_take_turns_by_answers() -> None:
    made = states(P0, P1)
    fill(made, P0, batch(0, b"a", b"b"))
    fill(made, P0, batch(2, b"c"))
    fill(made, P1, batch(0, b"x"))
    assert taken(made, 1) == [b"a"]
    assert taken(made, 9) == [b"b", b"x", b"c"]
    assert taken(made, 9) == []
    assert state_of(made, P0).position == 3
    assert (state_of(made, P0).epoch, made.buffered_bytes) == (4, 0)


def test_paused_partition_keeps_its_records() -> None:
    made = states(P0, P1)
    fill(made, P0, batch(0, b"a"))
    fill(made, P1, batch(0, b"x"))
    state_of(made, P0).is_paused = True
    assert taken(made, 9) == [b"x"]
    assert not made.is_fetchable(state_of(made, P0))
    state_of(made, P0).is_paused = False
    assert taken(made, 9) == [b"a"]


def test_seek_drops_records_and_their_bytes() -> None:
    made = states(P0)
    fill(made, P0, batch(0, b"a", b"b"))
    state = state_of(made, P0)
    state.seek(1, 4)
    assert (state.position, state.fetch_offset, state.fetch_epoch) == (1, 1, 4)
    assert taken(made, 9) == []
    state.look_up(RESET)
    assert state.position is None
    assert not made.is_fetchable(state)


def test_removed_partition_hands_out_nothing() -> None:
    made = states(P0, P1)
    fill(made, P0, batch(0, b"a"))
    state = state_of(made, P0)
    made.remove([P0])
    assert not state.is_current
    assert taken(made, 9) == []
    assert made.partitions == {P1}


def test_partition_is_full_with_twice_the_bytes_of_an_answer() -> None:
    made = states(P0)
    state = state_of(made, P0)
    fill(made, P0, batch(0, b"v" * 60))
    assert state.buffered_bytes > 100
    assert not made.is_full(state)
    fill(made, P0, batch(1, b"v" * 60))
    assert made.is_full(state)
    taken(made, 1)
    assert not made.is_full(state)


def test_lag_counts_to_the_last_stable_offset_if_there_is_one() -> None:
    state = PartitionState(P0, COMMITTED)
    assert lag_of(state) is None
    state.seek(3)
    state.high_watermark = 10
    assert lag_of(state) == 7
    state.last_stable_offset = 8
    assert lag_of(state) == 5


def test_positions_stand_before_records_that_were_not_yielded() -> None:
    made = states(P0, P1)
    fill(made, P0, batch(0, b"a", b"b", b"c"))
    fill(made, P1, batch(0, b"x"))
    records = take_records(made, CONFIG, 9)
    assert rewound(made.positions(), records[1:3]) == {P0: (1, 4), P1: (1, 4)}


def failing(value: bytes) -> bytes:
    if value == b"bad":
        raise ValueError("no such order")
    return value.upper()


def test_record_that_cannot_be_deserialized_ends_a_poll_and_keeps_the_position() -> None:
    config = ConsumerConfig(value_deserializer=failing)
    made = states(P0)
    fill(made, P0, batch(0, b"a", b"bad", b"c"))
    assert taken(made, 9, config) == [b"A"]
    for _ in range(2):
        with pytest.raises(RecordDeserializationError, match=r"offset 1.*seek to 2") as raised:
            take_records(made, config, 9)
    assert (raised.value.record.value, raised.value.field) == (b"bad", "value")
    assert state_of(made, P0).position == 1


def test_raw_returns_the_record_with_its_bytes() -> None:
    config = ConsumerConfig(
        value_deserializer=failing, on_deserialization_error=OnUnreadableRecord.RAW
    )
    made = states(P0)
    fill(made, P0, batch(0, b"a", b"bad", b"c"))
    first, unreadable, last = take_records(made, config, 9)
    assert (first.value, unreadable.value, last.value) == (b"A", b"bad", b"C")
    assert (first.serialized_value_size, unreadable.serialized_value_size) == (1, 3)
    assert first.serialized_key_size is None
    assert isinstance(unreadable, UnreadableConsumerRecord)
    assert "no such order" in str(unreadable.error)
    assert isinstance(first, ConsumerRecord)
