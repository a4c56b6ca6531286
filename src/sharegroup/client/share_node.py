"""One broker as the share consumer sees it: what is held from it, over the session with it.

One request at a time, because every request moves the session's epoch; acknowledgements that
become ready while a fetch is parked wait for it, or go with the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sharegroup.client.acknowledgements import AckRun
from sharegroup.client.cluster import Cluster
from sharegroup.client.consumer_config import ShareConsumerConfig
from sharegroup.client.deliveries import Delivery, read_deliveries
from sharegroup.client.held_records import HeldRecords, Settled
from sharegroup.client.records import AcknowledgementResult, TopicPartition
from sharegroup.client.share_requests import FetchLimits, SessionMember
from sharegroup.client.share_session import Answer, FetchedPartition, ShareSession
from sharegroup.errors import KafkaError, UnknownServerError
from sharegroup.ids import GroupId, MemberId
from sharegroup.ids import TopicPartition as TopicIdPartition


@dataclass(slots=True)
class Outcome:
    """What one request brought."""

    deliveries: list[Delivery] = field(default_factory=list)
    results: list[AcknowledgementResult] = field(default_factory=list)
    lost: list[HeldRecords] = field(default_factory=list)
    """Tables whose locks went with the session: nothing of them may be handed out any more."""
    outdated: set[TopicPartition] = field(default_factory=set)
    """Partitions that this broker does not lead, or does not know."""
    failures: list[KafkaError] = field(default_factory=list)
    """What went wrong; the retriable ones ask for a pause, the others for the application."""
    lock_timeout_ms: int | None = None


class ShareNode:
    """See the module's text."""

    def __init__(
        self, node_id: int, cluster: Cluster, config: ShareConsumerConfig, member_id: str
    ) -> None:
        self.node_id = node_id
        self._cluster = cluster
        self._config = config
        member = SessionMember(GroupId(config.group_id), MemberId(member_id))
        self._session = ShareSession(
            node_id, cluster, member, request_timeout_ms=config.request_timeout_ms
        )
        self._turn = asyncio.Lock()
        self._sending = 0
        self._held: dict[TopicIdPartition, HeldRecords] = {}
        self._lost: list[HeldRecords] = []
        self.backoff = cluster.backoff()
        """The pauses after failures; kept by the consumer."""

    @property
    def is_open(self) -> bool:
        """Whether there is a session."""
        return self._session.is_open

    @property
    def has_settled(self) -> bool:
        """Whether acknowledgements wait to be sent, or to be reported as impossible."""
        return any(held.has_settled for held in self.tables())

    @property
    def is_acknowledging(self) -> bool:
        """Whether acknowledgements are under way."""
        return self._sending > 0

    @property
    def has_open(self) -> bool:
        """Whether records of it are handed out and not settled."""
        return any(held.open_count for held in self._held.values())

    def tables(self) -> Iterator[HeldRecords]:
        """Everything held from this broker, and what was lost and is not reported yet."""
        yield from self._held.values()
        yield from self._lost

    async def fetch(self, wanted: Sequence[TopicIdPartition], *, max_records: int) -> Outcome:
        """Fetch these partitions, with all acknowledgements that are ready."""
        config = self._config
        limits = FetchLimits(
            max_records=max_records,
            max_bytes=config.fetch_max_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            acquire_mode=config.share_acquire_mode,
        )
        outcome = Outcome()
        async with self._turn:
            sent = self._take(outcome)
            self._sending = len(sent)
            try:
                answer = await self._session.fetch(wanted, _runs(sent), limits)
            finally:
                self._sending = 0
            self._take_in(answer, sent, outcome)
            if answer.failure is not None and answer.sent_at == 0:
                # Whoever can't be reached may have lost its partitions to another broker.
                outcome.outdated |= {self._where(key) for key in wanted}
            for one in answer.partitions:
                self._read_partition(one, answer, outcome)
        return outcome

    async def acknowledge(self, *, close: bool = False) -> Outcome:
        """Send all acknowledgements that are ready; ``close`` ends the session with them."""
        outcome = Outcome()
        async with self._turn:
            sent = self._take(outcome)
            self._sending = len(sent)
            try:
                answer = await self._session.acknowledge(_runs(sent), close=close)
            finally:
                self._sending = 0
            self._take_in(answer, sent, outcome)
        return outcome

    def _take(self, outcome: Outcome) -> list[Settled]:
        """What can be sent; what was lost goes into the results."""
        taken = [settled for held in self.tables() if (settled := held.take()) is not None]
        outcome.results += [_result(one, one.error) for one in taken if one.error is not None]
        self._lost = [held for held in self._lost if not held.is_empty]
        return [one for one in taken if one.error is None]

    def _take_in(self, answer: Answer, sent: Sequence[Settled], outcome: Outcome) -> None:
        outcome.lock_timeout_ms = answer.lock_ms
        outcome.results += [_result(one, answer.results[one.key]) for one in sent]
        if answer.failure is not None:
            outcome.failures.append(answer.failure)
        if answer.lost is not None:
            for held in self._held.values():
                held.lose(answer.lost)
            outcome.lost += self._held.values()
            self._lost += [held for held in self._held.values() if not held.is_empty]
            self._held = {}

    def _read_partition(self, one: FetchedPartition, answer: Answer, outcome: Outcome) -> None:
        where = self._where(one.key)
        if one.error is not None:
            outcome.failures.append(one.error)
            outcome.outdated.add(where)
        if not one.acquired or self._cluster.name_of(one.key.topic_id) is None:
            return
        held = self._held.get(one.key)
        if held is None:
            held = self._held[one.key] = HeldRecords(one.key, where, explicit=self._config.explicit)
        outcome.deliveries += read_deliveries(
            held,
            one.records,
            one.acquired,
            lock_deadline=answer.sent_at + (answer.lock_ms or 0) / 1000,
            config=self._config,
        )

    def _where(self, key: TopicIdPartition) -> TopicPartition:
        name = self._cluster.name_of(key.topic_id)
        return TopicPartition(name or str(key.topic_id), key.partition)


def needs_the_application(error: KafkaError) -> bool:
    """Whether trying again is no answer to this; a broker's own surprises pass (code -1)."""
    return not error.retriable and not isinstance(error, UnknownServerError)


def _result(settled: Settled, error: KafkaError | None) -> AcknowledgementResult:
    return AcknowledgementResult(settled.topic_partition, settled.offsets, error)


def _runs(sent: Iterable[Settled]) -> dict[TopicIdPartition, tuple[AckRun, ...]]:
    return {one.key: one.runs for one in sent}
