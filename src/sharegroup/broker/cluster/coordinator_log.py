"""An internal topic as a coordinator uses it: keyed records in, all of them out at start.

    command ──▶ records ──▶ append ──▶ replay (in memory) ──▶ durable ──▶ reply

A coordinator replays a record as soon as it is appended, so that the next command sees it, and
answers when it is durable.  When a write fails, storage cuts the log back to what is durable, and
what was replayed beyond that never happened.  Whoever comes next notices (`was_cut`), forgets
everything and reads the topic again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.topics import Topics
from sharegroup.ids import TopicName
from sharegroup.storage.partition_log import PartitionLog
from sharegroup.storage.tickets import Ticket
from sharegroup.wire.records import NewRecord, encode_batch
from sharegroup.wire.small_batches import KeyedRecord, keyed_records

log = logging.getLogger(__name__)

KeyAndValue = tuple[bytes, bytes | None]


class CoordinatorLog:
    """See the module's text."""

    __slots__ = ("_clock", "_last", "_logs", "_name", "_topics", "partition_count")

    def __init__(self, topics: Topics, clock: Clock, name: TopicName) -> None:
        self._topics = topics
        self._clock = clock
        self._name = name
        self._last: dict[int, Ticket] = {}  # Our last append to each partition.
        self._logs: dict[int, PartitionLog] = {}  # Internal topics are never deleted.
        self.partition_count = topics.catalog.topic(name).partition_count

    def append(self, partition: int, records: Sequence[KeyAndValue]) -> Ticket:
        """Write records as one batch: all of them or none are there after a crash."""
        assert records, "an empty batch is not a batch"
        now_ms = self._clock.wall_ms()
        batch = encode_batch(NewRecord(key, value, now_ms) for key, value in records)
        log_ = self._log_of(partition)
        last = self._last.get(partition)
        # One more append would hide that the one before is gone.
        assert last is None or last.end_offset == log_.end_offset, f"{log_} was cut, unnoticed"
        ticket = log_.append(batch, now_ms=now_ms)
        self._last[partition] = ticket
        return ticket

    def last(self, partition: int) -> Ticket | None:
        """The last append to this partition; when it is durable, all before it are."""
        return self._last.get(partition)

    def check_writable(self, partition: int) -> None:
        """Raise KafkaStorageError while the disk takes no records here."""
        log_ = self._log_of(partition)
        log_.check_writable()

    def was_cut(self, partition: int) -> bool:
        """Whether something that was appended here is gone again: a write failed."""
        last = self._last.get(partition)
        if last is None:
            return False
        log_ = self._log_of(partition)
        return log_.end_offset != last.end_offset

    def was_cut_anywhere(self) -> bool:
        """The same of all partitions."""
        return any(self.was_cut(partition) for partition in self._last)

    def _log_of(self, partition: int) -> PartitionLog:
        found = self._logs.get(partition)
        if found is None:
            found = self._logs[partition] = self._topics.named(self._name, partition)[1]
        return found

    def records(self) -> Iterator[KeyedRecord]:
        """Offset, key and value of every record of every partition, each from its start.

        What is not durable yet is among them: it was replayed before, and will not be told again.
        A cut counts as noticed only when all was read: who cannot read it has to try again, not
        to go on with half of it.
        """
        topic = self._topics.catalog.topic(self._name)
        for partition in range(self.partition_count):
            if not self._topics.is_touched(topic, partition):
                continue
            yield from _records_of(self._topics.log_of(topic, partition))
        for partition in [one for one in self._last if self.was_cut(one)]:
            del self._last[partition]


def _records_of(log_: PartitionLog) -> Iterator[KeyedRecord]:
    """The records of one partition."""
    start_offset = log_.start_offset
    for data in log_.read_whole():
        for record in keyed_records(data):
            if record[0] >= start_offset:
                yield record
