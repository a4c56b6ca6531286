"""What goes in and out of the client: records, where they lie, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from sharegroup.errors import KafkaError

if TYPE_CHECKING:
    from sharegroup.client.locks import AcquisitionLock

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
    RENEW = 4
    """Not done yet: the lock begins anew, and the record stays here."""


class IllegalStateError(Exception):
    """A method was called at a moment, or on a record, where it makes no sense."""


class WakeupError(Exception):
    """`ShareConsumer.wakeup` was called: the poll that was waiting, or is the next, ends."""


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
    is_renewal: bool = False
    """It is about locks that were to begin anew; nothing was settled."""


@dataclass(frozen=True, slots=True)
class CloseReport:
    """What `ShareConsumer.close` did."""

    acknowledged: tuple[AcknowledgementResult, ...] = ()
    """What became of the last acknowledgements."""
    released: Mapping[TopicPartition, int] = field(default_factory=dict)
    """How many records went back unsettled, handed out before or not."""
    error: Exception | None = None
    """Why it is incomplete: the broker finds out by itself when locks and session end."""


class Record:
    """One delivery of one record to this consumer."""

    __slots__ = ("_lock", "headers", "key", "offset", "timestamp_ms", "value")

    def __init__(
        self,
        lock: AcquisitionLock,
        offset: int,
        timestamp_ms: int,
        key: Any,
        value: Any,
        headers: Sequence[Header],
    ) -> None:
        # Positional and bare: this runs for every record that is consumed.
        self._lock = lock
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return self._lock.held.topic

    @property
    def partition(self) -> int:
        """The number of its partition."""
        return self._lock.held.partition

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition together, as results of `commit` are keyed."""
        return self._lock.held.topic_partition

    @property
    def delivery_count(self) -> int:
        """How often it has been delivered, this time included."""
        return self._lock.delivery_count

    @property
    def deadline(self) -> float:
        """When its lock ends, in the seconds of ``time.monotonic()``.

        A lower bound: the broker started the lock after the request that fetched it was sent.
        A renewal moves it when the broker has confirmed it.
        """
        return self._lock.deadline_of(self.offset)

    @property
    def is_lost(self) -> bool:
        """Whether its lock is known to be gone, whatever its deadline says."""
        lock = self._lock
        return lock.held.lost is not None or lock.held.is_superseded(lock, self.offset)

    def accept(self) -> None:
        """Acknowledge it as done."""
        lock = self._lock
        lock.held.settle(lock, self.offset, 1)  # The number: this runs for every record.

    def release(self) -> None:
        """Give it back for another delivery."""
        self._lock.held.settle(self._lock, self.offset, AcknowledgeType.RELEASE)

    def reject(self) -> None:
        """Acknowledge it as something that can never be done."""
        self._lock.held.settle(self._lock, self.offset, AcknowledgeType.REJECT)

    def renew(self) -> None:
        """Ask for its lock to begin anew; it stays here, and has to be settled as before.

        The request leaves at once; the outcome goes to the callback, and `deadline` moves when
        the broker has confirmed it.
        """
        self._lock.held.settle(self._lock, self.offset, AcknowledgeType.RENEW)

    def settle(self, acknowledge_type: AcknowledgeType) -> None:
        """Acknowledge it with a type that is not known beforehand."""
        self._lock.held.settle(self._lock, self.offset, acknowledge_type)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, delivery_count={self.delivery_count}, key={self.key!r}, "
            f"value={self.value!r})"
        )


class UnreadableRecord(Record):
    """A record whose key or value could not be deserialized: both are bytes, ``error`` says why.

    Handed out with ``on_deserialization_error="raw"``; settle it like any other.
    """

    __slots__ = ("error",)

    error: Exception
