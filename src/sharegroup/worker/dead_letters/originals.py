"""What a broker's letters leave out, found again in the topics that the records came from.

Apache Kafka's letter has no headers of its record, and key and value only where the group has
them copied (KIP-1191).  The record is still where it was for as long as its topic keeps it.  One
that was appended after its letter is not it: the topic was deleted and made again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from sharegroup.client.admin_topics import describe_topics
from sharegroup.client.admin_types import TopicDescription
from sharegroup.client.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.wire.records import Record
from sharegroup.worker.dead_letters.letter import Letter, time_of
from sharegroup.worker.dead_letters.log_reading import Span, read

HOLE_OFFSETS_MAX = 1_000
"""Offsets that lie closer together than this are read in one go."""


async def completed(cluster: Cluster, letters: Sequence[Letter]) -> list[Letter]:
    """The same letters, with their records where these were found; `lacks_its_record` else."""
    wanted: dict[TopicPartition, set[int]] = defaultdict(set)
    for letter in letters:
        if letter.lacks_its_record:
            assert letter.story.origin is not None, "what lacks its record says where it is"
            origin = letter.story.origin
            wanted[TopicPartition(origin.topic, origin.partition)].add(origin.offset)
    if not wanted:
        return list(letters)
    found = await _found(cluster, wanted)
    return [_with_record(letter, found) for letter in letters]


async def _found(
    cluster: Cluster, wanted: dict[TopicPartition, set[int]]
) -> dict[tuple[str, int, int], Record]:
    described = await describe_topics(cluster, {where.topic for where in wanted})
    found: dict[tuple[str, int, int], Record] = {}
    for where, offsets in wanted.items():
        topic = described[where.topic]
        if not isinstance(topic, TopicDescription) or where.partition >= topic.partition_count:
            continue  # Its topic is gone, and all records with it.
        for first, end in _close_together(offsets):
            async for records in read(cluster, Span(where, first, end)):
                for record in records:
                    if record.offset in offsets:
                        found[(*where, record.offset)] = record
    return found


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


def _with_record(letter: Letter, found: dict[tuple[str, int, int], Record]) -> Letter:
    origin = letter.story.origin
    if not letter.lacks_its_record or origin is None:
        return letter
    record = found.get((origin.topic, origin.partition, origin.offset))
    if record is None or time_of(record) > letter.timestamp_ms:
        return letter
    if letter.has_payload and (record.key, record.value) != (letter.key, letter.value):
        return letter
    return letter.with_record(record)
