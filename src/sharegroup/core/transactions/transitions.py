"""The changes of a transactional id: each function checks one change and returns the new metadata.

None of them changes anything: the coordinator writes the metadata, and `Transactions.replay`
applies them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sharegroup.core.transactions.records import (
    EPOCH_BUMPS,
    EPOCH_LAST,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED_MS,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
    is_used_up,
)
from sharegroup.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
    TransactionAbortable,
)
from sharegroup.ids import ProducerIdAndEpoch

NO_PARTITIONS: frozenset[TransactionPartition] = frozenset()


def check_settled(known: TransactionMetadata) -> None:
    """Raise ConcurrentTransactions while the markers of a decided transaction are written."""
    if known.state.is_prepared:
        raise ConcurrentTransactions(
            f"transactional id {known.transactional_id!r}: the previous transaction is in state "
            f"{known.state.label}; try again when its markers are written"
        )


def created(
    transactional_id: str, *, producer_id: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """Return the metadata of a new transactional id, whose first producer has epoch 0."""
    return TransactionMetadata(
        transactional_id,
        producer_id,
        0,
        timeout_ms,
        TransactionState.EMPTY,
        NO_PARTITIONS,
        NOT_STARTED_MS,
        now_ms,
    )


def next_epoch(
    known: TransactionMetadata,
    *,
    expected: tuple[int, int] | None,
    fresh_producer_id: int | None,
    timeout_ms: int,
    now_ms: int,
) -> TransactionMetadata:
    """Give the id to a new producer, or the next epoch to the producer that is ``expected``.

    ``expected`` is the producer id and epoch that a producer continues with, after an error.  A new
    producer has none, and fences all earlier ones.
    """
    check_settled(known)
    assert known.state.is_idle, "an open transaction is aborted first"
    check_expected(known, expected)
    bare = replace(
        known,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=NO_PARTITIONS,
        started_ms=NOT_STARTED_MS,
        updated_ms=now_ms,
        previous_producer_id=known.producer_id,
    )
    epoch = known.producer_epoch
    # Not for a retry with the epoch before, which gets the same answer again below.
    if known.has_used_up_epochs and (expected is None or expected[1] == epoch):
        if fresh_producer_id is None:
            raise _without_id(known)
        last = NO_EPOCH if expected is None else epoch
        return replace(bare, producer_id=fresh_producer_id, producer_epoch=0, last_epoch=last)
    if expected is None:
        # Without a last epoch, a late retry of the former producer is fenced.
        return replace(bare, producer_epoch=epoch + 1, last_epoch=NO_EPOCH)
    if expected[1] == epoch:
        return replace(bare, producer_epoch=epoch + 1, last_epoch=epoch)
    if expected[1] == known.last_epoch:
        return bare  # A retry, whose first answer was lost.
    raise ProducerFenced(
        f"transactional id {known.transactional_id!r}: a producer with epoch {expected[1]} cannot "
        f"continue, the epoch is {epoch} and the one before it {known.last_epoch}"
    )


def _without_id(metadata: TransactionMetadata) -> ConcurrentTransactions:
    """Return the error for a change that came before one that uses up the epochs.

    Then no new producer id was taken for it.
    """
    return ConcurrentTransactions(
        f"transactional id {metadata.transactional_id!r} was changed at the same time; try again"
    )


def check_expected(known: TransactionMetadata, expected: tuple[int, int] | None) -> None:
    """Raise ProducerFenced unless the id belongs to the producer that is expected."""
    if expected is None or expected[0] == known.producer_id:
        return
    if expected[0] == known.previous_producer_id and is_used_up(expected[1]):
        return  # Perhaps a retry: the answer with the new producer id was lost.
    raise ProducerFenced(
        f"transactional id {known.transactional_id!r} belongs to producer {known.producer_id}, "
        f"not to producer {expected[0]}"
    )


def with_partitions(
    known: TransactionMetadata,
    partitions: Iterable[TransactionPartition],
    *,
    client_version: int,
    now_ms: int,
) -> TransactionMetadata | None:
    """Add partitions, which begins the transaction; None if the transaction has them all."""
    check_settled(known)
    added = frozenset(partitions)
    is_ongoing = known.state is TransactionState.ONGOING
    if is_ongoing and added <= known.partitions:
        return None
    return replace(
        known,
        state=TransactionState.ONGOING,
        partitions=known.partitions | added if is_ongoing else added,
        started_ms=known.started_ms if is_ongoing else now_ms,
        updated_ms=now_ms,
        previous_producer_id=known.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        client_version=client_version,
    )


def check_member(
    known: TransactionMetadata,
    partitions: Iterable[TransactionPartition],
    *,
    is_abortable: bool,
) -> None:
    """Raise unless all partitions take part in the transaction (KIP-890, verification).

    ``is_abortable`` says whether the client knows TRANSACTION_ABORTABLE.
    """
    check_settled(known)
    missing = frozenset(partitions) - known.partitions
    if missing or known.state is not TransactionState.ONGOING:
        first = min(missing) if missing else None
        which = "" if first is None else f"partition {first.topic}-{first.partition} of "
        text = (
            f"transactional id {known.transactional_id!r}: {which}the request is not part of the "
            f"transaction, which is {known.state.label}"
        )
        raise TransactionAbortable(text) if is_abortable else InvalidTransactionState(text)


def check_producer(known: TransactionMetadata, producer: ProducerIdAndEpoch) -> None:
    """Raise unless this is the current producer of the transactional id, with its epoch."""
    check_mapping(known, producer.producer_id)
    if producer.epoch != known.producer_epoch:
        raise fenced(known, producer.epoch)


def check_mapping(known: TransactionMetadata, producer_id: int) -> None:
    """Raise InvalidProducerIdMapping unless the transactional id belongs to the producer."""
    if producer_id != known.producer_id:
        raise InvalidProducerIdMapping(
            f"transactional id {known.transactional_id!r} belongs to producer "
            f"{known.producer_id}, not to producer {producer_id}"
        )


def fenced(known: TransactionMetadata, epoch: int) -> ProducerFenced:
    """Return the error for a producer with another epoch than the current one."""
    return ProducerFenced(
        f"transactional id {known.transactional_id!r}, producer {known.producer_id}: the epoch is "
        f"{known.producer_epoch}, not {epoch}; another producer with this id was initialised, or "
        "the transaction timed out"
    )


def wrong_state(known: TransactionMetadata, *, is_commit: bool) -> InvalidTransactionState:
    """Return the error for an end that the state does not allow."""
    verb = "commit" if is_commit else "abort"
    return InvalidTransactionState(
        f"transactional id {known.transactional_id!r} is in state {known.state.label}: there is "
        f"no transaction to {verb}"
    )


def prepared(
    known: TransactionMetadata,
    *,
    is_commit: bool,
    client_version: int,
    fresh_producer_id: int | None,
    now_ms: int,
) -> TransactionMetadata:
    """Decide a transaction, or fence an idle producer by an abort without partitions."""
    is_ongoing = known.state is TransactionState.ONGOING
    epoch, last = known.producer_epoch, known.last_epoch
    following = NO_PRODUCER_ID
    if client_version >= EPOCH_BUMPS:
        if known.has_used_up_epochs:
            if fresh_producer_id is None:
                raise _without_id(known)
            following = fresh_producer_id
        # At the last epoch an abort keeps it, as in Kafka, so that a broken state can be left.
        epoch, last = min(epoch + 1, EPOCH_LAST), epoch
    return replace(
        known,
        producer_epoch=epoch,
        last_epoch=last,
        state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
        partitions=known.partitions if is_ongoing else NO_PARTITIONS,
        # An abort without partitions has no start, but its record needs one
        # (TransactionMetadata.java).
        started_ms=known.started_ms if is_ongoing else now_ms,
        updated_ms=now_ms,
        previous_producer_id=known.producer_id,
        next_producer_id=following,
        client_version=client_version,
    )


def fence(
    known: TransactionMetadata,
    *,
    version: int,
    fresh_producer_id: int | None,
    now_ms: int,
) -> TransactionMetadata:
    """Abort an open transaction with a new epoch, so its producer can do nothing more.

    ``version`` is the transaction version of the broker.
    """
    assert known.state is TransactionState.ONGOING, "only an open transaction is fenced"
    # With epoch bumps `prepared` raises the epoch itself.
    if version < EPOCH_BUMPS:
        known = replace(
            known, producer_epoch=min(known.producer_epoch + 1, EPOCH_LAST), last_epoch=NO_EPOCH
        )
    # Nobody gets this epoch: a producer that continues gets the one after it
    # (TransactionCoordinator.scala).
    return prepared(
        known,
        is_commit=False,
        client_version=version,
        fresh_producer_id=fresh_producer_id,
        now_ms=now_ms,
    )


def completed(known: TransactionMetadata, *, now_ms: int) -> TransactionMetadata:
    """Complete a decided transaction whose markers are durable."""
    assert known.state.is_prepared, f"{known.transactional_id!r} is {known.state.label}"
    producer_id, epoch = answered_producer(known)
    return replace(
        known,
        producer_id=producer_id,
        producer_epoch=epoch,
        state=(
            TransactionState.COMPLETE_COMMIT if known.is_commit else TransactionState.COMPLETE_ABORT
        ),
        partitions=NO_PARTITIONS,
        updated_ms=now_ms,
        # By this a repeated EndTxn with the old producer id is recognised.
        previous_producer_id=known.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def answered_producer(decided: TransactionMetadata) -> ProducerIdAndEpoch:
    """Return the producer id and epoch with which the producer goes on after a decision."""
    if decided.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdAndEpoch(decided.next_producer_id, 0)
    return decided.producer
