"""From the bytes of a ShareFetch answer to records: what was acquired, and nothing else.

The broker sends whole log batches and says beside them which offsets are this member's.  The
two need not match:

    batches   | 10 ........ 14 | 15 ...... 19 |   (24 was compacted away)  | 25 .. (cut off)
    acquired         12 .......... 16         |  20 .................. 27
                                                  20..24 gap       25..27 given back

- offsets acquired without a record below the end of the last whole batch are gaps: nobody
  will ever find a record there, and saying so lets the start offset move on;
- offsets beyond it may well have records, in the batch that was cut off at the byte limit:
  they are given back, for calling them gaps would lose them;
- a batch whose checksum fails can't be read by anyone: its offsets are rejected, reported;
- control batches are gaps;
- what a deserializer can't read is released and raised, rejected, or handed out as bytes, as
  ``on_deserialization_error`` says.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sharegroup.client.acknowledgements import GAP
from sharegroup.client.consumer_config import ShareConsumerConfig
from sharegroup.client.deserialization import Deserialization
from sharegroup.client.held_records import HeldRecords
from sharegroup.client.locks import AcquisitionLock
from sharegroup.client.records import AcknowledgeType, DeserializationError, Record
from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches import scan
from sharegroup.wire.records import Record as RawRecord
from sharegroup.wire.records import batch_records

log = logging.getLogger(__name__)


class Delivery(NamedTuple):
    """Records that go to the application, then an error about what follows them, if any."""

    lock: AcquisitionLock
    records: Sequence[Record]
    failure: Exception | None


class _Corrupt(NamedTuple):
    """Offsets that nobody can read; an ``end`` of None: not even where they end is known."""

    first: int
    end: int | None
    error: CorruptMessage


class _Batches(NamedTuple):
    """The batches of an answer, taken apart."""

    records: list[RawRecord]
    offsets: list[int]
    corrupt: list[_Corrupt]
    end: int
    """The offset after the last whole batch; -1 when there is none."""


def read_deliveries(
    held: HeldRecords,
    records: bytes | memoryview,
    locks: Iterable[AcquisitionLock],
    config: ShareConsumerConfig,
) -> Iterator[Delivery]:
    """What of ``records`` is to be handed out; gaps and the like go straight into ``held``."""
    batches = _take_apart(held, records, config)
    for lock in locks:
        low = bisect_left(batches.offsets, lock.first)
        high = bisect_left(batches.offsets, lock.end, low)
        if high - low != lock.end - lock.first:
            unread = [(first, end) for first, end, _ in batches.corrupt if end is not None]
            settle_missing(lock, batches.offsets[low:high], batches.end, unread)
        yield from _delivered(lock, batches.records[low:high], config)
        for error in _settle_corrupt(lock, batches.corrupt):
            yield Delivery(lock, (), error)


def _take_apart(
    held: HeldRecords, records: bytes | memoryview, config: ShareConsumerConfig
) -> _Batches:
    found: list[RawRecord] = []
    corrupt: list[_Corrupt] = []
    end = -1
    try:
        for position, header in scan(records):
            end = header.end_offset
            if header.is_control:
                continue
            try:
                found += batch_records(
                    records,
                    position,
                    header,
                    decompressed_bytes_max=config.decompressed_bytes_max,
                    check_crc=True,
                )
            except CorruptMessage as error:
                text = f"topic {held.topic!r} partition {held.partition}: {error}"
                corrupt.append(_Corrupt(header.base_offset, end, CorruptMessage(text)))
    except CorruptMessage as error:
        # Not even a header: whatever follows is given back, as after a batch that is cut off.
        text = f"topic {held.topic!r} partition {held.partition} from offset {end}: {error}"
        corrupt.append(_Corrupt(end, None, CorruptMessage(text)))
    return _Batches(found, [record.offset for record in found], corrupt, end)


def settle_missing(
    lock: AcquisitionLock,
    offsets: Sequence[int],
    batches_end: int,
    unread: Sequence[tuple[int, int]] = (),
) -> None:
    """Settle what was acquired and has no record below ``batches_end``, and give back the rest.

    ``unread`` are the ranges of corrupt batches, which are settled elsewhere.
    """
    known_end = max(lock.first, min(lock.end, batches_end))
    present = sorted([*((offset, offset + 1) for offset in offsets), *unread])
    position = lock.first
    for first, end in present:
        if first > position and position < known_end:
            lock.held.settle_unseen(lock, position, min(first, known_end), GAP)
        position = max(position, end)
    lock.held.settle_unseen(lock, position, known_end, GAP)
    beyond = max(position, known_end)
    lock.held.settle_unseen(lock, beyond, lock.end, AcknowledgeType.RELEASE)


def _settle_corrupt(lock: AcquisitionLock, corrupt: Iterable[_Corrupt]) -> Iterator[CorruptMessage]:
    for first, end, error in corrupt:
        first, limit = max(first, lock.first), lock.end if end is None else end
        limit = min(limit, lock.end)
        if first < limit:
            if end is not None:
                lock.held.settle_unseen(lock, first, limit, AcknowledgeType.REJECT)
            yield error


def _delivered(
    lock: AcquisitionLock, raw: Sequence[RawRecord], config: ShareConsumerConfig
) -> Iterator[Delivery]:
    if config.key_deserializer is None and config.value_deserializer is None:
        # The hot loop: one object for each record and nothing else.
        records = [
            Record(lock, one.offset, one.timestamp or 0, one.key, one.value, one.headers)
            for one in raw
        ]
        if records:
            yield Delivery(lock, records, None)
        return
    records = []
    deserialization = Deserialization(config)
    for one in raw:
        try:
            records.append(deserialization.read(lock, one))
        except DeserializationError as error:
            if config.on_deserialization_error == "reject":
                lock.held.settle_unseen(lock, one.offset, one.offset + 1, AcknowledgeType.REJECT)
                log.warning("record.rejected group=%s error=%s", config.group_id, error)
                continue
            yield Delivery(lock, records, error)
            records = []
    if records:
        yield Delivery(lock, records, None)
