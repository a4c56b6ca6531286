"""Completes letters of a broker with their records, read from the topics they came from.

A letter of Apache Kafka has no headers of its record, and key and value only if the group is
configured to copy them (KIP-1191).  The record can be read as long as its topic retains it.  If the
topic was deleted and created again, another record is at its offset: it has another key or value
than the letter, or is newer than a letter that has none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from sharegroup.client.admin.topics import describe_topics
from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.fetch.record_reading import PartitionRange, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.dead_letters.letter import Letter, time_of
from sharegroup.errors import KafkaError
from sharegroup.wire.batches.records import DecodedRecord

HOLE_OFFSETS_MAX = 1_000
"""Offsets that are at most this far apart are read together."""


async def completed(cluster: Cluster, letters: Sequence[Letter]) -> list[Letter]:
    """The letters, completed with their records; without one, `lacks_its_record` stays true."""
    wanted: dict[TopicPartition, set[int]] = defaultdict(set)
    for letter in letters:
        if letter.lacks_its_record:
            assert letter.story.origin is not None, "a letter that lacks its record has an origin"
            origin = letter.story.origin
            wanted[TopicPartition(origin.topic, origin.partition)].add(origin.offset)
    if not wanted:
        return list(letters)
    found = await _found(cluster, wanted)
    return [_with_record(letter, found) for letter in letters]


async def _found(
    cluster: Cluster, wanted: dict[TopicPartition, set[int]]
) -> dict[tuple[str, int, int], DecodedRecord]:
    described = await describe_topics(cluster, {partition.topic for partition in wanted})
    found: dict[tuple[str, int, int], DecodedRecord] = {}
    for partition, offsets in wanted.items():
        topic = described[partition.topic]
        if not isinstance(topic, TopicDescription) or partition.partition >= topic.partition_count:
            continue  # The topic is deleted, so its records are lost.
        for first, end in _close_together(offsets):
            # A record in a batch that cannot be decoded counts as not found.
            async for records in read_records(
                cluster, PartitionRange(partition, first, end), unreadable=_pass_over
            ):
                for record in records:
                    if record.offset in offsets:
                        found[(*partition, record.offset)] = record
    return found


def _pass_over(_: PartitionRange, __: KafkaError) -> None:
    """Skip a batch that cannot be decoded."""


def _close_together(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    first, end = -1, -1
    for offset in sorted(offsets):
        if first >= 0 and offset - end <= HOLE_OFFSETS_MAX:
            end = offset + 1
            continue
        if first >= 0:
            yield first, end
        first, end = offset, offset + 1
    yield first, end


def _with_record(letter: Letter, found: dict[tuple[str, int, int], DecodedRecord]) -> Letter:
    origin = letter.story.origin
    if not letter.lacks_its_record or origin is None:
        return letter
    record = found.get((origin.topic, origin.partition, origin.offset))
    if record is None:
        return letter
    if letter.has_payload:
        # Not by time: the clock of a producer may be ahead of the broker's.
        is_same = (record.key, record.value) == (letter.key, letter.value)
    else:
        is_same = time_of(record) <= letter.timestamp_ms
    return letter.with_record(record) if is_same else letter
