"""In-memory topics for `App.test`: the records of each partition, and committed offsets.

A topic is created when it is first used, with one partition unless `create` was called before.
Records are never deleted.  Tests can make writes to a topic fail, as they do when its partition
leader is unavailable or a record is too large.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sharegroup.errors import KafkaError
from sharegroup.worker.ports import Header
from sharegroup.worker.retrying.tier_log import Committed
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

    def fail(self, topic: str, error: KafkaError) -> None:
        """Make every write to the topic raise ``error`` until `mend`."""
        self._failing[topic] = error

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
