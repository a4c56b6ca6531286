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
- A batch that decompresses to more than ``decompressed_bytes_max`` is decoded in pieces, each when
  the application has taken the one before.
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
from sharegroup.wire.batches import scan
from sharegroup.wire.record_pieces import UnreadableRange, read_pieces
from sharegroup.wire.records import DecodedRecord

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


class _Decoded(NamedTuple):
    """Decoded batches of a response; a batch that is read as a stream comes in several of these."""

    records: list[Record]
    corrupt: list[_Corrupt]
    origins: list[BatchOrigin]
    end: int
    """The offset after the last whole batch, or after the piece; -1 if there is none."""
    is_last: bool


def decode_records(
    held: HeldRecords,
    records: bytes | memoryview,
    locks: Sequence[AcquisitionLock],
    config: ShareConsumerConfig,
) -> Iterator[DecodedRecords]:
    """Yield the acquired records to hand out; settle gaps and unreadable offsets in ``held``."""
    offsets: list[int] = []
    unread: list[tuple[int, int]] = []
    first_unsettled = 0
    for decoded in _take_apart(held, records, locks, config):
        start = len(offsets)
        offsets += [record.offset for record in decoded.records]
        unread += [(first, end) for first, end, _ in decoded.corrupt if end is not None]
        for index, lock in enumerate(locks):
            lock.origins = decoded.origins
            low = bisect_left(offsets, lock.first)
            high = bisect_left(offsets, lock.end, low)
            if index >= first_unsettled and (decoded.is_last or lock.end <= decoded.end):
                if high - low != lock.end - lock.first:
                    settle_missing(held, lock, offsets[low:high], decoded.end, unread)
                first_unsettled = index + 1
            found = decoded.records[max(low - start, 0) : max(high - start, 0)]
            yield from _delivered(held, lock, _under(lock, found), config)
            for error in _settle_corrupt(held, lock, decoded.corrupt):
                yield DecodedRecords(lock, (), error)


def _take_apart(
    held: HeldRecords,
    records: bytes | memoryview,
    locks: Sequence[AcquisitionLock],
    config: ShareConsumerConfig,
) -> Iterator[_Decoded]:
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
            if not header.is_control:
                origins.append(
                    BatchOrigin(header.end_offset, header.leader_epoch, header.has_log_append_time)
                )
                pieces = read_pieces(
                    records,
                    position,
                    header,
                    _made_under(lock),
                    decompressed_bytes_max=config.decompressed_bytes_max,
                    check_crc=True,
                )
                for piece in pieces:
                    if isinstance(piece, UnreadableRange):
                        text = f"topic {held.topic!r} partition {held.partition}: {piece.error}"
                        end = piece.end
                        corrupt.append(_Corrupt(piece.first, end, UnreadableBatch(text)))
                    else:
                        decoded += piece
                    if not isinstance(pieces, tuple):
                        if decoded:
                            end = max(end, decoded[-1].offset + 1)
                        yield _Decoded(decoded, corrupt, origins, end, is_last=False)
                        decoded, corrupt = [], []
            end = header.end_offset
    except CorruptMessage as error:
        # Without a readable header the end is unknown, so the rest is released, as after a
        # batch that was cut off.
        text = f"topic {held.topic!r} partition {held.partition} from offset {end}: {error}"
        corrupt.append(_Corrupt(end, None, CorruptMessage(text)))
    yield _Decoded(decoded, corrupt, origins, end, is_last=True)


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
