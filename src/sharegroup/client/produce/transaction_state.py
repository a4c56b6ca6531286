"""The state of a transactional producer, without I/O: its phase, and what an error does to it.

    UNINITIALIZED --> INITIALIZING --> READY <--------------------------------.
                                         |                                    |
                                   IN_TRANSACTION --> COMMITTING -------------|
                                         |   |             |                  |
                                         |   '-------------+--> ABORTING -----'
                                         v                 v       ^
                                     ABORTABLE_ERROR <-----'-------'

Any phase can become FATAL_ERROR, which is final: another producer has the transactional id, or the
coordinator contradicts this producer.  After an abortable error the transaction can only be
aborted; the producer is usable again afterwards.

Transaction version 2 (KIP-890) and the older protocol differ in three ways.  With version 2 a
partition becomes part of the transaction with its first Produce request, the offsets of a group
with their TxnOffsetCommit request, and the answer to EndTxn has the next producer epoch.  Before,
partitions and groups are added by requests of their own, and the epoch stays, so that after an
error the producer has to ask for the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from sharegroup.client.produce.partition_queue import Identity
from sharegroup.client.records import IllegalStateError, TopicPartition
from sharegroup.errors import (
    ClusterAuthorizationFailed,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    IllegalGeneration,
    InvalidCommitOffsetSize,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaError,
    NotCoordinator,
    OffsetMetadataTooLarge,
    OperationNotAttempted,
    ProducerFenced,
    StaleMemberEpoch,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownMemberId,
    UnknownProducerId,
    UnsupportedVersion,
)

BEFORE_VERSION_2 = {"Produce": 11, "EndTxn": 4, "TxnOffsetCommit": 4}
"""The newest versions without the meaning that transaction version 2 gives them (KIP-890)."""

CONCURRENT_PAUSE_MS = 20
"""Pause before a retry while the coordinator completes the previous transaction.

Java's producer pauses as long: the markers are usually written in a few milliseconds.
"""


class TransactionPhase(Enum):
    """The phase of a transactional producer."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "getting its producer id"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a failed transaction"
    FATAL_ERROR = "failed"


_BEFORE: dict[TransactionPhase, frozenset[TransactionPhase]] = {
    phase: frozenset(before)
    for phase, before in {
        TransactionPhase.UNINITIALIZED: (TransactionPhase.INITIALIZING,),
        TransactionPhase.INITIALIZING: (TransactionPhase.UNINITIALIZED,),
        TransactionPhase.READY: (
            TransactionPhase.INITIALIZING,
            TransactionPhase.COMMITTING,
            TransactionPhase.ABORTING,
        ),
        TransactionPhase.IN_TRANSACTION: (TransactionPhase.READY,),
        TransactionPhase.COMMITTING: (TransactionPhase.IN_TRANSACTION,),
        TransactionPhase.ABORTING: (
            TransactionPhase.IN_TRANSACTION,
            TransactionPhase.ABORTABLE_ERROR,
        ),
        TransactionPhase.ABORTABLE_ERROR: (
            TransactionPhase.IN_TRANSACTION,
            TransactionPhase.COMMITTING,
        ),
        TransactionPhase.FATAL_ERROR: tuple(TransactionPhase),
    }.items()
}
"""The phases from which each phase can be entered."""


class TransactionRequest(Enum):
    """The requests of a transactional producer, by name."""

    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    COMMIT = "EndTxn(commit)"
    ABORT = "EndTxn(abort)"
    RENEW_EPOCH = "InitProducerId(next epoch)"
    PRODUCE = "Produce"


class Verdict(Enum):
    """What to do about an error of a request."""

    RETRY = auto()
    RETRY_SOON = auto()
    """The previous transaction is being completed, which takes milliseconds."""
    FIND_COORDINATOR = auto()
    """Look up the coordinator again, then retry."""
    REFUSED = auto()
    """The request failed without an effect, so the phase before it is entered again."""
    ABORTABLE = auto()
    FATAL = auto()


FENCED = (InvalidProducerEpoch, ProducerFenced)
"""Old coordinators answer INVALID_PRODUCER_EPOCH where newer ones answer PRODUCER_FENCED."""

_LOST_COORDINATOR = (NotCoordinator, CoordinatorNotAvailable)

_MEMBERSHIP_ERRORS = (
    FencedInstanceId,
    UnknownMemberId,
    IllegalGeneration,
    GroupIdNotFound,
    StaleMemberEpoch,
)
_ABORTABLE: dict[TransactionRequest, tuple[type[KafkaError], ...]] = {
    # A transaction that cannot be aborted either would be aborted for ever: this is fatal.
    TransactionRequest.ABORT: (UnknownProducerId,),
    TransactionRequest.RENEW_EPOCH: (),
    TransactionRequest.COMMIT: (UnknownProducerId, TransactionAbortable),
    TransactionRequest.ADD_PARTITIONS: (
        UnknownProducerId,
        TransactionAbortable,
        TopicAuthorizationFailed,
        OperationNotAttempted,
    ),
    TransactionRequest.ADD_OFFSETS: (
        UnknownProducerId,
        TransactionAbortable,
        GroupAuthorizationFailed,
    ),
    # Java's producer fails for ever when the metadata of an offset is too long, or a topic may
    # not be read.  Both are errors of one call, and an abort undoes it.
    TransactionRequest.COMMIT_OFFSETS: (
        UnknownProducerId,
        TransactionAbortable,
        GroupAuthorizationFailed,
        TopicAuthorizationFailed,
        OffsetMetadataTooLarge,
        InvalidCommitOffsetSize,
        *_MEMBERSHIP_ERRORS,
    ),
}
_FATAL_IN_PRODUCE = (
    ClusterAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    ProducerFenced,
    UnsupportedVersion,
    InvalidProducerIdMapping,
)
_REFUSED_INIT = (
    TransactionalIdAuthorizationFailed,
    ClusterAuthorizationFailed,
    TransactionAbortable,
)


def verdict_of(request: TransactionRequest, error: KafkaError) -> Verdict:
    """Return what a transactional producer does about an error of this request.

    A Produce request is retried by the sender, so here its error is final, even if it is retriable.
    """
    if request is TransactionRequest.PRODUCE:
        return Verdict.FATAL if isinstance(error, _FATAL_IN_PRODUCE) else Verdict.ABORTABLE
    if isinstance(error, _LOST_COORDINATOR):
        return Verdict.FIND_COORDINATOR
    if isinstance(error, ConcurrentTransactions):
        return Verdict.RETRY_SOON
    if error.retriable:
        return Verdict.RETRY
    if request is TransactionRequest.INIT_PRODUCER_ID:
        return Verdict.REFUSED if isinstance(error, _REFUSED_INIT) else Verdict.FATAL
    return Verdict.ABORTABLE if isinstance(error, _ABORTABLE[request]) else Verdict.FATAL


class Ending(NamedTuple):
    """How to end the open transaction."""

    is_commit: bool
    is_started: bool
    """Whether the coordinator may know the transaction; otherwise no EndTxn is needed."""
    identity: Identity
    is_version_2: bool

    @property
    def request(self) -> TransactionRequest:
        """The request that ends the transaction."""
        return TransactionRequest.COMMIT if self.is_commit else TransactionRequest.ABORT


class ProducerTransactions:
    """The phase of one transactional producer and the content of its open transaction."""

    __slots__ = (
        "_added", "_error", "_has_offsets", "_identity", "_needs_epoch", "_partitions", "_phase",
        "is_version_2", "number", "transactional_id",
    )  # fmt: skip

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.is_version_2 = False
        """Whether the open transaction uses transaction version 2 (KIP-890)."""
        self.number = 0
        """The number of transactions that were begun; it tells one from the next."""
        self._phase = TransactionPhase.UNINITIALIZED
        self._error: KafkaError | None = None
        self._identity: Identity | None = None
        self._partitions: set[TopicPartition] = set()
        self._added: set[TopicPartition] = set()
        self._has_offsets = False
        self._needs_epoch = False

    @property
    def phase(self) -> TransactionPhase:
        """The phase now."""
        return self._phase

    @property
    def identity(self) -> Identity:
        """The producer id and epoch; there is one after the initialization."""
        assert self._identity is not None, "the producer is not initialized"
        return self._identity

    @property
    def error(self) -> KafkaError | None:
        """The error that failed the transaction or the producer, or None."""
        return self._error

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open that is neither committing nor aborting."""
        return self._phase in (TransactionPhase.IN_TRANSACTION, TransactionPhase.ABORTABLE_ERROR)

    @property
    def is_lost(self) -> bool:
        """Whether no batch of the transaction is sent any more, because it cannot be committed."""
        return self._phase in (
            TransactionPhase.ABORTABLE_ERROR,
            TransactionPhase.ABORTING,
            TransactionPhase.FATAL_ERROR,
        )

    @property
    def needs_epoch(self) -> bool:
        """Whether the producer has to ask for the next epoch before another transaction."""
        return self._needs_epoch

    # Initialization.

    def begin_initializing(self) -> None:
        """Enter INITIALIZING."""
        self._check_usable()
        self._enter(TransactionPhase.INITIALIZING)

    def initialized(self, identity: Identity, *, is_version_2: bool) -> None:
        """Note the first producer id and epoch; the producer is ready."""
        self._enter(TransactionPhase.READY)
        self._identity, self.is_version_2 = identity, is_version_2

    # The open transaction.

    def begin(self) -> None:
        """Open a transaction.

        Raises IllegalStateError if one is open or the producer is not initialized, and the fatal
        error of the producer if there is one.
        """
        self._check_usable()
        if self._phase is not TransactionPhase.READY:
            raise IllegalStateError(
                f"{self._name}: cannot begin a transaction: the producer is {self._phase.value}. "
                f"A producer has one transaction at a time: end the open one first, or use "
                f"another producer with a transactional id of its own"
            )
        self._enter(TransactionPhase.IN_TRANSACTION)
        self.number += 1

    def check_same(self, number: int) -> None:
        """Raise unless the transaction with this number is still the last one."""
        if self.number != number:
            raise IllegalStateError(
                f"{self._name}: the record was not sent: its transaction has ended while send "
                f"waited, and another one was begun"
            )

    def check_open(self, operation: str) -> None:
        """Raise unless a transaction is open that can still be committed."""
        if self._phase is TransactionPhase.IN_TRANSACTION:
            return
        self._check_usable()
        if self._phase is TransactionPhase.ABORTABLE_ERROR:
            raise self.abortable_error()
        raise IllegalStateError(
            f"{self._name}: cannot {operation}: no transaction is open (the producer is "
            f"{self._phase.value}). Use it inside `async with producer.transaction():`"
        )

    def add_partition(self, where: TopicPartition) -> None:
        """Note that a record of the open transaction goes to this partition."""
        assert self._phase is TransactionPhase.IN_TRANSACTION
        self._partitions.add(where)

    def add_offsets(self) -> None:
        """Note that the transaction contains offsets of a group."""
        assert not self.is_lost
        self._has_offsets = True

    def partitions_to_add(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that AddPartitionsToTxn has to add; none with version 2."""
        if self.is_version_2 or self.is_lost:
            return ()
        return tuple(sorted(self._partitions - self._added))

    def partitions_added(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that the coordinator has these partitions, so their batches may be sent."""
        self._added.update(partitions)

    def may_send(self, where: TopicPartition) -> bool:
        """Whether a batch of this partition may be sent now."""
        return not self.is_lost and (self.is_version_2 or where in self._added)

    # Its end.

    def begin_ending(self, *, is_commit: bool) -> None:
        """Close the transaction for records and offsets; raise if it cannot be ended so."""
        if is_commit:
            self.check_open("commit")
            self._enter(TransactionPhase.COMMITTING)
            return
        self._check_usable()
        if not self.is_open:
            raise IllegalStateError(
                f"{self._name}: cannot abort: no transaction is open (the producer is "
                f"{self._phase.value})"
            )
        self._enter(TransactionPhase.ABORTING)

    def ending(self) -> Ending:
        """Return how to end the transaction; raise the error that prevents it.

        All batches have an outcome now.
        """
        self._check_usable()
        if self._phase is TransactionPhase.ABORTABLE_ERROR:
            raise self.abortable_error()
        # With version 2 a batch adds its partition itself, so each of these may be known already.
        parts = self._partitions if self.is_version_2 else self._added
        return Ending(
            self._phase is TransactionPhase.COMMITTING,
            bool(parts) or self._has_offsets,
            self.identity,
            self.is_version_2,
        )

    def answered(self, identity: Identity | None, *, is_version_2: bool) -> None:
        """Note the answer to EndTxn: the next identity, or None if it stays as it is.

        A cluster that has been upgraded to version 2, or has not said the next epoch, is asked for
        one first, so it cannot take a late request of an older transaction for one of the next.
        """
        if identity is not None:
            self._identity = identity
            self._needs_epoch = False
        elif is_version_2:
            self._needs_epoch = True
        self.is_version_2 = is_version_2

    def epoch_renewed(self, identity: Identity) -> None:
        """Note the epoch that the producer has asked for."""
        self._identity = identity
        self._needs_epoch = False

    def ended(self) -> None:
        """Note that the transaction is committed or aborted; the producer is ready again."""
        assert not self._needs_epoch, "the next epoch has to be known before the next transaction"
        self._enter(TransactionPhase.READY)
        self._error = None
        self._partitions.clear()
        self._added.clear()
        self._has_offsets = False

    # Errors.

    def outcome_unknown(self) -> None:
        """Note that a request of a lost transaction was sent and is not repeated.

        It may take effect later, so this epoch is not used any more.
        """
        self._lose_epoch()

    def failed(self, request: TransactionRequest, error: KafkaError) -> None:
        """Enter the phase that follows from an error which is not retried.

        While the transaction is being aborted, an error of one of its records changes nothing.
        """
        verdict = verdict_of(request, error)
        if self._phase is TransactionPhase.FATAL_ERROR:
            return
        if verdict is Verdict.REFUSED:
            self._enter(TransactionPhase.UNINITIALIZED)
        elif verdict is Verdict.ABORTABLE:
            # As in Java's `TransactionManager`, method `abortableErrorIfPossible`.
            self._lose_epoch()
            if not self.is_lost:
                self._enter(TransactionPhase.ABORTABLE_ERROR)
                self._error = error
        else:
            self._enter(TransactionPhase.FATAL_ERROR)
            self._error = ProducerFenced(str(error)) if isinstance(error, FENCED) else error

    def abortable_error(self) -> KafkaError:
        """Return the error of calls in a transaction that can only be aborted."""
        error = TransactionAbortable(
            f"{self._name}: the transaction failed and can only be aborted, which ends it for this "
            f"producer; run it again then: {_text(self._error)}"
        )
        error.__cause__ = self._error
        return error

    def fatal_error(self) -> KafkaError:
        """Return the error of calls of a producer that has failed for ever."""
        assert self._error is not None
        kind = type(self._error)
        hint = (
            "another producer has this transactional id, or the transaction timed out"
            if isinstance(self._error, ProducerFenced)
            else "close it and make another one"
        )
        error = kind(f"{self._name}: this producer cannot go on ({hint}): {self._error}")
        error.__cause__ = self._error
        return error

    def _lose_epoch(self) -> None:
        # With version 2 the answer to EndTxn has the next epoch in any case.
        self._needs_epoch = self._needs_epoch or not self.is_version_2

    def _check_usable(self) -> None:
        if self._phase is TransactionPhase.FATAL_ERROR:
            raise self.fatal_error()

    def _enter(self, phase: TransactionPhase) -> None:
        if self._phase not in _BEFORE[phase]:
            raise IllegalStateError(
                f"{self._name}: the producer is {self._phase.value}, so it cannot be {phase.value}"
            )
        self._phase = phase

    @property
    def _name(self) -> str:
        return f"transactional_id {self.transactional_id!r}"


def _text(error: KafkaError | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}"
