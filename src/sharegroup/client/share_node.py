"""One broker as the share consumer sees it: what is held from it, over the session with it.

`run` does one thing at a time, because every request moves the session's epoch.  What it does
next is decided anew after each request, in this order:

    close         when asked to: everything settled goes along, the session ends
    (pause)       after a failure
    renew         locks that are to begin anew; never together with other acknowledgements
    acknowledge   when asked to, or when something refused is to be tried again
    fetch         when asked for: what was settled when it was asked for goes along

What is settled after the last such call stays in the tables, where the application may still
change it: when a request leaves by itself, behind a parked fetch or after a pause, must not
decide what becomes of a record.

A fetch may be parked at the broker for as long as ``fetch_max_wait_ms``; what becomes ready
meanwhile waits for it.  What is tried again goes alone: its partition's other acknowledgements
wait for the next request, so that they can't fail with it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from sharegroup.client.cluster import Cluster
from sharegroup.client.consumer_config import ShareConsumerConfig
from sharegroup.client.held_records import HeldRecords
from sharegroup.client.inbox import Parcel
from sharegroup.client.locks import AcquisitionLock
from sharegroup.client.records import AcknowledgementResult, TopicPartition
from sharegroup.client.settled import LOCKS_GONE, Settled, Ticket, after_refusal
from sharegroup.client.share_requests import FetchLimits, SessionMember
from sharegroup.client.share_session import Answer, FetchedPartition, Runs, ShareSession
from sharegroup.errors import (
    KafkaError,
    NetworkException,
    ShareSessionNotFound,
)
from sharegroup.ids import TopicPartition as TopicIdPartition

IN_VAIN_MAX = 3
"""Empty answers at once in a row without a pause; a broker that works parks a fetch instead."""


@dataclass(slots=True)
class Outcome:
    """What one request brought."""

    parcels: list[Parcel] = field(default_factory=list)
    results: list[AcknowledgementResult] = field(default_factory=list)
    lost: list[HeldRecords] = field(default_factory=list)
    """Tables whose locks are gone: nothing of them may be handed out any more."""
    outdated: set[TopicPartition] = field(default_factory=set)
    """Partitions that this broker does not lead, or does not know."""
    failures: list[KafkaError] = field(default_factory=list)
    """What went wrong; the retriable ones ask for a pause, the others for the application."""
    not_renewed: list[tuple[Settled, KafkaError]] = field(default_factory=list)
    answer: Answer = field(default_factory=Answer)
    limits: FetchLimits | None = None
    """Of the fetch; None when it was none."""


class ShareNode:
    """See the module's text."""

    def __init__(
        self,
        node_id: int,
        cluster: Cluster,
        config: ShareConsumerConfig,
        member: SessionMember,
        *,
        take_in: Callable[[ShareNode, Outcome], None],
    ) -> None:
        self.node_id = node_id
        self.wanted: tuple[TopicIdPartition, ...] = ()
        """The partitions to fetch from this broker."""
        self._cluster = cluster
        self._config = config
        self._take_in = take_in
        self._session = ShareSession(
            node_id, cluster, member, request_timeout_ms=config.request_timeout_ms
        )
        self._held: dict[TopicIdPartition, HeldRecords] = {}
        self._lost: list[HeldRecords] = []
        self._ready: dict[HeldRecords, Settled] = {}
        self._again: deque[Settled] = deque()
        self._sending: list[Settled] = []
        self._renewals: deque[Settled] = deque()
        self._renewing: set[AcquisitionLock] = set()
        self._lock_ms = 0
        self._asked: FetchLimits | None = None
        self._fetching: FetchLimits | None = None
        self._flushing = False
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._wake = asyncio.Event()
        self._backoff = cluster.backoff()
        self._paused_until = 0.0
        self._in_vain = 0

    # What it holds.

    @property
    def is_open(self) -> bool:
        """Whether there is a session."""
        return self._session.is_open

    @property
    def is_fetching(self) -> bool:
        """Whether a fetch is asked for or under way."""
        return self.asked_records > 0

    @property
    def asked_records(self) -> int:
        """How many records the fetch is for that is asked for or under way."""
        limits = self._asked or self._fetching
        return 0 if limits is None else limits.max_records

    @property
    def has_settled(self) -> bool:
        """Whether acknowledgements wait to be sent, or to be reported as impossible."""
        return self._has_ready or any(held.has_settled for held in self.tables())

    @property
    def _has_ready(self) -> bool:
        return bool(self._again or self._ready)

    @property
    def has_open(self) -> bool:
        """Whether records of it are handed out and not settled."""
        return any(held.open_count for held in self._held.values())

    def tables(self) -> Iterator[HeldRecords]:
        """Everything held from this broker, and what was lost and is not reported yet."""
        yield from self._held.values()
        yield from self._lost

    def tickets(self) -> list[Ticket]:
        """Take what is to be sent out of the tables; follow it and all that is under way."""
        self._gather()
        self._again += self._ready.values()  # What can't be sent is reported with the next request.
        self._ready.clear()
        for held in self.tables():
            self._renewals += held.take_renewals()
        under_way = (*self._sending, *self._again, *self._renewals)
        return list(
            {id(one.ticket): one.ticket for one in under_way if not one.is_automatic}.values()
        )

    # What it is asked to do.

    def fetch(self, limits: FetchLimits) -> None:
        """Fetch what is wanted, once; without anything wanted, settle and end the session."""
        self._gather()
        self._asked = limits
        self._wake.set()

    def flush(self) -> None:
        """Send what is settled by now."""
        self._gather()
        self._flushing = True
        self._wake.set()

    def renew(self, locks: Iterable[AcquisitionLock]) -> None:
        """Let these locks begin anew, and those that the application asked it for."""
        self._renewing.update(locks)
        self._wake.set()

    async def close(self) -> None:
        """Send what is settled and end the session; the broker releases the rest."""
        self._gather()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
        self._wake.set()
        await asyncio.shield(self._closing)

    def stop(self) -> None:
        """End `run`, whatever is under way."""
        if self._task is not None:
            self._task.cancel()

    def abandon(self) -> list[AcknowledgementResult]:
        """After `stop`: what becomes of acknowledgements that nobody will wait for any more."""
        in_doubt = NetworkException(f"{self._session.name}: stopped before the answer came")
        unsent = ShareSessionNotFound(f"{self._session.name}: stopped before this was sent")
        sent, self._sending = self._sending, []
        self.tickets()
        waiting = [*self._again, *self._renewals]
        self._again.clear()
        self._renewals.clear()
        return [
            *(unit.report(in_doubt) for unit in sent),
            *(unit.report(unit.error or unsent) for unit in waiting),
        ]

    # Its life.

    async def run(self) -> None:
        """Do what is asked for, until `stop`."""
        self._task = asyncio.current_task()
        try:
            while True:
                self._wake.clear()
                outcome = await self._step()
                if outcome is not None:
                    self._pause(outcome)
                    self._take_in(self, outcome)
        finally:
            self._closed()  # Nobody may wait for what will not happen any more.

    async def _step(self) -> Outcome | None:
        if self._closing is not None:
            return await self._close()
        remaining = self._paused_until - asyncio.get_running_loop().time()
        if remaining > 0:
            await _wait(self._wake, remaining)
            return None
        if self._has_renewals():
            return await self._renew()
        if self._flushing and (self._has_ready or (self.is_open and not self.wanted)):
            self._flushing = False
            return await self._acknowledge(close=not self.wanted and not self.has_open)
        if self._asked is not None:
            limits, self._asked = self._asked, None
            if self.wanted:
                return await self._fetch(limits)
            self._flushing = True
            return None
        self._flushing = False
        await self._wake.wait()
        return None

    async def _fetch(self, limits: FetchLimits) -> Outcome:
        outcome = Outcome(limits=limits)
        wanted = self.wanted
        acks = self._take(outcome)
        self._fetching = limits
        try:
            answer = await self._session.fetch(wanted, acks, limits)
        finally:
            self._fetching = None
        self._read(answer, outcome)
        if answer.failure is not None and answer.sent_at == 0:
            # Whoever can't be reached may have lost its partitions to another broker.
            outcome.outdated |= {self._where(key) for key in wanted}
        for one in answer.partitions:
            self._read_partition(one, answer, outcome)
        return outcome

    async def _acknowledge(self, *, close: bool) -> Outcome:
        outcome = Outcome()
        answer = await self._session.acknowledge(self._take(outcome), close=close)
        self._read(answer, outcome)
        return outcome

    async def _close(self) -> Outcome:
        assert self._closing is not None
        self._asked, self.wanted = None, ()
        try:
            outcome = await self._acknowledge(close=True)
        finally:
            self._closed()
        for unit in (*self._again, *self._renewals):  # There is no session to try them in.
            _report(unit, outcome.answer.lost or unit.error, outcome)
        self._again.clear()
        self._renewals.clear()
        return outcome

    def _closed(self) -> None:
        done, self._closing = self._closing, None
        if done is not None and not done.done():
            done.set_result(None)

    def _has_renewals(self) -> bool:
        return bool(
            self._renewing or self._renewals or any(one.has_renewals for one in self.tables())
        )

    async def _renew(self) -> Outcome:
        outcome = Outcome()
        locks, self._renewing = self._renewing, set()
        for held in self._held.values():
            self._renewals += held.take_renewals()
            if (unit := held.renewal_of(one for one in locks if one.held is held)) is not None:
                self._renewals.append(replace(unit, is_automatic=True))
        for unit in self._renewals:
            if unit.held.lost is not None:
                _report(unit, unit.held.lost, outcome)
        standing = [unit for unit in self._renewals if unit.held.lost is None]
        now, later = _one_of_each_partition(standing)
        self._renewals = deque(later)
        self._sending = now
        answer = await self._session.acknowledge(_runs(now), renew=True)
        self._read(answer, outcome)
        return outcome

    # What goes out.

    def _gather(self) -> None:
        """Take what is settled out of the tables: from here on it can't be changed."""
        for held in tuple(self.tables()):
            for unit in held.take():
                if unit.error is not None:
                    self._again.append(unit)
                elif (ready := self._ready.get(held)) is None:
                    self._ready[held] = unit
                elif not ready.absorb(unit):
                    self._again.append(unit)

    def _take(self, outcome: Outcome) -> Runs:
        """What can be sent; what can't is reported."""
        taken = [*self._again, *self._ready.values()]
        self._ready.clear()
        for unit in taken:
            if (error := unit.error or unit.held.lost) is not None:
                _report(unit, error, outcome)
        self._lost = [held for held in self._lost if not held.is_empty]
        able = [unit for unit in taken if unit.error is None and unit.held.lost is None]
        self._sending, later = _one_of_each_partition(able)
        self._again = deque(later)
        return _runs(self._sending)

    # What comes in.

    def _read(self, answer: Answer, outcome: Outcome) -> None:
        """Results of acknowledgements, and whether the locks stand."""
        outcome.answer = answer
        self._lock_ms = answer.lock_ms or self._lock_ms
        sent, self._sending = self._sending, []
        now = time.monotonic()
        for unit in sent:
            error = answer.results[unit.held.key]
            if error is None:
                _report(unit, None, outcome)
                for lock, offset in unit.renewals:
                    lock.renewed(offset, answer.sent_at + self._lock_ms / 1000)
            else:
                self._read_refusal(unit, error, now, outcome)
        if answer.failure is not None:
            outcome.failures.append(answer.failure)
        if answer.lost is not None:
            self._lose(self._held.values(), answer.lost, outcome)
        if self._again:
            self._flushing = True

    def _read_refusal(self, unit: Settled, error: KafkaError, now: float, outcome: Outcome) -> None:
        again, over = after_refusal(unit, error, now)
        self._again.extendleft(reversed(again))
        if over is not None:
            _report(over, error, outcome)
        if unit.is_renewal:
            outcome.not_renewed.append((unit, error))
        elif again and error.retriable:
            outcome.failures.append(error)
        if isinstance(error, LOCKS_GONE):
            self._lose([unit.held], error, outcome)
            outcome.outdated.add(unit.held.topic_partition)

    def _read_partition(self, one: FetchedPartition, answer: Answer, outcome: Outcome) -> None:
        where = self._where(one.key)
        if one.error is not None:
            outcome.failures.append(one.error)
            outcome.outdated.add(where)
            if isinstance(one.error, LOCKS_GONE) and one.key in self._held:
                self._lose([self._held[one.key]], one.error, outcome)
        if not one.acquired or self._cluster.name_of(one.key.topic_id) is None:
            return
        held = self._held.get(one.key)
        if held is None:
            held = self._held[one.key] = HeldRecords(
                one.key, where, explicit=self._config.explicit, on_renewal=self._wake.set
            )
        deadline = answer.sent_at + self._lock_ms / 1000
        record_bytes = len(one.records) / sum(end - first for first, end, _ in one.acquired)
        locks = [
            AcquisitionLock(
                held,
                first,
                end,
                delivery_count,
                acquired_at=answer.sent_at,
                deadline=deadline,
                record_bytes=record_bytes,
            )
            for first, end, delivery_count in one.acquired
        ]
        for lock in locks:
            held.acquired(lock)
        outcome.parcels.append(Parcel(held, one.records, locks))

    def _lose(self, tables: Iterable[HeldRecords], error: KafkaError, outcome: Outcome) -> None:
        for held in tuple(tables):
            if held.lost is not None:
                continue
            held.lose(error)
            outcome.lost.append(held)
            del self._held[held.key]
            if not held.is_empty:
                self._lost.append(held)
                self._flushing = True

    def _pause(self, outcome: Outcome) -> None:
        self._in_vain = self._in_vain + 1 if _is_in_vain(outcome) else 0
        if outcome.failures or self._in_vain > IN_VAIN_MAX:
            delay = self._backoff.next_ms() / 1000
            self._paused_until = asyncio.get_running_loop().time() + delay
        else:
            self._backoff.reset()

    def _where(self, key: TopicIdPartition) -> TopicPartition:
        name = self._cluster.name_of(key.topic_id)
        return TopicPartition(name or str(key.topic_id), key.partition)


def _is_in_vain(outcome: Outcome) -> bool:
    """Whether a fetch that could have been parked was answered at once, with nothing in it."""
    if outcome.limits is None or outcome.parcels or outcome.results:
        return False
    waited_ms = (time.monotonic() - outcome.answer.sent_at) * 1000
    return waited_ms < outcome.limits.max_wait_ms / 2


def _report(unit: Settled, error: KafkaError | None, outcome: Outcome) -> None:
    result = unit.report(error)
    if not unit.is_automatic:
        outcome.results.append(result)


def _one_of_each_partition(units: Iterable[Settled]) -> tuple[list[Settled], list[Settled]]:
    """The first of each partition, which can go in one request, and the others."""
    first: dict[TopicIdPartition, Settled] = {}
    later = [unit for unit in units if first.setdefault(unit.held.key, unit) is not unit]
    return list(first.values()), later


def _runs(units: Iterable[Settled]) -> Runs:
    return {unit.held.key: unit.runs for unit in units}


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
