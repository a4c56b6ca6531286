"""The share coordinator's five requests: initialize, read, write, delete, summary (83 to 87).

Each of them names a group and some of its share partitions.  Each share partition is decided on its
own and has its own error; the answer is sent when all changes are durable.  In Kafka, the brokers
that keep share partitions send these requests.  Here no other broker does, so they are served only
with ``sharegroup.share.state.apis.enable`` (ADR 0010).  If such a request changes the state of a
share partition that is in use here, it is loaded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from kio.schema.delete_share_group_state.v0 import request as delete, response as deleted
from kio.schema.errors import ErrorCode
from kio.schema.initialize_share_group_state.v0 import (
    request as initialize,
    response as initialized,
)
from kio.schema.read_share_group_state.v0 import request as read_request, response as read
from kio.schema.read_share_group_state_summary.v1 import (
    request as summary_request,
    response as summary,
)
from kio.schema.write_share_group_state.v1 import request as write, response as written
from kio.static.primitive import i8, i16, i32, i64

from sharegroup.broker.access import checks as required
from sharegroup.broker.handler_contract import (
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import (
    HasShareCoordinator,
    HasSharePartitions,
    HasSlices,
    HasWaiting,
)
from sharegroup.broker.load.slices import Slices
from sharegroup.core.delivery.delivery import IN_MEMORY, Delta, RecordState, StateBatch
from sharegroup.core.delivery.stored.share_states import named
from sharegroup.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError
from sharegroup.ids import GroupId, SharePartitionKey, TopicId
from sharegroup.steps import Steps, paced
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.wire.codec.convert import empty

T = TypeVar("T")


class ShareStateParts(HasShareCoordinator, HasSharePartitions, HasSlices, HasWaiting, Protocol):
    """What these requests touch of the broker."""


class StatePartition(Protocol):
    """A share partition as one of the requests names it."""

    @property
    def partition(self) -> int: ...


P = TypeVar("P", bound=StatePartition)
P_co = TypeVar("P_co", bound=StatePartition, covariant=True)


class StateTopic(Protocol[P_co]):
    """The share partitions of one topic in a request."""

    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def partitions(self) -> tuple[P_co, ...]: ...


class StateRequest(Protocol[P_co]):
    """One of the five requests."""

    @property
    def group_id(self) -> str: ...
    @property
    def topics(self) -> tuple[StateTopic[P_co], ...]: ...


class WireStateBatch(Protocol):
    """A state batch of a request."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def delivery_state(self) -> int: ...
    @property
    def delivery_count(self) -> int: ...


NO_TOPIC_ID = UUID(int=0)

DURABLE = {state.value: state for state in RecordState if state not in IN_MEMORY}
"""The states that may be stored, by number; acquisition locks are never written."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The result for one share partition when its ticket is done; None if durable already."""

    result: Any
    ticket: Ticket | None = None


Decide = Callable[[ShareStateParts, SharePartitionKey, P], Decided]
"""Decides one share partition, from its key and its element of the request."""

FEW = 16
"""A step ends after every 16 share partitions or topics."""

DecidedTopic = tuple[UUID | None, list[tuple[int, Decided]]]
"""A topic and the decisions about its partitions, in the order of the request."""


@dataclass(frozen=True, slots=True)
class ResponseClasses(Generic[T]):
    """The classes of one request's response message; all five have the same three levels."""

    response: Callable[..., T]
    topic: type[Any]
    partition: type[Any]

    def done(self, partition: int, **fields: Any) -> Any:
        """Make the result of a partition without an error."""
        return self.partition(
            partition=i32(partition), **fields, error_code=ErrorCode.none, error_message=None
        )

    def failed(self, partition: int, error: KafkaError) -> Any:
        """Make the result of a partition with an error, and the schema's defaults beside it."""
        return replace(
            empty(self.partition),
            partition=i32(partition),
            error_code=error_code(error),
            error_message=str(error),
        )


def _answer_each(
    parts: ShareStateParts, request: StateRequest[P], decide: Decide[P], classes: ResponseClasses[T]
) -> Steps[Later[T]]:
    """Decide each share partition of the request; the response comes when all is durable.

    Each is decided and fails on its own.  As in Kafka, a request without a group, or with a topic
    without partitions, asks for nothing.
    """
    topics: list[DecidedTopic] = []
    if request.group_id and all(topic.partitions for topic in request.topics):
        group_id = GroupId(request.group_id)
        for topic, pause_after in paced(request.topics, FEW):
            topic_id = TopicId(topic.topic_id or NO_TOPIC_ID)
            decided: list[tuple[int, Decided]] = []
            for partition, pause in paced(topic.partitions, FEW):
                key = SharePartitionKey(group_id, topic_id, partition.partition)
                decided.append(
                    (partition.partition, _decide(parts, decide, classes, key, partition))
                )
                if pause:
                    yield
            topics.append((topic.topic_id, decided))
            if pause_after:
                yield
    return Later(_when_durable(parts.slices, topics, classes))


def _changed(parts: ShareStateParts, key: SharePartitionKey, ticket: Ticket | None) -> None:
    """Unload a share partition whose state was changed by a request, so it is loaded again."""
    if ticket is not None:
        parts.share_partitions.unload(key)
        # Fetches that wait look again: the state from outside may have other available records.
        parts.waiting.wake(key)


def _state_batches(
    key: SharePartitionKey, stored: Iterable[WireStateBatch]
) -> tuple[StateBatch, ...]:
    """Convert the batches of a request, and validate them, which Kafka does not do."""
    return tuple(_state_batch(key, batch) for batch in stored)


def _state_batch(key: SharePartitionKey, batch: WireStateBatch) -> StateBatch:
    state = DURABLE.get(batch.delivery_state)
    if (
        state is None
        or not 0 <= batch.first_offset <= batch.last_offset
        or batch.delivery_count < 0
    ):
        raise InvalidRequest(
            f"{named(key)}: expected offsets from 0 on in order, a delivery count of 0 or more and "
            f"one of the states {sorted(DURABLE)}, not offsets {batch.first_offset} to "
            f"{batch.last_offset}, count {batch.delivery_count} and state {batch.delivery_state}"
        )
    return StateBatch(batch.first_offset, batch.last_offset + 1, state, batch.delivery_count)


def _decide(
    parts: ShareStateParts,
    decide: Decide[P],
    classes: ResponseClasses[Any],
    key: SharePartitionKey,
    partition: P,
) -> Decided:
    try:
        return decide(parts, key, partition)
    except KafkaError as error:
        return Decided(classes.failed(key.partition, error))


async def _when_durable(
    slices: Slices, topics: list[DecidedTopic], classes: ResponseClasses[T]
) -> T:
    """Wait until all decisions are durable, and make the response."""
    results = []
    for (topic_id, decided), pause_after in paced(topics, FEW):
        partition_results = []
        for (partition, decision), pause in paced(decided, FEW):
            # One after the other, because one sync makes most of them durable together (ADR 0001).
            partition_results.append(await _durable(partition, decision, classes))
            if pause:
                await slices.turn()
        results.append(classes.topic(topic_id=topic_id, partitions=tuple(partition_results)))
        if pause_after:
            await slices.turn()
    return classes.response(results=tuple(results))


async def _durable(partition: int, decided: Decided, classes: ResponseClasses[Any]) -> Any:
    """Wait until one decision is durable; return the partition's result."""
    if decided.ticket is None:
        return decided.result
    try:
        await decided.ticket
    except KafkaError as error:
        # A disk error.  The sender may retry, as when a coordinator moves.
        return classes.failed(partition, CoordinatorNotAvailable(str(error)))
    return decided.result


INITIALIZED = ResponseClasses(
    initialized.InitializeShareGroupStateResponse,
    initialized.InitializeStateResult,
    initialized.PartitionResult,
)


def _initialize(
    parts: ShareStateParts, key: SharePartitionKey, partition: initialize.PartitionData
) -> Decided:
    """Set the start offset and the state epoch of a share partition."""
    if partition.start_offset < -1:
        raise InvalidRequest(
            f"{named(key)}: expected a start offset, or -1 for none yet, not "
            f"{partition.start_offset}"
        )
    ticket = parts.share_coordinator.initialize(
        key, state_epoch=partition.state_epoch, start_offset=partition.start_offset
    )
    _changed(parts, key, ticket)
    # A repeated request writes nothing, but its answer promises the state, too.  So it waits for
    # the last write, which may be that of the first request.
    return Decided(INITIALIZED.done(key.partition), parts.share_coordinator.last_write(key))


READ = ResponseClasses(read.ReadShareGroupStateResponse, read.ReadStateResult, read.PartitionResult)


def _read(
    parts: ShareStateParts, key: SharePartitionKey, partition: read_request.PartitionData
) -> Decided:
    """Return the state to a share-partition leader, and fence those with a lower leader epoch."""
    state = parts.share_coordinator.read(key, leader_epoch=partition.leader_epoch)
    batches = tuple(
        read.StateBatch(
            first_offset=i64(batch.first),
            last_offset=i64(batch.end - 1),
            delivery_state=i8(batch.state),
            delivery_count=i16(batch.delivery_count),
        )
        for batch in state.batches
    )
    result = READ.done(
        key.partition,
        state_epoch=i32(state.state_epoch),
        start_offset=i64(state.start_offset),
        state_batches=batches,
    )
    # The response waits for the last write to this state, also by another request.
    return Decided(result, parts.share_coordinator.last_write(key))


WRITTEN = ResponseClasses(
    written.WriteShareGroupStateResponse, written.WriteStateResult, written.PartitionResult
)


def _write(
    parts: ShareStateParts, key: SharePartitionKey, partition: write.PartitionData
) -> Decided:
    """Store the state that a share-partition leader sends."""
    delta = Delta(
        max(partition.start_offset, -1),
        max(partition.delivery_complete_count, -1),
        _state_batches(key, partition.state_batches),
    )
    ticket = parts.share_coordinator.write(
        key, partition.state_epoch, delta, leader_epoch=partition.leader_epoch
    )
    _changed(parts, key, ticket)
    return Decided(WRITTEN.done(key.partition), ticket)


DELETED = ResponseClasses(
    deleted.DeleteShareGroupStateResponse, deleted.DeleteStateResult, deleted.PartitionResult
)


def _delete(
    parts: ShareStateParts, key: SharePartitionKey, partition: delete.PartitionData
) -> Decided:
    """Delete the state of a share partition, known or not."""
    _changed(parts, key, parts.share_coordinator.delete_one(key))
    return Decided(DELETED.done(key.partition), parts.share_coordinator.last_write(key))


SUMMARY = ResponseClasses(
    summary.ReadShareGroupStateSummaryResponse,
    summary.ReadStateSummaryResult,
    summary.PartitionResult,
)


def _summarize(
    parts: ShareStateParts, key: SharePartitionKey, partition: summary_request.PartitionData
) -> Decided:
    """Return start offset and epochs, without fencing a leader."""
    # In this order, because `summary` refuses a negative index as INVALID_REQUEST (spec state-17),
    # which `check_exists` does not know.
    state = parts.share_coordinator.summary(key)
    parts.share_coordinator.check_exists(key)
    result = SUMMARY.done(
        key.partition,
        state_epoch=i32(state.state_epoch),
        leader_epoch=i32(state.leader_epoch),
        start_offset=i64(state.start_offset),
        delivery_complete_count=i32(state.delivery_complete_count),
    )
    return Decided(result, parts.share_coordinator.last_write(key))


def _api(decide: Decide[Any], classes: ResponseClasses[Any]) -> ApiHandler:
    def handle(parts: ShareStateParts, context: RequestContext, request: Any) -> Steps[Later[Any]]:
        return _answer_each(parts, request, decide, classes)

    return ApiHandler(handle, handling=Handling.CHANGES_IN_STEPS, gates=(required.CLUSTER_ACTION,))


SERVED = {
    83: _api(_initialize, INITIALIZED),
    84: _api(_read, READ),
    85: _api(_write, WRITTEN),
    86: _api(_delete, DELETED),
    87: _api(_summarize, SUMMARY),
}
