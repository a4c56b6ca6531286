"""One broker as the share consumer sees it: the records held from it, and its share session.

`run` sends one request at a time, because every request advances the session epoch.  After each
request it chooses the next action, in this order:

    close         if requested: sends all acknowledgements and ends the session
    (pause)       after a failure
    renew         renews locks; never together with other acknowledgements
    acknowledge   if requested, or to send refused acknowledgements again
    fetch         if requested: carries the acknowledgements settled before the request

Records settled after the last such call stay in the tables, where the application may still
change their type.  When a request is delayed, behind a parked fetch or by a pause, the delay must
not influence which acknowledgements it carries.

A fetch may be parked at the broker for up to ``fetch_max_wait_ms``; other requests wait for it.
Acknowledgements that are sent again go alone: others of their partition wait for the next
request, so that they cannot fail with them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import AcknowledgementResult, TopicPartition
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.share.consumer.held_records import HeldRecords
from sharegroup.client.share.consumer.inbox import Parcel
from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.consumer.settled import PendingResults, Settled, after_refusal
from sharegroup.client.share.session.refused_acknowledgements import Refusal, refusal_of
from sharegroup.client.share.session.share_requests import FetchLimits, SessionMember
from sharegroup.client.share.session.share_session import (
    FetchedPartition,
    RunsByPartition,
    SessionAnswer,
    ShareSession,
)
from sharegroup.client.together import event_within
from sharegroup.errors import KafkaError, NetworkException, ShareSessionNotFound
from sharegroup.ids import TopicIdPartition

log = logging.getLogger(__name__)

IN_VAIN_MAX = 3
"""Number of immediate empty answers in a row without a pause; usually a broker parks a fetch."""
BEFORE_CLOSE_MAX = 100
"""Number of requests that `close` sends before the closing one, for units of one partition.

Each time that an application asks for results, as `commit` does, makes one unit; a broker that
refuses all of them for now must not hold up the close.
"""


@dataclass(slots=True)
class RequestOutcome:
    """The outcome of one request: records, results, lost tables and failures."""

    parcels: list[Parcel] = field(default_factory=list)
    results: list[AcknowledgementResult] = field(default_factory=list)
    lost: list[HeldRecords] = field(default_factory=list)
    """Tables whose locks are lost; their records must not be handed out any more."""
    outdated: set[TopicIdPartition] = field(default_factory=set)
    """Partitions that this broker does not lead, or does not know."""
    failures: list[KafkaError] = field(default_factory=list)
    """Errors of the request; each causes a pause, and those that cannot pass are raised."""
    not_renewed: list[tuple[Settled, KafkaError]] = field(default_factory=list)
    answer: SessionAnswer = field(default_factory=SessionAnswer)
    limits: FetchLimits | None = None
    """The limits of the fetch; None if the request was not a fetch."""


class ShareNode:
    """The records held from one broker, with the task that fetches, acknowledges and renews."""

    def __init__(
        self,
        node_id: int,
        cluster: Cluster,
        config: ShareConsumerConfig,
        member: SessionMember,
        *,
        take_in: Callable[[ShareNode, RequestOutcome], None],
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
        self._fetch_ended = asyncio.Event()
        self._flushing = False
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._before_close = 0  # The number of requests since `close` before the closing one.
        self._wake = asyncio.Event()
        self._backoff = cluster.backoff()
        self._paused_until = 0.0
        self._in_vain = 0
        self._has_said_held = False

    # Held records.

    @property
    def is_open(self) -> bool:
        """Whether the share session is open."""
        return self._session.is_open

    @property
    def is_fetching(self) -> bool:
        """Whether a fetch is requested or under way."""
        return self.asked_records > 0

    @property
    def asked_records(self) -> int:
        """The record limit of the fetch that is requested or under way; 0 if there is none."""
        limits = self._asked or self._fetching
        return 0 if limits is None else limits.max_records

    @property
    def has_settled(self) -> bool:
        """Whether acknowledgements wait to be sent, or to be reported as failed."""
        return self._has_ready or any(table.has_settled for table in self.tables())

    @property
    def _has_ready(self) -> bool:
        return bool(self._again or self._ready)

    @property
    def has_open(self) -> bool:
        """Whether records of this broker are handed out and not settled."""
        return any(table.open_count for table in self._held.values())

    def tables(self) -> Iterator[HeldRecords]:
        """Yield the tables of held records, and of lost ones that are not reported yet."""
        yield from self._held.values()
        yield from self._lost

    def pending_results(self) -> list[PendingResults]:
        """Take the settled acknowledgements out of the tables; return all pending results.

        They include acknowledgements under way and renewals of the application.
        """
        self.gather()
        # Acknowledgements that cannot be sent are reported with the next request.
        self._again += self._ready.values()
        self._ready.clear()
        for table in self.tables():
            self._renewals += table.take_renewals()
        unfinished = (*self._sending, *self._again, *self._renewals)
        return list(
            {
                id(unit.pending): unit.pending for unit in unfinished if not unit.is_automatic
            }.values()
        )

    # Requests of the member.

    def fetch(self, limits: FetchLimits) -> None:
        """Request one fetch of the wanted partitions.

        If no partition is wanted, send acknowledgements instead, and end the session.
        """
        self.gather()
        self._asked = limits
        self._wake.set()

    def stop_fetching(self) -> None:
        """Forget a requested fetch that is not under way."""
        self._asked = None

    async def fetch_ended(self) -> None:
        """Wait until no fetch is under way; the records of the last one are taken in by then."""
        while self._fetching is not None:
            self._fetch_ended.clear()
            await self._fetch_ended.wait()

    def flush(self) -> None:
        """Send the acknowledgements that are settled by now."""
        self.gather()
        self._flushing = True
        self._wake.set()

    def renew(self, locks: Iterable[AcquisitionLock]) -> None:
        """Renew these locks, and those that the application requested to renew."""
        self._renewing.update(locks)
        self._wake.set()

    async def close(self) -> None:
        """Send the settled acknowledgements and end the session; the broker releases the rest."""
        self.gather()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
        self._wake.set()
        # Several callers may wait for the same end, and one that is cancelled must not cancel it.
        await asyncio.shield(self._closing)

    def stop(self) -> None:
        """Cancel `run`, even if a request is under way."""
        if self._task is not None:
            self._task.cancel()

    def abandon(self) -> list[AcknowledgementResult]:
        """Report the unfinished acknowledgements as failed, or as unknown if they were sent."""
        in_doubt = NetworkException(f"{self._session.name}: stopped before the response arrived")
        unsent = ShareSessionNotFound(f"{self._session.name}: stopped before the request was sent")
        sent, self._sending = self._sending, []
        self.pending_results()
        waiting = [*self._again, *self._renewals]
        self._again.clear()
        self._renewals.clear()
        return [
            *(unit.report(in_doubt) for unit in sent),
            *(unit.report(unit.error or unsent) for unit in waiting),
        ]

    # The task.

    async def run(self) -> None:
        """Perform the requested actions until `stop`."""
        self._task = asyncio.current_task()
        try:
            while True:
                # Cleared before the step reads the state: what is requested during the step starts
                # another.
                self._wake.clear()
                outcome = await self._step()
                if outcome is not None:
                    self._pause(outcome)
                    self._take_in(self, outcome)
        finally:
            self._closed()  # Callers of `close` must not wait forever.

    async def _step(self) -> RequestOutcome | None:
        # Before the pause after a failure, which `close` must not wait for.
        if self._closing is not None:
            return await self._close()
        remaining = self._paused_until - asyncio.get_running_loop().time()
        if remaining > 0:
            await event_within(self._wake, remaining)
            return None
        # Before a fetch, which the broker may park until the locks have ended.
        if self._has_renewals():
            return await self._renew()
        # Without wanted partitions the session is ended, so that the broker need not keep it; with
        # records still held it stays, because they would be released with it.
        if self._flushing and (self._has_ready or (self.is_open and not self.wanted)):
            self._flushing = False
            return await self._acknowledge(close=not self.wanted and not self.has_open)
        if self._asked is not None:
            # The partitions may have been taken away since `fetch` asked for this.
            limits, self._asked = self._asked, None
            if self.wanted:
                return await self._fetch(limits)
            self._flushing = True
            return None
        self._flushing = False
        await self._wake.wait()
        return None

    async def _fetch(self, limits: FetchLimits) -> RequestOutcome:
        outcome = RequestOutcome(limits=limits)
        # `ask_fetches` may replace the attribute during the request.
        partitions = self.wanted
        acknowledgements = self._take(outcome)
        self._fetching = limits
        try:
            answer = await self._session.fetch(partitions, acknowledgements, limits)
        finally:
            self._fetching = None
            self._fetch_ended.set()
        # The loss of earlier locks first, because the locks of this answer belong to the session
        # that it opened.
        self._read(answer, outcome)
        outcome.outdated |= answer.outdated_leaders(partitions)
        for partition in answer.partitions:
            self._read_partition(partition, answer, outcome)
        return outcome

    async def _acknowledge(self, *, close: bool) -> RequestOutcome:
        outcome = RequestOutcome()
        acknowledgements = self._take(outcome)
        # A request carries one unit of each partition, and without the session none can be sent.
        close = close and (not self._again or self._before_close >= BEFORE_CLOSE_MAX)
        answer = await self._session.acknowledge(acknowledgements, close=close)
        self._read(answer, outcome)
        return outcome

    async def _close(self) -> RequestOutcome:
        assert self._closing is not None
        self._asked, self.wanted = None, ()
        outcome = await self._acknowledge(close=True)
        if self.is_open:
            self._before_close += 1
            return outcome
        self._before_close = 0
        self._closed()
        for unit in (*self._again, *self._renewals):  # Without a session they cannot be sent.
            _report(unit, outcome.answer.lost or unit.error, outcome)
        self._again.clear()
        self._renewals.clear()
        return outcome

    def _closed(self) -> None:
        closing, self._closing = self._closing, None
        if closing is not None and not closing.done():
            closing.set_result(None)

    def _has_renewals(self) -> bool:
        return bool(
            self._renewing or self._renewals or any(table.has_renewals for table in self.tables())
        )

    async def _renew(self) -> RequestOutcome:
        outcome = RequestOutcome()
        locks, self._renewing = self._renewing, set()
        # Lost ones, too: what the application asks for there fails, and must not be found again.
        for table in tuple(self.tables()):
            self._renewals += table.take_renewals()
            if (unit := table.renewal_of(lock for lock in locks if lock.held is table)) is not None:
                self._renewals.append(replace(unit, is_automatic=True))
        for unit in self._renewals:
            if unit.held.lost is not None:
                _report(unit, unit.held.lost, outcome)
        standing = [unit for unit in self._renewals if unit.held.lost is None]
        now, later = _one_of_each_partition(standing)
        self._renewals = deque(later)
        if not now:
            return outcome
        self._sending = now
        answer = await self._session.acknowledge(_runs(now), renew=True)
        self._read(answer, outcome)
        return outcome

    # Acknowledgements to send.

    def gather(self) -> None:
        """Take the settled acknowledgements out of the tables; then they are final."""
        for table in tuple(self.tables()):
            for unit in table.take():
                # It cannot be sent; `_take` reports it with the next request, in the order of the
                # others.
                if unit.error is not None:
                    self._again.append(unit)
                elif (ready := self._ready.get(table)) is None:
                    self._ready[table] = unit
                # Both settle one offset, which was delivered again in between; one request cannot
                # carry both.
                elif not ready.absorb(unit):
                    self._again.append(unit)

    def _take(self, outcome: RequestOutcome) -> RunsByPartition:
        """Return the acknowledgements for the next request; report those that cannot be sent."""
        units = [*self._again, *self._ready.values()]
        self._ready.clear()
        for unit in units:
            if (error := unit.error or unit.held.lost) is not None:
                _report(unit, error, outcome)
        # Not as soon as they are lost: the application may still settle their records, and gets the
        # error then.
        self._lost = [table for table in self._lost if not table.is_empty]
        units_to_send = [unit for unit in units if unit.error is None and unit.held.lost is None]
        self._sending, later = _one_of_each_partition(units_to_send)
        self._again = deque(later)
        return _runs(self._sending)

    # Answers.

    def _read(self, answer: SessionAnswer, outcome: RequestOutcome) -> None:
        """Process the results of acknowledgements, a failure, and the loss of locks."""
        outcome.answer = answer
        self._lock_ms = answer.lock_ms or self._lock_ms
        sent, self._sending = self._sending, []
        now = time.monotonic()
        for unit in sent:
            error = answer.results[unit.held.key]
            if error is None:
                _report(unit, None, outcome)
                for lock, offset in unit.renewals or ():
                    # From the time of sending: the broker began the lock later, so this deadline is
                    # never too late.
                    lock.renewed(offset, answer.sent_at + self._lock_ms / 1000)
            else:
                self._read_refusal(unit, error, now, outcome)
        if answer.failure is not None:
            outcome.failures.append(answer.failure)
        if answer.lost is not None:
            self._lose(self._held.values(), answer.lost, outcome)
        if self._again:
            self._flushing = True

    def _read_refusal(
        self, unit: Settled, error: KafkaError, now: float, outcome: RequestOutcome
    ) -> None:
        again, refused_for_good = after_refusal(unit, error, now)
        queue = self._renewals if unit.is_renewal else self._again
        # In front of later acknowledgements, in the order in which they were settled.
        queue.extendleft(reversed(again))
        if refused_for_good is not None:
            _report(refused_for_good, error, outcome)
            if unit.is_renewal:
                outcome.not_renewed.append((refused_for_good, error))
        if again and error.retriable:
            # A failure makes the node pause before it sends them again.
            outcome.failures.append(error)
        if refusal_of(error) is Refusal.LOCKS_GONE:
            # The table of this partition may have been lost and made anew while the request was
            # under way.
            if (held := self._held.get(unit.held.key)) is unit.held:
                self._lose([held], error, outcome)
            outcome.outdated.add(unit.held.key)

    def _read_partition(
        self, partition: FetchedPartition, answer: SessionAnswer, outcome: RequestOutcome
    ) -> None:
        if partition.error is not None:
            outcome.failures.append(partition.error)
            if refusal_of(partition.error) is Refusal.LOCKS_GONE and partition.key in self._held:
                self._lose([self._held[partition.key]], partition.error, outcome)
        # Records of a topic without a name cannot be handed out; their locks end by themselves.
        if not partition.acquired or self._cluster.name_of(partition.key.topic_id) is None:
            return
        held = self._held.get(partition.key)
        if held is None:
            held = self._held[partition.key] = HeldRecords(
                partition.key,
                self._where(partition.key),
                explicit=self._config.explicit,
                on_renewal=self._wake.set,
                later=None if self._session.reads_delays else self._hold,
            )
        # From the time of sending, as in `_read`.
        deadline = answer.sent_at + self._lock_ms / 1000
        record_bytes = len(partition.records) / sum(
            acquired.offset_count for acquired in partition.acquired
        )
        locks = [
            AcquisitionLock(
                held,
                acquired,
                acquired_at=answer.sent_at,
                deadline=deadline,
                record_bytes=record_bytes,
            )
            for acquired in partition.acquired
        ]
        for lock in locks:
            held.acquired(lock)
        outcome.parcels.append(Parcel(held, partition.records, locks))

    def _hold(self, seconds: float, release: Callable[[], None]) -> asyncio.TimerHandle:
        """Release a record later; log once that this broker cannot."""
        assert self._task is not None, "a record was fetched, so the task runs"
        if not self._has_said_held:
            self._has_said_held = True
            log.info(
                "event=release.held group=%s node=%s reason='the broker has no delays for released "
                "records, so this consumer keeps each until its delay is over, if its lock lasts "
                "that long'",
                self._session.member.group_id,
                self.node_id,
            )
        return self._task.get_loop().call_later(seconds, release)

    def _lose(
        self, tables: Iterable[HeldRecords], error: KafkaError, outcome: RequestOutcome
    ) -> None:
        for table in tuple(tables):
            # A refusal of this answer may have lost the table already.
            if table.lost is not None:
                continue
            table.lose(error)
            outcome.lost.append(table)
            del self._held[table.key]
            # What the application has settled, or will settle, still has to be reported with the
            # error; a flush does that without waiting for a fetch.
            if not table.is_empty:
                self._lost.append(table)
                self._flushing = True

    def _pause(self, outcome: RequestOutcome) -> None:
        self._in_vain = self._in_vain + 1 if _is_in_vain(outcome) else 0
        # A broker that answers empty fetches at once would otherwise be asked without a pause.
        if outcome.failures or self._in_vain > IN_VAIN_MAX:
            delay = self._backoff.next_ms() / 1000
            self._paused_until = asyncio.get_running_loop().time() + delay
        else:
            self._backoff.reset()

    def _where(self, key: TopicIdPartition) -> TopicPartition:
        name = self._cluster.name_of(key.topic_id)
        return TopicPartition(name or str(key.topic_id), key.partition)


def _is_in_vain(outcome: RequestOutcome) -> bool:
    """Whether a fetch that could have been parked got an immediate answer without records."""
    if outcome.limits is None or outcome.parcels or outcome.results:
        return False
    waited_ms = (time.monotonic() - outcome.answer.sent_at) * 1000
    return waited_ms < outcome.limits.max_wait_ms / 2


def _report(unit: Settled, error: KafkaError | None, outcome: RequestOutcome) -> None:
    result = unit.report(error)
    if not unit.is_automatic:
        outcome.results.append(result)


def _one_of_each_partition(units: Iterable[Settled]) -> tuple[list[Settled], list[Settled]]:
    """Split units into the first of each partition, for one request, and the others."""
    first: dict[TopicIdPartition, Settled] = {}
    later = [unit for unit in units if first.setdefault(unit.held.key, unit) is not unit]
    return list(first.values()), later


def _runs(units: Iterable[Settled]) -> RunsByPartition:
    return {unit.held.key: unit.runs for unit in units}
