"""The record of a transactional id in ``__transaction_state``, and the states of a transaction.

                    ┌──────────────── next transaction ────────────────┐
                    ▼                                                  │
    EMPTY ──▶ ONGOING ──▶ PREPARE_COMMIT ──▶ (markers) ──▶ COMPLETE_COMMIT
                │
                └───────▶ PREPARE_ABORT  ──▶ (markers) ──▶ COMPLETE_ABORT ──▶ next transaction

A prepared transaction is decided: its markers are written, also after a restart, and then it is
complete.  With `EPOCH_BUMPS` (KIP-890) an abort may also begin in EMPTY and in both complete
states, because the producer may not know whether the broker has its transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from sharegroup.ids import ProducerIdAndEpoch, TopicName

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NOT_STARTED_MS = -1
"""The start time of a transaction that has not begun."""

EPOCH_LAST = 2**15 - 1
"""The largest producer epoch.  Only the coordinator uses it, so it can always fence a producer."""

EPOCH_BUMPS = 2
"""The ``transaction.version`` with a new epoch for each transaction (KIP-890)."""


class TransactionState(IntEnum):
    """The state of a transactional id, with its number in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """The name in DescribeTransactions and ListTransactions, for example ``PrepareCommit``."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction is decided and its markers are to be written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is under way, so the transactional id may expire."""
        return self is not TransactionState.ONGOING and not self.is_prepared


class TransactionPartition(NamedTuple):
    """A partition that takes part in a transaction; offsets of groups are in an internal topic."""

    topic: TopicName
    partition: int


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The state of a transactional id: its producer and its current or last transaction.

    Times are wall-clock milliseconds.  ``last_epoch`` is not stored in the log: as in Kafka, a
    retry of InitProducerId that spans a restart of the coordinator is fenced.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TransactionPartition]
    started_ms: int
    """When the transaction began; `NOT_STARTED_MS` if none has begun since InitProducerId."""
    updated_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after this transaction, if the epochs of the current one are used up."""
    last_epoch: int = NO_EPOCH
    """The producer's epoch before the last change, by which a retry is recognised."""
    client_version: int = 0
    """The transaction version that the client uses for this transaction."""

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer that may go on."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def has_used_up_epochs(self) -> bool:
        """Whether the producer needs a new producer id before its next epoch."""
        return is_used_up(self.producer_epoch)

    @property
    def is_commit(self) -> bool:
        """Whether the transaction was decided to be committed."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


@dataclass(frozen=True, slots=True)
class TransactionTombstone:
    """The record that deletes a transactional id."""

    transactional_id: str


TransactionRecord = TransactionMetadata | TransactionTombstone


def is_used_up(epoch: int) -> bool:
    """Return whether no producer may get an epoch above this one."""
    return epoch >= EPOCH_LAST - 1
