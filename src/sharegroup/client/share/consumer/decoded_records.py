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
- The acquired offsets of a batch with a wrong checksum or undecodable records are one range, which
  is reported once and is the application's to settle (docs/adr/0032).
- A batch header that is damaged hides where its batch ends.  The rest is released and reported.
- A batch that decompresses to more than ``decompressed_bytes_max`` is decoded in pieces, each when
  the application has taken the one before.
- Control batches are gaps.
- A record that cannot be deserialized is released and raised, rejected, or handed out as bytes;
  ``on_deserialization_error`` decides.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, takewhile
from operator import attrgetter
from typing import NamedTuple

from sharegroup.client.fetch.record_content import Field, copy_as, deserialize, maker
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.settings.option_values import OnDeserializationError
from sharegroup.client.share.consumer.held_records import HeldRecords
from sharegroup.client.share.consumer.locks import AcquisitionLock, LockedBatch
from sharegroup.client.share.consumer.record import (
    DeserializationError,
    Record,
    UnreadableDelivery,
    UnreadableRecord,
)
from sharegroup.client.share.session.acquired_records import find_missing
from sharegroup.client.share.session.offset_set import OffsetSet
from sharegroup.errors import CorruptMessage, KafkaError
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.wire.batches.batches import BatchHeader, scan
from sharegroup.wire.batches.record_pieces import UnreadableRange, read_pieces
from sharegroup.wire.batches.records import DecodedRecord

log = logging.getLogger(__name__)


_offset = attrgetter("offset")


class DecodedRecords(NamedTuple):
    """Acquired records to hand out under one lock, and the error to raise after them, or None."""

    lock: AcquisitionLock
    records: Sequence[Record]
    failure: Exception | None


class _Unreadable(NamedTuple):
    """Offsets that cannot be decoded, with the bytes of their batch."""

    first: int
    end: int
    error: KafkaError
    batch: bytes


class _Decoded(NamedTuple):
    """Decoded batches of a response; a batch that is read as a stream comes in several of these."""

    records: list[Record]
    unreadable: list[_Unreadable]
    batches: list[LockedBatch]
    end: int
    """The offset after the last whole batch, or after the piece; -1 if there is none."""
    is_last: bool
    damage: CorruptMessage | None = None
    """The error of the batch header at `end`; None if all headers could be read."""


def decode_records(
    held: HeldRecords,
    records: bytes | memoryview,
    locks: Sequence[AcquisitionLock],
    config: ShareConsumerConfig,
) -> Iterator[DecodedRecords]:
    """Yield the acquired records to hand out, and errors between them; settle gaps in ``held``."""
    offsets: list[int] = []
    unread: list[tuple[int, int]] = []
    first_unsettled = 0
    for decoded in _take_apart(held, records, locks, config):
        start = len(offsets)
        offsets += [record.offset for record in decoded.records]
        unread += [(batch.first, batch.end) for batch in decoded.unreadable]
        damage = decoded.damage
        for index, lock in enumerate(locks):
            lock.batches = decoded.batches
            low = bisect_left(offsets, lock.first)
            high = bisect_left(offsets, lock.end, low)
            # Only the piece that reaches the end of the lock shows which of its records are
            # missing.
            if index >= first_unsettled and (decoded.is_last or lock.end <= decoded.end):
                if high - low != lock.end - lock.first:
                    settle_missing(held, lock, offsets[low:high], decoded.end, unread)
                first_unsettled = index + 1
            lock_records = decoded.records[max(low - start, 0) : max(high - start, 0)]
            yield from _with_errors(held, lock, lock_records, decoded.unreadable, config)
            if damage is not None and lock.end > decoded.end:
                yield DecodedRecords(lock, (), damage)
                damage = None


def _with_errors(
    held: HeldRecords,
    lock: AcquisitionLock,
    records: list[Record],
    unreadable: Iterable[_Unreadable],
    config: ShareConsumerConfig,
) -> Iterator[DecodedRecords]:
    """Yield records under a lock, and the unreadable ranges between them as errors."""
    taken, reported_to = 0, lock.first
    for batch in unreadable:
        first, end = max(batch.first, reported_to), min(batch.end, lock.end)
        until = bisect_left(records, first, taken, key=_offset)
        if until < len(records):
            # Only a broker that sends batches with common offsets makes this smaller.
            end = min(end, records[until].offset)
        if first < end:
            reported_to = end
            yield from _delivered(held, lock, _under(lock, records[taken:until]), config)
            taken = until
            error = UnreadableDelivery(batch.error, lock, first, end, batch.batch)
            yield DecodedRecords(lock, (), error)
    yield from _delivered(held, lock, _under(lock, records[taken:] if taken else records), config)


def _take_apart(
    held: HeldRecords,
    records: bytes | memoryview,
    locks: Sequence[AcquisitionLock],
    config: ShareConsumerConfig,
) -> Iterator[_Decoded]:
    decoded: list[Record] = []
    unreadable: list[_Unreadable] = []
    damage: CorruptMessage | None = None
    batches: list[LockedBatch] = []
    end = -1
    locks_ahead = deque(locks)
    try:
        for position, header in scan(records):
            while len(locks_ahead) > 1 and locks_ahead[0].end <= header.base_offset:
                locks_ahead.popleft()
            if not header.is_control:
                batches.append(
                    LockedBatch(header.end_offset, header.leader_epoch, header.has_log_append_time)
                )
                make = _of_locked(locks_ahead, header)
                pieces = read_pieces(
                    records,
                    position,
                    header,
                    make,
                    decompressed_bytes_max=config.decompressed_bytes_max,
                    check_crc=True,
                )
                for piece in pieces:
                    # A large batch: what comes before this piece of it is handed out first.
                    if not isinstance(pieces, tuple):
                        yield _Decoded(decoded, unreadable, batches, end, is_last=False)
                        decoded, unreadable, end = [], [], _end_of(piece, end)
                    if isinstance(piece, UnreadableRange):
                        content = bytes(records[position : position + header.size])
                        unreadable.append(_Unreadable(*piece, content))
                    else:
                        decoded += piece
            end = header.end_offset
    except CorruptMessage as error:
        # Without a readable header the end is unknown, so the rest is released, as after a
        # batch that was cut off.
        damage = _damage(held, max(end, locks[0].first), locks[-1].end, error)
    yield _Decoded(decoded, unreadable, batches, end, is_last=True, damage=damage)


def _of_locked(
    locks: Sequence[AcquisitionLock], header: BatchHeader
) -> Callable[[Iterable[DecodedRecord]], list[Record]]:
    """Return a function that makes the records of a batch, if possible only those under locks.

    The other records of the batch are those of other members, or were settled before.
    """
    make = maker(Record, locks[0])
    if locks[0].first <= header.base_offset and header.end_offset <= locks[0].end:
        return make
    ranges = [
        range(max(lock.first, header.base_offset), min(lock.end, header.end_offset))
        for lock in takewhile(lambda lock: lock.first < header.end_offset, locks)
    ]
    # The size, because an offset range and the number in a header may be of any length.
    if sum(map(len, ranges)) >= min(header.record_count, header.size):
        return make
    locked = set(chain.from_iterable(ranges))
    return lambda raw: make(raw_record for raw_record in raw if raw_record.offset in locked)


def _end_of(piece: list[Record] | UnreadableRange, reached: int) -> int:
    """Return the offset behind a piece of a batch; a piece without records reaches no further."""
    if isinstance(piece, UnreadableRange):
        return piece.end
    return piece[-1].offset + 1 if piece else reached


def _damage(held: HeldRecords, first: int, end: int, error: CorruptMessage) -> CorruptMessage:
    return CorruptMessage(
        f"topic {held.topic!r} partition {held.partition} offsets {first} to {end - 1}: the batch "
        f"header cannot be read: {error}; the offsets are released; see the log of the broker that "
        "leads the partition"
    )


def _under(lock: AcquisitionLock, records: list[Record]) -> list[Record]:
    """Set the lock of these records, and return them.

    If several locks share a batch, all its records were made under the first lock.
    """
    if records and not records[0]._shared is records[-1]._shared is lock:
        for record in records:
            record._shared = lock
    return records


def settle_missing(
    held: HeldRecords,
    lock: AcquisitionLock,
    offsets: Sequence[int],
    batches_end: int,
    unread: Sequence[tuple[int, int]] = (),
) -> None:
    """Settle the acquired offsets without a record: as gaps, or released if one may exist.

    ``batches_end`` is the offset after the last whole batch.  ``unread`` are the ranges of
    unreadable batches, which the application settles.
    """
    present = OffsetSet.of_offsets(offsets) | OffsetSet.of(unread)
    missing = find_missing(OffsetSet(((lock.first, lock.end),)), present, batches_end)
    for first, end in missing.gaps:
        held.settle_unseen(lock, first, end, AcknowledgeType.GAP)
    for first, end in missing.unknown:
        held.settle_unseen(lock, first, end, AcknowledgeType.RELEASE)


def _delivered(
    held: HeldRecords, lock: AcquisitionLock, raw_records: list[Record], config: ShareConsumerConfig
) -> Iterator[DecodedRecords]:
    if config.key_deserializer is None and config.value_deserializer is None:
        if raw_records:
            yield DecodedRecords(lock, raw_records, None)
        return
    records = []
    for record in raw_records:
        try:
            records.append(_deserialized(record, config))
        except DeserializationError as error:
            if config.on_deserialization_error is OnDeserializationError.REJECT:
                held.settle_unseen(lock, record.offset, record.offset + 1, AcknowledgeType.REJECT)
                log.warning("event=record.rejected group=%s error=%s", config.group_id, error)
                continue
            yield DecodedRecords(lock, records, error)
            records = []
    if records:
        yield DecodedRecords(lock, records, None)


# Deserialization of keys and values.
#
# A deserializer is code of the application and may raise any exception. A record that it cannot
# read is never accepted silently; ``on_deserialization_error`` decides:
#
#     raise     the poll raises a DeserializationError; the record is released (the default)
#     reject    the record is rejected, and a warning is logged
#     raw       the record is handed out as an `UnreadableRecord`, with its bytes


def _deserialized(record: Record, config: ShareConsumerConfig) -> Record:
    """Return the record with deserialized key and value.

    If that fails, return an UnreadableRecord (with "raw"), or raise DeserializationError.
    """
    try:
        deserialize(record, config, _failure)
    except DeserializationError as error:
        if config.on_deserialization_error is not OnDeserializationError.RAW:
            raise
        unreadable = copy_as(UnreadableRecord, record)
        unreadable.error = error
        return unreadable
    return record


def _failure(record: Record, field: Field, error: Exception) -> DeserializationError:
    text = (
        f"topic {record.topic!r} partition {record.partition} offset {record.offset}: "
        f"the {field} can't be deserialized: {error}"
    )
    return DeserializationError(text, record, field)
