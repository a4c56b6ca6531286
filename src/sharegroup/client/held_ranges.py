"""What a member holds from one broker as ranges of offsets, and the session that holds it.

For a reader that hands the work on and keeps only the positions, such as the driver of a Spark
query: 200,000 locks are a few ranges here.  The bytes that a ShareFetch brings along are looked
at for one thing, which of the acquired offsets hold no record (a transaction's marker, a hole
that compaction left); those are acknowledged as gaps.

The acknowledgements of a partition in one request hold or fail together.  When one record's
lock has ended, the broker refuses them all, so the ranges are halved until the bad ones stand
alone::

    [0, 1000) refused -> [0, 500) confirmed, [500, 1000) refused -> ...  -> [731, 732) refused

That takes `REQUESTS_MAX` requests at most; what is still together then counts as refused.
Calling something refused that was not is safe: its lock is left to end, and it comes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sharegroup.client.acknowledgements import GAP, RENEW, AckRun
from sharegroup.client.cluster import Cluster
from sharegroup.client.offset_set import EMPTY, OffsetSet, Range
from sharegroup.client.share_requests import FetchLimits
from sharegroup.client.share_session import AcquiredRange, Answer, FetchedPartition, ShareSession
from sharegroup.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptMessage,
    InvalidRecordState,
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    NotCoordinator,
    RequestTimedOut,
)
from sharegroup.ids import TopicPartition
from sharegroup.wire.batches import scan

log = logging.getLogger(__name__)

REQUESTS_MAX = 64
"""For the acknowledgements of one partition that are not taken as they are."""
TRIES_MAX = 5
"""Of one request that the broker could not serve at the moment; the locks go on meanwhile."""

LOCK_IS_OVER = (InvalidRecordState, InvalidRequest)
"""Of at least one record; INVALID_REQUEST is said of offsets that the broker forgot."""
TRY_AGAIN = (
    KafkaStorageError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    RequestTimedOut,
)
"""The state could not be written; nothing has changed, the locks stand."""

Runs = Mapping[TopicPartition, Sequence[AckRun]]
Offsets = dict[TopicPartition, OffsetSet]


@dataclass(slots=True)
class Fetched:
    """What one ShareFetch brought."""

    acquired: dict[TopicPartition, tuple[AcquiredRange, ...]] = field(default_factory=dict)
    """Without ranges that hold no record at all."""
    errors: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    failure: KafkaError | None = None
    record_bytes: int = 0
    """What came along, of whole log batches."""

    @property
    def offset_count(self) -> int:
        """How many offsets were acquired."""
        return sum(one.end - one.first for some in self.acquired.values() for one in some)


class HeldRanges:
    """See the module's text."""

    def __init__(
        self,
        session: ShareSession,
        cluster: Cluster,
        *,
        on_records: Callable[[FetchedPartition], None] | None = None,
    ) -> None:
        self.session = session
        self._on_records = on_records
        self.lock_ms: int | None = None
        """How long a lock lasts; None before the first answer."""
        self.backoff = cluster.backoff()
        self._cluster = cluster
        self._held: Offsets = {}
        self._gaps: Offsets = {}
        self._empty: Offsets = {}
        self._turn = asyncio.Lock()
        self._renewal_refused = False

    @property
    def held(self) -> Mapping[TopicPartition, OffsetSet]:
        """What this member holds here, as far as it knows."""
        return self._held

    async def fetch(self, wanted: Sequence[TopicPartition], limits: FetchLimits) -> Fetched:
        """One ShareFetch; what it acquires is held until it is acknowledged."""
        answer = await self.session.fetch(wanted, {}, limits)
        self._notice(answer)
        fetched = Fetched(failure=answer.failure)
        for one in answer.partitions:
            if one.error is not None:
                fetched.errors[one.key] = one.error
            if one.acquired:
                self._take(one, fetched)
                if self._on_records is not None:
                    self._on_records(one)
            fetched.record_bytes += len(one.records)
        return fetched

    async def acknowledge(self, runs: Runs) -> Offsets:
        """Settle what of the runs is held here; returns what the broker confirmed."""
        async with self._turn:
            return await self._settle({key: self._with_gaps(key, runs[key]) for key in runs})

    async def acknowledge_empty(self) -> None:
        """Settle acquired ranges that hold no record, which nobody was told of."""
        empty, self._empty = self._empty, {}
        if empty:
            async with self._turn:
                await self._settle({key: tuple(_runs(some, GAP)) for key, some in empty.items()})

    async def renew(self) -> None:
        """Begin the locks of everything held anew."""
        async with self._turn:
            runs = {key: tuple(_runs(held, RENEW)) for key, held in self._held.items()}
            answer = await self.session.acknowledge(runs, renew=True) if runs else Answer()
            self._notice(answer)
            refused = {key: error for key, error in answer.results.items() if error is not None}
            if not refused:
                self._renewal_refused = False
            for key, error in refused.items():
                await self._renew_parts(key, error)

    async def close(self) -> None:
        """End the session: the broker gives back what is held."""
        await self.session.acknowledge({}, close=True)
        self._held.clear()
        self._gaps.clear()

    # What is held.

    def _take(self, one: FetchedPartition, fetched: Fetched) -> None:
        offsets = OffsetSet.of((some.first, some.end) for some in one.acquired)
        self._held[one.key] = self._held.get(one.key, EMPTY) | offsets
        gaps = _gaps_of(one, offsets)
        if gaps:
            self._gaps[one.key] = self._gaps.get(one.key, EMPTY) | gaps
        empty = OffsetSet.of(
            (some.first, some.end)
            for some in one.acquired
            if gaps.between(some.first, some.end).ranges == ((some.first, some.end),)
        )
        if empty:
            self._empty[one.key] = self._empty.get(one.key, EMPTY) | empty
        if offsets != empty:
            fetched.acquired[one.key] = tuple(
                some for some in one.acquired if not empty.between(some.first, some.end)
            )

    def _notice(self, answer: Answer) -> None:
        if answer.lock_ms is not None:
            self.lock_ms = answer.lock_ms
        if answer.lost is not None and self._held:
            log.warning(
                "locks.lost offsets=%d reason=%r (they are delivered again)",
                sum(held.count for held in self._held.values()),
                answer.lost,
            )
            self._held.clear()
            self._gaps.clear()

    def _drop(self, key: TopicPartition, offsets: OffsetSet) -> None:
        for table in (self._held, self._gaps):
            left = table.get(key, EMPTY) - offsets
            if left:
                table[key] = left
            else:
                table.pop(key, None)

    def _with_gaps(self, key: TopicPartition, runs: Sequence[AckRun]) -> tuple[AckRun, ...]:
        """The runs with what holds no record said to be a gap."""
        gaps = self._gaps.get(key, EMPTY)
        if not gaps:
            return tuple(runs)
        parts: list[AckRun] = []
        for run in runs:
            holes = gaps.between(run.first, run.end)
            parts += _runs(OffsetSet(((run.first, run.end),)) - holes, run.ack_type)
            parts += _runs(holes, GAP)
        return tuple(sorted(parts))

    # Acknowledging.

    async def _settle(self, runs: Runs) -> Offsets:
        sent = {
            key: ours
            for key, some in runs.items()
            if (ours := _held_of(some, self._held.get(key, EMPTY)))
        }
        answer = await self._sent(sent)
        confirmed: Offsets = {}
        for key, error in answer.results.items():
            asked = _offsets(sent[key])
            refused = asked
            if error is None:
                refused = EMPTY
            elif isinstance(error, LOCK_IS_OVER) and asked.count > 1:
                refused = await self._halved(key, sent[key])
            if refused:
                text = "acknowledgement.refused key=%s offsets=%d error=%r"
                log.info(text, key, refused.count, error)
            confirmed[key] = asked - refused
            self._drop(key, asked)
        return confirmed

    async def _sent(self, runs: Runs, *, renew: bool = False) -> Answer:
        """Acknowledge, again and again while the broker can't write its state."""
        answer = Answer()
        waiting = dict(runs)
        for _ in range(TRIES_MAX):
            if not waiting:
                break
            step = await self.session.acknowledge(waiting, renew=renew)
            self._notice(step)
            answer.results |= step.results
            waiting = {
                key: waiting[key]
                for key, error in step.results.items()
                if isinstance(error, TRY_AGAIN) and step.failure is None
            }
            if waiting:
                await asyncio.sleep(self.backoff.next_ms() / 1000)
        return answer

    async def _halved(
        self, key: TopicPartition, runs: Sequence[AckRun], *, renew: bool = False
    ) -> OffsetSet:
        """Of runs that were refused together, those that are refused alone."""
        refused: list[AckRun] = []
        waiting = [*_halves(runs)]
        requests = 0
        while waiting:
            part = waiting.pop()
            if requests == REQUESTS_MAX:
                refused += part
                continue
            requests += 1
            error = (await self._sent({key: part}, renew=renew)).results[key]
            if error is None:
                continue
            if isinstance(error, LOCK_IS_OVER) and _count(part) > 1:
                waiting += _halves(part)
            else:
                refused += part
        return _offsets(refused)

    async def _renew_parts(self, key: TopicPartition, error: KafkaError) -> None:
        """Find whose lock is over, unless it is renewal itself that is refused."""
        if self._renewal_refused or key not in self._held:
            return
        runs = tuple(_runs(self._held[key], RENEW))
        over = EMPTY
        if isinstance(error, LOCK_IS_OVER):
            over = await self._halved(key, runs, renew=True)
        if over == EMPTY or over == _offsets(runs):
            # Nothing of it can be renewed: the group may forbid it.  The acknowledgement tells.
            self._renewal_refused = True
            log.warning(
                "locks.not_renewed key=%s error=%r (a batch must be done within the lock's "
                "%s ms; see the group config share.renew.acknowledge.enable)",
                key,
                error,
                self.lock_ms,
            )
        else:
            log.warning("locks.ended key=%s offsets=%d", key, over.count)
            self._drop(key, over)


def _gaps_of(one: FetchedPartition, acquired: OffsetSet) -> OffsetSet:
    """Acquired offsets that the log has no record for, as far as its batches' headers tell.

    What lies behind the last whole batch was cut off: nothing is known of it.
    """
    gaps: list[Range] = []
    reached = acquired.ranges[0][0]
    try:
        for _, header in scan(one.records):
            if reached < header.base_offset:
                gaps.append((reached, header.base_offset))
            if header.is_control:
                gaps.append((header.base_offset, header.end_offset))
            reached = max(reached, header.end_offset)
    except CorruptMessage as error:
        # Whoever reads the records meets the same damage and can say more about it.
        log.warning("records.unreadable key=%s error=%r", one.key, error)
    return OffsetSet.of(gaps) & acquired if gaps else EMPTY


def _held_of(runs: Sequence[AckRun], held: OffsetSet) -> tuple[AckRun, ...]:
    """The part of the runs that is held."""
    if not _offsets(runs) - held:
        return tuple(runs)
    return tuple(
        AckRun(first, end, run.ack_type)
        for run in runs
        for first, end in held.between(run.first, run.end)
    )


def _halves(runs: Sequence[AckRun]) -> tuple[tuple[AckRun, ...], ...]:
    """The runs in two parts of as many offsets; at most the middle one is cut."""
    middle = _count(runs) // 2
    left: list[AckRun] = []
    for index, run in enumerate(runs):
        if middle < run.end - run.first:
            cut = run.first + middle
            right = (run._replace(first=cut), *runs[index + 1 :])
            if middle:
                left.append(run._replace(end=cut))
            return tuple(part for part in (tuple(left), right) if part)
        left.append(run)
        middle -= run.end - run.first
    return (tuple(left),)


def _count(runs: Iterable[AckRun]) -> int:
    return sum(run.end - run.first for run in runs)


def _offsets(runs: Iterable[AckRun]) -> OffsetSet:
    return OffsetSet.of((run.first, run.end) for run in runs)


def _runs(offsets: OffsetSet, ack_type: int) -> Iterator[AckRun]:
    return (AckRun(first, end, ack_type) for first, end in offsets)
