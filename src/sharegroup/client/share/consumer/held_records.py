"""The records that this consumer holds of one partition, until their acknowledgements are sent.

    acquired ---> handed out ---settle---> settled ---take---> sent with a request
    (waiting)     (open)                   (type may change)   (out of this table)
                     ^  '--renew--> asked for, stays open

A table belongs to one share session.  When the session is lost, the broker makes the records
available to others, so later acknowledgements can only fail.  The table is then `lost`.  The
application may go on settling its records, and the acknowledgements are reported with the error
instead of being sent.

In a window over several polls a record may be delivered again, under a new lock, while a handler
still works on its first delivery.  The first delivery is then `superseded`: settling it has no
effect and is reported as failed.  It does not settle the second delivery.

The cost of every call except `accept_open` and `forget_open` depends only on the records it is
about, not on all held records: a window of 100,000 records is settled one by one.

Gaps (offsets without a record, after compaction or for control records) are settled from the
start.  They are kept as ranges, so a range of a billion costs as much as one of two.  The offsets
of a batch that cannot be read are ranges, too: `reported_ranges`.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from sharegroup.client.records import IllegalStateError, TopicPartition
from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.consumer.reported_ranges import ReportedRanges
from sharegroup.client.share.consumer.settled import Settled
from sharegroup.client.share.session.acknowledgements import AckRun, released_after, runs_of
from sharegroup.errors import InvalidRecordState, KafkaError
from sharegroup.ids import TopicIdPartition
from sharegroup.protocol_enums import AcknowledgeType

if TYPE_CHECKING:
    from sharegroup.client.share.consumer.held_columns import HeldColumns

LOCKS_KEPT_MIN = 64
"""The number of locks up to which `HeldRecords` does not look for locks that are done."""

RENEW = int(AcknowledgeType.RENEW)
"""A plain number, because it is compared for every record."""


Later = Callable[[float, Callable[[], None]], TimerHandle]
"""Calls a function after a time in seconds."""


class HeldRecords:
    """The table of one partition's held records: open, settled and to be renewed."""

    __slots__ = (
        "_columns", "_gaps", "_kept", "_later", "_locks", "_locks_max", "_on_renewal", "_open",
        "_renewals", "_renewing", "_reported", "_settled", "_stale", "explicit", "key", "lost",
        "on_settled", "superseded", "topic_partition",
    )  # fmt: skip

    def __init__(
        self,
        key: TopicIdPartition,
        topic_partition: TopicPartition,
        *,
        explicit: bool,
        on_renewal: Callable[[], None] = lambda: None,
        later: Later | None = None,
    ) -> None:
        self.key = key
        self.topic_partition = topic_partition
        self.explicit = explicit
        self.on_settled: Callable[[], None] | None = None
        """Called when a record is settled; None unless a poll waits for room in the window."""
        self._on_renewal = on_renewal
        self._later = later  # None if the broker delays released records by itself.
        self._kept: dict[tuple[AcquisitionLock, int], TimerHandle] = {}
        self._columns: list[HeldColumns] = []
        self._renewing: list[AcquisitionLock] = []
        self._locks: list[AcquisitionLock] = []
        self._locks_max = LOCKS_KEPT_MIN
        self._open: dict[int, AcquisitionLock] = {}
        self._settled: dict[int, int] = {}
        self._gaps: list[AckRun] = []
        self._renewals: dict[int, AcquisitionLock] = {}
        self.superseded: set[tuple[AcquisitionLock, int]] = set()
        """Deliveries, as lock and offset, whose records this member was delivered again since."""
        self._stale: list[AckRun] = []
        self._reported = ReportedRanges()
        self.lost: KafkaError | None = None
        """Why the locks are lost, as set by `lose`; None while they are valid."""

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The number of the partition."""
        return self.topic_partition.partition

    @property
    def open_count(self) -> int:
        """The number of records that are handed out and not settled."""
        return (
            len(self._open) + len(self.superseded) + sum(columns.open for columns in self._columns)
        )

    @property
    def unsettled_count(self) -> int:
        """The number of offsets that are handed out or reported as unreadable, and not settled."""
        return self.open_count + self._reported.undecided_count

    @property
    def open_bytes(self) -> float:
        """The size on the wire, on average, of the records handed out and not settled."""
        return sum(lock.open * lock.record_bytes for lock in self._locks)

    @property
    def has_settled(self) -> bool:
        """Whether `take` would return acknowledgements."""
        return bool(
            self._settled
            or self._gaps
            or self._stale
            or self._reported.has_settled
            or any(columns.has_settled() for columns in self._columns)
        )

    @property
    def has_renewals(self) -> bool:
        """Whether `take_renewals` would return renewals."""
        return bool(self._renewals or self._renewing)

    @property
    def is_empty(self) -> bool:
        """Whether no record is open and no acknowledgement waits to be taken."""
        return not (self.open_count or self._reported or self.has_settled)

    def holds(self, offset: int) -> bool:
        """Whether the offset is handed out and its acknowledgement is not taken for sending."""
        return (
            offset in self._open
            or offset in self._settled
            or self._reported.lock_of(offset) is not None
        )

    def locks(self) -> Iterator[AcquisitionLock]:
        """Yield the locks with waiting or open records; none after the locks are lost."""
        if self.lost is None:
            yield from (lock for lock in self._locks if not lock.is_done)

    # Handing out and settling.

    def acquired(self, lock: AcquisitionLock) -> None:
        """Add the lock of an acquired range, whose records wait to be handed out."""
        self._locks.append(lock)
        if len(self._locks) > self._locks_max:
            # A new list, because acknowledgements under way refer to the old one.
            self._locks = [known_lock for known_lock in self._locks if not known_lock.is_done]
            # Twice what is left, so that these sweeps cost each lock a constant time on average.
            self._locks_max = max(LOCKS_KEPT_MIN, 2 * len(self._locks))

    def hand_out(self, lock: AcquisitionLock, offsets: Iterable[int]) -> None:
        """Note that these records of the lock are handed out to the application."""
        fresh = dict.fromkeys(offsets, lock)
        self._supersede(fresh)
        for columns in self._columns:
            columns.supersede(sorted(fresh))
        if self._reported and fresh:
            self._reported.drop(min(fresh), max(fresh) + 1)
        self._open.update(fresh)
        lock.open += len(fresh)

    def hand_out_columns(self, columns: HeldColumns) -> None:
        """Note that these records are handed out to the application as columns."""
        for earlier in self._columns:
            earlier.supersede(columns.offsets)
        if self._open:
            self._supersede(dict.fromkeys(columns.offsets.tolist()))
        if self._reported:
            self._reported.drop(columns.first, columns.end)
        self._columns.append(columns)

    def report(self, lock: AcquisitionLock, first: int, end: int) -> None:
        """Note that these unreadable offsets are reported to the application."""
        open_offsets = [offset for offset in self._open if first <= offset < end]
        self._supersede(dict.fromkeys(open_offsets))
        for columns in self._columns:
            low, high = columns.offsets.searchsorted((first, end)).tolist()
            columns.supersede(columns.offsets[low:high])
        self._reported.drop(first, end)
        self._reported.add(lock, first, end)
        lock.waiting_from = max(lock.waiting_from, end)

    def keep_reported(self, lock: AcquisitionLock, first: int, end: int) -> None:
        """Keep unreadable offsets until they are settled; `release_undecided` leaves them."""
        self._reported.keep(lock, first, end)

    def release_undecided(self) -> None:
        """Release the unreadable offsets for which the application has not decided."""
        for lock, first, end in self._reported.release_undecided():
            if self.lost is None:
                self.settle_unseen(lock, first, end, AcknowledgeType.RELEASE)

    def _supersede(self, fresh: Mapping[int, object]) -> None:
        """Mark open deliveries of the records in ``fresh`` as superseded."""
        # Almost always disjoint, and this check makes no set.
        if not self._open.keys().isdisjoint(fresh):
            for offset in self._open.keys() & fresh.keys():
                earlier_lock = self._open.pop(offset)
                earlier_lock.open -= 1
                self.superseded.add((earlier_lock, offset))

    def settle(self, lock: AcquisitionLock, offset: int, ack_type: int) -> None:
        """Set, or change, the acknowledgement type of a record handed out under ``lock``."""
        # The hot path: it runs once for each record in explicit mode.
        if self.explicit and self._open.get(offset) is lock and ack_type != RENEW:
            del self._open[offset]
            self._settled[offset] = ack_type
            lock.open -= 1
            if self.on_settled is not None:
                self.on_settled()
        else:
            self._settle_otherwise(lock, offset, ack_type)

    def release_after(self, lock: AcquisitionLock, offset: int, delay_ms: int) -> None:
        """Release a record that is to be delivered again after a delay.

        If the broker has no delays, the record stays open until its delay is over.  Its lock is
        renewed like that of any open record.
        """
        if self._later is None or not delay_ms:
            self.settle(lock, offset, released_after(delay_ms))
            return
        self._check_explicit(offset)
        if self._open.get(offset) is not lock:
            raise IllegalStateError(
                f"{self._where(offset)} can't be released later: it is settled, or was delivered "
                "again"
            )
        self._forget_kept(lock, offset)
        release = partial(self._release_kept, lock, offset)
        self._kept[lock, offset] = self._later(delay_ms / 1000, release)

    @property
    def kept_count(self) -> int:
        """The number of open records that are kept until their delay is over."""
        return sum(self._is_open(lock, offset) for lock, offset in self._kept)

    def _is_open(self, lock: AcquisitionLock, offset: int) -> bool:
        return self._open.get(offset) is lock or (lock, offset) in self.superseded

    def _forget_kept(self, lock: AcquisitionLock, offset: int) -> None:
        timer = self._kept.pop((lock, offset), None)
        if timer is not None:
            timer.cancel()

    def _release_kept(self, lock: AcquisitionLock, offset: int) -> None:
        self._forget_kept(lock, offset)
        # It may have been settled otherwise in the meantime.
        if self._is_open(lock, offset):
            self.settle(lock, offset, AcknowledgeType.RELEASE)

    def settle_offset(self, offset: int, ack_type: int) -> None:
        """Set the acknowledgement type of the record, or unreadable offset, at this offset."""
        if (lock := self._reported.lock_of(offset)) is not None:
            self.settle_range(lock, offset, offset + 1, ack_type)
            return
        self._settle_otherwise(self._open.get(offset), offset, ack_type)

    def settle_range(self, lock: AcquisitionLock, first: int, end: int, ack_type: int) -> None:
        """Set, or change, the type of unreadable offsets; implicit mode allows it, too."""
        if ack_type == RENEW:
            self._renewing.append(lock)
            self._on_renewal()
        elif not self._reported.settle(lock, first, end, int(ack_type)):
            raise IllegalStateError(
                f"{self._where(first)}: the unreadable offsets up to {end - 1} are not held any "
                "more: a later poll released them, their acknowledgement was sent, or they were "
                "delivered again"
            )
        if self.on_settled is not None:
            self.on_settled()

    def _settle_otherwise(self, lock: AcquisitionLock | None, offset: int, ack_type: int) -> None:
        self._check_explicit(offset)
        if ack_type == RENEW:
            self._renew(lock, offset)
        elif lock is not None and (lock, offset) in self.superseded:
            # This lock has ended.  If the type was sent, it would settle the later delivery of the
            # record, so it is reported as failed instead.
            self.superseded.discard((lock, offset))
            self._stale.append(AckRun(offset, offset + 1, int(ack_type)))
        else:
            self.choose(offset, ack_type)
        if self.on_settled is not None:
            self.on_settled()

    def _check_explicit(self, offset: int) -> None:
        if not self.explicit:
            raise IllegalStateError(
                f"{self._where(offset)}: acknowledge needs share_acknowledgement_mode='explicit'; "
                "in implicit mode the next poll or commit accepts what the last poll returned"
            )

    def _renew(self, lock: AcquisitionLock | None, offset: int) -> None:
        if lock is None or self._open.get(offset) is not lock:
            raise IllegalStateError(
                f"{self._where(offset)} can't be renewed: it is settled, or was delivered again"
            )
        self._renewals[offset] = lock
        self._on_renewal()

    def choose(self, offset: int, ack_type: int) -> None:
        """Set the acknowledgement type of a record, regardless of the acknowledgement mode."""
        lock = self._open.pop(offset, None)
        if lock is not None:
            lock.open -= 1
        elif offset not in self._settled:
            raise IllegalStateError(
                f"{self._where(offset)} is not held: its acknowledgement was sent already, "
                "or it was never delivered"
            )
        self._settled[offset] = int(ack_type)

    def settle_columns(self, columns: HeldColumns, ack_type: int, offsets: Any = None) -> None:
        """Settle records that were handed out as columns: these offsets, or with None all."""
        self._check_explicit(columns.first)
        if ack_type == RENEW:
            self._renewing += [lock for lock, _ in columns.locks]
            self._on_renewal()
        else:
            self._stale += columns.settle(offsets, ack_type)
        if self.on_settled is not None:
            self.on_settled()

    def columns_with(self, offsets: Any) -> Iterator[tuple[HeldColumns, Any]]:
        """Yield the columns that hold some of the ascending offsets, newest first, with those."""
        for columns in reversed(self._columns):
            if len(offsets):
                is_here = columns.find(offsets)
                if is_here.any():
                    yield columns, offsets[is_here]
                    offsets = offsets[~is_here]

    def accept_open(self) -> None:
        """Accept all records that are handed out and have no type yet (implicit mode)."""
        for columns in self._columns:
            columns.settle_open(AcknowledgeType.ACCEPT)
        if self._open:
            for lock in set(self._open.values()):
                lock.open = 0
            accepted = dict.fromkeys(self._open, int(AcknowledgeType.ACCEPT))
            self._settled = self._settled | accepted if self._settled else accepted
            self._open = {}

    def settle_unseen(self, lock: AcquisitionLock, first: int, end: int, ack_type: int) -> None:
        """Settle offsets that are not handed out: gaps, or offsets to release."""
        if first < end:
            lock.hole(first, end)
            self._gaps.append(AckRun(first, end, int(ack_type)))

    # Taking acknowledgements for sending.

    def take(self) -> Iterator[Settled]:
        """Take all settled acknowledgements out of the table, in units that are sent together.

        Acknowledgements of superseded deliveries are a unit with an error.
        """
        runs, self._gaps = self._gaps, []
        unseen = sorted((run.first, run.end) for run in runs)
        if self._settled:
            settled, self._settled = self._settled, {}
            offsets = sorted(settled)
            runs += runs_of(offsets, [settled[offset] for offset in offsets])
        if self._reported:
            runs += self._reported.take()
        if self._columns:
            runs += [run for columns in self._columns for run in columns.take()]
            self._columns = [columns for columns in self._columns if columns.open]
        if runs:
            yield Settled(self, tuple(runs), self._locks, self.lost, unseen=unseen)
        if self._stale:
            stale, self._stale = self._stale, []
            text = (
                f"{self._where(stale[0].first)}: its lock ended, and it was delivered to this "
                "consumer again"
            )
            yield Settled(self, tuple(stale), (), self.lost or InvalidRecordState(text))

    def take_renewals(self) -> Iterator[Settled]:
        """Take the renewals that the application requested, for records that are still open."""
        # A record may have been settled since; its acknowledgement ends the lock, so a renewal
        # would be refused.
        requested, self._renewals = self._renewals, {}
        still_open = {
            offset: lock for offset, lock in requested.items() if self._open.get(offset) is lock
        }
        if still_open:
            offsets = sorted(still_open)
            runs = tuple(runs_of(offsets, [RENEW] * len(offsets)))
            renewals = tuple((still_open[offset], offset) for offset in offsets)
            yield Settled(self, runs, self._locks, self.lost, renewals)
        locks, self._renewing = self._renewing, []
        if (renewal := self.renewal_of(locks)) is not None:
            yield renewal

    def renewal_of(self, locks: Iterable[AcquisitionLock]) -> Settled | None:
        """Return a renewal of all open and waiting records under these locks, or None."""
        locks_to_renew = {lock for lock in locks if not lock.is_done}
        if not locks_to_renew:
            return None
        runs = [
            AckRun(*waiting, RENEW) for lock in locks_to_renew for waiting in lock.waiting_ranges()
        ]
        in_columns = {lock for columns in self._columns for lock, _ in columns.locks}
        # All of its offsets so far are open, so one run stands for them, without a look at each.
        whole_locks = [
            lock
            for lock in locks_to_renew.difference(in_columns)
            if lock.open and lock.open == lock.waiting_from - lock.first
        ]
        runs += [AckRun(lock.first, lock.waiting_from, RENEW) for lock in whole_locks]
        partial_locks = locks_to_renew.difference(whole_locks)
        offsets = sorted(offset for offset, lock in self._open.items() if lock in partial_locks)
        runs += runs_of(offsets, [RENEW] * len(offsets))
        runs += self._reported.open_runs(partial_locks, RENEW)
        for columns in self._columns:
            runs += columns.open_runs(
                (lock for lock, _ in columns.locks if lock in locks_to_renew), RENEW
            )
        renewals = tuple((lock, None) for lock in locks_to_renew)
        return Settled(self, tuple(sorted(runs)), self._locks, self.lost, renewals)

    def forget_open(self) -> None:
        """Forget the open records; settling them later raises IllegalStateError."""
        for lock, offset in tuple(self._kept):
            self._forget_kept(lock, offset)
        for lock in set(self._open.values()):
            lock.open = 0
        self._open = {}
        self.superseded = set()
        self._renewals = {}
        self._reported.forget()
        for columns in self._columns:
            columns.forget()

    def lose(self, error: KafkaError) -> None:
        """Note that the locks are lost: records settled from now on fail with ``error``.

        Gaps are dropped without a report, because the next member finds them again.
        """
        self.lost = error
        self._gaps = []
        self._renewals = {}
        self._renewing = []
        # Nothing is left to wait for: they are reported with this error.
        for lock, offset in tuple(self._kept):
            self._release_kept(lock, offset)

    def _where(self, offset: int) -> str:
        return f"topic {self.topic!r} partition {self.partition} offset {offset}"
