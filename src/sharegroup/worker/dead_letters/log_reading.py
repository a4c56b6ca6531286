"""Plain Fetch of a range of offsets: how letters are read in bulk, and originals are found again.

No group, no lock, nothing committed: whoever looks at dead letters must not change them.  One
request at a time; a reader that works on what came has the next answer made by the broker from
its page cache in the time of a round trip, and megabytes come at once.

A range is read to its end as it was when the reading began.  What is gone from it meanwhile, by
retention or a purge, is passed over, and so are control batches.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic
from kio.static.primitive import i8, i32, i32Timedelta, i64

from sharegroup.client.admin_topics import list_offsets
from sharegroup.client.admin_types import OffsetSpec
from sharegroup.client.cluster import NO_LEADER, Cluster, Lane
from sharegroup.client.records import TopicPartition
from sharegroup.client.refusals import refused
from sharegroup.errors import (
    NONE,
    CorruptMessage,
    KafkaError,
    LeaderNotAvailable,
    OffsetOutOfRange,
)
from sharegroup.wire.batches import Buffer, scan
from sharegroup.wire.records import Record, batch_records

FETCH_BYTES_MAX = 4 * 1024 * 1024
"""One answer; a batch that is larger comes nevertheless."""
WAIT = i32Timedelta.parse(timedelta(milliseconds=500))
"""Below its high watermark a partition answers at once; this is for a follower's moment."""
READ_UNCOMMITTED = 0
RECORDS_MIN = 500
"""What is handed out at a time, and up to a batch more."""


class Span(NamedTuple):
    """The offsets [first, end) of a partition."""

    where: TopicPartition
    first: int
    end: int


async def spans_of(cluster: Cluster, topic: str) -> list[Span]:
    """What every partition of a topic holds now; UnknownTopicOrPartition if there is none."""
    described = await cluster.topic(topic)
    partitions = [TopicPartition(topic, number) for number in range(len(described.leaders))]
    firsts = await _offsets(cluster, partitions, OffsetSpec.EARLIEST)
    ends = await _offsets(cluster, partitions, OffsetSpec.LATEST)
    return [Span(where, firsts[where], ends[where]) for where in partitions]


async def read(cluster: Cluster, span: Span) -> AsyncIterator[list[Record]]:
    """The records of a span in order, some hundreds at a time.

    Batch by batch out of an answer: compressed megabytes are many records, and their objects
    would be all over the memory before the first one is looked at.
    """
    position = span.first
    while position < span.end:
        here = Span(span.where, position, span.end)
        data = await cluster.retrying(
            partial(_fetched, cluster, here), what=f"fetch of {_named(here)}"
        )
        if isinstance(data, int):
            position = data
            continue
        some: list[Record] = []
        try:
            for at, header in scan(data):
                position = max(position, header.end_offset)
                if not header.is_control:
                    some += batch_records(data, at, header, check_crc=True)
                if len(some) >= RECORDS_MIN:
                    yield _within(some, here)
                    some = []
        except CorruptMessage as error:
            raise CorruptMessage(f"{_named(here)}: {error}") from error
        if some:
            yield _within(some, here)


def _within(records: list[Record], span: Span) -> list[Record]:
    """Those of the span; a batch may begin before it and end behind it."""
    if span.first <= records[0].offset and records[-1].offset < span.end:
        return records
    return [one for one in records if span.first <= one.offset < span.end]


async def _offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    found = {}
    for where, listed in (await list_offsets(cluster, dict.fromkeys(partitions, spec))).items():
        if isinstance(listed, KafkaError):
            raise listed
        found[where] = listed.offset
    return found


async def _fetched(cluster: Cluster, span: Span) -> Buffer | int:
    """Batches from the beginning of a span; or where to go on when there is nothing."""
    try:
        answer = await _ask(cluster, span)
    except KafkaError:
        cluster.outdate(span.where.topic)
        raise
    if answer.error_code == OffsetOutOfRange.code:
        earliest = (await _offsets(cluster, [span.where], OffsetSpec.EARLIEST))[span.where]
        # Before the log's beginning: go on there.  Behind its end: all of the span is gone.
        return earliest if earliest > span.first else span.end
    if answer.error_code != NONE:
        cluster.outdate(span.where.topic)
        raise refused(answer.error_code, _named(span))
    data: Buffer = answer.records or b""
    return data or span.first


async def _ask(cluster: Cluster, span: Span) -> Any:
    """The one partition's part of the answer."""
    topic = await cluster.topic(span.where.topic)
    leader = topic.leader_of(span.where.partition)
    if leader == NO_LEADER:
        raise LeaderNotAvailable(f"{_named(span)}: the partition has no leader")
    partition = FetchPartition(
        partition=i32(span.where.partition),
        fetch_offset=i64(span.first),
        partition_max_bytes=i32(FETCH_BYTES_MAX),
    )
    request = FetchRequest(
        max_wait=WAIT,
        min_bytes=i32(1),
        max_bytes=i32(FETCH_BYTES_MAX),
        isolation_level=i8(READ_UNCOMMITTED),
        topics=(FetchTopic(topic_id=topic.topic_id, partitions=(partition,)),),
        forgotten_topics_data=(),
    )
    connection = await cluster.connection(leader, Lane.RECORDS)
    response = await connection.request(request)
    if response.error_code != NONE:
        raise refused(response.error_code, None, node=leader)
    for one in response.responses:
        for answer in one.partitions:
            return answer
    raise LeaderNotAvailable(f"{_named(span)}: node {leader} said nothing about it")


def _named(span: Span) -> str:
    return f"topic {span.where.topic!r} partition {span.where.partition} offset {span.first}"
