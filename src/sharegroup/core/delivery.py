"""One record's life: the states it can be in, and what moves it from one to the next.

    AVAILABLE ──acquire──▶ ACQUIRED ──accept─▶ ACKNOWLEDGED
        ▲                    │  │ └──gap─────▶ ARCHIVED ◀──the copy is durable──╮
        │                    │  └────reject; release, lock expired: too often──▶ ARCHIVING
        └────────────────────┘  release, lock expired: otherwise

A renewal leaves the record ACQUIRED and its count as it was; only its lock ends later.
ARCHIVING is for groups with a dead-letter queue (KIP-1191): nobody gets the record any more, and
it is settled when its copy is in that queue.  Without one it is ARCHIVED at once.
ACKNOWLEDGED and ARCHIVED are terminal: nothing leaves them.  Who holds a record, and until
when, and why one is to be copied, is known in memory only; state and delivery count are durable
once a record has been given back or settled.

Everything here is plain values: what a share partition is asked (`AckBatch`, `LogBatches`,
`Limits`), what it answers (`Acquired`) and what must be durable first (`Delta`).  Named
tuples, because the hot paths build and compare them by the hundred thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from sharegroup.ids import MemberId


class RecordState(IntEnum):
    """Values of DeliveryState in ``__share_group_state`` (KIP-932)."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class Ack(IntEnum):
    """Wire values of AcknowledgeType (KIP-932)."""

    GAP = 0  # There is no record at this offset.
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4  # Still at work on it: the lock begins anew (KIP-1222).


class AcquireMode(IntEnum):
    """Wire values of ShareAcquireMode: what the number of records asked for means (KIP-1206)."""

    BATCH_OPTIMIZED = 0  # The log batch in which it is reached is finished.
    RECORD_LIMIT = 1  # Not one record more.


class Reason(IntEnum):
    """Why a record will not be delivered any more; for whoever reads the dead-letter queue."""

    REJECTED = 1  # A member said so.
    EXHAUSTED = 2  # It was delivered as often as is permitted.
    UNREADABLE = 3  # The same, and nobody ever got it: the log cannot read its batch.


AVAILABLE = RecordState.AVAILABLE
ACQUIRED = RecordState.ACQUIRED
ACKNOWLEDGED = RecordState.ACKNOWLEDGED
ARCHIVING = RecordState.ARCHIVING
ARCHIVED = RecordState.ARCHIVED

TERMINAL = frozenset({ACKNOWLEDGED, ARCHIVED})

STATE_AFTER: dict[int, RecordState] = {
    Ack.GAP: ARCHIVED,
    Ack.ACCEPT: ACKNOWLEDGED,
    Ack.RELEASE: AVAILABLE,  # Or as after a rejection: see `settled`.
    Ack.REJECT: ARCHIVED,  # Or ARCHIVING: see `ended`.
    Ack.RENEW: ACQUIRED,  # See `renewed`.
}
"""Where an acknowledgement takes an acquired record."""

NOBODY = MemberId("")

DELIVERIES_KEPT_MAX = 256
"""Different values of runs that nobody holds: a state and a count, which is hardly above ten."""


class Delivery(NamedTuple):
    """What is known of each record of a run.

    Member and lock end are set exactly while the state is ACQUIRED.  ``told_apart`` says that a
    member gave the record back while it settled others, and that nobody failed with it since: it
    is known to be the one to try again, and need not be found (see `acquisition`).  ``reason`` is
    set for what is ARCHIVING, unless a restart has forgotten it (see `DeadLetter`).
    """

    state: RecordState
    delivery_count: int
    member_id: MemberId = NOBODY
    lock_until_ms: int = 0
    told_apart: bool = False
    reason: Reason | None = None


NEW = Delivery(AVAILABLE, 0)
"""Never delivered, as far as anybody remembers."""

ABSENT = Delivery(ARCHIVED, 0)
"""An offset without a record, compacted away: nobody will ever settle it."""


def settled(
    delivery: Delivery,
    ack: int,
    *,
    limits: Limits,
    told_apart: bool = False,
    failure: Reason = Reason.EXHAUSTED,
) -> Delivery:
    """What ``ack`` makes of an acquired record.

    A record that goes back after its last permitted delivery is archived instead: this is what
    keeps a poison record from coming round for ever (KIP-932 «Managing durable share-partition
    state»).  The limit is read now, not at acquisition, so that lowering it takes effect.
    ``failure`` is what such a delivery failed for.
    """
    state = STATE_AFTER[ack]
    assert state is not ACQUIRED, f"acknowledgement {ack} settles nothing"
    if ack == Ack.REJECT:
        return ended(delivery, Reason.REJECTED, limits)
    if state is not AVAILABLE:
        return _nobodys(state, delivery.delivery_count)
    if delivery.delivery_count >= limits.delivery_count_max:
        return ended(delivery, failure, limits)
    return _nobodys(AVAILABLE, delivery.delivery_count, told_apart)


def ended(delivery: Delivery, reason: Reason, limits: Limits) -> Delivery:
    """A record that failed for good: kept until it is copied where the group wants that."""
    if limits.dead_letters:
        return Delivery(ARCHIVING, delivery.delivery_count, reason=reason)
    return _nobodys(ARCHIVED, delivery.delivery_count)


@lru_cache(maxsize=DELIVERIES_KEPT_MAX)
def _nobodys(state: RecordState, delivery_count: int, told_apart: bool = False) -> Delivery:
    """One object for all runs that stand so: 96 bytes less for each."""
    return Delivery(state, delivery_count, told_apart=told_apart)


def renewed(delivery: Delivery, *, lock_until_ms: int) -> Delivery:
    """An acquired record that its member goes on working on: nothing durable changes."""
    return delivery._replace(lock_until_ms=lock_until_ms)


class AckBatch(NamedTuple):
    """One range that a member acknowledges: one type for all, or one type per offset."""

    first: int
    end: int
    types: tuple[int, ...]


class Acquired(NamedTuple):
    """One range that was locked for the caller; each record of it has this delivery count."""

    first: int
    end: int
    delivery_count: int


class StateBatch(NamedTuple):
    """The durable part of a run."""

    first: int
    end: int
    state: RecordState
    delivery_count: int


def joined(batches: Iterable[StateBatch], *, start_offset: int) -> tuple[StateBatch, ...]:
    """Ascending batches as they are written: equal neighbours as one, none below the start."""
    found: list[StateBatch] = []
    for batch in batches:
        if batch.end <= start_offset:
            continue
        if found:
            last = found[-1]
            if last.end == batch.first and last[2:] == batch[2:]:
                found[-1] = last._replace(end=batch.end)
                continue
        found.append(batch)
    return tuple(found)


class DeadLetter(NamedTuple):
    """Records that are to be copied to the group's dead-letter queue, and why.

    The reason is not durable.  After a restart it is what the delivery count suggests, as in
    Kafka: whoever was delivered as often as is permitted was not rejected.
    """

    first: int
    end: int
    delivery_count: int
    reason: Reason


class Delta(NamedTuple):
    """What must be durable before the caller may answer.

    ``start_offset`` is the new one, after the change.  ``batches`` ascend, equal neighbours are
    joined, and none lies below the start offset: everything there is settled by definition.
    ``delivery_complete_count`` is the number of terminal offsets at or above the start offset.
    """

    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()


class LogBatches(NamedTuple):
    """Where the record batches lie that a read at ``position`` found, in order.

    ``firsts[i]`` is the first offset of the i-th batch and ``ends[i]`` the one after its last.
    The first batch may begin below ``position``.  An offset at or above ``position`` and below
    ``end`` that no batch covers holds no record for members: compaction removed it, it marks
    the end of a transaction, or its transaction was aborted and the group reads committed ones.
    """

    position: int
    firsts: Sequence[int]
    ends: Sequence[int]
    looked_until: int = 0  # Up to where there is nothing else; 0: to the end of the last batch.

    @property
    def end(self) -> int:
        """The first offset of which nothing is known."""
        return max(self.looked_until, self.ends[-1] if self.ends else 0)


class Acquisition(NamedTuple):
    """The answer to an acquire: what the member holds now, and what must be durable first."""

    ranges: tuple[Acquired, ...] = ()
    delta: Delta | None = None


class Wanted(NamedTuple):
    """What a member asks of an acquire.

    ``batch_records`` is the size of the units in which it would like to acknowledge.
    """

    records_max: int
    batch_records: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


@dataclass(frozen=True, slots=True)
class Limits:
    """The group's configuration as far as it concerns a share partition; may change any time.

    ``in_flight_max`` counts records that are locked or wait to be delivered again, not the
    span of offsets: one stuck record must not stall its partition.  ``runs_max`` bounds
    memory and the size of a state snapshot.  ``renewal`` says whether members may renew their
    locks (KIP-1240), ``dead_letters`` whether what failed for good is copied before it is
    archived (KIP-1191).
    """

    lock_ms: int = 30_000
    delivery_count_max: int = 5
    in_flight_max: int = 2_000
    runs_max: int = 20_000
    renewal: bool = True
    dead_letters: bool = False
