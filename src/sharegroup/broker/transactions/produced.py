"""The transaction of a Produce request: its batches must belong to the producer's transaction.

Producers with ``transaction.version`` 2 send Produce 12 or newer, which adds the partitions to the
transaction (KIP-890).  Older ones have added them before, which is verified here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sharegroup.broker.transactions.transaction_coordinator import TransactionCoordinator
from sharegroup.core.log.producer_state import ProducerStates
from sharegroup.core.transactions.records import EPOCH_BUMPS, TransactionPartition
from sharegroup.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    ProducerFenced,
)
from sharegroup.ids import ProducerIdAndEpoch
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.wire.batches.batches import BatchHeader

ADDING_VERSION = 12
"""The first version of Produce that adds its partitions to the transaction."""

ABORTABLE_VERSION = 11
"""The first version of Produce that knows TRANSACTION_ABORTABLE."""


@dataclass(frozen=True, slots=True)
class ProducedTransaction:
    """The transaction of a Produce request with transactional batches."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: tuple[TransactionPartition, ...]
    api_version: int

    @property
    def adds(self) -> bool:
        """Whether the request adds its partitions to the transaction."""
        return self.api_version >= ADDING_VERSION

    def enter(self, coordinator: TransactionCoordinator) -> Ticket | None:
        """Add the partitions, or verify them; the batches must be appended in the same step.

        The answer waits for the ticket.
        """
        if not self.adds:
            self.verify(coordinator)
            return coordinator.last_write(self.transactional_id)
        return coordinator.add_partitions(
            self.transactional_id, self.producer, self.partitions, client_version=EPOCH_BUMPS
        )

    def verify(self, coordinator: TransactionCoordinator) -> None:
        """Raise unless the partitions belong to the transaction."""
        coordinator.verify(
            self.transactional_id,
            self.producer,
            self.partitions,
            is_abortable=self.api_version >= ABORTABLE_VERSION,
        )

    def check_first(self, header: BatchHeader, producers: ProducerStates) -> None:
        """Raise OutOfOrderSequenceNumber if a partition misses the batches before this one.

        Each transaction has its own epoch and begins with sequence 0 in each partition, so a
        partition without state of the producer cannot take another batch.
        """
        if self.adds and header.base_sequence and not producers.knows(header.producer_id):
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} is new in the partition: expected sequence 0, the "
                f"batch has {header.base_sequence}"
            )

    def translated(self, error: KafkaError) -> KafkaError:
        """Return the error that the producer knows.

        Producers repeat a request after NOT_ENOUGH_REPLICAS without asking for new metadata, and
        abort the transaction after INVALID_PRODUCER_EPOCH.
        """
        if isinstance(error, ProducerFenced):
            return InvalidProducerEpoch(str(error))
        # Clients that add partitions by Produce know CONCURRENT_TRANSACTIONS; older ones may not
        # retry it correctly (`ReplicaManager.scala`).
        is_concurrent = isinstance(error, ConcurrentTransactions) and not self.adds
        if isinstance(error, NotCoordinator | CoordinatorNotAvailable) or is_concurrent:
            return NotEnoughReplicas(f"the transaction cannot be verified: {error}")
        return error


def produced_transaction(
    transactional_id: str,
    batches: Iterable[tuple[TransactionPartition, BatchHeader]],
    *,
    api_version: int,
) -> ProducedTransaction | None:
    """Return the transaction of a request; None if no batch is transactional."""
    producers: set[ProducerIdAndEpoch] = set()
    partitions = []
    for partition, header in batches:
        if header.is_transactional:
            producers.add(ProducerIdAndEpoch(header.producer_id, header.producer_epoch))
            partitions.append(partition)
    if not producers:
        return None
    # As in Kafka's `ReplicaManager`: a transactional id has one producer at a time.
    if len(producers) > 1:
        raise InvalidProducerIdMapping(
            f"transactional id {transactional_id!r}: the request has batches of {len(producers)} "
            "producers, expected one"
        )
    return ProducedTransaction(transactional_id, producers.pop(), tuple(partitions), api_version)
