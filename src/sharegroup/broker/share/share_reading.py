"""Reads what was acquired, around what is damaged; finds what is not for members at all.

A reply carries whole log batches; the acquired ranges say which of their offsets are the
member's.  Where some batches cannot be read, the others are delivered and the records of the
unreadable ones are named, for the caller to give back: they count as delivered and so are
settled in the end.  One damaged batch must not keep its partition from ever going on.

A group that reads committed records only (`share.isolation.level`) is not handed the batches
of aborted transactions, nor the markers that end a transaction: `deliverable` leaves both out,
so core takes their offsets for holes and archives them.  Whether a batch is one of those says
its header, so for such a group each batch is looked at twice; the page cache has it.  Other
groups get the batches of every transaction, and the markers' offsets too, as Kafka's do:
clients acknowledge those as gaps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.core.delivery import Acquired, LogBatches, Wanted
from sharegroup.errors import CorruptMessage, KafkaError, KafkaStorageError
from sharegroup.storage.boundaries import BatchSpans
from sharegroup.wire.batches import BatchHeader, parse_header, scan

log = logging.getLogger(__name__)

LOG_BATCHES_MAX = 2_000
"""Log batches that one look of a fetch finds; each takes at least one offset."""

READ_AHEAD_BYTES_MIN = 128 * 1024
"""Less is read and checked in 20 us, and to arrange for it ahead costs as much."""


class Fetched(NamedTuple):
    """Records for one member: whole log batches, and which of their offsets are locked for it."""

    records: bytes
    acquired: tuple[Acquired, ...]


class ReadAcquired(NamedTuple):
    """What of the acquired ranges could be read, and what could not, and why not."""

    fetched: Fetched
    unreadable: tuple[Acquired, ...] = ()
    error: KafkaError | None = None


def log_batches(
    live: LiveSharePartition, wanted: Wanted, *, position: int, end: int, bytes_max: int
) -> BatchSpans:
    """The log batches from ``position`` on, below ``end``, in which to look for records.

    Where nobody has been yet, as many offsets as records are wanted are nearly always enough, and
    to look at a single batch takes a tenth of looking at hundreds.  Only a hole can be as long.
    """
    count_max = min(wanted.records_max, LOG_BATCHES_MAX)
    if position == live.state.end_offset:
        near = min(end, position + wanted.records_max)
        found = live.log.batches(position, end=near, bytes_max=bytes_max, count_max=count_max)
        if found.firsts:
            return found
    return live.log.batches(position, end=end, bytes_max=bytes_max, count_max=count_max)


def deliverable(live: LiveSharePartition, found: BatchSpans, *, position: int) -> LogBatches:
    """Of the batches found at ``position``, those that hold records of committed transactions.

    What cannot be read is left in: `read_acquired` says so to somebody.
    """
    first, end = found.firsts[0], found.ends[-1]
    aborted = live.log.aborted_transactions(first, end)
    headers = {header.base_offset: header for header in _headers(live, found)}
    kept = [
        (batch_first, batch_end)
        for batch_first, batch_end in zip(found.firsts, found.ends, strict=True)
        if batch_first not in headers or not _is_withheld(headers[batch_first], aborted)
    ]
    return LogBatches(
        position, [first for first, _ in kept], [end for _, end in kept], looked_until=end
    )


def _is_withheld(header: BatchHeader, aborted: tuple[tuple[int, int, int], ...]) -> bool:
    """Whether the batch ends a transaction, or belongs to one that was aborted."""
    return header.is_control or (
        header.is_transactional
        and any(
            producer_id == header.producer_id and first <= header.base_offset <= last
            for producer_id, first, last in aborted
        )
    )


def _headers(live: LiveSharePartition, found: BatchSpans) -> Iterator[BatchHeader]:
    """The headers of the batches that can be read; the log may begin in the middle of one."""
    start = live.log.start_offset
    try:
        everything = live.log.read_range(max(found.firsts[0], start), found.ends[-1])
    except (CorruptMessage, KafkaStorageError):
        for first, end in zip(found.firsts, found.ends, strict=True):
            # The one who gets it will be told; until then it stays where it is.
            with suppress(CorruptMessage, KafkaStorageError):
                yield parse_header(live.log.read_range(max(first, start), end))
    else:
        for _, header in scan(everything):
            yield header


def read_acquired(
    live: LiveSharePartition, ranges: tuple[Acquired, ...], found: BatchSpans
) -> ReadAcquired:
    """The log batches, out of those ``found``, that cover ``ranges``."""
    first, end = ranges[0].first, ranges[-1].end
    try:
        records = live.log.read_range(first, end)
    except (CorruptMessage, KafkaStorageError):
        return _read_around(live, ranges, found)
    if end == live.state.end_offset and len(records) >= READ_AHEAD_BYTES_MIN:
        # The next look finds most likely as many records, behind these.
        live.log.expect_read(end, end + end - first)
    return ReadAcquired(Fetched(records, ranges))


def _read_around(
    live: LiveSharePartition, ranges: tuple[Acquired, ...], found: BatchSpans
) -> ReadAcquired:
    """Batch by batch, which is slow and finds what is damaged."""
    readable: list[Acquired] = []
    unreadable: list[Acquired] = []
    chunks: list[bytes] = []
    first_error: KafkaError | None = None
    for first, end in zip(found.firsts, found.ends, strict=True):
        inside = [
            Acquired(max(one.first, first), min(one.end, end), one.delivery_count)
            for one in ranges
            if one.first < end and first < one.end
        ]
        if not inside:
            continue
        try:
            chunks.append(live.log.read_range(inside[0].first, inside[-1].end))
        except (CorruptMessage, KafkaStorageError) as error:
            log.warning("event=batch_unreadable %s error=%r", live, str(error))
            first_error = first_error or error
            unreadable += inside
        else:
            readable += inside
    fetched = Fetched(b"".join(chunks), tuple(readable))
    return ReadAcquired(fetched, tuple(unreadable), first_error)
