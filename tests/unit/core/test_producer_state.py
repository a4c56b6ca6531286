from __future__ import annotations

import pytest

from sharegroup.core.log.producer_state import ProducedBatch, ProducerStates
from sharegroup.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber


def append(
    states: ProducerStates, sequence: int, offset: int, count: int = 1, **other: int
) -> None:
    batch = ProducedBatch(sequence, offset, offset + count)
    states.append(
        other.get("producer_id", 7), epoch=other.get("epoch", 0), batch=batch, now_ms=1000
    )


def check(states: ProducerStates, sequence: int, count: int = 1, **other: int) -> int | None:
    """The base offset of the batch that this one repeats, or None."""
    found = states.check(
        other.get("producer_id", 7),
        epoch=other.get("epoch", 0),
        base_sequence=sequence,
        count=count,
    )
    return None if found is None else found.base_offset


def test_unknown_producer_may_begin_with_any_sequence() -> None:
    assert check(ProducerStates(), 41) is None


def test_the_next_sequence_passes_and_a_gap_does_not() -> None:
    states = ProducerStates()
    append(states, 0, 100, count=3)
    assert check(states, 3) is None
    with pytest.raises(OutOfOrderSequenceNumber, match="expected sequence 3, the batch has 4"):
        check(states, 4)


def test_the_last_five_batches_are_recognised_and_no_more() -> None:
    states = ProducerStates()
    for number in range(6):
        append(states, number, 100 + number)
    assert [check(states, number) for number in range(1, 6)] == [101, 102, 103, 104, 105]
    with pytest.raises(OutOfOrderSequenceNumber):
        check(states, 0)


def test_the_same_sequence_with_another_count_is_no_duplicate() -> None:
    states = ProducerStates()
    append(states, 0, 100, count=3)
    with pytest.raises(OutOfOrderSequenceNumber):
        check(states, 0, count=2)


def test_sequence_after_the_largest_is_zero() -> None:
    states = ProducerStates()
    append(states, 2**31 - 2, 100, count=3)
    assert check(states, 1) is None
    assert check(states, 2**31 - 2, count=3) == 100
    append(states, 2**31 - 1, 200, producer_id=8)
    assert check(states, 0, producer_id=8) is None


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    states = ProducerStates()
    append(states, 0, 100)
    with pytest.raises(OutOfOrderSequenceNumber, match="must begin with sequence 0"):
        check(states, 1, epoch=1)
    assert check(states, 0, epoch=1) is None
    append(states, 0, 101, epoch=1)
    with pytest.raises(InvalidProducerEpoch, match="has epoch 1 here, the batch has 0"):
        check(states, 1, epoch=0)
    assert check(states, 0, epoch=1) == 101


def test_undo_restores_the_durable_state() -> None:
    states = ProducerStates()
    for number in range(7):
        append(states, number, 100 + number)
    append(states, 0, 107, producer_id=8)
    states.settle(103)
    states.undo_from(103)
    assert check(states, 2) == 102
    assert check(states, 3) is None
    assert check(states, 99, producer_id=8) is None  # Not known any more.


def test_producers_that_were_silent_for_long_are_forgotten() -> None:
    states = ProducerStates()
    states.append(7, epoch=0, batch=ProducedBatch(0, 100, 101), now_ms=1000)
    states.append(8, epoch=0, batch=ProducedBatch(0, 101, 102), now_ms=2000)
    assert states.expire(1500) == 1
    assert [producer_id for producer_id, _ in states.items()] == [8]


def test_durable_entries_leave_out_batches_that_are_not_durable() -> None:
    states = ProducerStates()
    append(states, 0, 100)
    states.settle(101)
    append(states, 1, 101)
    append(states, 0, 102, producer_id=8)
    restored = ProducerStates.restored(states.durable(101))
    assert [producer_id for producer_id, _ in restored.items()] == [7]
    assert check(restored, 1) is None
    assert states.changed  # The next snapshot will differ.
