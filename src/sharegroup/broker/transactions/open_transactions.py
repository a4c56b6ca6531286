"""Finds open transactions in logs that the transaction coordinator does not know.

The first batch of a transaction in a partition and the record of the coordinator are written
together, and answered when both are durable.  A crash may keep the batch alone.  Then the partition
is added to the transaction again: its producer repeats the batch, which is recognised, and goes on,
or the transaction times out.  Otherwise it would stay open, and readers of committed records would
wait for it without end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from sharegroup.broker.cluster.topics import Topics
from sharegroup.core.transactions.records import (
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
)
from sharegroup.core.transactions.transactions import Transactions

log = logging.getLogger(__name__)


class UnknownOpenTransaction(NamedTuple):
    """A partition with an open transaction of a known producer that does not have the partition."""

    known: TransactionMetadata
    partition: TransactionPartition
    epoch: int
    """The epoch of the transaction's batches."""

    @property
    def is_current(self) -> bool:
        """Whether the producer may still go on with the transaction."""
        return self.epoch == self.known.producer_epoch


def unknown_open_transactions(
    topics: Topics, transactions: Transactions
) -> Iterator[UnknownOpenTransaction]:
    """Yield the open transactions that the coordinator does not know.

    Producers that no transactional id has are left alone: an administrator decides about them
    (``kafka-transactions.sh abort``).
    """
    by_producer = {transaction.producer_id: transaction for transaction in transactions}
    if not by_producer:
        return
    for topic in topics.catalog.topics():
        # A log is created by its first use (ADR 0007), so the other partitions have no batches.
        for log_ in topics.opened(topic):
            partition = TransactionPartition(topic.name, log_.key.partition)
            for producer_id, entry in log_.producers.open_transactions():
                transaction = by_producer.get(producer_id)
                if transaction is not None and not _has(transaction, partition, entry.epoch):
                    yield UnknownOpenTransaction(transaction, partition, entry.epoch)


def report(unknown: UnknownOpenTransaction) -> None:
    """Log an open transaction and how it is taken in."""
    transaction = unknown.known
    log.warning(
        "event=open_transaction_found transactional_id=%r topic=%s partition=%d producer=%d "
        "epoch=%d action=%s",
        transaction.transactional_id,
        *unknown.partition,
        transaction.producer_id,
        unknown.epoch,
        "added" if unknown.is_current else "aborted",
    )


def _has(transaction: TransactionMetadata, partition: TransactionPartition, epoch: int) -> bool:
    """Return whether the transactional id will end the open transaction of this epoch."""
    if transaction.state.is_prepared:
        # A decision raises the epoch.  So batches of the new epoch are of the next transaction,
        # whose record was lost with the completion of this one.  They are looked for again when
        # this one is complete.
        return partition in transaction.partitions or epoch == transaction.producer_epoch
    return transaction.state is TransactionState.ONGOING and partition in transaction.partitions
