"""What the five requests of the share coordinator (83 to 87) have in common.

All of them name a group and share partitions of it, each of which is decided by itself and
answered with an error of its own; the answer is given when all of it is durable.  They are for
whoever keeps share partitions elsewhere, which are brokers in Kafka; here nobody does, so they
are served only with ``sharegroup.share.state.apis.enable`` (ADR 0010).  A share partition that is
in use here is loaded again when somebody else has changed its state.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from sharegroup.broker.dispatch import error_code
from sharegroup.broker.parts import Parts
from sharegroup.core.delivery import RecordState, StateBatch
from sharegroup.core.share_state import named
from sharegroup.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError
from sharegroup.ids import GroupId, SharePartitionKey, TopicId
from sharegroup.storage.tickets import Ticket

T = TypeVar("T")

NO_TOPIC_ID = UUID(int=0)

DURABLE = {state.value: state for state in RecordState if state is not RecordState.ACQUIRED}
"""Locks are never written."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What one share partition is answered when its ticket is done; None: it is already."""

    result: Any
    ticket: Ticket | None = None


Decide = Callable[[SharePartitionKey, Any], Decided]
"""From a share partition and what the request says of it."""

Results = list[tuple[UUID | None, tuple[Any, ...]]]
"""Of each topic the results of its partitions, as the request names them."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The message that one of the five answers with: the same three levels in all of them."""

    response: Callable[..., T]
    topic: Callable[..., Any]
    partition: Callable[..., Any]
    beside_error: Mapping[str, Any] = field(default_factory=dict)
    """What a partition's result says beside an error, where its message wants it said."""

    def done(self, partition: int, **fields: Any) -> Any:
        """A partition's result."""
        return self.partition(
            partition=i32(partition), **fields, error_code=ErrorCode.none, error_message=None
        )

    def failed(self, partition: int, error: KafkaError) -> Any:
        """A partition's result that tells of an error."""
        return self.partition(
            partition=i32(partition),
            **self.beside_error,
            error_code=error_code(error),
            error_message=str(error),
        )

    def whole(self, results: Results) -> T:
        """The response."""
        return self.response(
            results=tuple(
                self.topic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in results
            )
        )


def answer_each(request: Any, decide: Decide, answer: Answer[T]) -> Coroutine[Any, Any, T]:
    """Decide all that the request names, now; the answer comes when it is durable.

    As in Kafka, a request that names no group, or a topic without partitions, asks for nothing.
    """
    decided = []
    if request.group_id and all(topic.partitions for topic in request.topics):
        group_id = GroupId(request.group_id)
        for topic in request.topics:
            topic_id = TopicId(topic.topic_id or NO_TOPIC_ID)
            results = []
            for one in topic.partitions:
                key = SharePartitionKey(group_id, topic_id, one.partition)
                results.append((one.partition, _decide(decide, answer, key, one)))
            decided.append((topic.topic_id, results))
    return _when_durable(decided, answer)


def refuse_each(request: Any, error: KafkaError, answer: Answer[T]) -> T:
    """The same error for everything that the request names."""
    return answer.whole(
        [
            (topic.topic_id, tuple(answer.failed(one.partition, error) for one in topic.partitions))
            for topic in request.topics
        ]
    )


def changed(parts: Parts, key: SharePartitionKey, ticket: Ticket | None) -> None:
    """Somebody else changed the state: a share partition in use here must begin from it."""
    if ticket is not None:
        parts.share_partitions.unload(key)
        parts.waiting.wake(key)


def state_batches(key: SharePartitionKey, stored: Iterable[Any]) -> tuple[StateBatch, ...]:
    """Batches of a request, with what Kafka would store of them unseen checked."""
    return tuple(_state_batch(key, one) for one in stored)


def _state_batch(key: SharePartitionKey, one: Any) -> StateBatch:
    state = DURABLE.get(one.delivery_state)
    if state is None or not 0 <= one.first_offset <= one.last_offset or one.delivery_count < 0:
        raise InvalidRequest(
            f"{named(key)}: expected offsets from 0 on in order, a delivery count of 0 or more and "
            f"one of the states {sorted(DURABLE)}, not offsets {one.first_offset} to "
            f"{one.last_offset}, count {one.delivery_count} and state {one.delivery_state}"
        )
    return StateBatch(one.first_offset, one.last_offset + 1, state, one.delivery_count)


def _decide(decide: Decide, answer: Answer[T], key: SharePartitionKey, one: Any) -> Decided:
    try:
        return decide(key, one)
    except KafkaError as error:
        return Decided(answer.failed(key.partition, error))


async def _when_durable(
    decided: Iterable[tuple[UUID | None, list[tuple[int, Decided]]]], answer: Answer[T]
) -> T:
    results: Results = []
    for topic_id, partitions in decided:
        done = [await _durable(partition, one, answer) for partition, one in partitions]
        results.append((topic_id, tuple(done)))
    return answer.whole(results)


async def _durable(partition: int, decided: Decided, answer: Answer[T]) -> Any:
    if decided.ticket is None:
        return decided.result
    try:
        await decided.ticket
    except KafkaError as error:
        # The disk; who asked may ask again, as of a coordinator that moves.
        return answer.failed(partition, CoordinatorNotAvailable(str(error)))
    return decided.result
