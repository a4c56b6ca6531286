"""What the five requests of the share coordinator (83 to 87) have in common.

All of them name a group and share partitions of it, each of which is decided by itself and
answered with an error of its own; the answer is given when all of it is durable.  They are for
whoever keeps share partitions elsewhere, which are brokers in Kafka; here nobody does, so they
are served only with ``sharegroup.share.state.apis.enable`` (ADR 0010).  A share partition that is
in use here is loaded again when somebody else has changed its state.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

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

Fail = Callable[[int, KafkaError], Any]
"""A partition's result that tells of an error."""

Results = list[tuple[UUID | None, tuple[Any, ...]]]
"""Of each topic the results of its partitions, as the request names them."""

Respond = Callable[[Results], T]


def answer_each(
    request: Any, decide: Decide, fail: Fail, respond: Respond[T]
) -> Coroutine[Any, Any, T]:
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
                results.append((one.partition, _decide(decide, fail, key, one)))
            decided.append((topic.topic_id, results))
    return _when_durable(decided, fail, respond)


def refuse_each(request: Any, error: KafkaError, fail: Fail) -> Results:
    """The same error for everything that the request names."""
    return [
        (topic.topic_id, tuple(fail(one.partition, error) for one in topic.partitions))
        for topic in request.topics
    ]


def error_fields(error: KafkaError) -> dict[str, Any]:
    """How the results of all five say what was wrong."""
    return {"error_code": error_code(error), "error_message": str(error)}


NO_ERROR: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": None}


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


def _decide(decide: Decide, fail: Fail, key: SharePartitionKey, one: Any) -> Decided:
    try:
        return decide(key, one)
    except KafkaError as error:
        return Decided(fail(key.partition, error))


async def _when_durable(
    decided: Iterable[tuple[UUID | None, list[tuple[int, Decided]]]],
    fail: Fail,
    respond: Respond[T],
) -> T:
    answer: Results = []
    for topic_id, results in decided:
        done = [await _durable(partition, one, fail) for partition, one in results]
        answer.append((topic_id, tuple(done)))
    return respond(answer)


async def _durable(partition: int, decided: Decided, fail: Fail) -> Any:
    if decided.ticket is None:
        return decided.result
    try:
        await decided.ticket
    except KafkaError as error:
        # The disk; who asked may ask again, as of a coordinator that moves.
        return fail(partition, CoordinatorNotAvailable(str(error)))
    return decided.result
