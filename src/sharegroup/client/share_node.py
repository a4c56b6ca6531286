"""One broker as a share consumer sees it: the session with it and what is held from it.

One request at a time, because every request moves the session's epoch; acknowledgements that
become ready while a fetch is parked wait for it, or go with the next one.

What happens to acknowledgements when something breaks, told apart by the error in the result:

    never sent: the connection or the session was gone before       ShareSessionNotFound
    refused as a whole (session unknown, group not authorised)       that error
    refused for their partition (lock over, leader moved)            that error
    sent, no answer                                                  NetworkException: in doubt

After anything but an answer the session is lost.  The connection is closed with it, which
makes the broker release what this member holds at once instead of when the locks end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sharegroup.client.acknowledgements import batches_of
from sharegroup.client.cluster import Cluster, Lane
from sharegroup.client.connection import Connection
from sharegroup.client.consumer_config import ShareConsumerConfig
from sharegroup.client.deliveries import AcquiredRange, Delivery, read_deliveries
from sharegroup.client.held_records import HeldRecords, Settled
from sharegroup.client.node_session import CLOSE_EPOCH, NodeSession
from sharegroup.client.records import AcknowledgementResult, TopicPartition
from sharegroup.client.share_requests import acknowledge_request, fetch_request
from sharegroup.errors import (
    NONE,
    InvalidRecordState,
    KafkaError,
    ShareSessionNotFound,
    UnknownServerError,
    error_for,
)
from sharegroup.ids import TopicId
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
        self._member_id = member_id
        self._session = NodeSession()
        self._connection: Connection | None = None
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
        outcome = Outcome()
        async with self._turn:
            try:
                connection = await self._connected(outcome)
            except KafkaError as error:
                self._take(outcome)
                outcome.failures.append(error)
                # Whoever can't be reached may have lost its partitions to another broker.
                outcome.outdated |= {self._where(key) for key in wanted}
                return outcome
            sent = self._take(outcome)
            acks = {one.key: batches_of(one.runs) for one in sent}
            request = fetch_request(
                self._session.fetch(wanted, acks),
                acks,
                self._config,
                member_id=self._member_id,
                max_records=max_records,
            )
            sent_at = time.monotonic()
            limit_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
            response = await self._exchange(connection, request, sent, outcome, limit_ms)
            if response is not None:
                self._read_fetch(response, sent, outcome, sent_at)
        return outcome

    async def acknowledge(self, *, close: bool = False) -> Outcome:
        """Send all acknowledgements that are ready; ``close`` ends the session with them."""
        outcome = Outcome()
        async with self._turn:
            self._notice_loss(outcome)
            sent = self._take(outcome)
            if not self._session.is_open or not (sent or close):
                return outcome
            assert self._connection is not None
            acks = {one.key: batches_of(one.runs) for one in sent}
            request = acknowledge_request(
                CLOSE_EPOCH if close else self._session.epoch,
                acks,
                self._config,
                member_id=self._member_id,
            )
            limit_ms = self._config.request_timeout_ms
            response = await self._exchange(self._connection, request, sent, outcome, limit_ms)
            if response is not None:
                self._read_acknowledge(response, sent, outcome)
            if close:
                self._lose(outcome, ShareSessionNotFound(f"{self._name()} was closed"))
        return outcome

    # The session.

    async def _connected(self, outcome: Outcome) -> Connection:
        self._notice_loss(outcome)
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._cluster.connection(self.node_id, Lane.RECORDS)
        return self._connection

    def _notice_loss(self, outcome: Outcome) -> None:
        """The broker ends a session with its connection, also while nobody looked."""
        if self._session.is_open and (self._connection is None or not self._connection.is_open):
            text = f"{self._name()} ended with its connection, before this was sent"
            self._lose(outcome, ShareSessionNotFound(text))

    def _lose(self, outcome: Outcome, error: KafkaError) -> None:
        self._session.lose()
        for held in self._held.values():
            held.lose(error)
        outcome.lost += self._held.values()
        self._lost += [held for held in self._held.values() if not held.is_empty]
        self._held = {}

    def _take(self, outcome: Outcome) -> list[Settled]:
        """What can be sent; what was lost goes into the results."""
        taken = [settled for held in self.tables() if (settled := held.take()) is not None]
        outcome.results += [_result(one, one.error) for one in taken if one.error is not None]
        self._lost = [held for held in self._lost if not held.is_empty]
        return [one for one in taken if one.error is None]

    async def _exchange(
        self,
        connection: Connection,
        request: Any,
        sent: Sequence[Settled],
        outcome: Outcome,
        limit_ms: int,
    ) -> Any:
        """Send and wait; None when the session was lost, with everything about it said."""
        self._sending = len(sent)
        try:
            response = await connection.request(request, timeout_ms=limit_ms)
        except KafkaError as error:
            outcome.results += [_result(one, error) for one in sent]
            self._fail(outcome, error)
            return None
        finally:
            self._sending = 0
        if response.error_code != NONE:
            text = f"{self._name()}: {response.error_message or 'refused'}"
            refusal = error_for(response.error_code, text)
            outcome.results += [_result(one, refusal) for one in sent]
            self._fail(outcome, refusal)
            return None
        self._session.answered()
        return response

    def _fail(self, outcome: Outcome, error: KafkaError) -> None:
        outcome.failures.append(error)
        self._lose(outcome, ShareSessionNotFound(f"{self._name()} was lost: {error}"))
        if self._connection is not None:
            self._connection.fail(error)

    # Answers.

    def _read_fetch(
        self, response: Any, sent: Sequence[Settled], outcome: Outcome, sent_at: float
    ) -> None:
        lock_ms = _milliseconds(response.acquisition_lock_timeout)
        outcome.lock_timeout_ms = lock_ms
        waiting = {one.key: one for one in sent}
        for topic in response.responses:
            for partition in topic.partitions:
                key = TopicIdPartition(TopicId(topic.topic_id), int(partition.partition_index))
                settled = waiting.pop(key, None)
                if settled is not None:
                    code, text = (
                        partition.acknowledge_error_code,
                        partition.acknowledge_error_message,
                    )
                    outcome.results.append(_result(settled, self._error(settled, code, text)))
                self._read_partition(key, partition, outcome, sent_at + lock_ms / 1000)
        self._report_unanswered(waiting.values(), outcome)

    def _read_partition(
        self, key: TopicIdPartition, partition: Any, outcome: Outcome, lock_deadline: float
    ) -> None:
        where = self._where(key)
        if partition.error_code != NONE:
            text = f"{where}: {partition.error_message or 'the fetch was refused'}"
            outcome.failures.append(error_for(partition.error_code, text))
            outcome.outdated.add(where)
        if not partition.acquired_records or self._cluster.name_of(key.topic_id) is None:
            return
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = HeldRecords(key, where, explicit=self._config.explicit)
        acquired = [
            AcquiredRange(one.first_offset, one.last_offset + 1, one.delivery_count)
            for one in partition.acquired_records
        ]
        outcome.deliveries += read_deliveries(
            held,
            partition.records or b"",
            acquired,
            lock_deadline=lock_deadline,
            config=self._config,
        )

    def _read_acknowledge(self, response: Any, sent: Sequence[Settled], outcome: Outcome) -> None:
        waiting = {one.key: one for one in sent}
        for topic in response.responses:
            for partition in topic.partitions:
                key = TopicIdPartition(TopicId(topic.topic_id), int(partition.partition_index))
                settled = waiting.pop(key, None)
                if settled is not None:
                    error = self._error(settled, partition.error_code, partition.error_message)
                    outcome.results.append(_result(settled, error))
        self._report_unanswered(waiting.values(), outcome)

    def _report_unanswered(self, left_out: Iterable[Settled], outcome: Outcome) -> None:
        for settled in left_out:
            text = f"{self._name()}: the answer says nothing about {settled.topic_partition}"
            outcome.results.append(_result(settled, InvalidRecordState(text)))

    def _error(self, settled: Settled, code: int, message: str | None) -> KafkaError | None:
        if code == NONE:
            return None
        return error_for(code, f"{self._name()} {settled.topic_partition}: {message or 'refused'}")

    def _where(self, key: TopicIdPartition) -> TopicPartition:
        name = self._cluster.name_of(key.topic_id)
        return TopicPartition(name or str(key.topic_id), key.partition)

    def _name(self) -> str:
        return (
            f"share session of group {self._config.group_id!r} member {self._member_id} "
            f"with node {self.node_id}"
        )


def needs_the_application(error: KafkaError) -> bool:
    """Whether trying again is no answer to this; a broker's own surprises pass (code -1)."""
    return not error.retriable and not isinstance(error, UnknownServerError)


def _result(settled: Settled, error: KafkaError | None) -> AcknowledgementResult:
    return AcknowledgementResult(settled.topic_partition, settled.offsets, error)


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
