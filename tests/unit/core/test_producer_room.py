"""The limit of the producers of all partitions: who is forgotten when there are too many."""

from __future__ import annotations

from sharegroup.core.log.producer_room import FORGOTTEN_AT_ONCE, ProducerRoom
from sharegroup.core.log.producer_state import ProducedBatch, ProducerStates


def write(
    states: ProducerStates, producer_id: int, *, offset: int = 0, open_: bool = False
) -> None:
    states.append(
        producer_id,
        epoch=0,
        batch=ProducedBatch(0, offset, offset + 1),
        now_ms=1,
        is_transactional=open_,
    )


def ids(states: ProducerStates) -> list[int]:
    return [producer_id for producer_id, _ in states.items()]


def test_the_longest_silent_are_forgotten_first() -> None:
    room = ProducerRoom(8)
    states = ProducerStates(room)
    for producer_id in range(8):
        write(states, producer_id)
    write(states, 0)
    write(states, 8)
    assert ids(states) == [3, 4, 5, 6, 7, 0, 8]
    assert (room.count, room.forgotten_count) == (7, 2)


def test_number_of_producers_stays_within_the_limit() -> None:
    room = ProducerRoom(100)
    partitions = [ProducerStates(room) for _ in range(3)]
    for producer_id in range(10_000):
        write(partitions[producer_id % 3], producer_id)
        assert room.count <= 100
    assert room.count == sum(map(len, partitions)) == 10_000 - room.forgotten_count


def test_a_partition_with_many_producers_forgets_none_of_another() -> None:
    room = ProducerRoom(80)
    quiet, busy = ProducerStates(room), ProducerStates(room)
    for producer_id in range(30):
        write(quiet, producer_id)
    for producer_id in range(1_000):
        write(busy, producer_id)
    assert ids(quiet) == list(range(30))
    assert ids(busy)[-1] == 999


def test_with_one_producer_in_each_of_many_partitions_only_some_are_forgotten() -> None:
    room = ProducerRoom(80)
    partitions = [ProducerStates(room) for _ in range(81)]
    for producer_id, states in enumerate(partitions):
        write(states, producer_id)
    assert room.count == 70


def test_few_are_forgotten_at_once() -> None:
    """Forgetting an eighth of 20,000 producers would hold the event loop for 14 ms."""
    room = ProducerRoom(16 * FORGOTTEN_AT_ONCE)
    partitions = [ProducerStates(room) for _ in range(16 * FORGOTTEN_AT_ONCE + 1)]
    for producer_id, states in enumerate(partitions):
        write(states, producer_id)
    assert room.forgotten_count == FORGOTTEN_AT_ONCE
    assert not any(map(len, partitions[:FORGOTTEN_AT_ONCE])), "the longest silent ones"


def test_partitions_are_cut_to_one_number() -> None:
    room = ProducerRoom(80)
    partitions = [ProducerStates(room) for _ in range(3)]
    for states, count in zip(partitions, (40, 30, 11), strict=True):
        for producer_id in range(count):
            write(states, producer_id)
    assert [len(states) for states in partitions] == [30, 29, 11]


def test_producer_with_an_open_transaction_is_kept() -> None:
    room = ProducerRoom(8)
    states = ProducerStates(room)
    write(states, 1_000, open_=True)
    for producer_id in range(100):
        write(states, producer_id)
    assert 1_000 in ids(states)
    assert room.count <= 8


def test_open_transactions_alone_pass_the_limit() -> None:
    room = ProducerRoom(8)
    states = ProducerStates(room)
    for producer_id in range(20):
        write(states, producer_id, open_=True)
    assert room.count == 20, "their markers are still to come"
    assert room.search_count < 20, "there is not one search for each new producer"
    for producer_id in range(20):
        states.end_transaction(producer_id, epoch=0, coordinator_epoch=0, offset=30, now_ms=1)
    for producer_id in range(20, 24):
        write(states, producer_id)
    assert room.count <= 8


def test_expired_undone_and_removed_producers_are_subtracted() -> None:
    room = ProducerRoom(100)
    states, gone = ProducerStates(room), ProducerStates(room)
    for producer_id in range(10):
        write(states, producer_id, offset=producer_id)
        write(gone, producer_id)
    gone.leave_room()
    assert room.count == 10
    states.settle(4)
    states.undo_from(4)
    assert room.count == len(states) == 4
    states.expire(unused_since_ms=2)
    assert room.count == len(states) == 0


def test_forgotten_producer_may_continue_with_any_sequence() -> None:
    room = ProducerRoom(8)
    states = ProducerStates(room)
    for producer_id in range(20):
        write(states, producer_id)
    assert 0 not in ids(states)
    assert states.check(0, epoch=0, base_sequence=1, count=1) is None


def test_forgotten_producers_are_in_no_snapshot() -> None:
    room = ProducerRoom(8)
    states = ProducerStates(room)
    for producer_id in range(20):
        write(states, producer_id, offset=producer_id)
    assert list(states.durable(20)) == ids(states)
    states.undo_from(10)
    assert room.count == len(states)
