"""The phases of a transactional producer, and what each error does to them."""

from __future__ import annotations

import pytest

from sharegroup.client.produce.partition_queue import Identity
from sharegroup.client.produce.transaction_state import (
    Ending,
    ProducerTransactions,
    TransactionPhase,
    TransactionRequest,
    Verdict,
    verdict_of,
)
from sharegroup.client.records import IllegalStateError, TopicPartition
from sharegroup.errors import (
    BY_CODE,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    GroupAuthorizationFailed,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
    OperationNotAttempted,
    ProducerFenced,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownProducerId,
)

FIRST, SECOND = Identity(7, 0), Identity(7, 1)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
R = TransactionRequest
P = TransactionPhase


def ready(*, is_version_2: bool = True) -> ProducerTransactions:
    state = ProducerTransactions("shop-1")
    state.begin_initializing()
    state.initialized(FIRST, is_version_2=is_version_2)
    return state


def begun(*, is_version_2: bool = True) -> ProducerTransactions:
    state = ready(is_version_2=is_version_2)
    state.begin()
    return state


def test_a_commit_of_version_2_takes_the_epoch_of_the_answer() -> None:
    state = begun()
    state.add_partition(A0)
    assert state.partitions_to_add() == ()
    assert state.may_send(A0)
    state.begin_ending(is_commit=True)
    assert state.may_send(A0), "what was sent before the commit belongs to it"
    assert state.ending() == Ending(True, True, FIRST, True)
    state.answered(SECOND, is_version_2=True)
    state.ended()
    assert (state.phase, state.identity) == (P.READY, SECOND)


def test_before_version_2_partitions_are_added_before_their_batches_are_sent() -> None:
    state = begun(is_version_2=False)
    state.add_partition(A1)
    state.add_partition(A0)
    assert state.partitions_to_add() == (A0, A1)
    assert not state.may_send(A0)
    state.partitions_added([A0, A1])
    assert state.partitions_to_add() == ()
    assert state.may_send(A0)
    state.begin_ending(is_commit=True)
    state.answered(None, is_version_2=False)
    assert not state.needs_epoch
    state.ended()
    state.begin()
    assert not state.may_send(A0), "a partition is added to each transaction"
    assert state.identity == FIRST


def test_an_empty_transaction_is_ended_without_the_coordinator() -> None:
    for is_version_2 in (True, False):
        state = begun(is_version_2=is_version_2)
        state.begin_ending(is_commit=True)
        assert not state.ending().is_started
    state = begun(is_version_2=False)
    state.add_partition(A0)  # Never added, so the coordinator knows nothing of it.
    state.begin_ending(is_commit=False)
    assert not state.ending().is_started


def test_offsets_alone_make_a_transaction() -> None:
    state = begun()
    state.add_offsets()
    state.begin_ending(is_commit=True)
    assert state.ending().is_started


def test_a_second_transaction_at_a_time_is_refused() -> None:
    state = begun()
    with pytest.raises(IllegalStateError, match=r"is in a transaction\. A producer has one trans"):
        state.begin()
    assert state.phase is P.IN_TRANSACTION


@pytest.mark.parametrize("phase", ["new", "ready", "committing", "aborting"])
def test_a_record_outside_of_a_transaction_is_refused(phase: str) -> None:
    state = ProducerTransactions("shop-1") if phase == "new" else ready()
    if phase.endswith("ing"):
        state.begin()
        state.begin_ending(is_commit=phase == "committing")
    with pytest.raises(IllegalStateError, match=r"cannot send: no transaction is open"):
        state.check_open("send")


def test_after_a_failed_record_only_an_abort_is_possible() -> None:
    state = begun()
    state.add_partition(A0)
    state.failed(R.PRODUCE, MessageTooLarge("huge"))
    assert (state.phase, state.is_lost, state.is_open) == (P.ABORTABLE_ERROR, True, True)
    assert not state.may_send(A0)
    for call in (lambda: state.check_open("send"), lambda: state.begin_ending(is_commit=True)):
        with pytest.raises(TransactionAbortable, match="MessageTooLarge: huge") as caught:
            call()
        assert isinstance(caught.value.__cause__, MessageTooLarge)
    state.begin_ending(is_commit=False)
    state.answered(SECOND, is_version_2=True)
    state.ended()
    state.begin()
    assert state.error is None


def test_a_record_that_fails_during_the_commit_prevents_it() -> None:
    state = begun()
    state.add_partition(A0)
    state.begin_ending(is_commit=True)
    state.failed(R.PRODUCE, RequestTimedOut("late"))
    with pytest.raises(TransactionAbortable):
        state.ending()
    state.begin_ending(is_commit=False)
    assert state.ending().request is R.ABORT


def test_a_record_that_fails_during_the_abort_changes_nothing() -> None:
    state = begun()
    state.begin_ending(is_commit=False)
    state.failed(R.PRODUCE, MessageTooLarge("huge"))
    assert state.phase is P.ABORTING


def test_before_version_2_an_error_costs_the_epoch() -> None:
    state = begun(is_version_2=False)
    state.add_partition(A0)
    state.partitions_added([A0])
    state.failed(R.PRODUCE, UnknownProducerId("?"))
    state.begin_ending(is_commit=False)
    state.answered(None, is_version_2=False)
    assert state.needs_epoch
    state.epoch_renewed(SECOND)
    state.ended()
    assert state.identity == SECOND


def test_before_version_2_a_batch_given_up_after_it_was_sent_costs_the_epoch() -> None:
    state = begun(is_version_2=False)
    state.begin_ending(is_commit=False)
    assert not state.needs_epoch
    state.outcome_unknown()
    assert state.needs_epoch


def test_an_answer_of_version_2_without_the_next_identity_costs_the_epoch() -> None:
    """A broker that names a negative id or epoch has not said what comes next."""
    state = begun()
    state.begin_ending(is_commit=True)
    state.answered(None, is_version_2=True)
    assert state.needs_epoch
    state.epoch_renewed(SECOND)
    state.ended()
    assert state.identity == SECOND


def test_an_upgrade_to_version_2_begins_with_a_new_epoch() -> None:
    state = begun(is_version_2=False)
    state.add_offsets()
    state.begin_ending(is_commit=True)
    state.answered(None, is_version_2=True)
    assert state.needs_epoch
    state.epoch_renewed(SECOND)
    state.ended()
    assert state.is_version_2


def test_a_fenced_producer_is_fenced_for_ever() -> None:
    state = begun()
    state.failed(R.COMMIT, InvalidProducerEpoch("old coordinators say so"))
    for call in (state.begin, lambda: state.check_open("send"), state.begin_initializing):
        with pytest.raises(ProducerFenced, match="another producer has this transactional id"):
            call()
    with pytest.raises(ProducerFenced):
        state.begin_ending(is_commit=False)
    state.failed(R.PRODUCE, MessageTooLarge("later"))
    assert isinstance(state.error, ProducerFenced), "the first error stays"


def test_a_refused_initialization_can_be_repeated() -> None:
    state = ProducerTransactions("shop-1")
    state.begin_initializing()
    state.failed(R.INIT_PRODUCER_ID, TransactionalIdAuthorizationFailed("no"))
    assert state.phase is P.UNINITIALIZED
    state.begin_initializing()


def test_an_abort_needs_an_open_transaction() -> None:
    with pytest.raises(IllegalStateError, match="cannot abort: no transaction is open"):
        ready().begin_ending(is_commit=False)


VERDICTS = [
    (R.COMMIT, NotCoordinator, Verdict.FIND_COORDINATOR),
    (R.COMMIT, ConcurrentTransactions, Verdict.RETRY_SOON),
    (R.COMMIT, CoordinatorLoadInProgress, Verdict.RETRY),
    (R.COMMIT, InvalidTransactionState, Verdict.FATAL),
    (R.COMMIT, TransactionAbortable, Verdict.ABORTABLE),
    (R.ABORT, TransactionAbortable, Verdict.FATAL),
    (R.ABORT, UnknownProducerId, Verdict.ABORTABLE),
    (R.INIT_PRODUCER_ID, InvalidTransactionTimeout, Verdict.FATAL),
    (R.INIT_PRODUCER_ID, TransactionalIdAuthorizationFailed, Verdict.REFUSED),
    (R.INIT_PRODUCER_ID, ProducerFenced, Verdict.FATAL),
    (R.RENEW_EPOCH, TransactionalIdAuthorizationFailed, Verdict.FATAL),
    (R.ADD_PARTITIONS, TopicAuthorizationFailed, Verdict.ABORTABLE),
    (R.ADD_PARTITIONS, OperationNotAttempted, Verdict.ABORTABLE),
    (R.ADD_PARTITIONS, InvalidTransactionState, Verdict.FATAL),
    (R.ADD_OFFSETS, GroupAuthorizationFailed, Verdict.ABORTABLE),
    (R.COMMIT_OFFSETS, IllegalGeneration, Verdict.ABORTABLE),
    (R.COMMIT_OFFSETS, ProducerFenced, Verdict.FATAL),
    (R.PRODUCE, InvalidProducerEpoch, Verdict.ABORTABLE),
    (R.PRODUCE, RequestTimedOut, Verdict.ABORTABLE),
    (R.PRODUCE, InvalidTransactionState, Verdict.ABORTABLE),
    (R.PRODUCE, ProducerFenced, Verdict.FATAL),
    (R.PRODUCE, TransactionalIdAuthorizationFailed, Verdict.FATAL),
]


@pytest.mark.parametrize(("request_", "error", "verdict"), VERDICTS)
def test_verdicts_are_those_of_the_java_producer(
    request_: TransactionRequest, error: type[KafkaError], verdict: Verdict
) -> None:
    assert verdict_of(request_, error("why")) is verdict


def test_every_error_has_a_verdict_for_every_request() -> None:
    for request in TransactionRequest:
        for kind in BY_CODE.values():
            assert isinstance(verdict_of(request, kind("why")), Verdict)
