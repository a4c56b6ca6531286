"""The ledger: a topic that records which dead letters were redriven.

    orders.dead              0   1   2   3   4   5   6   7
    orders.dead.redriven         [1,3)       [5,6)              one record for each chunk

A redrive with a filter takes letters from the middle of a partition, so one offset cannot describe
which letters are done.  The ledger has ranges instead.  A range is written once the copies of its
letters are durable.  An interrupted redrive therefore repeats at most the chunk in progress, and a
restarted one continues with the other letters.  The topic also is the history of redrives: when,
how many letters, and to which topics.

If a topic is deleted and created again, its offsets mean other letters.  So each entry has the
topic id.  The next redrive deletes entries whose letters are deleted.

A job (`sharegroup.jobs`) writes copies and range in one transaction.  So a ledger is read
committed, and an open transaction in it is waited for: behind it may be ranges that are committed.

Concurrent redrives of the same letters do not see each other's ranges.  The later one repeats the
letters that the earlier one had not recorded when the later one started.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple

from sharegroup.client.admin.topics import (
    delete_records,
    describe_topics,
)
from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.fetch.record_reading import PartitionRange, partition_ranges, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.produce.producer import Producer
from sharegroup.client.records import TopicPartition
from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet, Range
from sharegroup.dead_letters.own_topics import create_if_missing
from sharegroup.dead_letters.topics import (
    TOPIC_CHARACTERS_MAX,
)
from sharegroup.errors import InvalidRecord, KafkaError, UnknownTopicOrPartition

SUFFIX = ".redriven"
HASH_CHARACTERS = 16
TRANSACTION_WAIT_MS = 60_000
"""How long an open transaction is waited for; a coordinator aborts those of jobs long before."""
OFFSETS_END = 2**63
"""The end of a range is exclusive, so it may be one above the largest offset."""
CONFIGS: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": "-1"}


class Entry(NamedTuple):
    """One record of the ledger: redriven offset ranges of one partition."""

    topic_id: str
    partition: int
    ranges: tuple[Range, ...]


class Ledger:
    """The redriven offset ranges of one dead-letter topic."""

    __slots__ = ("_done", "_topic_id", "topic")

    def __init__(self, letters: str, topic_id: str) -> None:
        self.topic = ledger_topic(letters)
        self._topic_id = topic_id
        self._done: dict[int, OffsetSet] = {}

    async def load(self, cluster: Cluster) -> dict[int, Entry]:
        """Read the whole ledger and return its entries by their ascending offsets."""
        entries: dict[int, Entry] = {}
        try:
            (log_range,) = await self._ranges(cluster)
        except UnknownTopicOrPartition:
            return entries  # Nothing was redriven yet.
        ranges: dict[int, list[Range]] = defaultdict(list)
        reading = read_records(cluster, log_range, committed=True, timeout_ms=TRANSACTION_WAIT_MS)
        async for records in reading:
            for record in records:
                try:
                    entry = parsed(record.value)
                except ValueError as error:
                    raise InvalidRecord(
                        f"topic {self.topic!r} offset {record.offset}: {error}; another program "
                        "may have written it. Nothing is sent back, because it is unknown which "
                        "dead letters were sent back before"
                    ) from error
                entries[record.offset] = entry
                if entry.topic_id == self._topic_id:
                    # A topic that was made anew has other letters at these offsets.
                    ranges[entry.partition] += entry.ranges
        self._done = {partition: OffsetSet.of(done) for partition, done in ranges.items()}
        return entries

    def done(self, partition: int, first: int, end: int) -> Collection[int]:
        """The offsets in [first, end) whose letters were redriven."""
        ranges = self._done.get(partition, EMPTY).between(first, end)
        return {offset for low, high in ranges for offset in range(low, high)}

    async def create(self, cluster: Cluster) -> None:
        """Create the topic if it is missing, with the default replicas of a worker's topics."""
        await create_if_missing(cluster, self.topic, CONFIGS)

    async def prune(
        self, cluster: Cluster, entries: Mapping[int, Entry], firsts: Mapping[int, int]
    ) -> None:
        """Delete the oldest of the entries that `load` returned whose letters are deleted.

        ``firsts`` has the log start offset of each partition of the letters.
        """
        before = 0
        for offset, entry in entries.items():
            start = firsts.get(entry.partition, 0)
            gone = all(end <= start for _, end in entry.ranges)
            # Up to the first entry that is needed, because a log deletes only from its beginning.
            # The letters of another topic id are gone with their topic.
            if entry.topic_id == self._topic_id and not gone:
                break
            before = offset + 1
        if before:
            # Another redrive may have deleted them meanwhile, which is no error.
            where = TopicPartition(self.topic, 0)
            failed = (await delete_records(cluster, {where: before}))[where]
            if isinstance(failed, KafkaError):
                raise failed

    async def note(
        self,
        producer: Producer,
        partition: int,
        offsets: Iterable[int],
        *,
        facts: Mapping[str, Any],
    ) -> None:
        """Record durably that the letters at these ascending offsets were redriven."""
        ranges = tuple(runs_of(offsets))
        value = encoded(self._topic_id, partition, ranges, facts)
        # One partition, so that the order of the entries is that of the offsets, by which `prune`
        # counts.
        await producer.send_and_wait(self.topic, value, partition=0)
        self._done[partition] = self._done.get(partition, EMPTY) | OffsetSet.of(ranges)

    async def _ranges(self, cluster: Cluster) -> list[PartitionRange]:
        described = (await describe_topics(cluster, [self.topic]))[self.topic]
        if not isinstance(described, TopicDescription):
            raise described
        return [
            log_range for log_range in await partition_ranges(cluster, self.topic)
            if log_range.where == TopicPartition(self.topic, 0)
        ]  # fmt: skip


def ledger_topic(letters: str) -> str:
    """The name of a ledger; that of a long topic is cut, with a hash in place of the rest."""
    name = letters + SUFFIX
    if len(name) <= TOPIC_CHARACTERS_MAX:
        return name
    end = f".{sha256(letters.encode()).hexdigest()[:HASH_CHARACTERS]}{SUFFIX}"
    return letters[: TOPIC_CHARACTERS_MAX - len(end)] + end


def runs_of(offsets: Iterable[int]) -> Iterable[Range]:
    """Convert ascending offsets to half-open ranges."""
    ascending = list(offsets)
    if not ascending:
        return
    first = ascending[0]
    for offset, next_offset in pairwise(ascending):
        if next_offset != offset + 1:
            yield first, offset + 1
            first = next_offset
    yield first, ascending[-1] + 1


def encoded(
    topic_id: str, partition: int, ranges: tuple[Range, ...], facts: Mapping[str, Any]
) -> bytes:
    """The value of a ledger record, as `parsed` reads it."""
    document = {**facts, "topic_id": topic_id, "partition": partition, "ranges": ranges}
    return json.dumps(document, separators=(",", ":")).encode()


def parsed(value: bytes | None) -> Entry:
    """Parse the value of a ledger record; raises ValueError if it is not an entry."""
    try:
        document = json.loads(value or b"")
        ranges = tuple((int(first), int(end)) for first, end in document["ranges"])
        if not all(0 <= first < end <= OFFSETS_END for first, end in ranges):
            raise ValueError(f"not ranges of offsets: {ranges!r:.80}")  # noqa: TRY301  One text.
        return Entry(str(document["topic_id"]), int(document["partition"]), ranges)
    # The last two of JSON with ``Infinity``, and of lists in lists without end.
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"expected an entry of the redrive ledger, found {value!r:.200}: {error!r}"
        ) from error
