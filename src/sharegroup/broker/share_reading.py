"""Reads what was acquired, and around what is damaged.

A reply carries whole log batches; the acquired ranges say which of their offsets are the
member's.  Where some batches cannot be read, the others are delivered and the records of the
unreadable ones are named, for the caller to give back: they count as delivered and so are
settled in the end.  One damaged batch must not keep its partition from ever going on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sharegroup.broker.live_share_partition import LiveSharePartition
from sharegroup.core.delivery import Acquired
from sharegroup.errors import CorruptMessage, KafkaError, KafkaStorageError
from sharegroup.storage.boundaries import BatchSpans

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records for one member: whole log batches, and which of their offsets are locked for it."""

    records: bytes
    acquired: tuple[Acquired, ...]


@dataclass(frozen=True, slots=True)
class ReadAcquired:
    """What of the acquired ranges could be read, and what could not, and why not."""

    fetched: Fetched
    unreadable: tuple[Acquired, ...] = ()
    error: KafkaError | None = None


def read_acquired(
    live: LiveSharePartition, ranges: tuple[Acquired, ...], found: BatchSpans
) -> ReadAcquired:
    """The log batches, out of those ``found``, that cover ``ranges``."""
    try:
        return ReadAcquired(Fetched(live.log.read_range(ranges[0].first, ranges[-1].end), ranges))
    except (CorruptMessage, KafkaStorageError):
        return _read_around(live, ranges, found)


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
