"""The common part of ShareFetch and ShareAcknowledge: the session key, and acknowledgements.

Each partition is independent: its acknowledgements succeed or fail together, and a failure
does not affect other partitions (KIP-932 «ShareAcknowledge»).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from itertools import islice
from typing import ClassVar, NamedTuple, Protocol
from uuid import UUID

from kio.static.primitive import i16

from sharegroup.broker.access.permission import TopicPermission
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.handlers.parts import (
    HasSharePartitions,
    HasShareSessions,
    HasSlices,
    HasTopics,
    HasWaiting,
)
from sharegroup.core.delivery.delivery import AckBatch
from sharegroup.core.groups.share.heartbeat import MEMBER_ID_CHARACTERS_MAX
from sharegroup.core.sessions.fetch_session import FINAL_EPOCH
from sharegroup.core.sessions.share_session import Closed, SessionKey
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
    TopicIdPartition,
    topic_id_text,
)
from sharegroup.protocol_enums import GROUPS_DELAY, AcknowledgeType
from sharegroup.steps import STEP_MASK, Steps, paced

ZERO_ID = UUID(int=0)

NO_DELAY = 0

VERSION_WITH_DELAYS = 2
"""The version of both requests whose batches may name the delay of released records."""

PIECE_PARTITIONS = 16
"""Partitions that a request with many partitions handles between two steps."""

Acks = Mapping[TopicIdPartition, tuple[AckBatch, ...]]
AcknowledgementErrors = dict[TopicIdPartition, "KafkaError | None"]


class ShareRequestsParts(
    HasSharePartitions, HasShareSessions, HasSlices, HasTopics, HasWaiting, Protocol
):
    """What these requests touch of the broker."""


class Started(NamedTuple):
    """Decided acknowledgements: the errors so far, and the changes that must become durable."""

    outcomes: AcknowledgementErrors
    waiting: list[tuple[TopicIdPartition, Awaitable[None]]]


class WireAckBatch(Protocol):
    """An acknowledgement batch of either request."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> tuple[int, ...]: ...
    @property
    def redelivery_delay_ms(self) -> int:
        """The delay of what it releases; version 1 has none."""


class WirePartition(Protocol):
    """A partition of either request, with the acknowledgements for it."""

    @property
    def partition_index(self) -> int: ...
    @property
    def acknowledgement_batches(self) -> tuple[WireAckBatch, ...]: ...


class WireTopic(Protocol):
    """A topic of either request; its id is None in a malformed request."""

    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def partitions(self) -> tuple[WirePartition, ...]: ...


class WireRequest(Protocol):
    """Either request."""

    __version__: ClassVar[i16]

    @property
    def share_session_epoch(self) -> int: ...
    @property
    def topics(self) -> Iterable[WireTopic]: ...


def session_key(group_id: str | None, member_id: str | None) -> SessionKey:
    """Return the key of a request's session, or raise InvalidRequest."""
    if group_id is None:
        raise InvalidRequest("a share request needs a group id, not null")
    # The limit is that of `KafkaApis.isMemberIdValid`.
    if not member_id or len(member_id) > MEMBER_ID_CHARACTERS_MAX:
        raise InvalidRequest(
            f"group {group_id!r}: expected a member id of 1 to {MEMBER_ID_CHARACTERS_MAX} "
            f"characters, not {member_id!r}"
        )
    return SessionKey(GroupId(group_id), MemberId(member_id))


def named_partitions(
    request: WireRequest,
) -> Steps[tuple[dict[TopicIdPartition, None], dict[TopicIdPartition, tuple[AckBatch, ...]]]]:
    """Collect the partitions that a request names, and its acknowledgements by partition.

    A partition may be named twice. A member that ends its session gives back what it has not begun,
    so what it releases then has no delay, unless it names one.
    """
    delay_ms = NO_DELAY if request.share_session_epoch == FINAL_EPOCH else GROUPS_DELAY
    batches_of = _named_delays if request.__version__ >= VERSION_WITH_DELAYS else _ack_batches
    named: dict[TopicIdPartition, None] = {}
    acks: dict[TopicIdPartition, tuple[AckBatch, ...]] = {}
    count = 0
    for topic in request.topics:
        # No topic has the zero id: only its partitions fail with UNKNOWN_TOPIC_ID, not the request.
        topic_id = TopicId(topic.topic_id or ZERO_ID)
        for wire in topic.partitions:
            partition = TopicIdPartition(topic_id, wire.partition_index)
            named[partition] = None
            if wire.acknowledgement_batches:
                # Kafka drops the first mention without an error: an acknowledgement would be lost
                # that the client takes for confirmed (docs/differences.md).
                acks[partition] = acks.get(partition, ()) + batches_of(wire, delay_ms)
            count += 1
            if count & STEP_MASK == 0:
                yield
    return named, acks


# Not checked here: core refuses malformed ranges and delays, and then only those of this partition.


def _ack_batches(wire: WirePartition, delay_ms: int) -> tuple[AckBatch, ...]:
    """Return the batches of a request of version 1, with this delay."""
    batches = [
        AckBatch(batch.first_offset, batch.last_offset + 1, batch.acknowledge_types, delay_ms)
        for batch in wire.acknowledgement_batches
    ]
    return tuple(batches)


def _named_delays(wire: WirePartition, delay_ms: int) -> tuple[AckBatch, ...]:
    """Return the batches with the delay that each names, or with this one."""
    batches = [
        AckBatch(
            batch.first_offset,
            batch.last_offset + 1,
            batch.acknowledge_types,
            delay_ms if batch.redelivery_delay_ms == GROUPS_DELAY else batch.redelivery_delay_ms,
        )
        for batch in wire.acknowledgement_batches
    ]
    return tuple(batches)


class Acknowledger(NamedTuple):
    """The sender of acknowledgements."""

    session: SessionKey
    read: TopicPermission | None
    """Its permission to read topics; None if it may read all."""


def start(
    parts: ShareRequestsParts,
    sender: Acknowledger,
    acks: Acks,
    *,
    renewing: bool,
    closed: Closed | None = None,
) -> Steps[Started]:
    """Decide all acknowledgements in steps; each succeeds when its change is durable.

    Only a request that says it is ``renewing`` (IsRenewAck) may renew locks (KIP-1222).

    Decided acknowledgements stand even if the steps end early.  Then a session that is ``closed``
    by this request is released here, otherwise by the caller.
    """
    started = Started({}, [])
    if not acks:
        return started
    for topic in parts.share_partitions.counters.of_topics(acks):
        topic.acknowledge_count += 1
    pairs = iter(acks.items())
    try:
        while piece := tuple(islice(pairs, PIECE_PARTITIONS)):
            _start_some(parts, sender, piece, started, renewing)
            if len(acks) > PIECE_PARTITIONS:
                yield
    except GeneratorExit:  # The connection is closed.  A failed write must still fence.
        parts.share_partitions.attend(durable(parts, started))
        if closed is not None:
            release(parts, closed)
        raise
    return started


def _start_some(
    parts: ShareRequestsParts,
    sender: Acknowledger,
    acks: Iterable[tuple[TopicIdPartition, tuple[AckBatch, ...]]],
    started: Started,
    renewing: bool,
) -> None:
    """Decide the acknowledgements of some partitions."""
    session, read = sender
    for partition, batches in acks:
        started.outcomes[partition] = None
        denial = None if read is None else read.denial(partition.topic_id)
        if denial is not None:
            started.outcomes[partition] = denial
            continue
        try:
            if not renewing:
                _check_no_renewal(parts.topics, session, partition, batches)
            durable = _start_one(parts, session, partition, batches)
        except KafkaError as error:
            # The traceback refers to this frame, which refers to the outcomes: a cycle that only
            # the garbage collector would free (ADR 0025).
            started.outcomes[partition] = error.with_traceback(None)
        else:
            if durable is not None:
                started.waiting.append((partition, durable))


async def durable(parts: ShareRequestsParts, started: Started) -> AcknowledgementErrors:
    """Wait until every acknowledgement is durable or has failed; return the outcomes."""
    # Tickets are awaited one after the other, without a task for each: one sync makes most of them
    # durable together (ADR 0001), so the others are done by then.
    for (partition, acknowledged), pause in paced(started.waiting):
        try:
            await acknowledged
        except KafkaError as error:
            started.outcomes[partition] = error.with_traceback(None)
        if pause:
            await parts.slices.turn()
    return counted(parts, started.outcomes)


def counted(parts: ShareRequestsParts, outcomes: AcknowledgementErrors) -> AcknowledgementErrors:
    """Count the failed acknowledgements of a request; return its final outcomes."""
    failed = [partition for partition, error in outcomes.items() if error is not None]
    for topic in parts.share_partitions.counters.of_topics(failed):
        topic.acknowledge_failed += 1
    return outcomes


def release(parts: ShareRequestsParts, closed: Closed) -> None:
    """Release the records of a member whose session is over, after its acknowledgements.

    A fetch of the session that still waits is woken, because nothing else would wake it.
    """
    parts.waiting.wake(closed.key)
    for partition in closed.partitions:
        key = SharePartitionKey(closed.key.group_id, *partition)
        parts.share_partitions.release(key, closed.key.member_id)
    # The stored state is all that the next member needs, so the share partitions of a group without
    # sessions need not stay in memory.
    if not parts.share_sessions.group_has_sessions(closed.key.group_id):
        parts.share_partitions.unload_group(closed.key.group_id)


def leader_is_news(*errors: KafkaError | None) -> bool:
    """Return whether an answer with these errors must name the current partition leader."""
    for error in errors:  # A plain loop: called for every partition of every answer.
        if error is not None and isinstance(error, NotLeaderOrFollower | FencedLeaderEpoch):
            return True
    return False


def named(topics: Topics, session: SessionKey, partition: TopicIdPartition) -> str:
    """Describe a share partition and a member for an error; the topic by name if it has one."""
    topic = topics.catalog.by_id(partition.topic_id)
    if topic is None:
        name = f"topic_id={topic_id_text(partition.topic_id)}"
    else:
        name = f"topic={topic.name!r}"
    return (
        f"group={session.group_id!r} {name} partition={partition.partition} "
        f"member={session.member_id!r}"
    )


def _check_no_renewal(
    topics: Topics, session: SessionKey, partition: TopicIdPartition, batches: tuple[AckBatch, ...]
) -> None:
    """Refuse renewals in a request that does not set IsRenewAck."""
    for batch in batches:
        if AcknowledgeType.RENEW in batch.types:
            raise InvalidRequest(
                f"{named(topics, session, partition)}: offsets {batch.first} to {batch.end - 1} "
                "have type 4 (renew), which needs a request of version 2 with IsRenewAck=true"
            )


def _start_one(
    parts: ShareRequestsParts,
    session: SessionKey,
    partition: TopicIdPartition,
    batches: tuple[AckBatch, ...],
) -> Awaitable[None] | None:
    """Decide the acknowledgements of one share partition; None if they are durable already."""
    key = SharePartitionKey(session.group_id, *partition)
    # A hot path: a loaded share partition has a topic and a partition, because a deletion unloads
    # it.  It is not loaded here to find out more: locks are never durable, so there would be none
    # (KIP-932).
    live = parts.share_partitions.loaded(key)
    if live is not None:
        return parts.share_partitions.acknowledge(live, session.member_id, batches)
    topic = parts.topics.catalog.by_id(partition.topic_id)
    offsets = f"offsets {batches[0].first} to {batches[-1].end - 1} cannot be acknowledged"
    subject = named(parts.topics, session, partition)
    if topic is None:
        raise UnknownTopicId(f"{subject}: {offsets}: there is no topic with this id")
    if not 0 <= partition.partition < topic.partition_count:
        raise UnknownTopicOrPartition(
            f"{subject}: {offsets}: the topic has partitions 0 to {topic.partition_count - 1}"
        )
    raise UnknownTopicOrPartition(
        f"{subject}: {offsets}: the share partition has not been fetched since it was last loaded, "
        "so all earlier acquisition locks have ended; fetch the records again"
    )
