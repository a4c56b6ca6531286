"""A share session with one broker: sends its requests and determines their outcomes.

It manages the session epoch, the connection and the results of acknowledgements, with one request
at a time.  It does not decode records: a fetch returns the bytes of whole log batches and the
acquired offset ranges (`decoded_records` decodes them, the Spark source does not).  It has two
users: `ShareNode`, for the consumer, and `HeldRanges`, for the Spark driver.

    fetch(wanted, acks, limits) -------> SessionAnswer: partitions, results, lost?, failure?
    acknowledge(acks, close, renew) ---> SessionAnswer: results, lost?, failure?

Acknowledgements are given as runs by partition.  Those of one partition in one request succeed or
fail together, so each partition has one result:

    None                        durable, as the broker confirmed
    an error of the broker      refused (lock ended, leader moved); no effect
    ShareSessionNotFound        never sent, because the session was lost before; no effect
    NetworkException            in doubt: sent, and no answer came

After any failure to get an answer, the session and all its acquisition locks are lost.  The
connection is closed, so the broker releases the records at once instead of at the lock deadline.
`SessionAnswer.lost` says so and covers all records acquired *before* that answer: a fetch that
finds its session lost opens a new one, which holds the records of this fetch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from sharegroup.client.net.cluster import Cluster, ConnectionPurpose
from sharegroup.client.net.connection import Connection
from sharegroup.client.net.refusals import meaning, missing_right
from sharegroup.client.share.session.acknowledgements import AckRun, batches_of
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.client.share.session.share_requests import (
    CLOSE_EPOCH,
    FetchLimits,
    NodeSession,
    SessionMember,
    acknowledge_request,
    fetch_request,
)
from sharegroup.errors import (
    NONE,
    CorruptMessage,
    InvalidRecordState,
    KafkaError,
    NetworkException,
    NoAnswer,
    ShareSessionNotFound,
    UnsupportedVersion,
    error_for,
)
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.protocol_enums import AcquireMode
from sharegroup.wire.messages.share_fetch_v2 import LogBatch

SHARE_FETCH = 78
SHARE_ACKNOWLEDGE = 79
RENEW_VERSION = 2
"""First version, of both requests, with renewal and the acquire mode (KIP-1222, KIP-1206)."""

RunsByPartition = Mapping[TopicIdPartition, Sequence[AckRun]]
Results = dict[TopicIdPartition, KafkaError | None]


ACQUIRED_OFFSETS_MAX = 2**31
"""Maximum number of acquired offsets of one partition in one answer; no broker locks so many.

Python's ``len`` may not count more on all platforms.
"""


class FetchedPartition(NamedTuple):
    """The part of a fetch's answer about one partition."""

    key: TopicIdPartition
    records: bytes | memoryview
    """Log batches, the last perhaps cut off; they may have more offsets than were acquired."""
    acquired: tuple[AcquiredRecords, ...]
    """The acquired ranges, ascending and disjoint."""
    error: KafkaError | None
    batches: tuple[LogBatch, ...] | None = None
    """The log batches, listed in place of ``records``; None if the broker has sent these."""


@dataclass(slots=True)
class SessionAnswer:
    """The outcome of one request of a share session."""

    partitions: list[FetchedPartition] = field(default_factory=list)
    """The partitions with acquired records or an error."""
    results: Results = field(default_factory=dict)
    """The result for each partition whose acknowledgements were given."""
    lost: KafkaError | None = None
    """Why all locks from before this answer are lost; None if they are valid."""
    failure: KafkaError | None = None
    """Why the request failed; None if it was answered."""
    lock_ms: int | None = None
    """The lock duration, if the answer has it."""
    throttle_ms: int = 0
    sent_at: float = 0.0
    """The time of sending the request, in seconds of ``time.monotonic()``; locks began later.

    0 if it was not sent.
    """

    def outdated_leaders(self, wanted: Iterable[TopicIdPartition]) -> set[TopicIdPartition]:
        """Return the partitions, ``wanted`` by a fetch, that another broker may lead.

        A broker that cannot be reached or does not answer may have lost all of its partitions.
        """
        failure = self.failure
        if failure is not None and (self.sent_at == 0 or isinstance(failure, NetworkException)):
            return set(wanted)
        return {partition.key for partition in self.partitions if partition.error is not None}


class ShareSession:
    """The share session of a member with one broker; overlapping calls wait for each other."""

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
        """Whether the session is open, as far as the client knows."""
        return self._session.is_open

    @property
    def is_alive(self) -> bool:
        """Whether the session and its connection are open."""
        return self._session.is_open and not self._is_cut()

    @property
    def reads_delays(self) -> bool:
        """Whether the broker reads the delay of a released record (ADR 0061)."""
        return self._connection is not None and self._connection.reads_delays

    @property
    def lacks_delays(self) -> bool:
        """Whether the broker is known not to read it; without a connection this is not known."""
        return self._connection is not None and not self._connection.reads_delays

    @property
    def name(self) -> str:
        """A description of the session for error messages."""
        return (
            f"share session of group {self.member.group_id!r} member {self.member.member_id} "
            f"with node {self.node_id}"
        )

    async def fetch(
        self, wanted: Sequence[TopicIdPartition], acks: RunsByPartition, limits: FetchLimits
    ) -> SessionAnswer:
        """Fetch these partitions and send acknowledgements; open the session if necessary.

        The request that opens a session cannot carry acknowledgements, so these fail as never
        sent.
        """
        answer = SessionAnswer()
        async with self._turn:
            if not self._is_open_for(acks, answer):
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
            # The broker may park the fetch for all of `max_wait_ms` before it begins to answer.
            limit_ms = self._request_timeout_ms + limits.max_wait_ms
            response = await self._exchange(connection, request, acks, answer, limit_ms)
            if response is not None:
                self._read_fetch(response, set(wanted), acks, answer)
        return answer

    async def acknowledge(
        self, acks: RunsByPartition, *, close: bool = False, renew: bool = False
    ) -> SessionAnswer:
        """Send acknowledgements without a fetch; ``close`` also ends the session.

        ``renew`` is required if a renewal (type 4) is among them.  No request is sent without an
        open session, or if there is nothing to acknowledge or close.
        """
        answer = SessionAnswer()
        async with self._turn:
            if not self._is_open_for(acks, answer) or not (acks or close):
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
            # Also without an answer: the connection is closed then, and Kafka ends the session
            # with it.
            if close:
                self._session.lose()
                answer.lost = answer.lost or ShareSessionNotFound(f"{self.name} was closed")
        return answer

    # The session.

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._cluster.connection(
                self.node_id, ConnectionPurpose.RECORDS
            )
        return self._connection

    def _is_cut(self) -> bool:
        return self._connection is None or not self._connection.is_open

    def _is_open_for(self, acks: RunsByPartition, answer: SessionAnswer) -> bool:
        """Whether the session is open; if not, the acknowledgements fail as never sent.

        It is lost if its connection was closed since the last request.
        """
        # Since Kafka 4.1 a broker drops a share session when its connection ends.
        if self._session.is_open and self._is_cut():
            text = f"{self.name} ended with its connection, before the request was sent"
            answer.lost = not_sent = ShareSessionNotFound(text)
            self._session.lose()
        elif self._session.is_open:
            return True
        else:
            not_sent = ShareSessionNotFound(f"{self.name} was not open: the request was not sent")
        answer.results |= dict.fromkeys(acks, not_sent)
        return False

    async def _exchange(
        self,
        connection: Connection,
        request: Any,
        acks: RunsByPartition,
        answer: SessionAnswer,
        limit_ms: int,
    ) -> Any:
        """Send a request and return its response; None if it failed and the session is lost.

        Then ``answer`` has the failure, the results and the loss.
        """
        answer.sent_at = time.monotonic()
        try:
            response = await connection.request(request, timeout_ms=limit_ms)
        except KafkaError as error:
            self._fail(error, acks, answer)
            return None
        answer.throttle_ms = _milliseconds(response.throttle_time)
        if response.error_code != NONE:
            code = response.error_code
            text = response.error_message or meaning(code)
            text += missing_right(code, "READ", self._cluster.principal, group=self.member.group_id)
            self._fail(error_for(code, f"{self.name}: {text}"), acks, answer)
            return None
        # Also if all partitions have errors: the broker has counted the request.
        self._session.answered()
        lock_ms = _milliseconds(response.acquisition_lock_timeout)
        answer.lock_ms = lock_ms if lock_ms > 0 else None  # An old broker sends 0.
        return response

    def _fail(self, error: KafkaError, acks: RunsByPartition, answer: SessionAnswer) -> None:
        if isinstance(error, NoAnswer):
            self._cluster.doubt(self.node_id)
        answer.failure = error
        answer.results |= {key: error for key in acks if key not in answer.results}
        answer.lost = ShareSessionNotFound(f"{self.name} was lost: {error}")
        self._session.lose()
        if self._connection is not None:
            # Kafka ends the session with its connection, so the locks do not last until their
            # deadline.
            self._connection.fail(error)

    # Answers.  Partitions that were not requested are ignored: a broker must not be able to make
    # this client hold more records.

    def _read_fetch(
        self,
        response: Any,
        wanted: set[TopicIdPartition],
        acks: RunsByPartition,
        answer: SessionAnswer,
    ) -> None:
        waiting = set(acks) - set(answer.results)
        for topic in response.responses:
            for partition in topic.partitions:
                key = TopicIdPartition(TopicId(topic.topic_id), int(partition.partition_index))
                if key in waiting:
                    waiting.discard(key)
                    answer.results[key] = self._refusal(
                        key, partition.acknowledge_error_code, partition.acknowledge_error_message
                    )
                if key in wanted:
                    wanted.discard(key)  # A second entry of the partition is ignored.
                    answer.partitions += self._fetched(key, partition)
        self._fill_in(waiting, answer)

    def _fetched(self, key: TopicIdPartition, partition: Any) -> Sequence[FetchedPartition]:
        acquired = tuple(
            AcquiredRecords(acquired.first_offset, acquired.last_offset, acquired.delivery_count)
            for acquired in partition.acquired_records
        )
        error = self._refusal(key, partition.error_code, partition.error_message)
        if not _can_be(acquired):
            error = CorruptMessage(
                f"{self.name} partition {key}: expected acquired ranges in ascending order, of up "
                f"to {ACQUIRED_OFFSETS_MAX} offsets in total, got {acquired[:5]}"
            )
            acquired = ()
        if not acquired and error is None:
            return ()
        records = partition.records or b""
        return (FetchedPartition(key, records, acquired, error, partition.batches),)

    def _read_acknowledge(
        self, response: Any, acks: RunsByPartition, answer: SessionAnswer
    ) -> None:
        waiting = set(acks) - set(answer.results)
        for topic in response.responses:
            for partition in topic.partitions:
                key = TopicIdPartition(TopicId(topic.topic_id), int(partition.partition_index))
                if key in waiting:
                    waiting.discard(key)
                    answer.results[key] = self._refusal(
                        key, partition.error_code, partition.error_message
                    )
        self._fill_in(waiting, answer)

    def _fill_in(self, left_out: set[TopicIdPartition], answer: SessionAnswer) -> None:
        for key in left_out:
            text = f"{self.name}: the broker's response does not contain partition {key}"
            # Not a success: a partition without a result has no confirmation that it is durable.
            answer.results[key] = InvalidRecordState(text)

    def _refusal(self, key: TopicIdPartition, code: int, message: str | None) -> KafkaError | None:
        if code == NONE:
            return None
        topic = self._cluster.name_of(key.topic_id) or str(key.topic_id)
        where = f"topic {topic!r} partition {key.partition}"
        right = missing_right(code, "READ", self._cluster.principal, topic=topic)
        return error_for(code, f"{self.name} {where}: {message or meaning(code)}{right}")


def _check_acquire_mode(connection: Connection, limits: FetchLimits) -> None:
    if limits.acquire_mode is not AcquireMode.BATCH_OPTIMIZED:
        version = connection.version_of(SHARE_FETCH)
        if version < RENEW_VERSION:
            raise UnsupportedVersion(
                f"broker {connection.peer}: share_acquire_mode={limits.acquire_mode.value!r} needs "
                f"ShareFetch version {RENEW_VERSION}, but the broker supports up to {version} (use "
                "Apache Kafka 4.2 or newer)"
            )


def _renewal_refused(connection: Connection) -> UnsupportedVersion | None:
    version = connection.version_of(SHARE_ACKNOWLEDGE)
    if version >= RENEW_VERSION:
        return None
    return UnsupportedVersion(
        f"broker {connection.peer}: renewing a lock needs ShareAcknowledge version "
        f"{RENEW_VERSION}, but the broker supports up to {version} (use Apache Kafka 4.2 or newer)"
    )


def _can_be(ranges: Sequence[AcquiredRecords]) -> bool:
    last_before, offsets = -1, 0
    for first_offset, last_offset, _ in ranges:
        if not last_before < first_offset <= last_offset:
            return False
        last_before = last_offset
        offsets += last_offset + 1 - first_offset
    return offsets <= ACQUIRED_OFFSETS_MAX


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
