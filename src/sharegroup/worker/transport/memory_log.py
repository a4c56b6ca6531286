"""Topics in memory: what was sent to each, in order, and what was committed beside it.

A topic is there as soon as somebody names it, with one partition unless it was made with more.
Nothing is ever deleted.  Writes to a topic can be made to fail, as they do when its leader is
gone or its records are too large.
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
    """One record of a topic; also a `ports.Written`."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


Partition = list[MemoryRecord]


class MemoryLog:
    """See the module's text."""

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
        """By consumer group, topic and partition."""
        self.written: list[MemoryRecord] = []
        """All records of all topics, as they came."""
        self._topics: dict[str, tuple[Partition, ...]] = {}
        self._stamped: set[str] = set()
        self._failing: dict[str, KafkaError] = {}
        self._appended: list[Callable[[str], None]] = []
        self._turn = 0

    def create(self, topic: str, *, partitions: int = 1, log_append_time: bool = False) -> None:
        """Make a topic, unless it is there."""
        if topic not in self._topics:
            self._topics[topic] = tuple([] for _ in range(partitions))
        if log_append_time:
            self._stamped.add(topic)

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        """What lies in each of the topic's partitions; not to be changed."""
        self.create(topic)
        return self._topics[topic]

    def records(self, topic: str) -> Iterator[MemoryRecord]:
        """All records of a topic, one partition after the other."""
        for partition in self.partitions(topic):
            yield from partition

    def topics(self) -> tuple[str, ...]:
        """The names of all topics, the oldest first."""
        return tuple(self._topics)

    def on_append(self, callback: Callable[[str], None]) -> None:
        """Call this with the topic's name after each write."""
        self._appended.append(callback)

    def forget(self, callback: Callable[[str], None]) -> None:
        """Never call this again."""
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
        """Write one record, or raise what `fail` was given."""
        if topic in self._failing:
            raise self._failing[topic]
        lying = self.partitions(topic)
        if partition is None:
            partition = self._partition_for(key, len(lying))
        if timestamp_ms is None or topic in self._stamped:
            timestamp_ms = self.clock.wall_ms()
        log = lying[partition]
        record = MemoryRecord(topic, partition, len(log), timestamp_ms, key, value, tuple(headers))
        log.append(record)
        self.written.append(record)
        for callback in tuple(self._appended):
            callback(topic)
        return record

    def fail(self, topic: str, error: KafkaError) -> None:
        """Let every write to the topic raise this, until `mend`."""
        self._failing[topic] = error

    def mend(self, topic: str) -> None:
        """Take writes again."""
        self._failing.pop(topic, None)

    def _partition_for(self, key: bytes | None, partitions: int) -> int:
        """By the key's checksum, else in turn: the same in each run."""
        if key is not None:
            return zlib.crc32(key) % partitions
        self._turn += 1
        return (self._turn - 1) % partitions
