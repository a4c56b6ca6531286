"""What goes in and out of the client: records, where they lie, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from sharegroup.errors import KafkaError

if TYPE_CHECKING:
    from sharegroup.client.held_records import Acquired

Header = tuple[str, bytes | None]


class TopicPartition(NamedTuple):
    """One partition, by the name of its topic."""

    topic: str
    partition: int


class AcknowledgeType(IntEnum):
    """What becomes of a delivered record (KIP-932 «Record states»); values as on the wire."""

    ACCEPT = 1
    """Done: never deliver it again."""
    RELEASE = 2
    """Not done: deliver it again, to anyone, as long as its delivery limit allows."""
    REJECT = 3
    """Never to be done: don't deliver it again."""


class IllegalStateError(Exception):
    """A method was called at a moment, or on a record, where it makes no sense."""


class DeserializationError(Exception):
    """A key or value could not be read; ``record`` holds its raw bytes.

    The record is released, so that it comes back until its delivery limit ends that.  In
    explicit mode another type may be set instead: ``error.record.reject()``.
    """

    def __init__(self, message: str, record: Record) -> None:
        super().__init__(message)
        self.record = record


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a produced record lies.

    ``offset`` is -1 when nobody knows: acks=0, or a duplicate that the broker recognised but
    no longer has the position of.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AcknowledgementResult:
    """What a broker said about acknowledgements of one partition, sent in one request.

    ``error`` is None when they are durable.  NetworkException means in doubt: they were sent
    and no answer came.  With every other error they had no effect.
    """

    topic_partition: TopicPartition
    offsets: Sequence[int]
    error: KafkaError | None


class Record:
    """One delivery of one record to this consumer."""

    __slots__ = ("_acquired", "headers", "key", "offset", "timestamp_ms", "value")

    def __init__(
        self,
        acquired: Acquired,
        offset: int,
        timestamp_ms: int,
        key: Any,
        value: Any,
        headers: Sequence[Header],
    ) -> None:
        # Positional and bare: this runs for every record that is consumed.
        self._acquired = acquired
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return self._acquired.held.topic

    @property
    def partition(self) -> int:
        """The number of its partition."""
        return self._acquired.held.partition

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition together, as results of `commit` are keyed."""
        return self._acquired.held.topic_partition

    @property
    def delivery_count(self) -> int:
        """How often it has been delivered, this time included."""
        return self._acquired.delivery_count

    @property
    def lock_deadline(self) -> float:
        """When its lock ends, in the seconds of ``time.monotonic()``.

        A lower bound: the broker started the lock after the request that fetched it was sent.
        """
        return self._acquired.lock_deadline

    def accept(self) -> None:
        """Acknowledge it as done."""
        self._acquired.held.settle(self.offset, AcknowledgeType.ACCEPT)

    def release(self) -> None:
        """Give it back for another delivery."""
        self._acquired.held.settle(self.offset, AcknowledgeType.RELEASE)

    def reject(self) -> None:
        """Acknowledge it as something that can never be done."""
        self._acquired.held.settle(self.offset, AcknowledgeType.REJECT)

    def settle(self, acknowledge_type: AcknowledgeType) -> None:
        """Acknowledge it with a type that is not known beforehand."""
        self._acquired.held.settle(self.offset, acknowledge_type)

    def __repr__(self) -> str:
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"delivery_count={self.delivery_count}, key={self.key!r}, value={self.value!r})"
        )
