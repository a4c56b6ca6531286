"""Counting batches in: what a log's producers and transactions are after each.

The same steps are taken when a batch is appended and, after a crash, when it is found in the
log again, so both lead to the same state: `ProducerStates` (whose batches, which transactions
are open) and the segment's index of aborted transactions.
"""

from __future__ import annotations

from sharegroup.core.compaction import LastOfProducer
from sharegroup.core.producer_state import ProducedBatch, ProducerStates
from sharegroup.storage.batch_scan import PlacedBatch
from sharegroup.storage.files import Buffer
from sharegroup.storage.segment import Segment
from sharegroup.wire.markers import TransactionMarker, decode_marker


def marker_of(header: PlacedBatch, batch: Buffer) -> TransactionMarker | None:
    """The marker in a batch; None for records, and for control batches that end nothing."""
    return decode_marker(batch) if header.is_control else None


def check_batch(
    states: ProducerStates, header: PlacedBatch, marker: TransactionMarker | None
) -> ProducedBatch | None:
    """The producer's batch that this one repeats, None if it may be written, else an error."""
    if marker is not None:
        states.check_marker(
            header.producer_id,
            epoch=header.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
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
    """A producer's batch is in the log, in ``segment``; None where its index has it already."""
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
            undecided = states.first_open_offset
            segment.aborted.append(
                header.producer_id,
                first_offset=first,
                last_offset=header.base_offset,
                last_stable_offset=header.end_offset if undecided is None else undecided,
            )


def last_of_producers(states: ProducerStates) -> dict[int, LastOfProducer]:
    """The last batch of each producer: compaction must leave it, though perhaps without records."""
    return {
        producer_id: LastOfProducer(
            entry.epoch, entry.batches[-1].end_offset if entry.batches else None
        )
        for producer_id, entry in states.items()
    }
