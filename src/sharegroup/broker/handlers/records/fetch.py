"""Fetch (1): returns record batches from given offsets on, for consumers without a share group.

Whole batches are sent as they lie in the log, beginning with the batch that contains the offset.
The response ends below the high watermark.  For a client that reads only committed records, it ends
below the last stable offset and lists aborted transactions, whose records the client skips.  A
request without enough records waits until there are ``min_bytes`` or its time is up.
`sharegroup.core.sessions.fetch_session` implements sessions (KIP-227).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import is_allowed_on_cluster, topic_permission
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    Result,
    error_code,
    milliseconds,
)
from sharegroup.broker.handlers.parts import (
    HasClock,
    HasConfig,
    HasFetchSessions,
    HasQuotas,
    HasSlices,
    HasTopics,
    HasWaiting,
)
from sharegroup.broker.load.waiting import WAIT_MS_MAX, OfConnection, Parked
from sharegroup.core.sessions.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchKey,
    FetchPlan,
    FetchSender,
    ReportedOffsets,
    RequestedPartition,
)
from sharegroup.errors import (
    AuthorizationException,
    KafkaError,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
)
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.steps import Steps, paced, run_to_end
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.codec.apis import response_module

if TYPE_CHECKING:
    # The newest version stands for all.  At run time only those that clients use are imported.
    from kio.schema.fetch.v18.request import FetchRequest
    from kio.schema.fetch.v18.response import FetchResponse

TOPIC_ID_VERSION = 13
ERROR_VERSION = 7
NO_WAIT = timedelta(0)
ZERO_ID = UUID(int=0)
LOG_START_VERSION = 5
READ_COMMITTED = 1

PARTITION_BYTES = 40
"""The approximate size of a partition in a response, without its records; it counts for quotas."""

PARTITIONS_FREE = 8
"""Partitions that a fetch may wait for without reserving more memory than its request has."""

WIDE_PARTITIONS = 128
"""Fetches of more partitions are served in slices."""

PIECE_PARTITIONS = 16
"""Partitions between two steps."""

WAITING_PARTITION_BYTES = 512
"""Approximate memory of a waiting fetch for each of its partitions, in bytes."""

Answers = dict[UUID | str, list[Any]]
"""The partitions of a response, by topic id or topic name."""

Aborted = tuple[tuple[int, int], ...]
"""Aborted transactions: producer id and first offset of each."""


class FetchParts(
    HasClock, HasConfig, HasFetchSessions, HasQuotas, HasSlices, HasTopics, HasWaiting, Protocol
):
    """What these requests touch of the broker."""


class Read(NamedTuple):
    """The result of reading one partition."""

    error: KafkaError | None
    high_watermark: int
    last_stable_offset: int
    start_offset: int
    records: bytes
    aborted: Aborted | None
    """None if the client also reads uncommitted records."""


def handle(
    parts: FetchParts, context: RequestContext, request: FetchRequest
) -> Steps[Result[FetchResponse]]:
    named: dict[FetchKey, RequestedPartition] = {}
    for (key, partition), pause in paced(_named(request)):
        named[key] = partition
        if pause:
            yield
    epoch = getattr(request, "session_epoch", FINAL_EPOCH)
    if epoch == INITIAL_EPOCH and parts.quotas.is_on:
        throttle_ms = parts.quotas.fetch_throttle_ms(context)
        if throttle_ms:
            # Without a session: the client would expect every partition of a new one.
            return _messages(request.__version__).response(NO_SESSION, {}, throttle_ms)
    # Before a throttled request is answered, because it has to use up the epoch of its session, as
    # in Kafka (`getThrottledResponse` in `FetchContext.java`).
    plan = parts.fetch_sessions.plan(
        getattr(request, "session_id", 0),
        epoch,
        sender=FetchSender(
            context.connection_id,
            context.limited_user,
            uses_topic_ids=request.__version__ >= TOPIC_ID_VERSION,
        ),
        named=named,
        forgotten=_forgotten(request),
        now_ms=parts.clock.now_ms(),
    )
    fetch = _Fetch(parts, context, request, plan)
    if len(plan.partitions) > WIDE_PARTITIONS:
        return Later(fetch.in_slices())
    response = fetch.look(last=request.max_wait <= NO_WAIT)
    # Without memory for the wait, it is answered at once with what there is.
    if response is None and not fetch.may_wait():
        response = fetch.look(last=True)
    return response if response is not None else Later(fetch.wait())


def refuse(request: FetchRequest, error: KafkaError) -> FetchResponse:
    messages = _messages(request.__version__)
    fields: dict[str, Any] = {"throttle_time": NO_THROTTLE, "responses": ()}
    if request.__version__ >= ERROR_VERSION:
        fields["error_code"] = error_code(error)
    response: FetchResponse = messages.FetchResponse(**fields)
    return response


Denials = Callable[[UUID | str], AuthorizationException | None]


def _denials(topics: Topics, context: RequestContext, request: FetchRequest) -> Denials | None:
    """Return a function that returns the error for a topic that the principal may not read.

    The result is None if the principal may read every topic.
    """
    rights = context.rights
    permission = topic_permission(rights, required.READ_TOPICS, topics.catalog)
    if permission is None or not _is_replica(request):
        return None if permission is None else permission.denial
    # As in `KafkaApis.handleFetchRequest`: replication needs one right for all topics.
    if is_allowed_on_cluster(rights, required.CLUSTER_ACTION):
        return None
    return lambda _: TopicAuthorizationFailed(
        "a fetch of a replica needs CLUSTER_ACTION on the cluster, and no ACL allows that to this "
        "user"
    )


def _is_replica(request: FetchRequest) -> bool:
    """Return whether the fetch has the node id of a broker, as replication has."""
    replica: Any = getattr(request, "replica_state", request)  # Since version 15 it is a struct.
    return bool(replica.replica_id >= 0)


class _Fetch:
    """One request, answered at once or when enough records are visible.

    While it waits, it keeps the number of readable bytes of each partition and measures only
    partitions that were woken.  Records are read once, for the response.
    """

    __slots__ = (
        "_answers",
        "_bytes_max",
        "_committed_only",
        "_connection",
        "_context",
        "_denial",
        "_failed",
        "_keys",
        "_number",
        "_parts",
        "_plan",
        "_request",
        "_sizes",
        "_total",
    )

    def __init__(
        self, parts: FetchParts, context: RequestContext, request: FetchRequest, plan: FetchPlan
    ) -> None:
        self._parts = parts
        self._context = context
        self._answers = context.answers
        self._number = context.request_number
        self._connection = OfConnection(context.connection_id)
        self._request = request
        self._denial = _denials(parts.topics, context, request)
        self._committed_only = getattr(request, "isolation_level", 0) == READ_COMMITTED
        self._plan = plan
        self._bytes_max: int | None = None
        """Limit of the whole response in bytes; None until it is first needed."""
        self._keys: dict[TopicIdPartition, FetchKey] = {}
        self._sizes: dict[FetchKey, int] = {}
        self._total = 0
        self._failed = False

    def look(self, *, last: bool) -> FetchResponse | None:
        """Return the response, or None while there are too few bytes for one."""
        return run_to_end(self._look(last=last))

    def _look(self, *, last: bool) -> Steps[FetchResponse | None]:
        if self._parts.quotas.is_on and (throttled := self._throttled()) is not None:
            return throttled
        # With min_bytes=1 any record is enough, and reading finds out.
        if not last and self._request.min_bytes > 1:
            yield from self._measure_all()
            if not self._is_enough():
                return None
        return (yield from self._answer(last=last))

    def _throttled(self) -> FetchResponse | None:
        """Return an empty response if the client is over its quota of bytes, otherwise None."""
        throttle_ms = self._parts.quotas.fetch_throttle_ms(self._context)
        if not throttle_ms:
            return None
        # If the request has opened the session, the client did not get its partitions.
        session_id = self._plan.session_id if self._plan.incremental else NO_SESSION
        return _messages(self._request.__version__).response(session_id, {}, throttle_ms)

    def _answer(self, *, last: bool) -> Steps[FetchResponse | None]:
        """Read the partitions and return the response, or None if the fetch has to wait."""
        reading = self._begin(last=last)
        if reading is None:
            if not self._keys:
                yield from self._measure_all()
            return None
        yield from self._read_all(reading)
        if reading.total:
            self._answers.reserve(self._number, reading.total)
        elif not (last or self._may_be_empty(reading)):
            # Every partition was read and had nothing, so none has a size until it is woken.
            return None
        return self._respond((yield from self._news(reading)), reading)

    def may_wait(self) -> bool:
        """Reserve the memory of a waiting fetch; return False if there is not enough."""
        if len(self._plan.partitions) <= PARTITIONS_FREE:
            return True
        waiting_bytes = len(self._plan.partitions) * WAITING_PARTITION_BYTES
        if waiting_bytes > self._answers.room(self._number):
            return False
        self._answers.reserve(self._number, waiting_bytes)
        return True

    def wait(self) -> asyncio.Future[FetchResponse]:
        """Park the fetch; it is tried again when it may have enough bytes, and at its deadline."""
        wait_ms = self._request.max_wait // timedelta(milliseconds=1)
        return self._parts.waiting.park(
            self._attempt,
            keys=(self._connection, *self._keys),
            deadline_ms=self._parts.clock.now_ms() + min(max(0, wait_ms), WAIT_MS_MAX),
            woken=self._woken,
        )

    async def in_slices(self) -> FetchResponse:
        """Serve a fetch of many partitions in slices, and wait if it has too few bytes.

        The work ends when the connection closes.
        """
        parts, owner = self._parts, self._connection.connection_id
        wait_ms = self._request.max_wait // timedelta(milliseconds=1)
        deadline_ms = parts.clock.now_ms() + min(max(0, wait_ms), WAIT_MS_MAX)
        last, is_reserved, tried_again = wait_ms <= 0, False, False
        while True:
            response = await parts.slices.later(partial(self._look, last=last), owner)
            if response is not None:
                return response
            is_reserved = is_reserved or self.may_wait()
            if not is_reserved:
                last = True
                continue
            parked = parts.waiting.park_open(
                # The answer says whether the time is up; the records are read in slices afterwards.
                lambda ended: ended if ended or self._is_enough() else None,
                keys=(self._connection,),
                deadline_ms=deadline_ms,
                woken=self._woken,
            )
            await parts.slices.later(partial(self._watch, parked), owner)
            if self._is_enough() and self._answers.room(self._number) > 0 and not tried_again:
                # Once only: if the look reads less than was measured, another try would run in a
                # circle.
                tried_again = True  # New records arrived while partitions were measured.
                parked.answer.cancel()
                continue
            last, tried_again = await parked.answer, False

    def _watch(self, parked: Parked[bool]) -> Steps[None]:
        """Watch all known partitions, and measure each again so that no new record is missed."""
        for (log_key, key), pause in paced(list(self._keys.items()), PIECE_PARTITIONS):
            self._parts.waiting.watch(parked, log_key)
            self._measure(key)
            if pause:
                yield

    def _attempt(self, last: bool) -> FetchResponse | None:
        if not (last or self._is_enough()):
            return None
        if self._parts.quotas.is_on and (throttled := self._throttled()) is not None:
            return throttled
        return run_to_end(self._answer(last=last))

    def _woken(self, log_key: Hashable) -> None:
        """Measure a woken partition; the connection's own key only signals room for a response."""
        key = self._keys.get(log_key)  # type: ignore[call-overload]
        if key is not None:
            self._measure(key)

    def _measure(self, key: FetchKey) -> None:
        """Update the number of bytes that a partition has for this fetch."""
        try:
            log, end = self._readable(key, partition := self._plan.partitions[key])
            size = 0
            if partition.fetch_offset < end:
                # At least 1, because the first batch of a response is sent even above the limit
                # (KIP-74).
                size = min(
                    max(1, partition.bytes_max), log.bytes_from(partition.fetch_offset, end=end)
                )
        except KafkaError:
            self._failed = True  # A response is due at once and will contain the error.
            return
        self._total += size - self._sizes.get(key, 0)
        self._sizes[key] = size

    def _measure_all(self) -> Steps[None]:
        for key, pause in paced(self._plan.partitions, PIECE_PARTITIONS):
            self._measure(key)
            if pause:
                yield

    def _is_enough(self) -> bool:
        # The error of a partition is answered at once, and nothing could wake a fetch without
        # partitions.
        if self._failed or not self._plan.partitions or self._request.min_bytes <= 0:
            return True
        bytes_min: int = self._request.min_bytes
        if self._bytes_max is None:
            # A response never has more, so a larger min_bytes would never be reached.
            self._bytes_max = min(
                self._request.max_bytes,
                self._parts.config.server.fetch_bytes_max,
                sum(partition.bytes_max for partition in self._plan.partitions.values()),
            )
        return self._total >= min(max(1, self._bytes_max), bytes_min)

    def _begin(self, *, last: bool) -> _Reads | None:
        """Return a reading with its limit in bytes, or None if the fetch must wait for room."""
        room = self._answers.room(self._number)
        if room <= 0 and not last:
            self._answers.want(self._connection)
            return None
        server_bytes = self._parts.config.server.fetch_bytes_max
        bytes_max = min(self._request.max_bytes, server_bytes, room)
        if self._parts.quotas.is_on:
            bytes_max = self._parts.quotas.fetch_bytes_max(self._context, bytes_max)
        # Without room, the last look reads nothing, not even one large batch.
        return _Reads(bytes_max, has_room=room > 0)

    def _read_all(self, reading: _Reads) -> Steps[None]:
        for (key, partition), pause in paced(self._plan.partitions.items(), PIECE_PARTITIONS):
            limit = min(partition.bytes_max, reading.bytes_max - reading.total)
            # The first batch is sent whole whatever its size, so a consumer can get past it.
            whole = reading.total == 0 and reading.has_room
            read = self._read(key, partition, bytes_max=limit, whole_batch=whole)
            reading.reads.append((key, read))
            reading.total += len(read.records)
            if read.error is not None:
                reading.failed = True
            if pause:
                yield

    def _may_be_empty(self, reading: _Reads) -> bool:
        """Whether a response without records is due already."""
        return reading.failed or not reading.reads or self._request.min_bytes <= 0

    def _log(self, key: FetchKey) -> PartitionLog:
        topic, partition = key
        if self._denial is not None and (denial := self._denial(topic)) is not None:
            raise denial
        if isinstance(topic, UUID):
            return self._parts.topics.identified(TopicId(topic), partition)[1]
        return self._parts.topics.named(TopicName(topic), partition)[1]

    def _readable(self, key: FetchKey, partition: RequestedPartition) -> tuple[PartitionLog, int]:
        """Return the log of a partition, and the offset below which this fetch may read."""
        log = self._log(key)
        # Noted for `wait`: an event names a log by topic id, a request may name its topic by name.
        self._keys[log.key] = key
        self._parts.topics.check_leader_epoch(log.key, partition.leader_epoch)
        # The end and not the high watermark, as in `LocalLog.read`: an offset whose record is not
        # durable yet is not out of range; the fetch waits for it.
        if not log.start_offset <= partition.fetch_offset <= log.end_offset:
            raise OffsetOutOfRange(
                f"{key[0]}-{key[1]}: offset {partition.fetch_offset} is outside the log, which "
                f"holds {log.start_offset} to {log.high_watermark}"
            )
        return log, log.last_stable_offset if self._committed_only else log.high_watermark

    def _read(
        self, key: FetchKey, partition: RequestedPartition, *, bytes_max: int, whole_batch: bool
    ) -> Read:
        offset = partition.fetch_offset
        try:
            log, end = self._readable(key, partition)
            records = b""
            if offset < end and (bytes_max > 0 or whole_batch):
                records = log.read(offset, end=end, bytes_max=max(0, bytes_max))
                # The log returns at least one batch, however large, but only the first batch of a
                # response may exceed the limit (KIP-74).
                if len(records) > bytes_max and not whole_batch:
                    records = b""
            aborted = _aborted(log, offset, end, records) if self._committed_only else None
        except KafkaError as error:
            # The traceback refers to this frame, so keeping it would make a reference cycle.
            return Read(error.with_traceback(None), -1, -1, -1, b"", None)
        stable = log.last_stable_offset
        return Read(None, log.high_watermark, stable, log.start_offset, records, aborted)

    def _news(self, reading: _Reads) -> Steps[Answers]:
        """Return the partitions of the response; if it is incremental, only those with changes."""
        topics: Answers = {}
        messages = _messages(self._request.__version__)
        sessions, session_id = self._parts.fetch_sessions, self._plan.session_id
        for (key, read), pause in paced(reading.reads, PIECE_PARTITIONS):
            # Called even if the partition is returned anyway, because it stores what the response
            # reports.
            news = session_id != NO_SESSION and sessions.news(
                session_id, key, ReportedOffsets(read.high_watermark, read.start_offset)
            )
            if news or read.records or read.error or not self._plan.incremental:
                topics.setdefault(key[0], []).append(messages.partition(key[1], read))
            if pause:
                yield
        return topics

    def _respond(self, topics: Answers, reading: _Reads) -> FetchResponse:
        session_id = self._plan.session_id
        if session_id != NO_SESSION:
            # The next response begins with the others, so no partition starves.
            returned = [key for key, read in reading.reads if read.records]
            self._parts.fetch_sessions.records_returned(session_id, returned)
        throttle_ms = 0
        if self._parts.quotas.is_on:
            size = reading.total + PARTITION_BYTES * sum(map(len, topics.values()))
            throttle_ms = self._parts.quotas.fetched(self._context, size)
        return _messages(self._request.__version__).response(session_id, topics, throttle_ms)


@dataclass(slots=True)
class _Reads:
    """The reads of one response: at most ``bytes_max``, or one larger batch if `has_room`."""

    bytes_max: int
    has_room: bool
    reads: list[tuple[FetchKey, Read]] = field(default_factory=list)
    total: int = 0
    failed: bool = False


class _Messages:
    """Builds responses of one version from its response classes."""

    def __init__(self, version: int) -> None:
        module = response_module(1, version)
        self.FetchResponse = module.FetchResponse
        self._topic = module.FetchableTopicResponse
        self._partition = module.PartitionData
        self._aborted = getattr(module, "AbortedTransaction", None)
        self._version = version

    def partition(self, index: int, read: Read) -> Any:
        error, high_watermark, last_stable_offset, start_offset, records, aborted = read
        start = {"log_start_offset": start_offset} if self._version >= LOG_START_VERSION else {}
        return self._partition(
            partition_index=index,
            error_code=ErrorCode.none if error is None else error_code(error),
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            aborted_transactions=None if aborted is None else self._transactions(aborted),
            records=records,
            **start,
        )

    def _transactions(self, aborted: Aborted) -> tuple[Any, ...] | None:
        if self._aborted is None:
            return None
        return tuple(
            self._aborted(producer_id=producer_id, first_offset=first)
            for producer_id, first in aborted
        )

    def response(self, session_id: int, topics: Answers, throttle_ms: int = 0) -> FetchResponse:
        topic_field = "topic_id" if self._version >= TOPIC_ID_VERSION else "topic"
        responses = tuple(
            self._topic(**{topic_field: topic, "partitions": tuple(partitions)})
            for topic, partitions in topics.items()
        )
        fields: dict[str, Any] = {
            "throttle_time": milliseconds(throttle_ms) if throttle_ms else NO_THROTTLE,
            "responses": responses,
        }
        if self._version >= ERROR_VERSION:
            fields |= {"error_code": ErrorCode.none, "session_id": session_id}
        response: FetchResponse = self.FetchResponse(**fields)
        return response


@cache
def _messages(version: int) -> _Messages:
    return _Messages(version)


def _named(request: FetchRequest) -> Iterator[tuple[FetchKey, RequestedPartition]]:
    """Yield the partitions of a request; a missing topic id is the zero UUID."""
    for topic in request.topics:
        name = topic.topic if hasattr(topic, "topic") else topic.topic_id or ZERO_ID
        for partition in topic.partitions:
            requested_partition = RequestedPartition(
                partition.fetch_offset,
                partition.partition_max_bytes,
                getattr(partition, "current_leader_epoch", -1),
            )
            yield (name, partition.partition), requested_partition


def _forgotten(request: FetchRequest) -> list[FetchKey]:
    if not hasattr(request, "forgotten_topics_data"):
        return []
    return [
        (topic.topic if hasattr(topic, "topic") else topic.topic_id or ZERO_ID, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


def _aborted(log: PartitionLog, offset: int, end: int, records: bytes) -> Aborted:
    """Return the aborted transactions that overlap the records that were read."""
    transactions = log.aborted_transactions(offset, end) if records else ()
    if not transactions:
        return ()  # Without transactions, the end of the records need not be found.
    end = max(header.end_offset for _, header in scan(records))
    # Transactions that begin behind the returned records concern only later responses (KIP-98).
    return tuple((producer_id, first) for producer_id, first, _ in transactions if first < end)


SERVED = {
    1: ApiHandler(
        handle,
        refuse,
        handling=Handling.CHANGES_IN_STEPS,
        checks=(required.READ_TOPICS, required.CLUSTER_ACTION),
        is_native=True,
    )
}
