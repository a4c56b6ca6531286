"""What this consumer holds of one partition: handed out, settled, and ready to be sent.

    acquired ---> handed out ---settle---> settled ---take---> sent with a request
    (waiting)     (open)                   (type may change)   (out of this table)
                     ^  '--renew--> asked for, stays open

A table lives as long as the share session it belongs to.  When the session is lost the
broker gives its records to others, so whatever is settled afterwards can only fail: the table
is `lost`, keeps counting so that a worker in the middle of a batch is not disturbed, and what
is taken from it carries the error instead of going out.

In a window over several polls the same record may come again, under a new lock, while the
handler of its first delivery still works on it.  The first one is then `superseded`: settling
it has no effect and is reported so, instead of settling the second delivery in its place.

Every call but `accept_open` and `forget_open` costs no more than what it is about, whatever
else is held: a window of a hundred thousand records is settled one by one.

Gaps (offsets without a record: compacted, or control records) are settled from the start and
kept as ranges: a range of a billion costs as much as one of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sharegroup.client.acknowledgements import RENEW, AckRun, runs_of
from sharegroup.client.locks import AcquisitionLock
from sharegroup.client.records import AcknowledgeType, IllegalStateError, TopicPartition
from sharegroup.client.settled import Settled
from sharegroup.errors import InvalidRecordState, KafkaError
from sharegroup.ids import TopicPartition as TopicIdPartition

if TYPE_CHECKING:
    from sharegroup.client.held_columns import HeldColumns  # It needs numpy, this module doesn't.

LOCKS_KEPT_MIN = 64
"""Below so many, locks that are done with are not looked for."""


class HeldRecords:
    """See the module's text."""

    __slots__ = (
        "_columns", "_gaps", "_locks", "_locks_max", "_on_renewal", "_open", "_renewals",
        "_renewing", "_settled", "_stale", "_superseded", "explicit", "key", "lost", "on_settled",
        "topic_partition",
    )  # fmt: skip

    def __init__(
        self,
        key: TopicIdPartition,
        topic_partition: TopicPartition,
        *,
        explicit: bool,
        on_renewal: Callable[[], None] = lambda: None,
    ) -> None:
        self.key = key
        self.topic_partition = topic_partition
        self.explicit = explicit
        self.on_settled: Callable[[], None] | None = None
        """Called when a record is settled, while somebody waits for that."""
        self._on_renewal = on_renewal
        self._columns: list[HeldColumns] = []
        self._renewing: list[AcquisitionLock] = []
        self._locks: list[AcquisitionLock] = []
        self._locks_max = LOCKS_KEPT_MIN
        self._open: dict[int, AcquisitionLock] = {}
        self._settled: dict[int, int] = {}
        self._gaps: list[AckRun] = []
        self._renewals: dict[int, AcquisitionLock] = {}
        self._superseded: set[tuple[AcquisitionLock, int]] = set()
        self._stale: list[AckRun] = []
        self.lost: KafkaError | None = None
        """Why its locks are gone; None: they stand.  `lose` sets it."""

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
        """How many records are handed out and not settled."""
        return len(self._open) + len(self._superseded) + sum(one.open for one in self._columns)

    @property
    def open_bytes(self) -> float:
        """What the records weigh that are handed out and not settled."""
        return sum(lock.open * lock.record_bytes for lock in self._locks)

    @property
    def has_settled(self) -> bool:
        """Whether `take` would return something."""
        return bool(
            self._settled
            or self._gaps
            or self._stale
            or any(one.has_settled() for one in self._columns)
        )

    @property
    def has_renewals(self) -> bool:
        """Whether `take_renewals` would return something."""
        return bool(self._renewals or self._renewing)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is open and nothing waits to be taken."""
        return not (self.open_count or self.has_settled)

    def holds(self, offset: int) -> bool:
        """Whether the record is handed out and its acknowledgement not sent."""
        return offset in self._open or offset in self._settled

    def locks(self) -> Iterator[AcquisitionLock]:
        """The locks that something is waiting or open under; none once they are lost."""
        if self.lost is None:
            yield from (lock for lock in self._locks if not lock.is_done)

    def is_superseded(self, lock: AcquisitionLock, offset: int) -> bool:
        """Whether the record was delivered here again since it was handed out under this lock."""
        return (lock, offset) in self._superseded

    # Records come and go.

    def acquired(self, lock: AcquisitionLock) -> None:
        """A range was acquired; its records wait to be handed out."""
        self._locks.append(lock)
        if len(self._locks) > self._locks_max:
            # A new list: what is on its way keeps the old one.
            self._locks = [one for one in self._locks if not one.is_done]
            self._locks_max = max(LOCKS_KEPT_MIN, 2 * len(self._locks))

    def hand_out(self, lock: AcquisitionLock, offsets: Iterable[int]) -> None:
        """These records of the lock go to the application now."""
        fresh = dict.fromkeys(offsets, lock)
        self._supersede(fresh)
        for one in self._columns:
            one.supersede(sorted(fresh))
        self._open.update(fresh)
        lock.open += len(fresh)

    def hand_out_columns(self, columns: HeldColumns) -> None:
        """These records go to the application now, side by side."""
        for one in self._columns:
            one.supersede(columns.offsets)
        if self._open:
            self._supersede(dict.fromkeys(columns.offsets.tolist()))
        self._columns.append(columns)

    def _supersede(self, fresh: Mapping[int, object]) -> None:
        """What is delivered now was delivered before, and is still in somebody's hands."""
        if not self._open.keys().isdisjoint(fresh):
            for offset in self._open.keys() & fresh.keys():
                before = self._open.pop(offset)
                before.open -= 1
                self._superseded.add((before, offset))

    def settle(self, lock: AcquisitionLock, offset: int, ack_type: int) -> None:
        """Choose, or change, what becomes of a record that was handed out under ``lock``."""
        # The hot path: once for each record, in explicit mode.
        if self.explicit and self._open.get(offset) is lock and ack_type != RENEW:
            del self._open[offset]
            self._settled[offset] = ack_type
            lock.open -= 1
            if self.on_settled is not None:
                self.on_settled()
        else:
            self._settle_otherwise(lock, offset, ack_type)

    def settle_offset(self, offset: int, ack_type: int) -> None:
        """`settle` by position alone."""
        self._settle_otherwise(self._open.get(offset), offset, ack_type)

    def _settle_otherwise(self, lock: AcquisitionLock | None, offset: int, ack_type: int) -> None:
        self._check_explicit(offset)
        if ack_type == RENEW:
            self._renew(lock, offset)
        elif lock is not None and (lock, offset) in self._superseded:
            self._superseded.discard((lock, offset))
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
        """`settle` for the consumer itself, in every mode."""
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
        """`settle` for records that went out side by side: these offsets, or with None all open."""
        self._check_explicit(columns.first)
        if ack_type == RENEW:
            self._renewing += [lock for lock, _ in columns.locks]
            self._on_renewal()
        elif offsets is None:
            columns.settle_open(ack_type)
        else:
            self._stale += columns.settle(offsets, ack_type)
        if self.on_settled is not None:
            self.on_settled()

    def columns_with(self, offsets: Any) -> Iterator[tuple[HeldColumns, Any]]:
        """Where ascending offsets went out as columns and can be settled, newest first."""
        for one in reversed(self._columns):
            if len(offsets):
                here = one.find(offsets)
                if here.any():
                    yield one, offsets[here]
                    offsets = offsets[~here]

    def accept_open(self) -> None:
        """Implicit mode: what was handed out and has no type yet counts as done."""
        for one in self._columns:
            one.settle_open(AcknowledgeType.ACCEPT)
        if self._open:
            for lock in set(self._open.values()):
                lock.open = 0
            accepted = dict.fromkeys(self._open, int(AcknowledgeType.ACCEPT))
            self._settled = self._settled | accepted if self._settled else accepted
            self._open = {}

    def settle_unseen(self, lock: AcquisitionLock, first: int, end: int, ack_type: int) -> None:
        """Settle offsets that are not handed out: gaps, or the records of a corrupt batch."""
        if first < end:
            lock.hole(first, end)
            self._gaps.append(AckRun(first, end, int(ack_type)))

    # What is sent.

    def take(self) -> Iterator[Settled]:
        """All that is settled, out of the table, as what is sent or reported together."""
        runs, self._gaps = self._gaps, []
        unseen = sorted((run.first, run.end) for run in runs)
        if self._settled:
            settled, self._settled = self._settled, {}
            offsets = sorted(settled)
            runs += runs_of(offsets, [settled[offset] for offset in offsets])
        if self._columns:
            runs += [run for one in self._columns for run in one.take()]
            self._columns = [one for one in self._columns if one.open]
        if runs:
            yield Settled(self, tuple(runs), self._locks, self.lost, unseen=unseen)
        if self._stale:
            stale, self._stale = self._stale, []
            text = f"{self._where(stale[0].first)}: its lock ended, and it was delivered here again"
            yield Settled(self, tuple(stale), (), self.lost or InvalidRecordState(text))

    def take_renewals(self) -> Iterator[Settled]:
        """All renewals that were asked for by hand and still make sense."""
        asked, self._renewals = self._renewals, {}
        still = {offset: lock for offset, lock in asked.items() if self._open.get(offset) is lock}
        if still:
            offsets = sorted(still)
            runs = tuple(runs_of(offsets, [RENEW] * len(offsets)))
            renewals = tuple((still[offset], offset) for offset in offsets)
            yield Settled(self, runs, self._locks, self.lost, renewals)
        locks, self._renewing = self._renewing, []
        if (renewal := self.renewal_of(locks)) is not None:
            yield renewal

    def renewal_of(self, locks: Iterable[AcquisitionLock]) -> Settled | None:
        """A renewal of everything that is open or waiting under these locks."""
        wanted = {lock for lock in locks if not lock.is_done}
        if not wanted:
            return None
        runs = [AckRun(*waiting, RENEW) for one in wanted for waiting in one.waiting_ranges()]
        in_columns = {lock for one in self._columns for lock, _ in one.locks}
        whole = [
            one
            for one in wanted.difference(in_columns)
            if one.open and one.open == one.waiting_from - one.first
        ]
        runs += [AckRun(one.first, one.waiting_from, RENEW) for one in whole]
        parted = wanted.difference(whole)
        offsets = sorted(offset for offset, lock in self._open.items() if lock in parted)
        runs += runs_of(offsets, [RENEW] * len(offsets))
        for columns in self._columns:
            runs += columns.open_runs((lock for lock, _ in columns.locks if lock in wanted), RENEW)
        renewals = tuple((lock, None) for lock in wanted)
        return Settled(self, tuple(sorted(runs)), self._locks, self.lost, renewals)

    def forget_open(self) -> None:
        """The application gave up what it was handed: settling it now is an error."""
        for lock in set(self._open.values()):
            lock.open = 0
        self._open = {}
        self._superseded = set()
        self._renewals = {}
        for one in self._columns:
            one.forget()

    def lose(self, error: KafkaError) -> None:
        """The locks are gone: what is settled from now on fails with ``error``.

        Gaps are dropped without a word: whoever gets the range next will find them again.
        """
        self.lost = error
        self._gaps = []
        self._renewals = {}
        self._renewing = []

    def _where(self, offset: int) -> str:
        return f"topic {self.topic!r} partition {self.partition} offset {offset}"
