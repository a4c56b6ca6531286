"""Reads the records of an offset range of one partition, decoded, a few hundred at a time.

Reading uses no group and no locks and commits nothing, so it does not change what it reads.  The
end of the range is fixed before reading starts.  Records deleted in the meantime, by retention or
a purge, are left out, and so are control batches.  If the log ends before the range, reading ends
there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from sharegroup.client.fetch.aborted_transactions import AbortedTransaction, classified_batches
from sharegroup.client.fetch.offsets import OffsetSpec, offsets_of
from sharegroup.client.fetch.partition_fetch import OtherTopicId
from sharegroup.client.fetch.range_fetch import MissingOffsets, RangeFetch, WantedRanges
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    CorruptMessage,
    KafkaError,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
    UnreadableBatch,
)
from sharegroup.ids import TopicId
from sharegroup.wire.batches.batches import BatchHeader, Buffer
from sharegroup.wire.batches.compression import DECOMPRESSED_BYTES_MAX
from sharegroup.wire.batches.record_pieces import UnreadableRange, read_pieces
from sharegroup.wire.batches.records import DecodedRecord

RECORDS_MIN = 100
"""Records that are yielded together, plus up to one batch.

So many dead letters, with two dozen headers each, fit into a processor's cache.
"""


class TopicMadeAgain(UnknownTopicOrPartition, retriable=False):
    """The topic was deleted, and another topic was created with its name."""


class PartitionRange(NamedTuple):
    """The offset range [first, end) of a partition."""

    where: TopicPartition
    first: int
    end: int
    topic_id: TopicId | None = None
    """The id of the topic; None for any topic of this name."""


class Placed(Protocol):
    """What is made of a record, with the offset of the record."""

    @property
    def offset(self) -> int: ...


Element = TypeVar("Element", bound=Placed)

Make = Callable[[Iterable[DecodedRecord], bool], list[Element]]
"""Makes an element of each record of a batch; may be called twice for the same records.

The second argument says whether the batch has the mark of our broker's letters, which no producer
can write (ADR 0036).  If each record is dropped before the next one is taken, its parts stay in the
processor's first cache.
"""

Unreadable = Callable[[PartitionRange, KafkaError], None]
"""Called with the offsets of a batch that cannot be decoded, and with the error."""


async def partition_ranges(
    cluster: Cluster, topic: str, *, timeout_ms: int | None = None
) -> list[PartitionRange]:
    """Return the current offset ranges of all partitions, from log start to high watermark.

    Retries until ``timeout_ms``, by default ``default_api_timeout_ms``.
    """
    described = await cluster.topic(topic, timeout_ms=timeout_ms)
    partitions = [TopicPartition(topic, number) for number in range(len(described.leaders))]
    firsts = await offsets_of(cluster, partitions, OffsetSpec.EARLIEST, timeout_ms=timeout_ms)
    ends = await offsets_of(cluster, partitions, OffsetSpec.LATEST, timeout_ms=timeout_ms)
    return [
        PartitionRange(partition, firsts[partition], ends[partition], described.topic_id)
        for partition in partitions
    ]


def read_records(
    cluster: Cluster,
    wanted: PartitionRange,
    *,
    unreadable: Unreadable | None = None,
    timeout_ms: int | None = None,
    committed: bool = False,
) -> AsyncIterator[list[DecodedRecord]]:
    """Return an iterator of the records of a range in order, as `read_made` yields them."""
    return read_made(
        cluster,
        wanted,
        _as_they_are,
        unreadable=unreadable,
        timeout_ms=timeout_ms,
        committed=committed,
    )


def _as_they_are(records: Iterable[DecodedRecord], _: bool) -> list[DecodedRecord]:
    return list(records)


async def read_made(
    cluster: Cluster,
    wanted: PartitionRange,
    make: Make[Element],
    *,
    unreadable: Unreadable | None = None,
    timeout_ms: int | None = None,
    committed: bool = False,
) -> AsyncIterator[list[Element]]:
    """Yield what ``make`` makes of the records of a range, in order.

    A response is decoded batch by batch, because compressed megabytes have many records whose
    objects would all be in memory before the first one is used.

    With ``committed`` the records of aborted transactions are left out, and open transactions are
    waited for, each up to ``timeout_ms``.

    Without ``unreadable`` a batch that cannot be decoded raises UnreadableBatch.  Raises
    TopicMadeAgain if the topic has another id than the range, and RequestTimedOut if there is no
    progress for ``timeout_ms``, by default ``default_api_timeout_ms``.
    """
    fetch = RangeFetch(
        cluster,
        [WantedRanges(wanted.where, wanted.topic_id, ((wanted.first, wanted.end),))],
        missing=_leave_out,
        timeout_ms=timeout_ms,
        committed=committed,
    )
    while fetched := await fetch.next_round():
        for batches in fetched:
            here = wanted._replace(first=batches.first)
            for elements in _decoded(batches.records, batches.aborted, here, make, unreadable):
                yield elements


def _leave_out(missing: MissingOffsets) -> None:
    """Go on behind deleted records; raise an error if the topic was made again."""
    if isinstance(missing.error, OffsetOutOfRange):
        return
    if isinstance(missing.error, OtherTopicId):
        raise TopicMadeAgain(
            f"topic {missing.where.topic!r} was deleted and created again while it was read; the "
            "records read before are from the deleted topic. Start again"
        ) from missing.error
    raise missing.error


def _decoded(
    data: Buffer,
    aborted: Sequence[AbortedTransaction],
    here: PartitionRange,
    make: Make[Element],
    unreadable: Unreadable | None,
) -> Iterator[list[Element]]:
    """Decode the batches of a response; ``here`` begins at the requested offset."""
    position = here.first
    elements: list[Element] = []
    try:
        for at, header, is_delivered, marker_error in classified_batches(data, aborted):
            if marker_error is not None:
                raise marker_error
            batch = here._replace(first=max(position, header.base_offset), end=header.end_offset)
            position = max(position, header.end_offset)
            if not is_delivered:
                continue
            for piece in _pieces_of(data, at, header, batch, make, unreadable, here.end):
                elements += piece
                # Fewer than the header's count: a part of a large batch, which is used before the
                # next part is decompressed.
                if len(elements) >= RECORDS_MIN or len(piece) < header.record_count:
                    yield _within(elements, here)
                    elements = []
    except UnreadableBatch:
        raise
    except CorruptMessage as error:
        topic, partition = here.where
        raise CorruptMessage(
            f"topic {topic!r} partition {partition} offset {here.first}: {error}"
        ) from error
    if elements:
        yield _within(elements, here)


def _pieces_of(
    data: Buffer,
    at: int,
    header: BatchHeader,
    batch: PartitionRange,
    make: Make[Element],
    unreadable: Unreadable | None,
    end: int,
) -> Iterator[list[Element]]:
    """Yield the readable records of a batch; what cannot be read goes to ``unreadable``."""
    is_letter = header.is_letter
    for piece in read_pieces(
        data,
        at,
        header,
        lambda records: make(records, is_letter),
        decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
        check_crc=True,
    ):
        if not isinstance(piece, UnreadableRange):
            yield piece
            continue
        first = max(piece.first, batch.first)
        if first >= min(piece.end, end):
            continue
        if unreadable is None:
            raise UnreadableBatch(
                piece.error,
                topic=batch.where.topic,
                partition=batch.where.partition,
                first=first,
                end=piece.end,
                batch=bytes(data[at : at + header.size]),
                action=f"read from offset {piece.end} to go on behind them",
            ) from piece.error
        unreadable(batch._replace(first=first, end=piece.end), piece.error)


def _within(elements: list[Element], limits: PartitionRange) -> list[Element]:
    """Return the elements within the range; a batch may extend beyond it on both sides."""
    if limits.first <= elements[0].offset and elements[-1].offset < limits.end:
        return elements
    return [element for element in elements if limits.first <= element.offset < limits.end]
