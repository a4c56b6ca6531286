"""Writes the markers of a decided transaction to the logs of its partitions.

A marker in ``__consumer_offsets`` also makes the offsets of the transaction valid, so the
coordinator of consumer groups writes it.  A partition whose topic was deleted needs no marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.catalog import CONSUMER_OFFSETS
from sharegroup.broker.cluster.coordinator_log import Marker
from sharegroup.broker.cluster.topics import Topics
from sharegroup.core.transactions.records import TransactionMetadata, TransactionPartition
from sharegroup.errors import (
    InvalidProducerEpoch,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from sharegroup.storage.sync.tickets import Ticket

if TYPE_CHECKING:
    # Imported with the first marker for offsets.
    from sharegroup.broker.groups.classic_group_coordinator import ClassicGroupCoordinator

log = logging.getLogger(__name__)

MARKERS_AT_ONCE = 64
"""Markers that are appended before other requests get their turn."""


class TransactionMarkers:
    """Appends markers to logs."""

    __slots__ = ("_classic_groups", "_clock", "_topics", "written")

    def __init__(
        self, topics: Topics, clock: Clock, classic_groups: Callable[[], ClassicGroupCoordinator]
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._classic_groups = classic_groups
        self.written = 0
        """The number of markers that were appended."""

    def append(self, partition: TransactionPartition, marker: Marker) -> Ticket:
        """Append a marker to the log of a partition.

        Raises UnknownTopicOrPartition, KafkaStorageError, or the error of
        `ProducerStates.check_marker`.
        """
        topic, log_ = self._topics.named(partition.topic, partition.partition)
        if topic.name == CONSUMER_OFFSETS:
            # By their coordinator: the offsets of the transaction become valid in memory with the
            # marker.
            ticket = self._classic_groups().end_transaction(partition.partition, marker)
        else:
            now_ms = self._clock.wall_ms()
            batch = marker.encoded(timestamp_ms=now_ms)
            ticket = log_.append(batch, now_ms=now_ms, marker_version=marker.version)
        self.written += 1
        return ticket

    def append_all(
        self, partitions: Iterable[TransactionPartition], marker: Marker
    ) -> list[Ticket]:
        """Append a marker to each log that still needs it; raise KafkaStorageError."""
        tickets = []
        for partition in partitions:
            try:
                tickets.append(self.append(partition, marker))
            except UnknownTopicOrPartition:
                continue  # The topic was deleted, and its records with it.
            except (InvalidProducerEpoch, TransactionCoordinatorFenced) as error:
                # A later transaction or an administrator has ended this one in the partition.
                log.warning(
                    "event=marker_refused topic=%s partition=%d producer=%d error=%r",
                    *partition,
                    marker.producer_id,
                    str(error),
                )
        return tickets


def may_mark_at_once(decided: TransactionMetadata, decision: Ticket) -> bool:
    """Return whether the markers may be written before the decision is durable, or it is already.

    A crash may keep a marker and lose the decision.  In one log alone the marker is the decision:
    all records of the transaction are committed, or all are aborted, and nobody was told otherwise.
    """
    # With `durability=os` a ticket is done when the append returns; then only the time on the event
    # loop limits the number of markers that are written in one go.
    return len(decided.partitions) <= (MARKERS_AT_ONCE if decision.done else 1)
