"""In-memory topics for `App.test`: the records of each partition, and committed offsets.

A topic is created when it is first used, with one partition unless `create` was called before.
Records are never deleted.  Tests can make writes to a topic fail, as they do when its partition
leader is unavailable or a record is too large.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sharegroup.errors import KafkaError
from sharegroup.waiting.control_records import ControlRecord, parsed
from sharegroup.waiting.retry_topics import CONTROL_PARTITION, control_topic
from sharegroup.worker.ports import Header
from sharegroup.worker.retrying.tier_log import Committed, TierOwner, TierPartition, TierRecord
from sharegroup.worker.retrying.tier_moves import MovedRecord, MovesRefused
from sharegroup.worker.transport.memory_clock import MemoryClock


class MemoryRecord(NamedTuple):
    """A record in a topic; also a `ports.WrittenRecord`."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


Partition = list[MemoryRecord]


class MemoryLog:
    """All topics of a test, with their records and committed offsets."""

    __slots__ = (
        "_appended",
        "_failing",
        "_stamped",
        "_topics",
        "_turn",
        "clock",
        "committed",
        "written",
    )

    def __init__(self, clock: MemoryClock) -> None:
        self.clock = clock
        self.committed: dict[tuple[str, str, int], Committed] = {}
        """Committed offsets by consumer group, topic and partition."""
        self.written: list[MemoryRecord] = []
        """All records of all topics, in the order in which they were written."""
        self._topics: dict[str, tuple[Partition, ...]] = {}
        self._stamped: set[str] = set()
        self._failing: dict[str, KafkaError] = {}
        self._appended: list[Callable[[str], None]] = []
        self._turn = 0

    def create(self, topic: str, *, partitions: int = 1, log_append_time: bool = False) -> None:
        """Create a topic unless it exists."""
        if topic not in self._topics:
            self._topics[topic] = tuple([] for _ in range(partitions))
        if log_append_time:
            self._stamped.add(topic)

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        """The records of each partition of a topic; the lists must not be modified."""
        self.create(topic)
        return self._topics[topic]

    def records(self, topic: str) -> Iterator[MemoryRecord]:
        """All records of a topic, one partition after the other."""
        for partition in self.partitions(topic):
            yield from partition

    def topics(self) -> tuple[str, ...]:
        """The names of all topics, in the order of their creation."""
        return tuple(self._topics)

    def on_append(self, callback: Callable[[str], None]) -> None:
        """Call ``callback`` with the topic's name after each write."""
        self._appended.append(callback)

    def forget(self, callback: Callable[[str], None]) -> None:
        """Unregister ``callback``."""
        self._appended.remove(callback)

    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> MemoryRecord:
        """Write one record, or raise the error that was given to `fail`."""
        if topic in self._failing:
            raise self._failing[topic]
        partitions = self.partitions(topic)
        if partition is None:
            partition = self._partition_for(key, len(partitions))
        if timestamp_ms is None or topic in self._stamped:
            timestamp_ms = self.clock.wall_ms()
        log = partitions[partition]
        record = MemoryRecord(topic, partition, len(log), timestamp_ms, key, value, tuple(headers))
        log.append(record)
        self.written.append(record)
        for callback in tuple(self._appended):
            callback(topic)
        return record

    def failing(self, topic: str) -> KafkaError | None:
        """The error of writes to the topic; None if they succeed."""
        return self._failing.get(topic)

    def fail(self, topic: str, error: KafkaError) -> None:
        """Make every write to the topic raise ``error`` until `mend`."""
        self._failing[topic] = error

    def failure(self, topic: str) -> KafkaError | None:
        """The error with which writes to the topic fail; None if they succeed."""
        return self._failing.get(topic)

    def mend(self, topic: str) -> None:
        """Let writes to the topic succeed again."""
        self._failing.pop(topic, None)

    def _partition_for(self, key: bytes | None, partitions: int) -> int:
        """Choose a partition by the key's checksum or, without a key, in turn.

        The choice is the same in each run of a test.
        """
        if key is not None:
            return zlib.crc32(key) % partitions
        self._turn += 1
        return (self._turn - 1) % partitions


# In-memory retry tiers for `App.test`, for a group with a single scheduler.


NOTHING = Committed(0)
READ_RECORDS_MAX = 500
"""The maximum number of records of each partition per read, as a broker limits a response."""


class MemoryTierLog:
    """Reads the retry topics of one group from memory; a `TierLog` that owns all partitions."""

    __slots__ = ("_arrived", "_group", "_is_cut", "_log", "_paused", "_positions")

    def __init__(self, scheduler_group: str, log: MemoryLog) -> None:
        self._group = scheduler_group
        self._log = log
        self._positions: dict[TierPartition, int] = {}
        self._paused: set[TierPartition] = set()
        self._arrived = asyncio.Event()
        self._is_cut = False

    async def start(self, topics: Sequence[str], owner: TierOwner) -> None:
        """Assign all partitions of these topics to ``owner`` immediately."""
        owned = {
            TierPartition(topic, number): self._log.committed.get(
                (self._group, topic, number), NOTHING
            )
            for topic in topics
            for number in range(len(self._log.partitions(topic)))
        }
        self._positions = {partition: committed.offset for partition, committed in owned.items()}
        self._log.on_append(self._appended)
        await owner.assigned(owned)

    async def read(self, wait_seconds: float) -> Mapping[TierPartition, Sequence[TierRecord]]:
        """Return the next records of all partitions that are not paused."""
        clock = self._log.clock
        deadline = clock.now() + wait_seconds
        alarm = clock.call_at(deadline, self._arrived.set, is_idle=True)
        try:
            while True:
                self._arrived.clear()
                if records := self._read():
                    return records
                if clock.now() >= deadline:
                    return {}
                await self._arrived.wait()
        finally:
            alarm.cancel()

    def pause(self, partition: TierPartition) -> None:
        """Stop reading a partition until `resume`."""
        self._paused.add(partition)

    def resume(self, partition: TierPartition) -> None:
        """Read a paused partition again."""
        self._paused.discard(partition)
        self._arrived.set()

    def end_offset(self, partition: TierPartition) -> int | None:
        """The end offset of the partition."""
        return len(self._log.partitions(partition.topic)[partition.partition])

    async def commit(self, partition: TierPartition, committed: Committed) -> None:
        """Commit an offset for the next owner."""
        if not self._is_cut:
            self._log.committed[self._group, *partition] = committed

    async def close(self) -> None:
        """Give up all partitions."""
        if self._positions:
            self._log.forget(self._appended)
        self._positions = {}

    @property
    def is_cut(self) -> bool:
        """Whether the process is dead."""
        return self._is_cut

    def cut(self) -> None:
        """Simulate the death of the process: ignore its later commits and reads."""
        self._is_cut = True

    def _read(self) -> dict[TierPartition, list[TierRecord]]:
        records_by_partition = {}
        for partition, position in self._positions.items():
            if partition in self._paused or self._is_cut:
                continue
            records = self._log.partitions(partition.topic)[partition.partition]
            batch = records[position : position + READ_RECORDS_MAX]
            if batch:
                self._positions[partition] = position + len(batch)
                records_by_partition[partition] = [
                    TierRecord(
                        record.offset, record.timestamp_ms, record.key, record.value, record.headers
                    )
                    for record in batch
                ]
        return records_by_partition

    def _appended(self, topic: str) -> None:
        if any(partition.topic == topic for partition in self._positions):
            self._arrived.set()


class MemoryTierMoves:
    """Moves the records of one group in memory, all or nothing; a `TierMoves`."""

    __slots__ = ("_control", "_log", "_read", "_tier_log", "_written")

    def __init__(self, group: str, log: MemoryLog, tier_log: MemoryTierLog) -> None:
        self._control = control_topic(group)
        self._log = log
        self._tier_log = tier_log
        self._read = 0
        self._written = asyncio.Event()

    async def move(
        self, partition: TierPartition, records: Sequence[MovedRecord], committed: Committed
    ) -> Sequence[MemoryRecord]:
        """Write the records and commit the offset, all or nothing."""
        if self._tier_log.is_cut:
            await asyncio.Event().wait()  # Never returns, because the process is dead.
        errors = {
            index: error
            for index, record in enumerate(records)
            if (error := self._log.failing(record.topic)) is not None
        }
        if errors:
            raise MovesRefused(errors)
        await self._tier_log.commit(partition, committed)
        return [
            self._log.append(topic, value, key=key, headers=headers, partition=number)
            for topic, key, value, headers, number in records
        ]

    async def record_at(self, partition: TierPartition, offset: int) -> TierRecord | None:
        """Read one record; None if there is none with this offset."""
        records = self._log.partitions(partition.topic)[partition.partition]
        if offset >= len(records):
            return None
        record = records[offset]
        return TierRecord(offset, record.timestamp_ms, record.key, record.value, record.headers)

    async def read_control(self) -> Sequence[ControlRecord]:
        """Return the control records up to the end, from the last call on."""
        records = self._log.partitions(self._control)[CONTROL_PARTITION][self._read :]
        self._read += len(records)
        return [parsed(record.key, record.value) for record in records]

    async def wait_control(self, wait_seconds: float) -> None:
        """Return when there may be new control records, or after this time."""
        clock = self._log.clock
        self._written.clear()
        alarm = clock.call_at(clock.now() + wait_seconds, self._written.set, is_idle=True)
        self._log.on_append(self._appended)
        try:
            await self._written.wait()
        finally:
            alarm.cancel()
            self._log.forget(self._appended)

    async def close(self) -> None:
        """Do nothing."""

    def _appended(self, topic: str) -> None:
        if topic == self._control:
            self._written.set()
