"""The life of one record: its states, and the events that move it from one state to another.

    AVAILABLE ──acquire──▶ ACQUIRED ──accept─▶ ACKNOWLEDGED
        ▲                    │  │ └──gap─────▶ ARCHIVED ◀──the copy is durable──╮
        │                    │  └──────reject, or released at the limit──▶ ARCHIVING
        ├────────────────────┘  returned below the limit
        └──the delay ends── DELAYED ◀──released with a delay── ACQUIRED

A record is returned if its member releases it or if its acquisition lock ends. The limit is the
delivery count limit.

A record that a member releases may be DELAYED first (see `redelivery`). Stored, it is AVAILABLE
with a due time, so that Apache Kafka would deliver it at once.

A renewal keeps a record ACQUIRED and its delivery count; only the lock deadline changes. ARCHIVING
is for groups with a dead-letter queue (KIP-1191): the record is not delivered any more, and it is
settled when its copy in that queue is durable. Without a queue it is ARCHIVED at once. ACKNOWLEDGED
and ARCHIVED are terminal. State, delivery count and the reason for a copy are durable once a record
was released or settled. The member and the lock deadline are only in memory.

This module has plain values only: the arguments of a share partition (`AckBatch`, `LogBatches`,
`SharePartitionLimits`), its results (`Acquired`), and what must become durable first (`Delta`).
They are named tuples because the hot paths create and compare hundreds of thousands of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from sharegroup.core.delivery.breaker import BreakerLimits
from sharegroup.core.delivery.redelivery import DELAYED_MAX, RedeliveryDelay, due_time
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import GROUPS_DELAY, AcknowledgeType, AcquireMode


class RecordState(IntEnum):
    """The state of a record; values of DeliveryState in ``__share_group_state`` (KIP-932).

    DELAYED is only in memory, as ACQUIRED is.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4
    DELAYED = 5


class Reason(IntEnum):
    """Why a record is not delivered any more; consumers of the dead-letter queue read it.

    The numbers are stored (`StateBatch`); 0 stands for a reason that is not known.
    """

    REJECTED = 1  # A member rejected it.
    EXHAUSTED = 2  # It reached the delivery count limit.
    UNREADABLE = 3  # It reached the limit without any delivery: the log cannot read its batch.


AVAILABLE = RecordState.AVAILABLE
ACQUIRED = RecordState.ACQUIRED
ACKNOWLEDGED = RecordState.ACKNOWLEDGED
ARCHIVING = RecordState.ARCHIVING
ARCHIVED = RecordState.ARCHIVED
DELAYED = RecordState.DELAYED

TERMINAL = frozenset({ACKNOWLEDGED, ARCHIVED})

IN_MEMORY = frozenset({ACQUIRED, DELAYED})
"""The states that are never stored."""

REASONS = {reason.value: reason for reason in Reason}

STATE_AFTER: dict[int, RecordState] = {
    # Never ARCHIVING: there is no record to copy. Kafka, too, copies no gap to a dead-letter queue.
    AcknowledgeType.GAP: ARCHIVED,
    AcknowledgeType.ACCEPT: ACKNOWLEDGED,
    AcknowledgeType.RELEASE: AVAILABLE,  # At the delivery count limit as REJECT: see `settled`.
    AcknowledgeType.REJECT: ARCHIVED,  # Or ARCHIVING: see `ended`.
    AcknowledgeType.RENEW: ACQUIRED,  # See `renewed`.
}
"""The state of an acquired record after an acknowledgement of each type."""

# As in Kafka, a state without an owner has the empty member id, which no request may have.
NOBODY = MemberId("")

IN_FLIGHT_STATES_KEPT_MAX = 256
"""Number of cached `InFlightState` objects without a member.

There is one for each state and delivery count; counts above ten are rare.
"""


class InFlightState(NamedTuple):
    """The state of each record of a run, with its delivery count and its acquisition lock.

    ``member_id`` and ``lock_deadline_ms`` are set exactly while the state is ACQUIRED.
    ``told_apart`` means that a member released the record in a request that settled others, and no
    delivery failed since. The member has chosen to retry it, so it is not isolated (see
    `acquisition`). ``reason`` is set while the state is ARCHIVING, unless the stored state has none
    (see `DeadLetterRange`). ``due_ms`` is set exactly while the state is DELAYED.
    """

    state: RecordState
    delivery_count: int
    member_id: MemberId = NOBODY
    lock_deadline_ms: int = 0
    told_apart: bool = False
    reason: Reason | None = None
    due_ms: int = 0


NEW = InFlightState(AVAILABLE, 0)
"""The value of an offset that was never delivered, as far as is known."""

ABSENT = InFlightState(ARCHIVED, 0)
"""The value of an offset without a record, for example after compaction; no member settles it."""


def settled(
    acquired: InFlightState,
    ack: int,
    *,
    limits: SharePartitionLimits,
    told_apart: bool = False,
    failure: Reason = Reason.EXHAUSTED,
) -> InFlightState:
    """Return the state of an acquired record after the acknowledgement ``ack``.

    A record that is released at its delivery count limit is archived instead, so a poison record is
    not delivered for ever (KIP-932 «Managing durable share-partition state»). The limit of this
    moment counts, not that of the acquisition, so lowering it takes effect at once. ``failure`` is
    the reason that such a record gets.
    """
    state = STATE_AFTER[ack]
    assert state is not ACQUIRED, f"acknowledgement {ack} settles nothing"
    if ack == AcknowledgeType.REJECT:
        return ended(acquired, Reason.REJECTED, limits)
    if state is not AVAILABLE:
        return _nobodys(state, acquired.delivery_count)
    if acquired.delivery_count >= limits.delivery_count_max:
        return ended(acquired, failure, limits)
    # The count grows only when a record is acquired, so a release keeps it (KAFKA-19972).
    return _nobodys(AVAILABLE, acquired.delivery_count, told_apart)


def ended(acquired: InFlightState, reason: Reason, limits: SharePartitionLimits) -> InFlightState:
    """Return the state of a record that failed for good.

    It is ARCHIVING if the group has a dead-letter queue, otherwise ARCHIVED.
    """
    if limits.dead_letters:
        return InFlightState(ARCHIVING, acquired.delivery_count, reason=reason)
    return _nobodys(ARCHIVED, acquired.delivery_count)


@lru_cache(maxsize=IN_FLIGHT_STATES_KEPT_MAX)
def _nobodys(state: RecordState, delivery_count: int, told_apart: bool = False) -> InFlightState:
    """Return the shared state without a member; sharing saves 96 bytes for each run."""
    return InFlightState(state, delivery_count, told_apart=told_apart)


def delayed(
    released: InFlightState, ack: AckBatch, *, limits: SharePartitionLimits, now_ms: int
) -> InFlightState:
    """Return the state of a released record, which may have to wait for its next delivery."""
    delay_ms = ack.delay_ms
    if delay_ms == GROUPS_DELAY:
        if limits.delay is None:
            return released
        delay_ms = limits.delay.after(released.delivery_count)
    if delay_ms == 0:
        return released
    return released._replace(state=DELAYED, due_ms=due_time(now_ms, delay_ms))


def renewed(acquired: InFlightState, *, lock_deadline_ms: int) -> InFlightState:
    """Return an acquired record's state with a new lock deadline; nothing durable changes."""
    return acquired._replace(lock_deadline_ms=lock_deadline_ms)


class AckBatch(NamedTuple):
    """An offset range that a member acknowledges, with one type for all offsets or one for each.

    It is half-open, because the core compares and cuts it with runs; the client's
    `AcknowledgementBatch` has both offsets included, as on the wire. ``delay_ms`` is the delay of
    the records that it releases; `GROUPS_DELAY` means that of the group, 0 means none.
    """

    first: int
    end: int
    types: tuple[int, ...]
    delay_ms: int = GROUPS_DELAY


class Acquired(NamedTuple):
    """An offset range that was acquired for a member; all its records have this delivery count.

    It is half-open like the runs that it is made of, for each of which an acquire makes one; the
    client's `AcquiredRecords` has both offsets included, as on the wire.
    """

    first: int
    end: int
    delivery_count: int


class StateBatch(NamedTuple):
    """The durable part of a run: its offset range, state and delivery count.

    ``due_ms`` is the time from which AVAILABLE records are delivered again; 0 means at once.
    ``reason`` is the number of the `Reason` of ARCHIVING records; 0 means that it is not known.
    """

    first: int
    end: int
    state: RecordState
    delivery_count: int
    due_ms: int = 0
    reason: int = 0


def stored(first: int, end: int, value: InFlightState) -> StateBatch:
    """Return the durable part of a run that is not acquired."""
    state = AVAILABLE if value.state is DELAYED else value.state
    return StateBatch(first, end, state, value.delivery_count, value.due_ms, value.reason or 0)


def joined(batches: Iterable[StateBatch], *, start_offset: int) -> tuple[StateBatch, ...]:
    """Join equal neighbours of ascending batches; drop batches that lie below the start offset."""
    joined_batches: list[StateBatch] = []
    for batch in batches:
        # Dropped, never cut: the start offset is the end of a run.
        if batch.end <= start_offset:
            continue
        if joined_batches:
            last = joined_batches[-1]
            if last.end == batch.first and last[2:] == batch[2:]:  # Equal but for the offsets.
                joined_batches[-1] = last._replace(end=batch.end)
                continue
        joined_batches.append(batch)
    return tuple(joined_batches)


def still_due(batches: Iterable[StateBatch], now_ms: int) -> Iterator[StateBatch]:
    """Yield the batches, without the due times that have passed."""
    for batch in batches:
        yield batch._replace(due_ms=0) if 0 < batch.due_ms <= now_ms else batch


class DeadLetterRange(NamedTuple):
    """Records to be copied to the group's dead-letter queue, with the reason.

    If the stored state has no reason, because Apache Kafka wrote it, the reason is derived from the
    delivery count, as there: a record at the delivery count limit counts as exhausted, any other as
    rejected.
    """

    first: int
    end: int
    delivery_count: int
    reason: Reason


class Delta(NamedTuple):
    """The changes that must be durable before the caller may reply.

    ``start_offset`` is the start offset after the change. ``batches`` ascend, equal neighbours are
    joined, and none lies below the start offset, because everything there is settled.
    ``delivery_complete_count`` is the number of terminal offsets at or above the start offset.
    """

    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()


def _no_size(_: int) -> int:
    return 0


class LogBatches(NamedTuple):
    """The offset ranges of the log batches that a read at ``position`` found, in ascending order.

    ``firsts[i]`` is the first offset of the i-th batch and ``ends[i]`` the offset after its last.
    The first batch may begin below ``position``. An offset at or above ``position`` and below
    ``end`` that no batch covers holds no record for members: compaction removed it, it belongs to a
    control batch, or its transaction was aborted and the group reads committed records only.
    """

    position: int
    firsts: Sequence[int]
    ends: Sequence[int]
    looked_until: int = 0  # The end of the offsets read; 0 means the end of the last batch.
    size_of: Callable[[int], int] = _no_size  # The bytes of the batch with this first offset.

    @property
    def end(self) -> int:
        """The offset at which the knowledge of the log ends."""
        return max(self.looked_until, self.ends[-1] if self.ends else 0)


class Acquisition(NamedTuple):
    """The result of an acquire: the acquired ranges, and what must be durable before the reply."""

    ranges: tuple[Acquired, ...] = ()
    delta: Delta | None = None


class AcquireRequest(NamedTuple):
    """The number of records that a member asks for.

    ``batch_records`` is the number of records that it would like to acknowledge together.
    ``without_records`` says that it needs only the offsets; others read the records (ADR 0059). If
    ``free`` is not None, only available records of these ranges are acquired (see `key_order`).
    """

    records_max: int
    batch_records: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
    without_records: bool = False
    free: Sequence[tuple[int, int]] | None = None


@dataclass(frozen=True, slots=True)
class SharePartitionLimits:
    """The configuration of a group that concerns a share partition; it may change at any time.

    ``in_flight_max`` counts records that are acquired or wait to be delivered again, not the span
    of offsets, because one stuck record must not stop its partition. A fetch may exceed it to
    complete a log batch of at most ``completion_records_max`` records and ``completion_bytes_max``
    bytes. ``runs_max`` limits memory and the size of a state snapshot. ``renewal`` says whether
    members may renew their locks (KIP-1240). ``dead_letters`` says whether records that failed for
    good are copied before they are archived (KIP-1191). While ``paused``, nothing is acquired; held
    records can be settled and renewed. ``delay`` is that of released records (None: they have
    none), and from ``delayed_max`` delayed records on, no new ones are delivered. ``breaker`` and
    ``by_key`` are for the callers of `SharePartition`, which knows neither other share partitions
    nor keys.
    """

    # The defaults are those of Kafka's group.share.* settings; Kafka has no `runs_max`, and
    # completes every batch.
    lock_ms: int = 30_000
    delivery_count_max: int = 5
    in_flight_max: int = 2_000
    runs_max: int = 20_000
    renewal: bool = True
    dead_letters: bool = False
    completion_records_max: int = 10_000
    completion_bytes_max: int = 1024 * 1024
    paused: bool = False
    delay: RedeliveryDelay | None = None
    delayed_max: int = DELAYED_MAX
    breaker: BreakerLimits | None = None
    by_key: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The counts of a share partition at one moment, for observers."""

    start_offset: int
    end_offset: int
    available_count: int
    acquired_count: int
    acknowledged_count: int
    archiving_count: int
    archived_count: int
    delayed_count: int
    run_count: int

    @property
    def delivery_complete_count(self) -> int:
        """The number of terminal offsets at or above the start offset."""
        return self.acknowledged_count + self.archived_count
