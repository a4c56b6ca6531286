"""Decodes the bytes of a ShareFetch response to the records that were acquired.

The broker sends whole log batches, and with them the offset ranges that this member acquired.
The two need not match:

    batches   | 10 ........ 14 | 15 ...... 19 |   (24 was compacted away)  | 25 .. (cut off)
    acquired         12 .......... 16         |  20 .................. 27
                                                  20..24 gap       25..27 released

- Acquired offsets without a record, below the end of the last whole batch, are gaps.  They are
  acknowledged as gaps, so the start offset can advance.
- Acquired offsets beyond it may have records in the batch that was cut off at the byte limit.
  They are released, because a gap would lose their records.
- A batch with a wrong checksum or undecodable records cannot be read by any member.  Its offsets
  are rejected.  The batch is reported once, even if it is delivered in several parts.
- Control batches are gaps.
- A record that cannot be deserialized is released and raised, rejected, or handed out as bytes;
  ``on_deserialization_error`` decides.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.settings.option_values import OnDeserializationError
from sharegroup.client.share.deserialization import Deserialization
from sharegroup.client.share.held_records import HeldRecords
from sharegroup.client.share.locks import AcquisitionLock, BatchOrigin
from sharegroup.client.share.record import DeserializationError, Record
from sharegroup.client.share_locks.acquired_gaps import find_missing
from sharegroup.client.share_sessions.offset_set import OffsetSet
from sharegroup.errors import CorruptMessage, UnreadableBatch
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.wire.batches import UNREADABLE, scan
from sharegroup.wire.records import DecodedRecord, read_batch

log = logging.getLogger(__name__)


class DecodedRecords(NamedTuple):
    """Acquired records to hand out under one lock, and the error to raise after them, or None."""

    lock: AcquisitionLock
    records: Sequence[Record]
    failure: Exception | None


class _Corrupt(NamedTuple):
    """Offsets of a corrupt batch; ``end`` is None if the batch's end is unknown too."""

    first: int
    end: int | None
    error: CorruptMessage


class _Batches(NamedTuple):
    """The decoded log batches of one partition in a response."""

    records: list[Record]
    offsets: list[int]
    corrupt: list[_Corrupt]
    origins: list[BatchOrigin]
    end: int
    """The offset after the last whole batch; -1 if there is none."""


def decode_records(
    held: HeldRecords,
    records: bytes | memoryview,
    locks: Sequence[AcquisitionLock],
    config: ShareConsumerConfig,
) -> Iterator[DecodedRecords]:
    """Yield the acquired records to hand out; settle gaps and unreadable offsets in ``held``."""
    batches = _take_apart(held, records, locks, config)
    for lock in locks:
        lock.origins = batches.origins
        low = bisect_left(batches.offsets, lock.first)
        high = bisect_left(batches.offsets, lock.end, low)
        if high - low != lock.end - lock.first:
            unread = [(first, end) for first, end, _ in batches.corrupt if end is not None]
            settle_missing(held, lock, batches.offsets[low:high], batches.end, unread)
        yield from _delivered(held, lock, _under(lock, batches.records[low:high]), config)
        for error in _settle_corrupt(held, lock, batches.corrupt):
            yield DecodedRecords(lock, (), error)


def _take_apart(
    held: HeldRecords,
    records: bytes | memoryview,
    locks: Sequence[AcquisitionLock],
    config: ShareConsumerConfig,
) -> _Batches:
    decoded: list[Record] = []
    corrupt: list[_Corrupt] = []
    origins: list[BatchOrigin] = []
    end = -1
    locks_ahead = iter(locks)
    lock = next(locks_ahead)
    try:
        for position, header in scan(records):
            while (
                lock.end <= header.base_offset
                and (following := next(locks_ahead, None)) is not None
            ):
                lock = following
            end = header.end_offset
            if header.is_control:
                continue
            origins.append(BatchOrigin(end, header.leader_epoch, header.has_log_append_time))
            try:
                decoded += read_batch(
                    records,
                    position,
                    header,
                    _made_under(lock),
                    decompressed_bytes_max=config.decompressed_bytes_max,
                    check_crc=True,
                )
            except UNREADABLE as error:
                text = f"topic {held.topic!r} partition {held.partition}: {error}"
                corrupt.append(_Corrupt(header.base_offset, end, UnreadableBatch(text)))
    except CorruptMessage as error:
        # Without a readable header the end is unknown, so the rest is released, as after a
        # batch that was cut off.
        text = f"topic {held.topic!r} partition {held.partition} from offset {end}: {error}"
        corrupt.append(_Corrupt(end, None, CorruptMessage(text)))
    return _Batches(decoded, [record.offset for record in decoded], corrupt, origins, end)


def _made_under(lock: AcquisitionLock) -> Callable[[Iterable[DecodedRecord]], list[Record]]:
    """Return a function that makes the records of a batch, all of them under this lock.

    This is the hot loop of reading.  `Record.__init__` is not called, because the call takes as
    long as its work.  Empty lists of headers are dropped, because the garbage collector then has
    fewer objects to look at.
    """
    new = Record.__new__

    def make(raw: Iterable[DecodedRecord]) -> list[Record]:
        records: list[Record] = []
        append = records.append
        for raw_record in raw:
            record = new(Record)
            record._lock = lock
            record.offset = raw_record.offset
            record.timestamp_ms = raw_record.timestamp or 0
            record.key = raw_record.key
            record.value = raw_record.value
            record.headers = raw_record.headers or ()
            append(record)
        return records

    return make


def _under(lock: AcquisitionLock, records: list[Record]) -> list[Record]:
    """Set the lock of these records, and return them.

    If several locks share a batch, all its records were made under the first lock.
    """
    if records and not records[0]._lock is records[-1]._lock is lock:
        for record in records:
            record._lock = lock
    return records


def settle_missing(
    held: HeldRecords,
    lock: AcquisitionLock,
    offsets: Sequence[int],
    batches_end: int,
    unread: Sequence[tuple[int, int]] = (),
) -> None:
    """Settle the acquired offsets without a record: as gaps, or released if one may exist.

    ``batches_end`` is the offset after the last whole batch.  ``unread`` are the ranges of corrupt
    batches, which are settled elsewhere.
    """
    present = OffsetSet.of_offsets(offsets) | OffsetSet.of(unread)
    missing = find_missing(OffsetSet(((lock.first, lock.end),)), present, batches_end)
    for first, end in missing.gaps:
        held.settle_unseen(lock, first, end, AcknowledgeType.GAP)
    for first, end in missing.unknown:
        held.settle_unseen(lock, first, end, AcknowledgeType.RELEASE)


def _settle_corrupt(
    held: HeldRecords, lock: AcquisitionLock, corrupt: Iterable[_Corrupt]
) -> Iterator[CorruptMessage]:
    for batch_first, end, error in corrupt:
        first, limit = max(batch_first, lock.first), lock.end if end is None else end
        limit = min(limit, lock.end)
        if first >= limit:
            continue
        if end is not None:
            held.settle_unseen(lock, first, limit, AcknowledgeType.REJECT)
            if held.unreadable_from == batch_first:
                continue
            held.unreadable_from = batch_first
        yield error


def _delivered(
    held: HeldRecords, lock: AcquisitionLock, found: list[Record], config: ShareConsumerConfig
) -> Iterator[DecodedRecords]:
    if config.key_deserializer is None and config.value_deserializer is None:
        if found:
            yield DecodedRecords(lock, found, None)
        return
    records = []
    deserialization = Deserialization(config)
    for record in found:
        try:
            records.append(deserialization.read(record))
        except DeserializationError as error:
            if config.on_deserialization_error is OnDeserializationError.REJECT:
                held.settle_unseen(lock, record.offset, record.offset + 1, AcknowledgeType.REJECT)
                log.warning("event=record.rejected group=%s error=%s", config.group_id, error)
                continue
            yield DecodedRecords(lock, records, error)
            records = []
    if records:
        yield DecodedRecords(lock, records, None)
