"""The common part of the share coordinator's five requests (api keys 83 to 87).

Each of them names a group and some of its share partitions.  Each share partition is decided on its
own and has its own error; the answer is sent when all changes are durable.  In Kafka, the brokers
that keep share partitions send these requests.  Here no other broker does, so they are served only
with ``sharegroup.share.state.apis.enable`` (ADR 0010).  If such a request changes the state of a
share partition that is in use here, it is loaded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from sharegroup.broker.handler_contract import Later, error_code
from sharegroup.broker.parts import Parts
from sharegroup.core.share_partition.delivery import RecordState, StateBatch
from sharegroup.core.share_state.share_states import named
from sharegroup.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError
from sharegroup.ids import GroupId, SharePartitionKey, TopicId
from sharegroup.steps import Steps, of_each
from sharegroup.storage.sync.tickets import Ticket

T = TypeVar("T")


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

DURABLE = {state.value: state for state in RecordState if state is not RecordState.ACQUIRED}
"""The states that may be stored, by number; acquisition locks are never written."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The result for one share partition when its ticket is done; None if durable already."""

    result: Any
    ticket: Ticket | None = None


Decide = Callable[[Parts, SharePartitionKey, P], Decided]
"""Decides one share partition, from its key and its element of the request."""

FEW = 15
"""Bit mask: a step ends after every 16 share partitions or topics."""

DecidedTopic = tuple[UUID | None, list[tuple[int, Decided]]]
"""A topic and the decisions about its partitions, in the order of the request."""


@dataclass(frozen=True, slots=True)
class ResponseClasses(Generic[T]):
    """The classes of one request's response message; all five have the same three levels."""

    response: Callable[..., T]
    topic: Callable[..., Any]
    partition: Callable[..., Any]
    beside_error: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of a partition's result with an error, if its message needs them."""

    def done(self, partition: int, **fields: Any) -> Any:
        """Make the result of a partition without an error."""
        return self.partition(
            partition=i32(partition), **fields, error_code=ErrorCode.none, error_message=None
        )

    def failed(self, partition: int, error: KafkaError) -> Any:
        """Make the result of a partition with an error."""
        return self.partition(
            partition=i32(partition),
            **self.beside_error,
            error_code=error_code(error),
            error_message=str(error),
        )


def answer_each(
    parts: Parts, request: StateRequest[P], decide: Decide[P], classes: ResponseClasses[T]
) -> Steps[Later[T]]:
    """Decide each share partition of the request; the response comes when all is durable.

    Each is decided and fails on its own.  As in Kafka, a request without a group, or with a topic
    without partitions, asks for nothing.
    """
    topics: list[DecidedTopic] = []
    if request.group_id and all(topic.partitions for topic in request.topics):
        group_id = GroupId(request.group_id)
        for topic in request.topics:
            topic_id = TopicId(topic.topic_id or NO_TOPIC_ID)
            decided: list[tuple[int, Decided]] = []
            for partition in topic.partitions:
                key = SharePartitionKey(group_id, topic_id, partition.partition)
                decided.append(
                    (partition.partition, _decide(parts, decide, classes, key, partition))
                )
                if len(decided) & FEW == FEW:
                    yield
            topics.append((topic.topic_id, decided))
            if len(topics) & FEW == FEW:
                yield
    return Later(_when_durable(parts, topics, classes))


def refuse_each(
    request: StateRequest[P], error: KafkaError, classes: ResponseClasses[T]
) -> Steps[T]:
    """Make the response with the same error for every partition that the request names."""
    results = []
    for topic in request.topics:
        failed = yield from of_each(
            lambda partition: classes.failed(partition.partition, error), topic.partitions
        )
        results.append(classes.topic(topic_id=topic.topic_id, partitions=failed))
        if len(results) & FEW == FEW:
            yield
    return classes.response(results=tuple(results))


def changed(parts: Parts, key: SharePartitionKey, ticket: Ticket | None) -> None:
    """Unload a share partition whose state was changed by a request, so it is loaded again."""
    if ticket is not None:
        parts.share_partitions.unload(key)
        parts.waiting.wake(key)


def state_batches(
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
    parts: Parts,
    decide: Decide[P],
    classes: ResponseClasses[Any],
    key: SharePartitionKey,
    partition: P,
) -> Decided:
    try:
        return decide(parts, key, partition)
    except KafkaError as error:
        return Decided(classes.failed(key.partition, error))


async def _when_durable(parts: Parts, topics: list[DecidedTopic], classes: ResponseClasses[T]) -> T:
    """Wait until all decisions are durable, and make the response."""
    results = []
    for topic_id, decided in topics:
        partition_results = []
        for partition, decision in decided:
            partition_results.append(await _durable(partition, decision, classes))
            if len(partition_results) & FEW == FEW:
                await parts.slices.turn()
        results.append(classes.topic(topic_id=topic_id, partitions=tuple(partition_results)))
        if len(results) & FEW == FEW:
            await parts.slices.turn()
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
