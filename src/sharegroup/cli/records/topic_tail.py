"""Reads the records of a topic for `sharegroup tail`: the newest ones, a range, or all that follow.

    newest      the last records of each partition --> the newest of all, by timestamp
    range       partition after partition, in the order of offsets
    following   the records between the ends of the partitions at one look and at the next

It fetches without a group (`client.fetch`). So it takes no record from a group, and the records
that it prints stay as they are.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field

from sharegroup.cli.common.cluster_access import line_of
from sharegroup.cli.common.output import complain
from sharegroup.cli.common.running import Stop
from sharegroup.cli.records.formats.writing import Row
from sharegroup.client.fetch.offsets import offsets_of
from sharegroup.client.fetch.record_reading import (
    PartitionRange,
    Unreadable,
    partition_ranges,
    read_records,
)
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError
from sharegroup.ids import OFFSET_MAX, TopicId
from sharegroup.wire.batches.records import DecodedRecord

PartitionKey = tuple[TopicId | None, TopicPartition]
"""A partition of one topic: of another one that gets its name, the key is another one."""

LOOK_SECONDS = 0.25
"""Interval of looking for new records."""


@dataclass(frozen=True, slots=True)
class TailRange:
    """The records to print before those that follow."""

    newest: int | None = None
    """The number of newest records; None: all records from ``first`` and ``since_ms`` on."""
    first: int = 0
    end: int = OFFSET_MAX
    since_ms: int | None = None
    partitions: frozenset[int] = frozenset()
    """The partitions to read; empty: all."""


@dataclass(slots=True)
class TopicTail:
    """Reads the records of one topic, and remembers where it is in each partition."""

    cluster: Cluster
    topic: str
    wanted: TailRange
    unreadable: Unreadable
    _ends: dict[PartitionKey, int] = field(default_factory=dict)
    """The offset behind the last record that was read, by partition."""

    async def rows(self) -> AsyncIterator[Sequence[Row]]:
        """Yield the records that the topic has now."""
        ranges = await self._ranges()
        self._ends = {_key(log_range): log_range.end for log_range in ranges}
        if self.wanted.newest is not None:
            yield await self._newest(ranges, self.wanted.newest)
            return
        # Kafka looks up no time before 1970, so those records are among all that there are.
        if self.wanted.since_ms is not None and self.wanted.since_ms >= 0:
            places = [log_range.where for log_range in ranges]
            since = await offsets_of(self.cluster, places, self.wanted.since_ms)
            ranges = [_later(log_range, since[log_range.where]) for log_range in ranges]
        for log_range in ranges:
            first = max(log_range.first, self.wanted.first)
            end = min(log_range.end, self.wanted.end)
            async for rows in self._read(log_range._replace(first=first, end=end)):
                yield rows

    async def following(self, stop: Stop) -> AsyncIterator[Sequence[Row]]:
        """Yield new records until ``stop`` is set; wait for brokers that do not answer."""
        while not stop.is_set():
            try:
                async for rows in self._news():
                    yield rows
            except KafkaError as error:
                if not error.retriable:
                    raise
                # The attempts took their timeout, so this loop is slow.
                complain(f"{line_of(error)}; still trying")
                continue
            await asyncio.sleep(LOOK_SECONDS)

    async def _news(self) -> AsyncIterator[Sequence[Row]]:
        for log_range in await self._ranges():
            # A partition that was added meanwhile is new from its first record on, and so is one
            # whose topic was deleted and made again.
            key = _key(log_range)
            first = self._ends.get(key, log_range.first)
            async for rows in self._read(log_range._replace(first=max(log_range.first, first))):
                yield rows
                # After each piece: `following` goes on here after an error, and prints no record
                # twice.
                self._ends[key] = rows[-1].offset + 1
            # The last offsets may have no record, for example those of transaction markers.
            self._ends[key] = max(first, log_range.end)

    async def _ranges(self) -> list[PartitionRange]:
        """Return the present offset ranges of the wanted partitions."""
        ranges = await partition_ranges(self.cluster, self.topic)
        if not self.wanted.partitions:
            return ranges
        return [
            log_range for log_range in ranges if log_range.where.partition in self.wanted.partitions
        ]

    async def _newest(self, ranges: Iterable[PartitionRange], count: int) -> Sequence[Row]:
        """Return the newest records of all partitions, the oldest of them first."""
        newest: list[tuple[tuple[int, int, int], Row]] = []
        for log_range in ranges:
            first = max(log_range.first, log_range.end - count)
            async for rows in self._read(log_range._replace(first=first)):
                for row in rows:
                    # The first part is unique, so rows, which have no order, are never compared.
                    entry = ((row.timestamp_ms, row.partition, row.offset), row)
                    if len(newest) < count:
                        heapq.heappush(newest, entry)
                    else:
                        heapq.heappushpop(newest, entry)
        return [row for _, row in sorted(newest)]

    async def _read(self, log_range: PartitionRange) -> AsyncIterator[Sequence[Row]]:
        if log_range.first >= log_range.end:
            return
        async for records in read_records(self.cluster, log_range, unreadable=self.unreadable):
            if records:
                yield [_row(log_range.where, record) for record in records]


def _key(log_range: PartitionRange) -> PartitionKey:
    return log_range.topic_id, log_range.where


def _later(log_range: PartitionRange, first: int) -> PartitionRange:
    """Return the range from this offset on; empty for -1, which means no such record."""
    return log_range._replace(first=max(log_range.first, first) if first >= 0 else log_range.end)


def _row(where: TopicPartition, record: DecodedRecord) -> Row:
    time = record.timestamp
    return Row(
        topic=where.topic,
        partition=where.partition,
        offset=record.offset,
        timestamp_ms=-1 if time is None else time,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
