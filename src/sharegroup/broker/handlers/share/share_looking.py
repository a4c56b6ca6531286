"""The fetch part of a ShareFetch request: looks for records, and waits for them.

A look goes through the partitions of the session that may have records, in turn, until it has
enough (`core.sessions.session_partitions`).  A look at many partitions is made in slices
(`broker.load.slices`).
Between two of its steps the session may grow, shrink or end, and partitions may be unloaded, so
each step looks them up again.  Records that it has acquired stay acquired for its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import topic_permission
from sharegroup.broker.handler_contract import RequestContext
from sharegroup.broker.handlers.parts import (
    HasClock,
    HasConfig,
    HasQuotas,
    HasSharePartitions,
    HasShareSessions,
    HasSlices,
    HasTopics,
    HasWaiting,
)
from sharegroup.broker.handlers.share.share_requests import PIECE_PARTITIONS
from sharegroup.broker.load.waiting import WAIT_MS_MAX, OfConnection
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.broker.share.share_reading import FetchedRecords
from sharegroup.core.delivery.delivery import AcquireRequest
from sharegroup.core.sessions.session_partitions import SessionPartitions
from sharegroup.core.sessions.share_session import SessionKey
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey, TopicId, TopicIdPartition
from sharegroup.protocol_enums import AcquireMode
from sharegroup.steps import Steps, paced, run_to_end

if TYPE_CHECKING:
    # The newest version stands for all.  At run time only those that clients use are imported.
    from sharegroup.wire.messages.share_fetch_v2 import ShareFetchRequest

WIDE_PARTITIONS = 128
"""Maximum number of partitions of one look; a look at more is made in slices."""

TOPICS_AT_ONCE = 1_024
"""Maximum number of topics whose counters a fetch updates at once; more are counted in slices."""


class ShareLookingParts(
    HasClock,
    HasConfig,
    HasQuotas,
    HasSharePartitions,
    HasShareSessions,
    HasSlices,
    HasTopics,
    HasWaiting,
    Protocol,
):
    """What these requests touch of the broker."""


@dataclass(slots=True)
class ShareFetchResult:
    """The result of one look at the session's partitions."""

    records: dict[TopicIdPartition, FetchedRecords] = field(default_factory=dict)
    errors: dict[TopicIdPartition, KafkaError] = field(default_factory=dict)
    record_bytes: int = 0
    """The size of the log batches, which MaxBytes limits."""
    sent_bytes: int = 0
    """The size of the part of the answer that has the batches, or lists them."""
    record_count: int = 0
    failed_to_read: bool = False
    """Whether a read of a log failed although its share partition was usable."""
    throttle_ms: int = 0
    """The throttle time, if the client is over its quota and gets no records."""


class Woken(NamedTuple):
    """The wake-up of a fetch of many partitions; ``last`` says that its wait time is over."""

    last: bool


class ShareLook:
    """The fetch of one ShareFetch request: looks for records until there are enough to answer."""

    __slots__ = (
        "_answers",
        "_began",
        "_connection",
        "_context",
        "_counters",
        "_deadline_ms",
        "_is_counted",
        "_is_looking",
        "_key",
        "_mode",
        "_number",
        "_parts",
        "_read",
        "_request",
        "_session",
        "_without_records",
    )

    def __init__(
        self,
        parts: ShareLookingParts,
        context: RequestContext,
        request: ShareFetchRequest,
        *,
        key: SessionKey,
        mode: AcquireMode,
        session: SessionPartitions,
    ) -> None:
        self._parts = parts
        self._context = context
        self._counters = parts.share_partitions.counters
        self._began = self._counters.clock()
        self._answers = context.answers
        self._number = context.request_number
        self._connection = OfConnection(context.connection_id)
        self._request = request
        # Version 1 has no such field.
        self._without_records = getattr(request, "without_records", False)
        self._read = topic_permission(context.rights, required.READ_TOPICS, parts.topics.catalog)
        self._deadline_ms = parts.clock.now_ms() + wait_ms(request)
        self._mode = mode
        self._key = key
        self._session = session
        self._is_looking = False
        """Whether a look in slices is under way."""
        topic_ids = session.topic_ids
        self._is_counted = len(topic_ids) <= TOPICS_AT_ONCE
        """Whether the counters of its topics include this fetch."""
        if self._is_counted:
            for topic in self._counters.of_topic_ids(topic_ids):
                topic.fetch_count += 1

    def find(self) -> ShareFetchResult | Awaitable[ShareFetchResult]:
        """Return the records found now, or an awaitable of records."""
        waiting, session = self._parts.waiting, self._session
        # A member settles and fetches by one request.  Without this, it would always take the room
        # that it has just made, before members that wait for room (`test_share_fairness`).
        if not waiting.serve_woken(session):
            answer = self.wait()  # Parked behind the woken fetches that were not tried yet.
            # Its records may be there already, and then no event would come.
            waiting.wake(self._key)
            return answer
        # MaxWaitMs counts from the arrival of the request, so the sync of its acknowledgements may
        # have used it up.
        last = self._parts.clock.now_ms() >= self._deadline_ms
        if len(session) > WIDE_PARTITIONS and self._is_wide():
            return self._look_in_slices(self._park_wide(), Woken(last))
        result = self.look(last=last)
        return self.wait() if result is None else result

    def _is_wide(self) -> bool:
        """Return whether a look takes long."""
        request, session = self._request, self._session
        # A fetch that asks for no records checks every partition, also the quiet ones.
        takes_nothing = request.max_records <= 0 or request.max_bytes <= 0
        return session.look_count > WIDE_PARTITIONS or takes_nothing or not self._is_counted

    def look(self, *, last: bool = False) -> ShareFetchResult | None:
        """Acquire the available records now; return None if they are not enough to answer."""
        return run_to_end(self._look(last=last))

    def _look(self, *, last: bool) -> Steps[ShareFetchResult | None]:
        """Acquire the available records; return None if they are not enough to answer.

        The error of an unusable partition is part of the next answer.  It causes an answer by
        itself only if no usable partition is left.  Otherwise a deleted topic would make its group
        poll without a pause.  The error of a failed read of a log is answered at once.

        The session may end between two steps.
        """
        request, session, result = self._request, self._session, ShareFetchResult()
        # No record could end its wait, so it is answered at once (spec fetch-7).
        if request.max_records <= 0 or request.max_bytes <= 0:
            yield from self._tell_unknown(result.errors)
            return result
        if session.is_over or not self._is_on_connection():
            return result  # The answer will not be read, so no record must be locked for it.
        # Before any lock: Kafka locks the records and then drops them, which uses up the delivery
        # counts of throttled members (docs/differences.md).
        if self._is_throttled(result):
            return result
        # Tried by each look: a partition that was just added was never looked at, and events do not
        # tell of everything that makes an unusable one usable again.
        if session.any_doubtful:
            yield from self._try_doubtful(result.errors)
        # With min_bytes=1 any record is enough, and the look itself finds out.
        if not (last or request.min_bytes <= 1 or (yield from self._is_enough(result.errors))):
            return None
        bytes_left = self._bytes_left(result)
        if bytes_left <= 0 and not session.is_over:
            # No record must be locked for an answer that has no room.
            self._answers.want(self._key)
            return result if last else None
        yield from self._take_turns(result, bytes_left)
        if session.is_over:
            return ShareFetchResult()  # The records locked in earlier steps were released.
        if not (last or result.records or result.failed_to_read) and session.any_usable:
            return None
        if result.errors:
            yield from self._count_errors(result.errors)
        if result.records:
            self._count_records(result)
        return result

    def _try_doubtful(self, errors: dict[TopicIdPartition, KafkaError]) -> Steps[None]:
        """Make the doubtful partitions ready that can be used again."""
        session = self._session
        for partition, pause in paced(session.doubtful, PIECE_PARTITIONS):
            if self._usable(partition, errors) is not None:
                session.make_ready(partition)
            if pause:
                yield
                if session.is_over:
                    return

    def look_everywhere(self) -> ShareFetchResult:
        """Look at all partitions after the wait time, because a wake-up may have been missed."""
        self._session.wake_all()
        result = self.look(last=True)
        assert result is not None, "the last look gives an answer"
        return result

    def _is_on_connection(self) -> bool:
        """Return whether the session still belongs to this connection."""
        # A member that has connected again has its new session there, while this fetch still waits.
        connection_id = str(self._connection.connection_id)
        return self._parts.share_sessions.is_on_connection(self._key, connection_id)

    def _is_throttled(self, result: ShareFetchResult) -> bool:
        """Return whether the client is over its quota; then it gets no records and locks none."""
        if self._parts.quotas.is_on:
            result.throttle_ms = self._parts.quotas.fetch_throttle_ms(self._context)
        return result.throttle_ms > 0

    def _bytes_left(self, result: ShareFetchResult) -> int:
        """Return how many more bytes of records the answer may have."""
        bytes_max = min(self._request.max_bytes, self._parts.config.server.fetch_bytes_max)
        # The quota counts the records when another process fetches them.  The room applies here,
        # too, because a list of small batches takes about as much memory.
        if self._parts.quotas.is_on and not self._without_records:
            bytes_max = self._parts.quotas.fetch_bytes_max(self._context, bytes_max)
        bytes_left: int = bytes_max - result.record_bytes
        # Without a ready partition the answer has no records, so it need not wait for room.
        if self._session.ready_count:
            return min(bytes_left, self._answers.room(self._number))
        return bytes_left

    def _take(self, result: ShareFetchResult, turns: int, bytes_left: int) -> None:
        """Acquire and read records of the next ``turns`` partitions."""
        session, bytes_before = self._session, result.sent_bytes
        # MaxRecords limits the records of all partitions of a request together (KIP-1206).
        records_left = int(self._request.max_records) - result.record_count
        for _ in range(turns):
            if records_left <= 0 or bytes_left <= 0:
                break
            partition = session.take_turn()
            live = self._usable(partition, result.errors)
            if live is None:
                continue
            try:
                fetched = self._acquire_from(live, records_left, bytes_left)
            except KafkaError as error:
                result.errors[partition] = error.with_traceback(None)
                result.failed_to_read = True
                # Events tell of new records, not of a disk that reads again: each look tries it.
                session.make_ready(partition)
                continue
            if fetched is not None:
                result.records[partition] = fetched
                record_count = sum(acquired.end - acquired.first for acquired in fetched.acquired)
                result.record_count += record_count
                records_left -= record_count
                result.record_bytes += (log_bytes := fetched.log_bytes)
                result.sent_bytes += fetched.sent_bytes
                bytes_left -= log_bytes
            if fetched is not None or not self._parts.share_partitions.can_settle(live):
                session.make_ready(partition)  # No wake-up comes when a disk works again.
        if result.sent_bytes > bytes_before:
            # The whole answer, also of earlier steps: it replaces what they reserved.
            self._answers.reserve(self._number, result.sent_bytes)

    def _take_turns(self, result: ShareFetchResult, bytes_left: int) -> Steps[None]:
        """Give each ready partition one turn, until the answer is full."""
        session = self._session
        turns = session.ready_count
        while turns > 0 and bytes_left > 0 and not session.is_over:
            # Partitions that had records are ready again behind the others, so the turns are those
            # of the beginning.
            self._take(result, min(turns, PIECE_PARTITIONS), bytes_left)
            turns -= PIECE_PARTITIONS
            if turns > 0:
                yield
                turns = min(turns, session.ready_count)  # The session may have shrunk.
                # Asked again: during the pause other answers and requests may have used up the room
                # or the quota.
                bytes_left = self._bytes_left(result)

    def _tell_unknown(self, errors: dict[TopicIdPartition, KafkaError]) -> Steps[None]:
        """Report unknown partitions to a fetch that asks for no records, unless it renews locks.

        A request that renews locks must be answered quickly.
        """
        if getattr(self._request, "is_renew_ack", False):
            return
        for partition, pause in paced(tuple(self._session), PIECE_PARTITIONS):
            try:
                self._check_rights(partition.topic_id)
                self._parts.topics.identified(*partition)
            except KafkaError as error:
                errors[partition] = error.with_traceback(None)
            if pause:
                yield

    def _usable(
        self, partition: TopicIdPartition, errors: dict[TopicIdPartition, KafkaError]
    ) -> LiveSharePartition | None:
        """Return the share partition; if it cannot be used, note the error and return None.

        The partition is then doubtful until it can be used again.
        """
        try:
            self._check_rights(partition.topic_id)
            return self._parts.share_partitions.get(
                SharePartitionKey(self._key.group_id, *partition)
            )
        except KafkaError as error:
            errors[partition] = error.with_traceback(None)
            self._session.doubt(partition)
            return None

    def _check_rights(self, topic_id: TopicId) -> None:
        """Raise TopicAuthorizationFailed if the principal may not read the topic."""
        if self._read is not None and (denial := self._read.denial(topic_id)) is not None:
            raise denial

    def wait(self) -> Awaitable[ShareFetchResult]:
        """Look again when records arrive or are released, and when the wait is over."""
        if len(self._session) > WIDE_PARTITIONS:
            return self._look_in_slices(self._park_wide(), None)
        watch_count = self._begin_to_wait()
        answer = self._parts.waiting.park(
            lambda last: self.look_everywhere() if last else self.look(),
            # Events of partitions wake the key of the session (`Watches`).  The key of the
            # connection ends the wait when it closes (`give_up`).
            keys=(self._connection, self._key),
            deadline_ms=self._deadline_ms,
        )
        answer.add_done_callback(lambda ended: self._waited(ended, watch_count))
        return answer

    def _park_wide(self) -> asyncio.Future[ShareFetchResult | Woken]:
        """Park like `wait`; a wake-up that leaves many partitions is answered with `Woken`."""
        return self._parts.waiting.park(
            self._try_wide, keys=(self._connection, self._key), deadline_ms=self._deadline_ms
        )

    def _try_wide(self, last: bool) -> ShareFetchResult | Woken | None:
        """Look at once if few partitions are to be looked at; otherwise return `Woken`."""
        # During a look in slices the wake-up only ends the wait, so that the look is repeated: a
        # second look must not take turns of the same session in between.
        if last or self._is_looking or self._session.look_count > WIDE_PARTITIONS:
            return Woken(last)
        return self.look()

    async def _look_in_slices(
        self, parked: asyncio.Future[ShareFetchResult | Woken], woken: Woken | None
    ) -> ShareFetchResult:
        """Look in slices whenever there are many partitions to look at, until the connection ends.

        The fetch is parked while it looks, so it misses no wake-up.  If ``woken`` is given, it
        looks first.
        """
        slices, owner = self._parts.slices, self._connection.connection_id
        has_waited = False
        try:
            if not self._is_counted:
                await slices.later(self._count_fetch, owner)
            while True:
                outcome: ShareFetchResult | Woken | None
                if woken is None:
                    watch_count = self._begin_to_wait()
                    try:
                        outcome, has_waited = await parked, True
                    finally:
                        self._end_to_wait(watch_count)
                else:
                    # Only during a wait can a wake-up have been missed.
                    if woken.last and has_waited:
                        self._session.wake_all()
                    self._is_looking = True
                    outcome = await slices.later(partial(self._look, last=woken.last), owner)
                    self._is_looking = False
                if isinstance(outcome, ShareFetchResult):
                    self._counters.waits_expired += has_waited and not outcome.records
                    return outcome
                if isinstance(outcome, Woken):
                    # The wake-up has ended the wait.  Parked again before it looks, so that events
                    # during the look count.
                    parked = self._park_wide()
                woken = outcome
        finally:
            # Otherwise the parked attempt would lock records for an answer that nobody is waiting
            # for.
            parked.cancel()

    def _begin_to_wait(self) -> int:
        """Count a waiting fetch and the keys that it waits for; return the number of keys."""
        # The metric is Kafka's PurgatorySize, where a delayed fetch has two keys for each partition
        # (`SharePartitionManager.processShareFetch`).
        watch_count = 2 * len(self._session) + 1
        self._counters.waiting_count += 1
        self._counters.watch_count += watch_count
        return watch_count

    def _end_to_wait(self, watch_count: int) -> None:
        self._counters.waiting_count -= 1
        self._counters.watch_count -= watch_count

    def _waited(self, answer: asyncio.Future[ShareFetchResult], watch_count: int) -> None:
        """Count a fetch that no longer waits."""
        self._end_to_wait(watch_count)
        # A wait that ended with its connection has not expired.
        if not answer.cancelled() and answer.exception() is None:
            self._counters.waits_expired += not answer.result().records

    def _count_fetch(self) -> Steps[None]:
        """Count the fetch for each topic of its session, in steps because there are many."""
        self._is_counted = True
        for topic_id, pause in paced(tuple(self._session.topic_ids)):
            for topic in self._counters.of_topic_ids((topic_id,)):
                topic.fetch_count += 1
            if pause:
                yield

    def _count_errors(self, errors: dict[TopicIdPartition, KafkaError]) -> Steps[None]:
        """Count the fetch as failed for each topic that has a failed partition."""
        counted: set[TopicId] = set()
        for (topic_id, _), pause in paced(errors):
            if topic_id not in counted:
                counted.add(topic_id)
                for topic in self._counters.of_topic_ids((topic_id,)):
                    topic.fetch_failed += 1
            if pause:
                yield

    def _count_records(self, result: ShareFetchResult) -> None:
        """Count a fetch that returns records."""
        group = self._counters.of_group(self._key.group_id)
        # Kafka's RequestTopicPartitionsFetchRatio, but of the partitions that had records
        # (docs/differences.md).
        group.fetch_ratio.observe(len(result.records) / len(self._session))
        group.fetch_seconds.observe(self._counters.clock() - self._began)

    def _acquire_from(
        self, live: LiveSharePartition, records_max: int, bytes_max: int
    ) -> FetchedRecords | None:
        """Acquire and read records of one share partition; None if there is nothing to take."""
        acquire_request = AcquireRequest(
            records_max, self._request.batch_size, self._mode, self._without_records
        )
        return self._parts.share_partitions.fetch(
            live,
            self._key.member_id,
            acquire_request,
            bytes_max=bytes_max,
            sharers=self._parts.share_sessions.group_size(self._key.group_id),
        )

    def _is_enough(self, errors: dict[TopicIdPartition, KafkaError]) -> Steps[bool]:
        """Return whether at least the requested minimum of bytes is available, or none can come."""
        session, share_partitions = self._session, self._parts.share_partitions
        if session.is_over or not session.any_usable:
            return True
        request, server = self._request, self._parts.config.server
        # An answer never has more bytes, so a larger MinBytes would never be reached (spec
        # fetch-40).
        bytes_min = min(request.min_bytes, request.max_bytes, server.fetch_bytes_max)
        if bytes_min <= 1:
            return True
        total = 0
        for partition, pause in paced(session.ready, PIECE_PARTITIONS):
            if pause:
                yield
                if session.is_over:
                    return True
            live = self._usable(partition, errors)
            if live is None:
                continue
            try:
                # Measured in the log without acquiring: a fetch that goes on waiting must not hold
                # locks.
                size = share_partitions.available_bytes(live)
            except KafkaError:
                return True  # An error is answered at once.
            total += size
            if total >= bytes_min:
                return True
            # A fenced share partition has had its event already, and no event tells that the disk
            # takes writes again: these stay ready.
            if not size and not live.fenced and share_partitions.can_settle(live):
                session.quieten(partition)
        # The ready partitions have records, but too few: more of them must wake this fetch, too.
        return (yield from self._watch_ready())

    def _watch_ready(self) -> Steps[bool]:
        """Watch the ready partitions, too; return whether no partition can bring records."""
        session = self._session
        for partition, pause in paced(session.ready):
            session.watch(partition)
            if pause:
                yield
                if session.is_over:
                    return True
        return not session.any_usable


def wait_ms(request: ShareFetchRequest) -> int:
    """Return how many milliseconds the request may wait."""
    # A negative time means no wait; each parked request costs memory, so its wait has a limit.
    return min(max(0, request.max_wait // timedelta(milliseconds=1)), WAIT_MS_MAX)
