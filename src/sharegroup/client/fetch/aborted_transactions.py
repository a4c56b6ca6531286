"""Leaves out the batches of a fetch answer that a consumer does not deliver.

Control batches have no records for consumers.  With ``read_committed`` the broker also names the
aborted transactions that its answer touches, each with its producer and its first offset::

    batches     p7  p8  p7  ABORT(p7)  p7  p8        answer: aborted (p7, first offset of the first)
    kept            p8                 p7  p8

A transaction ends with its marker, so a later transaction of the same producer is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches.batches import BatchHeader, Buffer, scan
from sharegroup.wire.batches.markers import decode_marker


class AbortedTransaction(NamedTuple):
    """An aborted transaction of a producer, from its first offset to its marker."""

    producer_id: int
    first_offset: int


class ClassifiedBatch(NamedTuple):
    """A batch in the buffer of a fetch answer."""

    position: int
    header: BatchHeader
    is_delivered: bool
    """Whether consumers get its records."""
    error: CorruptMessage | None = None
    """Why its transaction marker cannot be read; None for every other batch."""


def classified_batches(
    buffer: Buffer, aborted: Iterable[AbortedTransaction]
) -> Iterator[ClassifiedBatch]:
    """Yield all whole batches in order; raise CorruptMessage for an invalid header."""
    upcoming = sorted(aborted, key=lambda transaction: -transaction.first_offset)
    producers: set[int] = set()
    for position, header in scan(buffer):
        while upcoming and upcoming[-1].first_offset <= header.last_offset:
            producers.add(upcoming.pop().producer_id)
        if header.is_control:
            if header.producer_id in producers:
                try:
                    marker = decode_marker(memoryview(buffer)[position : position + header.size])
                except CorruptMessage as error:
                    yield ClassifiedBatch(position, header, False, error)
                    continue
                if marker is not None and not marker.is_commit:
                    producers.discard(header.producer_id)
            yield ClassifiedBatch(position, header, False)
        else:
            is_aborted = header.is_transactional and header.producer_id in producers
            yield ClassifiedBatch(position, header, not is_aborted)
