"""Updates the producer and transaction state of a log for each record batch.

The same functions run when a batch is appended and when recovery reads it after a crash, so both
lead to the same state: `ProducerStates` (the batches of each producer, the open transactions) and
the segment's index of aborted transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharegroup.core.log.producer_state import ProducedBatch, ProducerStates
from sharegroup.storage.disk.files import Buffer
from sharegroup.storage.segment.batch_scan import PlacedBatch
from sharegroup.storage.segment.segment import Segment

if TYPE_CHECKING:
    # Imported at first use, because few batches are markers, and few logs are compacted.
    from sharegroup.core.log.compaction import LastOfProducer
    from sharegroup.wire.batches.markers import TransactionMarker


def marker_of(header: PlacedBatch, batch: Buffer) -> TransactionMarker | None:
    """Return the transaction marker in a batch.

    None for a batch of records and for a control batch that does not end a transaction.
    """
    if not header.is_control:
        return None
    # Imported with the first marker, because most brokers have no transactions.
    from sharegroup.wire.batches.markers import decode_marker

    return decode_marker(batch)


def check_batch(
    states: ProducerStates,
    header: PlacedBatch,
    marker: TransactionMarker | None,
    *,
    marker_version: int = 0,
) -> ProducedBatch | None:
    """Check a batch against its producer's state before it is written.

    ``marker_version`` is the transaction version of a marker.

    Returns the earlier batch that this batch repeats, or None if it may be written. Raises the
    error of `ProducerStates.check` or `ProducerStates.check_marker` if the batch is refused.
    """
    if marker is not None:
        states.check_marker(
            header.producer_id,
            epoch=header.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            version=marker_version,
        )
    if header.is_control:
        return None
    return states.check(
        header.producer_id,
        epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        count=header.offset_count,
        is_transactional=header.is_transactional,
    )


def count_in(
    states: ProducerStates,
    header: PlacedBatch,
    marker: TransactionMarker | None,
    *,
    segment: Segment | None,
    now_ms: int,
) -> None:
    """Update the producer states for a batch that is in the log.

    If the batch aborts a transaction, an entry is added to the index of ``segment``. ``segment`` is
    None if its index already has the entry.
    """
    if not header.is_control:
        states.append(
            header.producer_id,
            epoch=header.producer_epoch,
            batch=ProducedBatch(header.base_sequence, header.base_offset, header.end_offset),
            now_ms=now_ms,
            is_transactional=header.is_transactional,
        )
    elif marker is not None:
        first = states.end_transaction(
            header.producer_id,
            epoch=header.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            offset=header.base_offset,
            now_ms=now_ms,
        )
        if first is not None and not marker.is_commit and segment is not None:
            # Not the first unstable one: that depends on what is durable, and recovery must find
            # the same entry.
            undecided = states.first_open_offset
            segment.aborted.append(
                header.producer_id,
                first_offset=first,
                last_offset=header.base_offset,
                last_stable_offset=header.end_offset if undecided is None else undecided,
            )


def last_of_producers(states: ProducerStates) -> dict[int, LastOfProducer]:
    """Return the last batch of each producer, by producer id.

    Compaction must keep this batch, possibly without records.
    """
    # Imported by the first pass of compaction.
    from sharegroup.core.log.compaction import LastOfProducer

    return {
        producer_id: LastOfProducer(
            entry.epoch, entry.batches[-1].end_offset if entry.batches else None
        )
        for producer_id, entry in states.items()
    }
