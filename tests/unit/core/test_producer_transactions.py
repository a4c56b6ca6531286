"""Producers between the lines: transactions and their markers, and what is durable of either."""

from __future__ import annotations

import pytest

from sharegroup.core.log.producer_state import ProducedBatch, ProducerEntry, ProducerStates
from sharegroup.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)


def append(
    states: ProducerStates,
    sequence: int,
    offset: int,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    is_transactional: bool = True,
) -> ProducedBatch:
    batch = ProducedBatch(sequence, offset, offset + 1)
    states.append(
        producer_id, epoch=epoch, batch=batch, now_ms=1000, is_transactional=is_transactional
    )
    return batch


def end(
    states: ProducerStates,
    offset: int,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    coordinator_epoch: int = 3,
) -> int | None:
    return states.end_transaction(
        producer_id, epoch=epoch, coordinator_epoch=coordinator_epoch, offset=offset, now_ms=2000
    )


def test_transaction_begins_with_its_first_batch() -> None:
    states = ProducerStates()
    plain = append(states, 0, 99, is_transactional=False)
    assert (states.first_open_offset, states.first_unstable_offset) == (None, None)
    first = append(states, 1, 100)
    second = append(states, 2, 101)
    append(states, 0, 102, producer_id=8)
    assert (states.first_open_offset, states.first_unstable_offset) == (100, 100)
    assert dict(states.items())[7] == ProducerEntry(0, (plain, first, second), 1000, -1, 100)


def test_batch_of_no_transaction_is_refused_while_one_is_open() -> None:
    states = ProducerStates()
    append(states, 0, 100)
    with pytest.raises(InvalidTransactionState) as refused:
        states.check(7, epoch=0, base_sequence=1, count=1)
    assert str(refused.value) == (
        "producer 7 epoch 0 has a transaction open since offset 100; the batch is not part of it"
    )
    assert states.check(7, epoch=0, base_sequence=1, count=1, is_transactional=True) is None


def test_marker_ends_a_transaction_when_it_is_durable() -> None:
    states = ProducerStates()
    batch = append(states, 0, 100)
    assert end(states, 102) == 100
    assert dict(states.items()) == {7: ProducerEntry(0, (batch,), 2000, 3)}
    assert (states.first_open_offset, states.first_unstable_offset) == (None, 100)
    states.settle(102)
    assert states.first_unstable_offset == 100
    states.settle(103)
    assert states.first_unstable_offset is None
    assert end(states, 103) is None


def test_transactions_end_one_by_one() -> None:
    states = ProducerStates()
    append(states, 0, 100)
    append(states, 0, 101, producer_id=8)
    assert end(states, 102, producer_id=8) == 101
    assert states.first_unstable_offset == 100
    assert end(states, 103) == 100
    states.settle(103)
    assert states.first_unstable_offset == 100
    states.settle(104)
    assert states.first_unstable_offset is None


def test_marker_of_a_later_epoch_forgets_the_batches_before() -> None:
    states = ProducerStates()
    append(states, 0, 100)
    assert end(states, 101, epoch=1) == 100
    assert dict(states.items()) == {7: ProducerEntry(1, (), 2000, 3)}
    with pytest.raises(OutOfOrderSequenceNumber, match="expected sequence 0, the batch has 1"):
        states.check(7, epoch=1, base_sequence=1, count=1)
    assert states.check(7, epoch=1, base_sequence=0, count=1) is None


def test_marker_of_an_unknown_producer_creates_its_entry() -> None:
    states = ProducerStates()
    assert end(states, 100) is None
    assert dict(states.items()) == {7: ProducerEntry(0, (), 2000, 3)}
    assert states.first_unstable_offset is None


def test_coordinator_that_ended_a_transaction_is_remembered() -> None:
    states = ProducerStates()
    end(states, 100, coordinator_epoch=5)
    batch = append(states, 0, 101)
    assert dict(states.items()) == {7: ProducerEntry(0, (batch,), 1000, 5, 101)}


def test_markers_of_old_producers_and_old_coordinators_are_refused() -> None:
    states = ProducerStates()
    states.check_marker(7, epoch=0, coordinator_epoch=0)
    end(states, 100, epoch=4, coordinator_epoch=5)
    states.check_marker(7, epoch=4, coordinator_epoch=5)
    states.check_marker(8, epoch=0, coordinator_epoch=0)
    with pytest.raises(InvalidProducerEpoch) as old:
        states.check_marker(7, epoch=3, coordinator_epoch=5)
    assert str(old.value) == "producer 7 has epoch 4 here, the marker has 3"
    with pytest.raises(TransactionCoordinatorFenced) as fenced:
        states.check_marker(7, epoch=4, coordinator_epoch=4)
    assert str(fenced.value) == (
        "producer 7: the last marker had coordinator epoch 5, this marker has 4"
    )


def test_marker_that_is_undone_leaves_its_transaction_open() -> None:
    states = ProducerStates()
    append(states, 0, 100)
    end(states, 102)
    states.undo_from(103)
    assert (states.first_open_offset, states.first_unstable_offset) == (None, 100)
    states.undo_from(102)
    assert (states.first_open_offset, states.first_unstable_offset) == (100, 100)
    states.undo_from(100)
    assert (len(states), states.first_unstable_offset) == (0, None)


def test_undoing_a_transaction_and_its_marker_removes_the_producer() -> None:
    states = ProducerStates()
    append(states, 0, 100)
    end(states, 101)
    states.undo_from(100)
    assert (len(states), states.first_unstable_offset) == (0, None)


def test_settled_batches_are_not_undone() -> None:
    states = ProducerStates()
    append(states, 0, 100)
    states.settle(101)
    states.undo_from(0)
    assert states.first_open_offset == 100


def test_durable_entries_include_durable_batches_not_settled_yet() -> None:
    states = ProducerStates()
    batch = append(states, 0, 100, is_transactional=False)
    append(states, 1, 101, is_transactional=False)
    assert states.durable(101) == {7: ProducerEntry(0, (batch,), 1000)}


def test_changed_is_true_after_an_append_a_marker_or_an_expiry() -> None:
    states = ProducerStates()
    assert not states.changed
    append(states, 0, 100)
    assert states.changed
    states.settle(101)
    states.durable(101)
    assert not states.changed
    end(states, 101)
    assert states.changed
    states.settle(102)
    states.durable(102)
    assert states.expire(3000) == 1
    assert states.changed


def test_producer_without_recent_batches_expires() -> None:
    states = ProducerStates()
    append(states, 0, 100, is_transactional=False)
    append(states, 0, 101, producer_id=8)
    assert states.expire(1000) == 0
    assert states.expire(1001) == 1  # Producer 8 has an open transaction.
    assert [producer_id for producer_id, _ in states.items()] == [8]


def test_producer_that_expired_before_it_was_durable_is_unknown_after_undo() -> None:
    states = ProducerStates()
    append(states, 0, 100, is_transactional=False)
    states.expire(1001)
    assert states.durable(100) == {}
    states.undo_from(100)
    assert len(states) == 0
