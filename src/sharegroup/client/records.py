"""What the clients take and return: partitions, offsets, reports, a listener, their own errors."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from sharegroup.errors import KafkaError, OffsetOutOfRange

Header = tuple[str, bytes | None]


class TopicPartition(NamedTuple):
    """One partition, by the name of its topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """A member of a consumer group, as the coordinator knows it.

    A transactional producer commits offsets with it, and a member of an older generation, which
    lost its partitions, is refused.  ``ConsumerGroupMetadata("group")`` alone has no such check.
    """

    group_id: str
    generation_id: int = -1
    """The generation of a classic group, or the member epoch; -1 without a member."""
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """An offset to commit: that of the next record to read, with an optional text."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None
    """The leader epoch of the last record that was read, or None."""


class RebalanceListener:
    """Functions that `poll` calls when partitions are given or taken; override those you need.

    Each may be a plain function or a coroutine function.
    """

    def on_partitions_assigned(
        self, partitions: frozenset[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called after partitions were given to this consumer; `seek` is possible here."""

    def on_partitions_revoked(
        self, partitions: frozenset[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called before partitions are taken away; `commit` is still possible here."""

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """Called when other members may own the partitions already, so nothing can be committed."""


class HasPartition(Protocol):
    """A record of a consumer."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition of the record."""


AnyRecord = TypeVar("AnyRecord", bound=HasPartition)


def records_by_partition(records: Iterable[AnyRecord]) -> dict[TopicPartition, list[AnyRecord]]:
    """Group the records of a poll by partition, each group in the order of the poll."""
    grouped: dict[TopicPartition, list[AnyRecord]] = {}
    for record in records:
        grouped.setdefault(record.topic_partition, []).append(record)
    return grouped


Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
"""Offsets to commit, by partition: each is that of the next record to read."""


def checked_offsets(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets with their metadata; raise TypeError or ValueError for others."""
    checked = {}
    for where, committed in offsets.items():
        if isinstance(committed, int):
            committed = OffsetAndMetadata(committed)
        elif not isinstance(committed, OffsetAndMetadata):
            raise TypeError(
                f"{where!r}: expected an int or OffsetAndMetadata, got {type(committed).__name__}"
            )
        if not 0 <= committed.offset < 2**63:
            raise ValueError(f"{where!r}: offset {committed.offset}; expected 0 to 2**63 - 1")
        checked[where] = committed
    return checked


def checked_time(call: str, timestamp_ms: int) -> int:
    """Return a time to look up; negative numbers are named offsets in the protocol."""
    if not isinstance(timestamp_ms, int):
        raise TypeError(
            f"{call}: expected milliseconds since 1970 as int, found {type(timestamp_ms).__name__}"
        )
    if not 0 <= timestamp_ms < 2**63:
        raise ValueError(
            f"{call}: expected 0 to 2**63 - 1 milliseconds since 1970, found {timestamp_ms}; "
            "beginning_offsets and end_offsets return the first and the last offsets"
        )
    return timestamp_ms


def topic_names(topics: tuple[str | Iterable[str], ...]) -> tuple[str, ...]:
    """Return the arguments of ``subscribe``, names or one list of names, sorted."""
    names_or_list: Iterable[object] = topics
    only: object = topics[0] if len(topics) == 1 else None
    if isinstance(only, Iterable) and not isinstance(only, str | bytes):
        names_or_list = only
    names = set()
    for name in names_or_list:
        if not isinstance(name, str):
            raise TypeError(
                f"topic {name!r}: expected the name of a topic, found {type(name).__name__}; "
                f"pass names, subscribe('a', 'b'), or one list of names, subscribe(['a', 'b'])"
            )
        if not name.strip():
            raise ValueError(f"topic {name!r}: expected the name of a topic, found blanks")
        names.add(name)
    return tuple(sorted(names))


class IllegalStateError(Exception):
    """The client or the record is in a state that does not allow the call."""


class CommitFailedError(Exception):
    """The group refused a commit, because it rebalances or has given the partitions to others.

    Records since the last commit are read again by the members that get the partitions.
    """


class NoOffsetForPartition(KafkaError):
    """A partition has no committed offset, and ``auto_offset_reset`` is ``none``."""


class LogTruncation(OffsetOutOfRange):
    """The log has lost records that this consumer has read, and others may have their offsets.

    Raised with ``auto_offset_reset="none"``.  ``diverging`` is the first offset that differs, to
    `seek` to, with the leader epoch of the record before it.
    """

    def __init__(self, text: str, partition: TopicPartition, diverging: OffsetAndMetadata) -> None:
        super().__init__(text)
        self.partition = partition
        self.diverging = diverging


class WakeupError(Exception):
    """Raised by `poll` of a consumer after a call of its `wakeup`."""


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """The topic, partition, offset and timestamp of a record that was written.

    ``offset`` is -1 when it is unknown: with acks=0, or for a duplicate that the broker
    recognised but no longer has the offset of.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AcknowledgementResult:
    """The outcome of the acknowledgements of one partition that one request carried.

    ``error`` is None when they are durable.  NetworkException means in doubt: they were sent
    and no answer came.  With every other error they had no effect.
    """

    topic_partition: TopicPartition
    offsets: Sequence[int]
    error: KafkaError | None
    is_renewal: bool = False
    """Whether the request renewed acquisition locks; a renewal settles no record."""


@dataclass(frozen=True, slots=True)
class CloseReport:
    """The result of `ShareConsumer.close`."""

    acknowledged: tuple[AcknowledgementResult, ...] = ()
    """The outcomes of the acknowledgements that were outstanding."""
    released: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The number of records per partition that were held and not settled."""
    error: Exception | None = None
    """Why the close is incomplete, or None; locks and membership then end by their timeouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The records that are on their way through a share consumer, at one moment.

        broker ---requested---> waiting ---poll---> in flight ---acknowledged---> settled
                                `------ at most in_flight_max together ------'

    Sizes are as on the wire, averaged over the records of one fetch.
    """

    in_flight: int
    """The number of records that are handed out and not settled."""
    in_flight_bytes: int
    """The size of these records."""
    in_flight_max: int | None
    """The limit of records in flight and waiting together; None: there is no limit."""
    waiting: int
    """The number of records that were fetched and wait for the next polls."""
    waiting_bytes: int
    """The size of these records."""
    requested: int
    """The number of records that the fetches under way ask for."""
    is_joined: bool
    """Whether the consumer is a member of its group, as far as the coordinator answers."""
    is_paused: bool
    """Whether the consumer fetches no more records, as in a worker that is about to stop."""
    renews_locks: bool
    """Whether locks are renewed by the consumer (``auto_renew``).

    It stops when the broker or the group does not allow renewals.
    """


@dataclass(frozen=True, slots=True)
class ConsumerHealth:
    """What a health check needs to know of a consumer: membership and brokers."""

    is_joined: bool
    """Whether it is a member of its group, as far as the coordinator answers."""
    is_connected: bool
    """Whether a connection to any broker is open."""
    lost_brokers: Mapping[str, str]
    """The error of each broker that could not be reached at the last attempt, by its address."""
    failure: KafkaError | None = None
    """The error because of which it can never poll again; None if there is none."""

    @property
    def is_healthy(self) -> bool:
        """Whether it can receive records; one broker of several may be lost."""
        return self.is_joined and self.is_connected and self.failure is None


@dataclass(frozen=True, slots=True)
class IdlePeriod:
    """A period in which no broker answered a share group member that waited for records.

    It is so long that the log says so.
    """

    seconds: float
    knowledge: str
    """What the member knows about the cause, and what to do."""
