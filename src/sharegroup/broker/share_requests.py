"""What ShareFetch and ShareAcknowledge have in common: who asks, and acknowledgements.

Every partition stands for itself: its acknowledgements succeed or fail as one, and a failure
leaves the other partitions alone (KIP-932 «ShareAcknowledge»).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from sharegroup.broker.parts import Parts
from sharegroup.core.delivery import Ack, AckBatch
from sharegroup.core.share_group_heartbeat import MEMBER_ID_CHARACTERS_MAX
from sharegroup.core.share_session import Closed, SessionKey
from sharegroup.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharegroup.ids import (
    GroupId,
    MemberId,
    SharePartitionKey,
    TopicId,
    TopicPartition,
    topic_id_text,
)

ZERO_ID = UUID(int=0)

Acks = Mapping[TopicPartition, tuple[AckBatch, ...]]
Outcomes = dict[TopicPartition, "KafkaError | None"]


class Started(NamedTuple):
    """Acknowledgements that are decided: what went wrong, and what has yet to become durable."""

    outcomes: Outcomes
    waiting: list[tuple[TopicPartition, Awaitable[None]]]


class WireAckBatch(Protocol):
    """An acknowledgement batch of either request."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> tuple[int, ...]: ...


class WirePartition(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def acknowledgement_batches(self) -> tuple[WireAckBatch, ...]: ...


class WireTopic(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def partitions(self) -> tuple[WirePartition, ...]: ...


def session_key(group_id: str | None, member_id: str | None) -> SessionKey:
    """Whose session a request belongs to, or InvalidRequest."""
    if group_id is None:
        raise InvalidRequest("a share request needs a group id, not null")
    if not member_id or len(member_id) > MEMBER_ID_CHARACTERS_MAX:
        raise InvalidRequest(
            f"group {group_id!r}: a member id has 1 to {MEMBER_ID_CHARACTERS_MAX} characters, "
            f"not {member_id!r}"
        )
    return SessionKey(GroupId(group_id), MemberId(member_id))


def requested(topics: Iterable[WireTopic]) -> Iterable[tuple[TopicPartition, WirePartition]]:
    """The partitions that a request names, in its order."""
    for topic in topics:
        topic_id = TopicId(topic.topic_id or ZERO_ID)
        for partition in topic.partitions:
            yield TopicPartition(topic_id, partition.partition_index), partition


def acks_of(topics: Iterable[WireTopic]) -> dict[TopicPartition, tuple[AckBatch, ...]]:
    """The acknowledgements that a request carries, by partition; one may be named twice."""
    acks: dict[TopicPartition, tuple[AckBatch, ...]] = {}
    for partition, wire in requested(topics):
        if wire.acknowledgement_batches:
            acks[partition] = acks.get(partition, ()) + tuple(
                AckBatch(batch.first_offset, batch.last_offset + 1, batch.acknowledge_types)
                for batch in wire.acknowledgement_batches
            )
    return acks


def start(parts: Parts, session: SessionKey, acks: Acks, *, renewing: bool) -> Started:
    """Decide all acknowledgements now; what becomes of each is known when it is durable.

    Only a request that says it is ``renewing`` (IsRenewAck) may renew locks (KIP-1222).
    """
    for topic in parts.share_partitions.counters.of_topics(acks):
        topic.acknowledge_count += 1
    started = Started({}, [])
    for partition, batches in acks.items():
        started.outcomes[partition] = None
        try:
            if not renewing:
                _check_no_renewal(parts, session, partition, batches)
            durable = _start_one(parts, session, partition, batches)
        except KafkaError as error:
            started.outcomes[partition] = error
        else:
            if durable is not None:
                started.waiting.append((partition, durable))
    return started


async def durable(parts: Parts, started: Started) -> Outcomes:
    """Wait until every acknowledgement is durable or has failed."""
    for partition, acknowledged in started.waiting:
        try:
            await acknowledged
        except KafkaError as error:
            started.outcomes[partition] = error
    return counted(parts, started.outcomes)


def counted(parts: Parts, outcomes: Outcomes) -> Outcomes:
    """The outcomes of a request's acknowledgements, now that no more is to become of them."""
    failed = [partition for partition, error in outcomes.items() if error is not None]
    for topic in parts.share_partitions.counters.of_topics(failed):
        topic.acknowledge_failed += 1
    return outcomes


def release(parts: Parts, closed: Closed) -> None:
    """A session is over: give back what its member holds, after its acknowledgements.

    A fetch of it that still waits is answered: nothing that happens concerns it any more.
    """
    parts.waiting.wake(closed.key)
    for partition in closed.partitions:
        key = SharePartitionKey(closed.key.group_id, *partition)
        parts.share_partitions.release(key, closed.key.member_id)
    if not parts.share_sessions.group_has_sessions(closed.key.group_id):
        parts.share_partitions.unload_group(closed.key.group_id)


def leader_is_news(*errors: KafkaError | None) -> bool:
    """Whether an answer with these errors must say who leads the partition."""
    for error in errors:  # A plain loop: this is asked for every partition of every answer.
        if error is not None and isinstance(error, NotLeaderOrFollower | FencedLeaderEpoch):
            return True
    return False


def named(parts: Parts, session: SessionKey, partition: TopicPartition) -> str:
    """Whose share partition an error speaks of; the topic by its name while it has one."""
    topic = parts.topics.catalog.by_id(partition.topic_id)
    if topic is None:
        name = f"topic_id={topic_id_text(partition.topic_id)}"
    else:
        name = f"topic={topic.name!r}"
    return (
        f"group={session.group_id!r} {name} partition={partition.partition} "
        f"member={session.member_id!r}"
    )


def _check_no_renewal(
    parts: Parts, session: SessionKey, partition: TopicPartition, batches: tuple[AckBatch, ...]
) -> None:
    for batch in batches:
        if Ack.RENEW in batch.types:
            raise InvalidRequest(
                f"{named(parts, session, partition)}: offsets {batch.first} to {batch.end - 1} "
                "have type 4 (renew), which needs a request of version 2 with IsRenewAck=true"
            )


def _start_one(
    parts: Parts, session: SessionKey, partition: TopicPartition, batches: tuple[AckBatch, ...]
) -> Awaitable[None] | None:
    key = SharePartitionKey(session.group_id, *partition)
    live = parts.share_partitions.loaded(key)
    if live is not None:
        return parts.share_partitions.acknowledge(live, session.member_id, batches)
    topic = parts.topics.catalog.by_id(partition.topic_id)
    offsets = f"offsets {batches[0].first} to {batches[-1].end - 1} cannot be acknowledged"
    where = named(parts, session, partition)
    if topic is None:
        raise UnknownTopicId(f"{where}: {offsets}: there is no topic with this id")
    if not 0 <= partition.partition < topic.partition_count:
        raise UnknownTopicOrPartition(
            f"{where}: {offsets}: the topic has partitions 0 to {topic.partition_count - 1}"
        )
    raise UnknownTopicOrPartition(
        f"{where}: {offsets}: nobody fetched here since the share partition was last loaded, so "
        "whatever was held before is free again; fetch first"
    )
