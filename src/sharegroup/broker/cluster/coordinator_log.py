"""The log of a coordinator: an internal topic with keyed records, all read at start.

    command ──▶ records ──▶ append ──▶ replay (in memory) ──▶ durable ──▶ reply

A coordinator replays a record as soon as it is appended, so the next command sees it.  It replies
when the record is durable.  When a write fails, storage cuts the log back to its durable records,
and the replayed records beyond them are lost.  The next command detects this (`was_cut`), drops
the state in memory and reads the topic again (ADR 0005).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.topics import Topics
from sharegroup.errors import KafkaStorageError, NotCoordinator
from sharegroup.ids import ProducerIdAndEpoch, TopicName
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.wire.batches.batches import NO_PRODUCER_ID
from sharegroup.wire.batches.small_batches import KeyedRecord, TransactionalBatch, keyed_records

log = logging.getLogger(__name__)

T = TypeVar("T")

KeyAndValue = tuple[bytes, bytes | None]

OnTransactional = Callable[[int, TransactionalBatch], None]
"""Called with a partition of the topic and a transactional batch in it."""


class Marker(NamedTuple):
    """The end of a producer's transaction; ``version`` is the transaction version."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    version: int

    def encoded(self, *, timestamp_ms: int) -> bytearray:
        """Return the control batch that ends the transaction in a log."""
        # Imported at first use, because most brokers have no transactions.
        from sharegroup.wire.batches.markers import encode_marker

        return encode_marker(
            is_commit=self.is_commit,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            timestamp=timestamp_ms,
            coordinator_epoch=self.coordinator_epoch,
        )


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, -1)


@contextmanager
def as_a_coordinator() -> Iterator[None]:
    """Replace KafkaStorageError by NotCoordinator, as Kafka does, so that clients try again.

    Members of groups end their membership when they receive KAFKA_STORAGE_ERROR.
    """
    try:
        yield
    except KafkaStorageError as error:
        raise NotCoordinator(str(error)) from error


class Durable(Generic[T]):
    """An awaitable result that is available when a ticket is durable.

    Unlike a coroutine, it may be dropped without being awaited.
    """

    __slots__ = ("_result", "_ticket")

    def __init__(self, ticket: Ticket | None, result: T) -> None:
        self._ticket = ticket
        self._result = result

    def now(self) -> T | None:
        """Return the result if it is available now, otherwise None."""
        ticket = self._ticket
        # The error of a failed ticket is left to `__await__`, which translates it.
        is_durable = ticket is None or (ticket.done and not ticket.failed)
        return self._result if is_durable else None

    def __await__(self) -> Generator[Any, None, T]:
        if self._ticket is not None:
            with as_a_coordinator():
                yield from self._ticket.__await__()
        return self._result


class CoordinatorLog:
    """Appends the records of a coordinator to an internal topic and detects lost appends."""

    __slots__ = ("_clock", "_last", "_logs", "_name", "_topics", "partition_count")

    def __init__(self, topics: Topics, clock: Clock, name: TopicName) -> None:
        self._topics = topics
        self._clock = clock
        self._name = name
        self._last: dict[int, Ticket] = {}  # The last append, by partition.
        self._logs: dict[int, PartitionLog] = {}  # Internal topics are never deleted.
        self.partition_count = topics.catalog.topic(name).partition_count

    def append(
        self,
        partition: int,
        records: Sequence[KeyAndValue],
        *,
        producer: ProducerIdAndEpoch = NO_PRODUCER,
        is_urgent: bool = True,
    ) -> Ticket:
        """Append records as one batch, so that after a crash all of them exist or none.

        With a ``producer`` they belong to its transaction.  Records that are not ``is_urgent`` are
        synced with the next ones, or a little later.
        """
        # Imported at first use: the codec takes 15 ms of a start.
        from sharegroup.wire.batches.records import SimpleRecord, encode_batch

        assert records, "expected a batch with records, found an empty one"
        now_ms = self._clock.wall_ms()
        batch = encode_batch(
            [SimpleRecord(key, value, now_ms) for key, value in records],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            is_transactional=producer is not NO_PRODUCER,
        )
        return self._append(partition, batch, now_ms=now_ms, is_urgent=is_urgent)

    def append_marker(self, partition: int, marker: Marker) -> Ticket:
        """Append the end of a producer's transaction."""
        now_ms = self._clock.wall_ms()
        batch = marker.encoded(timestamp_ms=now_ms)
        return self._append(partition, batch, now_ms=now_ms, marker_version=marker.version)

    def _append(
        self,
        partition: int,
        batch: bytearray,
        *,
        now_ms: int,
        marker_version: int = 0,
        is_urgent: bool = True,
    ) -> Ticket:
        log_ = self._log_of(partition)
        last = self._last.get(partition)
        # After another append `was_cut` could not detect the lost one.
        assert last is None or last.end_offset == log_.end_offset, (
            f"{log_} was truncated, which was not detected"
        )
        ticket = log_.append(
            batch, now_ms=now_ms, marker_version=marker_version, is_urgent=is_urgent
        )
        self._last[partition] = ticket
        return ticket

    def last(self, partition: int) -> Ticket | None:
        """Return the last append to this partition; all earlier ones are durable when it is."""
        return self._last.get(partition)

    def writable_check(self, partition: int) -> Callable[[], None]:
        """Return a check that raises KafkaStorageError while the partition takes no writes."""
        return self._log_of(partition).check_writable

    def was_cut(self, partition: int) -> bool:
        """Whether a failed write removed appended records of this partition."""
        last = self._last.get(partition)
        if last is None:
            # Nothing was appended since the start, or since the last cut was read.
            return False
        log_ = self._log_of(partition)
        return log_.end_offset != last.end_offset

    def was_cut_anywhere(self) -> bool:
        """Whether a failed write removed appended records of any partition."""
        return any(self.was_cut(partition) for partition in self._last)

    def _log_of(self, partition: int) -> PartitionLog:
        log_ = self._logs.get(partition)
        if log_ is None:
            log_ = self._logs[partition] = self._topics.named(self._name, partition)[1]
        return log_

    def records(self, transactional: OnTransactional | None = None) -> Iterator[KeyedRecord]:
        """Yield offset, key and value of all records of all partitions, each from its start.

        ``transactional`` is called with each batch of a transaction, in its place, and its records
        are not returned then.
        Records that are not durable yet are included, because they are not replayed again later.
        A cut counts as handled only when all records were read.  So a reading that fails is
        repeated, and no coordinator continues with a part of the records.
        """
        topic = self._topics.catalog.topic(self._name)
        for partition in range(self.partition_count):
            if not self._topics.is_touched(topic, partition):
                continue
            log_ = self._topics.log_of(topic, partition)
            if transactional is None:
                yield from _records_of(log_)
            else:
                yield from _records_of(log_, partial(transactional, partition))
        for partition in [index for index in self._last if self.was_cut(index)]:
            del self._last[partition]


def _records_of(
    log_: PartitionLog, transactional: Callable[[TransactionalBatch], None] | None = None
) -> Iterator[KeyedRecord]:
    """Yield offset, key and value of the records of one partition."""
    start_offset = log_.start_offset
    for data in log_.read_whole():
        for record in keyed_records(data, transactional):
            # Pruning may have moved the start offset into the middle of a batch.
            if record[0] >= start_offset:
                yield record
