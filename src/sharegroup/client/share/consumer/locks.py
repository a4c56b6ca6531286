"""The acquisition lock on one range of offsets, and how far its records were handed out.

A broker locks whole ranges, so one object holds the state that the records of a range share:

    first ......... waiting_from ......... end
      handed out         waiting
      open: not settled  (in the inbox)

The deadline is a lower bound.  It counts from the moment when the fetch was sent, and the
broker starts the lock later.  A renewal moves the deadline of the records that it names.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Sequence, Set
from itertools import groupby
from typing import NamedTuple, Protocol

from sharegroup.client.records import TopicPartition
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.client.share.session.renewal_schedule import seconds_left_when_due
from sharegroup.errors import KafkaError

log = logging.getLogger(__name__)


class LockHolder(Protocol):
    """The table of held records that a lock belongs to, as a record and its lock see it.

    A protocol, because `HeldRecords` keeps locks and needs this module itself.
    """

    topic_partition: TopicPartition
    lost: KafkaError | None

    @property
    def superseded(self) -> Set[tuple[AcquisitionLock, int]]:
        """Deliveries, as lock and offset, whose records this member was delivered again since."""

    @property
    def topic(self) -> str:
        """The name of the topic."""

    @property
    def partition(self) -> int:
        """The number of the partition."""

    def settle(self, lock: AcquisitionLock, offset: int, ack_type: int) -> None:
        """Set, or change, the acknowledgement type of a record handed out under ``lock``."""

    def release_after(self, lock: AcquisitionLock, offset: int, delay_ms: int) -> None:
        """Release a record that is to be delivered again after a delay."""

    def settle_range(self, lock: AcquisitionLock, first: int, end: int, ack_type: int) -> None:
        """Set, or change, the acknowledgement type of unreadable offsets under ``lock``."""

    def keep_reported(self, lock: AcquisitionLock, first: int, end: int) -> None:
        """Keep unreadable offsets until they are settled."""


class LockedBatch(NamedTuple):
    """The facts that all records of one batch in the log have in common."""

    end: int
    """The offset after the batch."""
    leader_epoch: int
    has_append_time: bool


class AcquisitionLock:
    """The acquisition lock on one range of offsets of a partition, held by this member."""

    __slots__ = (
        "_holes", "acquired_at", "batches", "deadline", "delivery_count", "end",
        "first", "held", "let_go", "open", "record_bytes", "renewed_singly", "waiting_from",
    )  # fmt: skip

    def __init__(
        self,
        held: LockHolder,
        acquired: AcquiredRecords,
        *,
        acquired_at: float,
        deadline: float,
        record_bytes: float,
    ) -> None:
        self.held = held
        self.first, self.end = acquired.first_offset, acquired.end_offset
        self.delivery_count = acquired.delivery_count
        self.acquired_at = acquired_at
        self.deadline = deadline
        """The lock deadline in seconds of ``time.monotonic()``; single records: `deadline_of`."""
        self.record_bytes = record_bytes
        """The average size of one of its records on the wire."""
        self.open = 0
        """The number of its offsets that are handed out, or reported, and not settled."""
        self.waiting_from = self.first
        self.batches: Sequence[LockedBatch] = ()
        """The batches of its records, by offset; empty if they were not decoded one by one."""
        self.let_go = False
        """Whether the lock is no longer renewed, because it is too old or the broker refused."""
        self.renewed_singly: dict[int, float] | None = None
        """The deadlines of records that were renewed one by one, by offset; None without any."""
        self._holes: list[tuple[int, int]] = []

    @property
    def waiting(self) -> int:
        """The number of its offsets that are not handed out yet."""
        return self.end - self.waiting_from

    @property
    def is_done(self) -> bool:
        """Whether none of its records is waiting or open."""
        return not self.open and self.waiting_from >= self.end

    def batch_of(self, offset: int) -> LockedBatch | None:
        """Return the batch of the record at this offset, or None if it is unknown."""
        index = bisect_right(self.batches, offset, key=_end_of)
        return self.batches[index] if index < len(self.batches) else None

    def hole(self, first: int, end: int) -> None:
        """Note that ``[first, end)`` was settled without being handed out, and never will be."""
        self._holes.append((first, end))

    def waiting_ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of offsets that are locked and not handed out, without holes."""
        position, ranges = self.waiting_from, []
        for first, end in sorted(self._holes):
            if first > position:
                ranges.append((position, first))
            position = max(position, end)
        if position < self.end:
            ranges.append((position, self.end))
        return ranges

    @property
    def latest_deadline(self) -> float:
        """The latest deadline of its records, which differ after renewals of single records."""
        if self.renewed_singly is None:
            return self.deadline
        return max(self.deadline, *self.renewed_singly.values())

    def deadline_of(self, offset: int) -> float:
        """Return the lock deadline of the record at this offset."""
        return (self.renewed_singly or {}).get(offset, self.deadline)

    def renewed(self, offset: int | None, deadline: float) -> None:
        """Set the deadline after a renewal of one record, or with None of all unsettled ones."""
        if offset is None:
            self.deadline, self.renewed_singly = deadline, None
        elif self.renewed_singly is None:
            self.renewed_singly = {offset: deadline}
        else:
            self.renewed_singly[offset] = deadline


def _end_of(batch: LockedBatch) -> int:
    return batch.end


# Selects the locks to renew automatically, and those that are too old to be renewed.
#
# `renewal_schedule` says when a lock is due. A lock whose records were acquired more than
# ``renew_age_max_ms`` ago is no longer renewed. That is logged once, because its records will be
# delivered to another member.


def due_locks(
    locks: Iterable[AcquisitionLock], *, now: float, lock_seconds: float, age_max_seconds: float
) -> tuple[list[AcquisitionLock], list[AcquisitionLock]]:
    """Return the locks to renew now, and the locks that are too old from now on."""
    due, let_go = [], []
    seconds_left = seconds_left_when_due(lock_seconds)
    for lock in locks:
        if lock.let_go or now >= lock.deadline or lock.deadline - now > seconds_left:
            continue
        if now - lock.acquired_at > age_max_seconds:
            lock.let_go = True
            let_go.append(lock)
        else:
            due.append(lock)
    return due, let_go


def say_let_go(group_id: str, locks: Iterable[AcquisitionLock], age_max_ms: int) -> None:
    """Log the locks that are no longer renewed, with one line for each partition."""
    by_partition = sorted(locks, key=lambda lock: (lock.held.topic_partition, lock.first))
    for (topic, partition), let_go in groupby(by_partition, lambda lock: lock.held.topic_partition):
        ranges = [f"{lock.first}-{lock.end - 1}" for lock in let_go]
        log.warning(
            "event=renewal.ended group=%s topic=%s partition=%s offsets=%s renew_age_max_ms=%s "
            "action='the locks are no longer renewed, and the records will be delivered again'",
            group_id,
            topic,
            partition,
            ",".join(ranges[:5]) + (",..." if len(ranges) > 5 else ""),
            age_max_ms,
        )
