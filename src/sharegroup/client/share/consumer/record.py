"""A consumed record, with the methods that acknowledge this delivery of it."""

from __future__ import annotations

from sharegroup.client.fetch.record_content import Field, RecordContent
from sharegroup.client.records import TopicPartition
from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.session.acknowledgements import delay_ms_of
from sharegroup.durations import Duration
from sharegroup.errors import UnreadableBatch
from sharegroup.protocol_enums import AcknowledgeType

TYPES = frozenset(int(kind) for kind in AcknowledgeType) - {int(AcknowledgeType.GAP)}
"""The acknowledgement types that an application may use."""


def check_type(acknowledge_type: int) -> None:
    """Raise ValueError for a type that applications cannot use, before anything is changed."""
    if acknowledge_type not in TYPES:
        names = ", ".join(AcknowledgeType(kind).name for kind in sorted(TYPES))
        raise ValueError(f"expected an acknowledgement type ({names}), found {acknowledge_type!r}")


class Record(RecordContent[AcquisitionLock]):
    """A consumed record, with the methods that acknowledge this delivery of it."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The name of the record's topic."""
        return self._shared.held.topic

    @property
    def partition(self) -> int:
        """The number of the record's partition."""
        return self._shared.held.partition

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition as one value; `ShareConsumer.commit` returns results by this key."""
        return self._shared.held.topic_partition

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the leader that wrote the record; None if the log does not have it."""
        batch = self._shared.batch_of(self.offset)
        return None if batch is None or batch.leader_epoch < 0 else batch.leader_epoch

    @property
    def has_append_time(self) -> bool:
        """Whether the timestamp is the broker's time of the append, not the producer's time."""
        batch = self._shared.batch_of(self.offset)
        return batch is not None and batch.has_append_time

    @property
    def delivery_count(self) -> int:
        """The number of deliveries of the record so far, including this one."""
        return self._shared.delivery_count

    @property
    def deadline(self) -> float:
        """The end of the record's acquisition lock, in seconds of ``time.monotonic()``.

        It is a lower bound: it counts from the moment when the fetch was sent, and the broker
        starts the lock later.  A renewal moves it when the broker has confirmed the renewal.
        """
        lock = self._shared
        # Without a call in the usual case, because a worker looks at it for every record.
        return lock.deadline if lock.renewed_singly is None else lock.deadline_of(self.offset)

    @property
    def is_lost(self) -> bool:
        """Whether the acquisition lock is known to be lost, even before its deadline."""
        lock = self._shared
        held = lock.held
        return held.lost is not None or (
            bool(held.superseded) and (lock, self.offset) in held.superseded
        )

    def accept(self) -> None:
        """Acknowledge the record as processed."""
        lock = self._shared
        # A number, because the lookup of the enum's member costs time for every record.
        lock.held.settle(lock, self.offset, 1)

    def release(self, *, delay: Duration | None = None) -> None:
        """Make the record available for another delivery, at once or after a delay.

        ``delay`` is a text as ``"30s"``, a timedelta, or a number of seconds.  Without it the
        group's setting ``sharegroup.redelivery.delay.ms`` applies, if the broker is ours.  With it
        the broker keeps the delay, also over a restart; zero means at once, and 24 hours are the
        most.  Apache Kafka has no delays: there this consumer holds the record and releases it when
        the delay is over.  If its lock ends before, it is available then.
        """
        if delay is None:
            self._shared.held.settle(self._shared, self.offset, AcknowledgeType.RELEASE)
            return
        self._shared.held.release_after(self._shared, self.offset, delay_ms_of(delay))

    def reject(self) -> None:
        """Archive the record without further deliveries, because it cannot be processed."""
        self._shared.held.settle(self._shared, self.offset, AcknowledgeType.REJECT)

    def renew(self) -> None:
        """Renew the record's acquisition lock; the record still has to be settled.

        The request is sent at once.  Its outcome goes to the acknowledgement callback, and
        `deadline` moves when the broker has confirmed the renewal.
        """
        self._shared.held.settle(self._shared, self.offset, AcknowledgeType.RENEW)

    def settle(self, acknowledge_type: AcknowledgeType) -> None:
        """Acknowledge the record with the given type; ValueError if it is none of the four."""
        check_type(acknowledge_type)
        self._shared.held.settle(self._shared, self.offset, acknowledge_type)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, delivery_count={self.delivery_count}, key={self.key!r}, "
            f"value={self.value!r})"
        )


class UnreadableDelivery(UnreadableBatch):
    """Acquired offsets that cannot be read, whose batch `ShareConsumer` cannot divide.

    `ShareConsumer.poll` raises it once for each acquired range.  The methods that take records take
    it, too: ``consumer.reject(error)``.  The next `poll` releases the range if nothing was decided.
    """

    def __init__(
        self, reason: object, lock: AcquisitionLock, first: int, end: int, batch: bytes
    ) -> None:
        super().__init__(
            reason,
            topic=lock.held.topic,
            partition=lock.held.partition,
            first=first,
            end=end,
            batch=batch,
            action=f"delivery {lock.delivery_count}; pass this error to accept, release or reject "
            "of the consumer, or the next poll releases the range",
        )
        self._lock = lock

    @property
    def delivery_count(self) -> int:
        """The number of deliveries of the range so far, including this one."""
        return self._lock.delivery_count

    @property
    def deadline(self) -> float:
        """The end of the acquisition lock, in seconds of ``time.monotonic()``."""
        return self._lock.deadline

    @property
    def is_lost(self) -> bool:
        """Whether the acquisition lock is known to be lost, even before its deadline."""
        return self._lock.held.lost is not None

    def settle(self, acknowledge_type: int) -> None:
        """Set, or change, the acknowledgement type of the whole range."""
        self._lock.held.settle_range(self._lock, self.first, self.end, acknowledge_type)


class UnreadableRecord(Record):
    """A record whose key or value could not be deserialized; both are bytes.

    `ShareConsumer.poll` returns it with ``on_deserialization_error="raw"``; ``error`` says what
    failed.  It is settled like any other record.
    """

    __slots__ = ("error",)

    error: DeserializationError


class DeserializationError(Exception):
    """A key or value could not be deserialized; ``record`` holds the raw bytes.

    The record is released, so it is delivered again up to the delivery count limit.  In
    explicit mode the application may choose another type: ``error.record.reject()``.
    """

    def __init__(self, message: str, record: Record, field: Field) -> None:
        super().__init__(message)
        self.record = record
        self.field: Field = field
        """The part of the record that could not be deserialized."""
