"""The share session with one broker as a transport: requests out, outcomes told apart.

It knows epochs, the connection, one request at a time, and what became of acknowledgements.
It knows nothing about records: what a fetch brings is the bytes of whole log batches and
beside them the offsets that were acquired (`deliveries` reads them, the Spark source does not).
Two users build on it: `ShareNode`, for the consumer, and `ShareRanges`, for the Spark driver.

    fetch(wanted, acks, limits) ---> Answer: partitions, results, lost?, failure?
    acknowledge(acks, close, renew) ---> Answer: results, lost?, failure?

Acknowledgements are given as runs by partition.  Those of one partition in one request hold or
fail together, so there is one result for each partition that was given:

    None                        the broker says: durable
    refused                     its error (lock over, leader moved); no effect
    ShareSessionNotFound        never sent: the session was gone before; no effect
    NetworkException            in doubt: sent, and no answer came

When anything but an answer comes, the session is lost, and with it every lock that it took;
the connection is closed, which makes the broker release them at once instead of when they end.
`Answer.lost` says so, and covers everything acquired *before* that answer: a fetch that finds
the session gone opens a new one, and what it brings is held by the new one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from sharegroup.client.acknowledgements import AckRun, batches_of
from sharegroup.client.cluster import Cluster, Lane
from sharegroup.client.connection import Connection
from sharegroup.client.node_session import CLOSE_EPOCH, NodeSession
from sharegroup.client.refusals import meaning
from sharegroup.client.share_requests import (
    FetchLimits,
    SessionMember,
    acknowledge_request,
    fetch_request,
)
from sharegroup.errors import (
    NONE,
    CorruptMessage,
    InvalidRecordState,
    KafkaError,
    ShareSessionNotFound,
    UnsupportedVersion,
    error_for,
)
from sharegroup.ids import TopicId, TopicPartition

SHARE_FETCH = 78
SHARE_ACKNOWLEDGE = 79
OFFSET_MAX = 2**63 - 1
RENEW_VERSION = 2
"""Of both requests: the first with renewal and with an acquire mode (KIP-1222, KIP-1206)."""

Runs = Mapping[TopicPartition, Sequence[AckRun]]
Results = dict[TopicPartition, KafkaError | None]


ACQUIRED_OFFSETS_MAX = 2**31
"""Of one partition in one answer: no broker locks so many, and Python's len counts no more."""


class AcquiredRange(NamedTuple):
    """Offsets ``first`` to ``end`` (excluded) that the broker locked for this member."""

    first: int
    end: int
    delivery_count: int


class FetchedPartition(NamedTuple):
    """What a fetch brought of one partition."""

    key: TopicPartition
    records: bytes | memoryview
    """Whole log batches, the last one perhaps cut off; more offsets than were acquired."""
    acquired: tuple[AcquiredRange, ...]
    """Ascending and apart from each other."""
    error: KafkaError | None


@dataclass(slots=True)
class Answer:
    """What one request came to."""

    partitions: list[FetchedPartition] = field(default_factory=list)
    """Partitions that brought something, records or an error."""
    results: Results = field(default_factory=dict)
    """For each partition that acknowledgements were given for."""
    lost: KafkaError | None = None
    """Why every lock from before this answer is gone; None: they stand."""
    failure: KafkaError | None = None
    """Why the request came to nothing; None: it was answered."""
    lock_ms: int | None = None
    """How long a lock lasts, if the answer says so."""
    throttle_ms: int = 0
    sent_at: float = 0.0
    """When it was sent, in seconds of ``time.monotonic()``: locks began no earlier."""


class ShareSession:
    """See the module's text.  Calls may overlap: each waits for its turn."""

    def __init__(
        self, node_id: int, cluster: Cluster, member: SessionMember, *, request_timeout_ms: int
    ) -> None:
        self.node_id = node_id
        self.member = member
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms
        self._session = NodeSession()
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether there is a session, as far as this side knows."""
        return self._session.is_open

    @property
    def is_alive(self) -> bool:
        """Whether there is a session and its connection stands."""
        return self._session.is_open and not self._is_cut()

    @property
    def name(self) -> str:
        """For messages."""
        return (
            f"share session of group {self.member.group_id!r} member {self.member.member_id} "
            f"with node {self.node_id}"
        )

    async def fetch(
        self, wanted: Sequence[TopicPartition], acks: Runs, limits: FetchLimits
    ) -> Answer:
        """Fetch these partitions and acknowledge; opens the session when there is none.

        The request that opens a session can't carry acknowledgements: given then, they fail as
        never sent.
        """
        answer = Answer()
        async with self._turn:
            self._notice_loss(acks, answer)
            if not self._session.is_open:
                gone = ShareSessionNotFound(f"{self.name} was not open: this was never sent")
                answer.results |= {key: gone for key in acks if key not in answer.results}
                acks = {}
            try:
                connection = await self._connected()
                _check_acquire_mode(connection, limits)
            except KafkaError as error:
                answer.failure = error
                answer.results |= dict.fromkeys(acks, error)
                return answer
            batches = {key: batches_of(runs) for key, runs in acks.items()}
            request = fetch_request(
                self.member, self._session.fetch(wanted, batches), batches, limits
            )
            limit_ms = self._request_timeout_ms + limits.max_wait_ms
            response = await self._exchange(connection, request, acks, answer, limit_ms)
            if response is not None:
                self._read_fetch(response, set(wanted), acks, answer)
        return answer

    async def acknowledge(self, acks: Runs, *, close: bool = False, renew: bool = False) -> Answer:
        """Send acknowledgements alone; ``close`` ends the session with them.

        ``renew`` is needed when there is a renewal (type 4) among them.  Without a session
        nothing is sent; with nothing to say neither.
        """
        answer = Answer()
        async with self._turn:
            self._notice_loss(acks, answer)
            if not self._session.is_open:
                gone = ShareSessionNotFound(f"{self.name} is not open: this was never sent")
                answer.results |= {key: gone for key in acks if key not in answer.results}
                return answer
            if not (acks or close):
                return answer
            assert self._connection is not None
            if renew and (refusal := _renewal_refused(self._connection)) is not None:
                answer.failure = refusal
                answer.results |= dict.fromkeys(acks, refusal)
                return answer
            request = acknowledge_request(
                self.member,
                CLOSE_EPOCH if close else self._session.epoch,
                {key: batches_of(runs) for key, runs in acks.items()},
                renew=renew,
            )
            response = await self._exchange(
                self._connection, request, acks, answer, self._request_timeout_ms
            )
            if response is not None:
                self._read_acknowledge(response, acks, answer)
            if close:
                self._session.lose()
                answer.lost = answer.lost or ShareSessionNotFound(f"{self.name} was closed")
        return answer

    # The session.

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._cluster.connection(self.node_id, Lane.RECORDS)
        return self._connection

    def _is_cut(self) -> bool:
        return self._connection is None or not self._connection.is_open

    def _notice_loss(self, acks: Runs, answer: Answer) -> None:
        """The broker ends a session with its connection, also while nobody looked."""
        if self._session.is_open and self._is_cut():
            text = f"{self.name} ended with its connection, before this was sent"
            answer.lost = ShareSessionNotFound(text)
            answer.results |= dict.fromkeys(acks, answer.lost)
            self._session.lose()

    async def _exchange(
        self, connection: Connection, request: Any, acks: Runs, answer: Answer, limit_ms: int
    ) -> Any:
        """Send and wait; None when the session was lost, with everything about it said."""
        answer.sent_at = time.monotonic()
        try:
            response = await connection.request(request, timeout_ms=limit_ms)
        except KafkaError as error:
            self._fail(error, acks, answer)
            return None
        answer.throttle_ms = _milliseconds(response.throttle_time)
        if response.error_code != NONE:
            text = response.error_message or meaning(response.error_code)
            self._fail(error_for(response.error_code, f"{self.name}: {text}"), acks, answer)
            return None
        self._session.answered()
        lock_ms = _milliseconds(response.acquisition_lock_timeout)
        answer.lock_ms = lock_ms if lock_ms > 0 else None  # 0: the broker is too old to say.
        return response

    def _fail(self, error: KafkaError, acks: Runs, answer: Answer) -> None:
        answer.failure = error
        answer.results |= {key: error for key in acks if key not in answer.results}
        answer.lost = ShareSessionNotFound(f"{self.name} was lost: {error}")
        self._session.lose()
        if self._connection is not None:
            self._connection.fail(error)

    # Answers.  What nobody asked for is left out: a broker can't make this side hold more.

    def _read_fetch(
        self, response: Any, wanted: set[TopicPartition], acks: Runs, answer: Answer
    ) -> None:
        waiting = set(acks) - set(answer.results)
        for topic in response.responses:
            for partition in topic.partitions:
                key = TopicPartition(TopicId(topic.topic_id), int(partition.partition_index))
                if key in waiting:
                    waiting.discard(key)
                    answer.results[key] = self._refusal(
                        key, partition.acknowledge_error_code, partition.acknowledge_error_message
                    )
                if key in wanted:
                    wanted.discard(key)  # Named twice, the second time is as good as unasked.
                    answer.partitions += self._fetched(key, partition)
        self._fill_in(waiting, answer)

    def _fetched(self, key: TopicPartition, partition: Any) -> Sequence[FetchedPartition]:
        acquired = tuple(
            AcquiredRange(one.first_offset, one.last_offset + 1, one.delivery_count)
            for one in partition.acquired_records
        )
        error = self._refusal(key, partition.error_code, partition.error_message)
        if not _can_be(acquired):
            error = CorruptMessage(
                f"{self.name} partition {key}: expected acquired ranges that ascend, of up to "
                f"{ACQUIRED_OFFSETS_MAX} offsets together, came {acquired[:5]}"
            )
            acquired = ()
        if not acquired and error is None:
            return ()
        return (FetchedPartition(key, partition.records or b"", acquired, error),)

    def _read_acknowledge(self, response: Any, acks: Runs, answer: Answer) -> None:
        waiting = set(acks) - set(answer.results)
        for topic in response.responses:
            for partition in topic.partitions:
                key = TopicPartition(TopicId(topic.topic_id), int(partition.partition_index))
                if key in waiting:
                    waiting.discard(key)
                    answer.results[key] = self._refusal(
                        key, partition.error_code, partition.error_message
                    )
        self._fill_in(waiting, answer)

    def _fill_in(self, left_out: set[TopicPartition], answer: Answer) -> None:
        for key in left_out:
            text = f"{self.name}: the answer says nothing about partition {key}"
            answer.results[key] = InvalidRecordState(text)

    def _refusal(self, key: TopicPartition, code: int, message: str | None) -> KafkaError | None:
        if code == NONE:
            return None
        topic = self._cluster.name_of(key.topic_id) or str(key.topic_id)
        where = f"topic {topic!r} partition {key.partition}"
        return error_for(code, f"{self.name} {where}: {message or meaning(code)}")


def _check_acquire_mode(connection: Connection, limits: FetchLimits) -> None:
    if limits.acquire_mode != "batch_optimized":
        version = connection.version_of(SHARE_FETCH)
        if version < RENEW_VERSION:
            raise UnsupportedVersion(
                f"broker {connection.peer}: share_acquire_mode={limits.acquire_mode!r} needs "
                f"ShareFetch version {RENEW_VERSION}, it serves up to {version} "
                "(Apache Kafka has it since 4.2)"
            )


def _renewal_refused(connection: Connection) -> UnsupportedVersion | None:
    version = connection.version_of(SHARE_ACKNOWLEDGE)
    if version >= RENEW_VERSION:
        return None
    return UnsupportedVersion(
        f"broker {connection.peer}: renewing a lock needs ShareAcknowledge version "
        f"{RENEW_VERSION}, it serves up to {version} (Apache Kafka has it since 4.2)"
    )


def _can_be(ranges: Sequence[AcquiredRange]) -> bool:
    end = offsets = 0
    for one in ranges:
        if not end <= one.first < one.end:
            return False
        end = one.end
        offsets += one.end - one.first
    return offsets <= ACQUIRED_OFFSETS_MAX


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
