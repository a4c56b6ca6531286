"""What was sent back already: a topic beside the dead letters that remembers it.

    orders.dead              0   1   2   3   4   5   6   7
    orders.dead.redriven         [1,3)       [5,6)              one record for each chunk

A redrive with a filter takes letters out of the middle, so an offset that says "all below" can't
tell what is done; ranges can.  A range is written when the copies of its letters are durable, so
a redrive that was interrupted repeats at most the chunk that was under way, and one that is
started again finds the rest.  The topic is the history of redrives besides: who looks into it
sees when, how many, and where to.

A range speaks of offsets, and offsets of a topic that was deleted and made again mean other
letters: the topic's id stands beside it.  What is said of letters that are gone themselves is
deleted at the beginning of the next redrive, so the ledger is never older than the letters.

Two redrives of the same letters at the same time don't see each other's ranges: the one that
comes second sends again what the first had not noted when it began.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from sharegroup.client.admin_topics import create_topics, delete_records, describe_topics
from sharegroup.client.admin_types import NewTopic, TopicDescription
from sharegroup.client.cluster import Cluster
from sharegroup.client.offset_set import EMPTY, OffsetSet, Range
from sharegroup.client.producer import Producer
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    InvalidRecord,
    KafkaError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from sharegroup.worker.dead_letters.log_reading import Span, read, spans_of

SUFFIX = ".redriven"
CONFIGS: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": "-1"}


class Entry(NamedTuple):
    """One record of the ledger."""

    topic_id: str
    partition: int
    ranges: tuple[Range, ...]


class Ledger:
    """The ranges of one topic of dead letters."""

    __slots__ = ("_done", "_topic_id", "topic")

    def __init__(self, letters: str, topic_id: str) -> None:
        self.topic = letters + SUFFIX
        self._topic_id = topic_id
        self._done: dict[int, OffsetSet] = {}

    async def load(self, cluster: Cluster) -> list[Entry]:
        """Read all that is noted; its records, in order."""
        entries: list[Entry] = []
        try:
            (span,) = await self._spans(cluster)
        except UnknownTopicOrPartition:
            return entries  # Nothing was ever sent back.
        ranges: dict[int, list[Range]] = defaultdict(list)
        async for records in read(cluster, span):
            for record in records:
                try:
                    entry = parsed(record.value)
                except ValueError as error:
                    raise InvalidRecord(
                        f"topic {self.topic!r} offset {record.offset}: {error}; who else writes "
                        "there? Nothing is sent back while it is not known what was"
                    ) from error
                entries.append(entry)
                if entry.topic_id == self._topic_id:
                    ranges[entry.partition] += entry.ranges
        self._done = {partition: OffsetSet.of(some) for partition, some in ranges.items()}
        return entries

    def done(self, partition: int, first: int, end: int) -> Collection[int]:
        """The offsets in [first, end) whose letters were sent back."""
        known = self._done.get(partition, EMPTY).between(first, end)
        return {offset for low, high in known for offset in range(low, high)}

    async def create(self, cluster: Cluster) -> None:
        """Make the topic if there is none."""
        new = NewTopic(self.topic, num_partitions=1, configs=CONFIGS)
        created = (await create_topics(cluster, [new], validate_only=False))[self.topic]
        if created is not None and not isinstance(created, TopicAlreadyExists):
            raise created

    async def prune(
        self, cluster: Cluster, entries: Collection[Entry], firsts: Mapping[int, int]
    ) -> None:
        """Delete the oldest records that speak of nothing that is left; ``firsts``: what is."""
        if not entries:
            return  # Just made, maybe: not every broker knows of it yet.
        (span,) = await self._spans(cluster)
        before = span.first
        for entry in entries:
            start = firsts.get(entry.partition, 0)
            gone = all(end <= start for _, end in entry.ranges)
            if entry.topic_id == self._topic_id and not gone:
                break
            before += 1
        if before > span.first:
            results = await delete_records(cluster, {span.where: before})
            failed = results[span.where]
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
        """Remember, durably, that these ascending offsets were sent back."""
        ranges = tuple(runs_of(offsets))
        document = {
            **facts,
            "topic_id": self._topic_id,
            "partition": partition,
            "ranges": ranges,
        }
        value = json.dumps(document, separators=(",", ":")).encode()
        await producer.send_and_wait(self.topic, value, partition=0)
        self._done[partition] = self._done.get(partition, EMPTY) | OffsetSet.of(ranges)

    async def _spans(self, cluster: Cluster) -> list[Span]:
        described = (await describe_topics(cluster, [self.topic]))[self.topic]
        if not isinstance(described, TopicDescription):
            raise described
        return [
            one for one in await spans_of(cluster, self.topic)
            if one.where == TopicPartition(self.topic, 0)
        ]  # fmt: skip


def runs_of(offsets: Iterable[int]) -> Iterable[Range]:
    """Ascending offsets as ranges."""
    some = list(offsets)
    if not some:
        return
    first = some[0]
    for one, other in pairwise(some):
        if other != one + 1:
            yield first, one + 1
            first = other
    yield first, some[-1] + 1


def parsed(value: bytes | None) -> Entry:
    """A record of the ledger; ValueError says what is wrong with one that is none."""
    try:
        document = json.loads(value or b"")
        ranges = tuple((int(first), int(end)) for first, end in document["ranges"])
        return Entry(str(document["topic_id"]), int(document["partition"]), ranges)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"expected a record of what was sent back, found {value!r:.200}: {error!r}"
        ) from error
