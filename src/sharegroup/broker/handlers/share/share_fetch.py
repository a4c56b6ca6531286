"""ShareFetch (78): processes acknowledgements, then acquires and returns records.

The two halves are independent: a failed acknowledgement never fails the fetch.  Acknowledgements
are decided at once, before the next request is handled.  The reply waits until they are durable,
and records are acquired only then.  So records that the same sync made durable are in this response
instead of the next one.  If there are no records, the reply waits for them (KIP-932 «Fetching and
acknowledging»).

A request that renews locks fetches nothing.  If it waited for records, the renewed locks could end
before its response came (KIP-1222).

A client that is over its quota of bytes gets no records and locks none.  It is answered at once,
with its throttle time and with the results of its acknowledgements.

The cost of a fetch depends on the records that it returns, not on the number of partitions in its
session.  It checks in turn only partitions that may have records, until it has enough
(`session_partitions`).  Checks of many partitions and large requests run in slices
(`broker.load.slices`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NoReturn, Protocol

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import topic_permission
from sharegroup.broker.handler_contract import ApiHandler, Encoded, Handling, Later, RequestContext
from sharegroup.broker.handlers.parts import HasGroupSettings, HasNode
from sharegroup.broker.handlers.share import share_requests
from sharegroup.broker.handlers.share.share_looking import (
    WIDE_PARTITIONS,
    ShareFetchResult,
    ShareLook,
    ShareLookingParts,
    wait_ms,
)
from sharegroup.broker.handlers.share.share_requests import ShareRequestsParts
from sharegroup.broker.load.waiting import OfConnection
from sharegroup.broker.parts import Node
from sharegroup.broker.share.share_reading import FetchedRecords
from sharegroup.core.sessions.share_session import Closed, Fetching, SessionKey
from sharegroup.errors import InvalidRequest, KafkaError, ShareSessionLimitReached
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.protocol_enums import ACQUIRE_MODE_CODES, AcquireMode
from sharegroup.steps import STEP_MASK, Steps, run_to_end
from sharegroup.wire.codec.share_fetch_answer import (
    LeaderEndpoint,
    PartitionAnswer,
    share_fetch_frame,
)

if TYPE_CHECKING:
    # The newest version stands for all.  At run time only those that clients use are imported.
    from sharegroup.wire.messages.share_fetch_v2 import ShareFetchRequest

ACQUIRE_MODES = {code: mode for mode, code in ACQUIRE_MODE_CODES.items()}

NOTHING = FetchedRecords(b"", ())

PARTITION_BYTES = 60
"""The approximate size of a partition in a response, without its records; it counts for quotas."""

Find = Callable[[], ShareFetchResult | Awaitable[ShareFetchResult]]
"""Returns the acquired records, or an awaitable if it has to wait for them."""


class ShareFetchParts(ShareLookingParts, ShareRequestsParts, HasGroupSettings, HasNode, Protocol):
    """What these requests touch of the broker."""


def handle(
    parts: ShareFetchParts, context: RequestContext, request: ShareFetchRequest
) -> Steps[Encoded | Later[Encoded]]:
    """Decide the acknowledgements, then fetch; each partition is decided on its own.

    The error for too many sessions is sent only after the wait time of the request, because clients
    retry it at once.
    """
    key = share_requests.session_key(request.group_id, request.member_id)
    read = topic_permission(context.rights, required.READ_TOPICS, parts.topics.catalog)
    sender = share_requests.Acknowledger(key, read)
    # These checks come before the session, because a request that is refused as a whole must not
    # use up an epoch.
    mode = _acquire_mode(request, key)
    renewing = getattr(request, "is_renew_ack", False)  # Version 1 has no such field.
    if renewing:
        _check_fetches_nothing(request, key)
    named, acks = yield from share_requests.named_partitions(request)
    forgotten = yield from _forgotten(request)
    try:
        outcome = parts.share_sessions.fetch(
            key,
            request.share_session_epoch,
            connection_id=str(context.connection_id),
            partitions=named,
            forgotten=forgotten,
            has_acks=bool(acks),
            user=context.limited_user,
        )
    except ShareSessionLimitReached as error:
        return Later(_refuse_later(parts, context, request, error))
    closed: Closed | None = None
    if isinstance(outcome, Closed):
        closed = outcome
    else:
        # Before the first pause, because the steps may end there with the connection: the sessions
        # are closed already, so nothing else would release their records.
        _release_evicted(parts, outcome)
        yield from outcome.partitions.fill(named, forgotten)
    started = yield from share_requests.start(parts, sender, acks, renewing=renewing, closed=closed)
    reply = _Reply(parts, context, key)
    if isinstance(outcome, Closed):
        # After the acknowledgements, which need the locks.  As in Kafka, the result of this release
        # is in no response, so the reply does not wait for it.
        share_requests.release(parts, outcome)
        # The class itself makes an empty result: a request that closes its session fetches nothing.
        return reply.of(started, ShareFetchResult)
    session = outcome.partitions
    fetch = ShareLook(parts, context, request, key=key, mode=mode, session=session)
    if outcome.opened:
        # A copy, because the session may change while the reply waits.  As in Kafka's
        # `ShareSessionContext`, only later responses leave out partitions without news.
        reply.every_partition = tuple(session)
        parts.waiting.wake(key)  # A fetch of the previous session need not wait any longer.
    return reply.of(started, fetch.find)


def _release_evicted(parts: ShareFetchParts, outcome: Fetching) -> None:
    """Release the records of sessions that were closed to make room."""
    for evicted in outcome.evicted:
        parts.share_partitions.counters.sessions_lost += 1
        share_requests.release(parts, evicted)


def _acquire_mode(request: ShareFetchRequest, key: SessionKey) -> AcquireMode:
    code = getattr(request, "share_acquire_mode", 0)  # Version 1 has no such field.
    mode = ACQUIRE_MODES.get(code)
    if mode is None:
        raise InvalidRequest(
            f"group {key.group_id!r} member {key.member_id!r}: ShareAcquireMode is {code}; known "
            "are 0 (batch_optimized) and 1 (record_limit)"
        )
    return mode


def _check_fetches_nothing(request: ShareFetchRequest, key: SessionKey) -> None:
    limits = {
        "MaxBytes": request.max_bytes,
        "MinBytes": request.min_bytes,
        "MaxRecords": request.max_records,
        "MaxWaitMs": request.max_wait // timedelta(milliseconds=1),
    }
    wrong = ", ".join(f"{name}={value}" for name, value in limits.items() if value != 0)
    if wrong:
        raise InvalidRequest(
            f"group {key.group_id!r} member {key.member_id!r}: a request with IsRenewAck=true "
            f"fetches nothing, so these must be 0: {wrong}"
        )


def _forgotten(request: ShareFetchRequest) -> Steps[list[TopicIdPartition]]:
    forgotten: list[TopicIdPartition] = []
    for topic in request.forgotten_topics_data:
        # No topic has the zero id, so a partition without a topic id is one that the session does
        # not have.
        topic_id = TopicId(topic.topic_id or share_requests.ZERO_ID)
        for partition in topic.partitions:
            forgotten.append(TopicIdPartition(topic_id, partition))
            if len(forgotten) & STEP_MASK == 0:
                yield
    return forgotten


async def _refuse_later(
    parts: ShareFetchParts, context: RequestContext, request: ShareFetchRequest, error: KafkaError
) -> NoReturn:
    """Raise the error after the request's maximum wait, or clients would retry in a hot loop."""
    deadline_ms = parts.clock.now_ms() + wait_ms(request)
    await parts.waiting.park(
        lambda last: last or None,
        # The wait ends with the connection.
        keys=(OfConnection(context.connection_id),),
        deadline_ms=deadline_ms,
    )
    raise error


class _Reply:
    """Builds the response from the outcomes of acknowledgements and the acquired records."""

    __slots__ = ("_context", "_key", "_parts", "every_partition")

    def __init__(self, parts: ShareFetchParts, context: RequestContext, key: SessionKey) -> None:
        self._parts = parts
        self._context = context
        self._key = key
        self.every_partition: tuple[TopicIdPartition, ...] = ()
        """All partitions of a session that the request opened; its first response names them."""

    def of(self, started: share_requests.Started, find: Find) -> Encoded | Later[Encoded]:
        """Return the response, now or later if writes or records are awaited."""
        if started.waiting:
            return Later(self._when_durable(started, find))
        outcomes = share_requests.counted(self._parts, started.outcomes)
        fetched = find()
        if isinstance(fetched, ShareFetchResult) and not self._is_wide(outcomes, fetched):
            return run_to_end(self._build(outcomes, fetched))
        return Later(self._later(outcomes, fetched))

    async def _when_durable(self, started: share_requests.Started, find: Find) -> Encoded:
        outcomes = await share_requests.durable(self._parts, started)
        # The session may have ended meanwhile; then nothing is found, and nothing is locked.
        fetched = find()
        return await self._later(outcomes, fetched)

    async def _later(
        self,
        outcomes: share_requests.AcknowledgementErrors,
        fetched: Awaitable[ShareFetchResult] | ShareFetchResult,
    ) -> Encoded:
        fetched = fetched if isinstance(fetched, ShareFetchResult) else await fetched
        if not self._is_wide(outcomes, fetched):
            return run_to_end(self._build(outcomes, fetched))
        steps = partial(self._build, outcomes, fetched)
        return await self._parts.slices.later(steps, self._context.connection_id)

    def _is_wide(
        self, outcomes: share_requests.AcknowledgementErrors, fetched: ShareFetchResult
    ) -> bool:
        """Return whether the response has so many partitions that it is built in slices."""
        return len(self.every_partition) + len(outcomes) + len(fetched.errors) > WIDE_PARTITIONS

    def _build(
        self, acks: share_requests.AcknowledgementErrors, fetched: ShareFetchResult
    ) -> Steps[Encoded]:
        """Return the encoded response; this is a hot path."""
        errors, node = fetched.errors, self._parts.node
        named: set[TopicIdPartition] = set()
        topics: dict[TopicId, list[PartitionAnswer]] = {}
        leader_is_news = False
        # A partition may be in several of them, but must be in the response once.
        candidates = chain(self.every_partition, acks, fetched.records, errors)
        for count, partition in enumerate(candidates, 1):
            if partition not in named:
                named.add(partition)
                records, acquired, batches = fetched.records.get(partition, NOTHING)
                answer = PartitionAnswer(partition.partition, records, acquired, batches=batches)
                # Most answers have no errors, and most partitions are in one of the two.
                error = errors.get(partition) if errors else None
                ack_error = acks.get(partition) if acks else None
                if error is not None or ack_error is not None:
                    answer = _with_errors(answer, error, ack_error, node)
                    leader_is_news |= share_requests.leader_is_news(error, ack_error)
                topics.setdefault(partition.topic_id, []).append(answer)
            if count & STEP_MASK == 0:
                yield
        steps = share_fetch_frame(
            self._context.correlation_id,
            topics,
            # KIP-1222: the group's lock duration may change at any time, and members learn it here.
            lock_ms=self._parts.group_settings.limits(self._key.group_id).lock_ms,
            throttle_ms=self._throttle_ms(fetched) if self._parts.quotas.is_on else 0,
            endpoint=LeaderEndpoint(node.node_id, node.host, node.port) if leader_is_news else None,
        )
        return Encoded((yield from steps))

    def _throttle_ms(self, fetched: ShareFetchResult) -> int:
        """Count the bytes of the response; return its throttle time."""
        quotas, context = self._parts.quotas, self._context
        size = fetched.sent_bytes + PARTITION_BYTES * len(fetched.records)
        # The empty answer of a throttled client does not count for its quota, as in Kafka
        # (`unrecordQuotaSensor`).  Of the two throttle times the longer one is sent.
        throttle_ms = fetched.throttle_ms or quotas.fetched(context, size)
        return max(throttle_ms, quotas.request_throttle_ms(context))


def _with_errors(
    answer: PartitionAnswer, error: KafkaError | None, ack_error: KafkaError | None, node: Node
) -> PartitionAnswer:
    return answer._replace(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else str(error),
        ack_error_code=0 if ack_error is None else ack_error.code,
        ack_error_message=None if ack_error is None else str(ack_error),
        # Kafka also leaves the fields of the current leader at 0 if the error is not about the
        # leader.
        leader_id=node.node_id if share_requests.leader_is_news(error, ack_error) else 0,
    )


SERVED = {
    78: ApiHandler(
        handle,
        handling=Handling.CHANGES_IN_STEPS,
        gates=(required.READ_GROUP,),
        checks=(required.READ_TOPICS,),
        # Both versions answer with the same bytes (`share_fetch_answer`), and what version 1 lacks
        # is read with a default, so no request of this hot path is converted.
        is_native=True,
    )
}
