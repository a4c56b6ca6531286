"""ShareFetch (78): acknowledgements first, then as many records as the member may have.

The two halves do not touch each other: a failed acknowledgement never fails the fetch.  What
is acknowledged is decided at once, before the next request is looked at.  The reply waits for it
to be durable, and only then are records taken: those that the same sync made durable go with this
answer instead of the next.  If there are none, the reply waits for records to come (KIP-932
«Fetching and acknowledging»).

A request that renews locks fetches nothing: while it waited for records the locks that it
renewed could end before its answer came (KIP-1222).

What a fetch costs follows from what it returns, not from how many partitions its session has:
it looks only where there may be records, in turn, until it has enough (`session_partitions`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kio.schema.share_fetch.v2.request import ShareFetchRequest
from kio.schema.share_fetch.v2.response import ShareFetchResponse

from sharegroup.broker import share_requests
from sharegroup.broker.dispatch import Context, Encoded, error_code
from sharegroup.broker.handlers import NO_THROTTLE, milliseconds
from sharegroup.broker.parts import Node, Parts
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.broker.share.share_reading import Fetched
from sharegroup.broker.waiting import OfConnection
from sharegroup.core.delivery import AcquireMode, Wanted
from sharegroup.core.session_partitions import SessionPartitions
from sharegroup.core.share_session import Closed, SessionKey
from sharegroup.errors import InvalidRequest, KafkaError, ShareSessionLimitReached
from sharegroup.ids import SharePartitionKey, TopicId, TopicPartition
from sharegroup.wire.share_fetch_answer import Endpoint, PartitionAnswer, share_fetch_frame

WAIT_MS_MAX = 5 * 60 * 1000
"""No request is parked for longer, whatever it asks for."""

NATIVE = True

ACQUIRE_MODES = {int(mode): mode for mode in AcquireMode}

NOTHING = Fetched(b"", ())


@dataclass(slots=True)
class Found:
    """What one look at the session's partitions brought."""

    records: dict[TopicPartition, Fetched] = field(default_factory=dict)
    errors: dict[TopicPartition, KafkaError] = field(default_factory=dict)


Find = Callable[[], Found | asyncio.Future[Found]]
"""Says what there is, or what will come."""


def handle(parts: Parts, context: Context, request: ShareFetchRequest) -> Awaitable[Any] | Any:
    key = share_requests.session_key(request.group_id, request.member_id)
    mode = _acquire_mode(request, key)
    renewing = getattr(request, "is_renew_ack", False)  # Version 1 has no such field.
    if renewing:
        _check_fetches_nothing(request, key)
    acks = share_requests.acks_of(request.topics)
    try:
        outcome = parts.share_sessions.fetch(
            key,
            request.share_session_epoch,
            connection_id=str(context.connection_id),
            partitions=[partition for partition, _ in share_requests.requested(request.topics)],
            forgotten=_forgotten(request),
            has_acks=bool(acks),
        )
    except ShareSessionLimitReached as error:
        return _refuse_later(parts, context, request, error)
    started = share_requests.start(parts, key, acks, renewing=renewing)
    reply = _Reply(parts, context, key)
    if isinstance(outcome, Closed):
        share_requests.release(parts, outcome)
        return reply.of(started, Found)
    session = outcome.partitions
    fetch = _Fetch(parts, context, request, key=key, mode=mode, session=session)
    if outcome.opened:
        reply.every_partition = tuple(session)
        parts.waiting.wake(key)  # What was in its place is over, and a fetch of that waits in vain.
    return reply.of(started, fetch.find)


def refuse(request: ShareFetchRequest, error: KafkaError) -> ShareFetchResponse:
    return ShareFetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        error_message=str(error),
        acquisition_lock_timeout=milliseconds(0),
        responses=(),
        node_endpoints=(),
    )


def _acquire_mode(request: ShareFetchRequest, key: SessionKey) -> AcquireMode:
    asked = getattr(request, "share_acquire_mode", 0)  # Version 1 has no such field.
    mode = ACQUIRE_MODES.get(asked)
    if mode is None:
        raise InvalidRequest(
            f"group {key.group_id!r} member {key.member_id!r}: ShareAcquireMode is {asked}; known "
            "are 0 (batch_optimized) and 1 (record_limit)"
        )
    return mode


def _check_fetches_nothing(request: ShareFetchRequest, key: SessionKey) -> None:
    asked = {
        "MaxBytes": request.max_bytes,
        "MinBytes": request.min_bytes,
        "MaxRecords": request.max_records,
        "MaxWaitMs": request.max_wait // timedelta(milliseconds=1),
    }
    wrong = ", ".join(f"{name}={value}" for name, value in asked.items() if value != 0)
    if wrong:
        raise InvalidRequest(
            f"group {key.group_id!r} member {key.member_id!r}: a request with IsRenewAck=true "
            f"fetches nothing, so these must be 0: {wrong}"
        )


def _forgotten(request: ShareFetchRequest) -> list[TopicPartition]:
    return [
        TopicPartition(TopicId(topic.topic_id or share_requests.ZERO_ID), partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


async def _refuse_later(
    parts: Parts, context: Context, request: ShareFetchRequest, error: KafkaError
) -> Any:
    """A full broker answers when the wait is over, so that clients do not try in a hot loop."""
    deadline_ms = parts.clock.now_ms() + _wait_ms(request)
    await parts.waiting.park(
        lambda last: last or None,
        keys=(OfConnection(context.connection_id),),
        deadline_ms=deadline_ms,
    )
    raise error


def _wait_ms(request: ShareFetchRequest) -> int:
    return min(max(0, request.max_wait // timedelta(milliseconds=1)), WAIT_MS_MAX)


class _Fetch:
    """The fetching half of one request."""

    __slots__ = (
        "_began",
        "_connection",
        "_counters",
        "_deadline_ms",
        "_key",
        "_mode",
        "_parts",
        "_request",
        "_session",
    )

    def __init__(
        self,
        parts: Parts,
        context: Context,
        request: ShareFetchRequest,
        *,
        key: SessionKey,
        mode: AcquireMode,
        session: SessionPartitions,
    ) -> None:
        self._parts = parts
        self._counters = parts.share_partitions.counters
        self._began = self._counters.clock()
        self._connection = OfConnection(context.connection_id)
        self._request = request
        self._deadline_ms = parts.clock.now_ms() + _wait_ms(request)
        self._mode = mode
        self._key = key
        self._session = session
        for topic in self._counters.of_topic_ids(session.topic_ids):
            topic.fetch_count += 1

    def find(self) -> Found | asyncio.Future[Found]:
        """What there is by now, or what will come."""
        self._parts.waiting.serve_woken(self._session)
        found = self.look(last=self._parts.clock.now_ms() >= self._deadline_ms)
        return self.wait() if found is None else found

    def look(self, *, last: bool = False) -> Found | None:
        """Take what there is; None when it is not enough to answer.

        A partition that cannot be used is told of with the next answer, and brings one about only
        when no other is left to wait for: a deleted topic must not make its group ask all the
        time.  What cannot be read is told of at once.
        """
        request, session, found = self._request, self._session, Found()
        if request.max_records <= 0 or request.max_bytes <= 0:
            self._tell_unknown(found.errors)
            return found
        if session.is_over or not self._is_on_connection():
            return found  # Nobody reads the answer: nothing must be locked for it any more.
        for partition in session.doubtful:
            if self._usable(partition, found.errors) is not None:
                session.make_ready(partition)
        bytes_left = min(request.max_bytes, self._parts.config.server.fetch_bytes_max)
        if not (last or self._is_enough(found.errors, min(request.min_bytes, bytes_left))):
            return None
        failed_to_read = self._take(found, bytes_left)
        if not (last or found.records or failed_to_read) and session.any_usable:
            return None
        self._count(found)
        return found

    def look_everywhere(self) -> Found:
        """The last look of a fetch that waited: should a wake-up have been missed, it ends here."""
        self._session.wake_all()
        found = self.look(last=True)
        assert found is not None, "the last look gives an answer"
        return found

    def _is_on_connection(self) -> bool:
        connection_id = str(self._connection.connection_id)
        return self._parts.share_sessions.is_on_connection(self._key, connection_id)

    def _take(self, found: Found, bytes_left: int) -> bool:
        """Lock and read for the partitions whose turn it is; whether one of them failed."""
        session, records_left = self._session, int(self._request.max_records)
        failed_to_read = False
        for _ in range(session.ready_count):
            if records_left <= 0 or bytes_left <= 0:
                break
            partition = session.take_turn()
            live = self._usable(partition, found.errors)
            if live is None:
                continue
            try:
                fetched = self._one(live, records_left, bytes_left)
            except KafkaError as error:
                found.errors[partition] = error
                failed_to_read = True
                session.make_ready(partition)
                continue
            if fetched is not None:
                found.records[partition] = fetched
                records_left -= sum(one.end - one.first for one in fetched.acquired)
                bytes_left -= len(fetched.records)
            if fetched is not None or not self._parts.share_partitions.can_settle(live):
                session.make_ready(partition)  # Nobody tells when a disk works again: who asks.
        return failed_to_read

    def _tell_unknown(self, errors: dict[TopicPartition, KafkaError]) -> None:
        """Who asks for no records is told what is not there; who renews locks is in a hurry."""
        if getattr(self._request, "is_renew_ack", False):
            return
        for partition in self._session:
            try:
                self._parts.topics.identified(*partition)
            except KafkaError as error:
                errors[partition] = error

    def _usable(
        self, partition: TopicPartition, errors: dict[TopicPartition, KafkaError]
    ) -> LiveSharePartition | None:
        """The share partition; None, and doubtful, if ``errors`` says what keeps it from use."""
        try:
            return self._parts.share_partitions.get(
                SharePartitionKey(self._key.group_id, *partition)
            )
        except KafkaError as error:
            errors[partition] = error
            self._session.doubt(partition)
            return None

    def wait(self) -> asyncio.Future[Found]:
        """Look again when records come or are given back, and when the wait is over."""
        watch_count = 2 * len(self._session) + 1
        self._counters.waiting_count += 1
        self._counters.watch_count += watch_count
        answer = self._parts.waiting.park(
            lambda last: self.look_everywhere() if last else self.look(),
            keys=(self._connection, self._key),
            deadline_ms=self._deadline_ms,
        )
        answer.add_done_callback(lambda ended: self._waited(ended, watch_count))
        return answer

    def _waited(self, answer: asyncio.Future[Found], watch_count: int) -> None:
        counters = self._counters
        counters.waiting_count -= 1
        counters.watch_count -= watch_count
        if not answer.cancelled() and answer.exception() is None:
            counters.waits_expired += not answer.result().records

    def _count(self, found: Found) -> None:
        for topic in self._counters.of_topics(found.errors):
            topic.fetch_failed += 1
        if found.records:
            group = self._counters.of_group(self._key.group_id)
            group.fetch_ratio.observe(len(found.records) / len(self._session))
            group.fetch_seconds.observe(self._counters.clock() - self._began)

    def _one(self, live: LiveSharePartition, records_max: int, bytes_max: int) -> Fetched | None:
        wanted = Wanted(records_max, self._request.batch_size, self._mode)
        return self._parts.share_partitions.fetch(
            live,
            self._key.member_id,
            wanted,
            bytes_max=bytes_max,
            sharers=self._parts.share_sessions.group_size(self._key.group_id),
        )

    def _is_enough(self, errors: dict[TopicPartition, KafkaError], bytes_min: int) -> bool:
        """Whether there are so many bytes to fetch, or nothing that could bring them."""
        session, share_partitions = self._session, self._parts.share_partitions
        if bytes_min <= 1 or not session.any_usable:
            return True  # One byte is a record, and a look finds out.
        total = 0
        for partition in session.ready:
            live = self._usable(partition, errors)
            if live is None:
                continue
            try:
                size = share_partitions.available_bytes(live, bytes_max=bytes_min)
            except KafkaError:
                return True  # An error is answered at once.
            total += size
            if total >= bytes_min:
                return True
            if not size and not live.fenced and share_partitions.can_settle(live):
                session.quieten(partition)
        session.watch_ready()
        return not session.any_usable


class _Reply:
    """Puts the two halves together."""

    __slots__ = ("_context", "_key", "_parts", "every_partition")

    def __init__(self, parts: Parts, context: Context, key: SessionKey) -> None:
        self._parts = parts
        self._context = context
        self._key = key
        self.every_partition: tuple[TopicPartition, ...] = ()
        """The reply that opens a session names all its partitions."""

    def of(self, started: share_requests.Started, find: Find) -> Awaitable[Encoded] | Encoded:
        """The response, later if there is anything to wait for."""
        if started.waiting:
            return self._when_durable(started, find)
        outcomes = share_requests.counted(self._parts, started.outcomes)
        found = find()
        if isinstance(found, Found):
            return self._build(outcomes, found)
        return self._later(outcomes, found)

    async def _when_durable(self, started: share_requests.Started, find: Find) -> Encoded:
        outcomes = await share_requests.durable(self._parts, started)
        found = find()
        return self._build(outcomes, found if isinstance(found, Found) else await found)

    async def _later(
        self, outcomes: share_requests.Outcomes, found: asyncio.Future[Found]
    ) -> Encoded:
        return self._build(outcomes, await found)

    def _build(self, acks: share_requests.Outcomes, found: Found) -> Encoded:
        """The response, in bytes: a path where every microsecond counts."""
        errors, node = found.errors, self._parts.node
        named = dict.fromkeys((*self.every_partition, *acks, *found.records, *errors))
        topics: dict[TopicId, list[PartitionAnswer]] = {}
        for partition in named:
            records, acquired = found.records.get(partition, NOTHING)
            answer = PartitionAnswer(partition.partition, records, acquired)
            error, ack_error = errors.get(partition), acks.get(partition)
            if error is not None or ack_error is not None:
                answer = _with_errors(answer, error, ack_error, node)
            topics.setdefault(partition.topic_id, []).append(answer)
        leader_is_news = share_requests.leader_is_news(*acks.values(), *errors.values())
        frame = share_fetch_frame(
            self._context.correlation_id,
            topics,
            lock_ms=self._parts.group_settings.limits(self._key.group_id).lock_ms,
            endpoint=Endpoint(node.node_id, node.host, node.port) if leader_is_news else None,
        )
        return Encoded(frame)


def _with_errors(
    answer: PartitionAnswer, error: KafkaError | None, ack_error: KafkaError | None, node: Node
) -> PartitionAnswer:
    return answer._replace(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else str(error),
        ack_error_code=0 if ack_error is None else ack_error.code,
        ack_error_message=None if ack_error is None else str(ack_error),
        leader_id=node.node_id if share_requests.leader_is_news(error, ack_error) else 0,
    )
