"""The two topics of the shared history, and what is read from them.

    topic                           a block is of    kept
    __sharegroup.console.seconds    10 seconds       two hours
    __sharegroup.console.minutes    10 minutes       eight days

One partition each.  A block every second would be ten times the records; what is not written yet
when a console is killed is at most one block, and the seconds have the minutes of it.  The brokers
set the time of each record, so retention does not depend on the clocks of consoles, and a block
whose slot is not of the time at which it was written is passed over.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from sharegroup.client.fetch.offsets import offsets_of
from sharegroup.client.fetch.record_reading import PartitionRange, partition_ranges, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.console.remember.blocks import Block, DamagedBlock, parsed
from sharegroup.console.watch.history import MINUTES_MS, SECONDS_MS, Tier
from sharegroup.dead_letters.own_topics import create_if_missing
from sharegroup.errors import KafkaError
from sharegroup.wire.batches.records import DecodedRecord

log = logging.getLogger(__name__)

AHEAD_MS_MAX = 60_000
"""How much later than the broker's time a slot may begin."""
BEHIND_MS_MAX = 2 * 60 * 60 * 1000
"""How much earlier than the broker's time a slot may begin: it is written late after an outage."""
BLOCKS_READ_MAX = 20_000
"""Blocks that are read of one topic, the newest ones; eight days of minutes are 1,152."""
MIB = 1024 * 1024


class TierTopic(NamedTuple):
    """The topic of a tier."""

    name: str
    slot_ms: int
    """The time whose points are in one block."""
    backlog_ms: int
    """How far back a new owner writes what the one before has not written."""
    configs: Mapping[str, str]

    @property
    def where(self) -> TopicPartition:
        """Its one partition."""
        return TopicPartition(self.name, 0)


def _configs(keep_ms: int, segment_ms: int, keep_bytes: int) -> Mapping[str, str]:
    return MappingProxyType(
        {
            "cleanup.policy": "delete",
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": str(keep_ms),
            "retention.bytes": str(keep_bytes),
            # Only whole segments are deleted.
            "segment.ms": str(segment_ms),
            "segment.bytes": str(keep_bytes // 8),
        }
    )


TOPICS: Mapping[Tier, TierTopic] = MappingProxyType(
    {
        Tier.SECONDS: TierTopic(
            "__sharegroup.console.seconds",
            slot_ms=10_000,
            backlog_ms=10 * 60_000,
            configs=_configs(SECONDS_MS, 20 * 60_000, 64 * MIB),
        ),
        Tier.MINUTES: TierTopic(
            "__sharegroup.console.minutes",
            slot_ms=10 * 60_000,
            backlog_ms=60 * 60_000,
            configs=_configs(MINUTES_MS, 24 * 60 * 60_000, 256 * MIB),
        ),
    }
)


async def create_topics(cluster: Cluster) -> None:
    """Create the topics that are missing."""
    for topic in TOPICS.values():
        await create_if_missing(cluster, topic.name, topic.configs)


class BlockReader:
    """Reads the blocks of a tier, and counts those that it passes over."""

    def __init__(self, cluster: Cluster, tier: Tier) -> None:
        self._cluster = cluster
        self._tier, self._topic = tier, TOPICS[tier]
        self.passed_over = 0
        self._first_reason = ""

    async def blocks(self, since_ms: int) -> AsyncIterator[Block]:
        """Yield the blocks written from a time on, in order, up to what is there at the start."""
        where = self._topic.where
        whole = (await partition_ranges(self._cluster, where.topic))[0]
        first = (await offsets_of(self._cluster, [where], max(0, since_ms)))[where]
        if first < 0:
            return
        wanted = whole._replace(first=max(first, whole.end - BLOCKS_READ_MAX))
        async for records in read_records(self._cluster, wanted, unreadable=self._unreadable):
            for record in records:
                try:
                    block = self._block(record)
                except DamagedBlock as error:
                    self._pass_over(1, f"offset {record.offset}: {error}")
                else:
                    yield block
        self._report()

    def _block(self, record: DecodedRecord) -> Block:
        block = parsed(bytes(record.value or b""))
        if block.tier is not self._tier:
            raise DamagedBlock(f"expected a block of {self._tier.name}, found {block.tier.name}")
        slot_ms, end_ms = block.slot_ms, block.slot_ms + self._topic.slot_ms
        for group in block.groups:
            if not slot_ms <= group.points.times[0] <= group.points.times[-1] < end_ms:
                raise DamagedBlock(
                    f"a point of its group {group.group_id!r:.100} is of no such slot"
                )
        written_ms = record.timestamp
        if (
            written_ms is None
            or not written_ms - BEHIND_MS_MAX <= slot_ms <= written_ms + AHEAD_MS_MAX
        ):
            raise DamagedBlock(
                f"it was written at {written_ms} ms for the slot of {slot_ms} ms; the clock of the "
                "console that wrote it is not the brokers'"
            )
        return block

    def _unreadable(self, where: PartitionRange, error: KafkaError) -> None:
        self._pass_over(where.end - where.first, f"offset {where.first}: {error}")

    def _pass_over(self, count: int, reason: str) -> None:
        self._first_reason = self._first_reason or reason
        self.passed_over += count

    def _report(self) -> None:
        if self.passed_over:
            log.warning(
                "event=console.blocks_passed_over topic=%s count=%d first=%r do=%r",
                *(self._topic.name, self.passed_over, self._first_reason),
                "find the program that writes to this topic, or the console with another version "
                "or a wrong clock",
            )
