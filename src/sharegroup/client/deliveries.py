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
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from sharegroup.wire.records import read_batch

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

    records: list[Record]
    offsets: list[int]
    corrupt: list[_Corrupt]
    end: int
    """The offset after the last whole batch; -1 when there is none."""


def read_deliveries(
    held: HeldRecords,
    records: bytes | memoryview,
    locks: Sequence[AcquisitionLock],
    config: ShareConsumerConfig,
) -> Iterator[Delivery]:
    """What of ``records`` is to be handed out; gaps and the like go straight into ``held``."""
    batches = _take_apart(held, records, locks, config)
    for lock in locks:
        low = bisect_left(batches.offsets, lock.first)
        high = bisect_left(batches.offsets, lock.end, low)
        if high - low != lock.end - lock.first:
            unread = [(first, end) for first, end, _ in batches.corrupt if end is not None]
            settle_missing(lock, batches.offsets[low:high], batches.end, unread)
        yield from _delivered(lock, _under(lock, batches.records[low:high]), config)
        for error in _settle_corrupt(lock, batches.corrupt):
            yield Delivery(lock, (), error)


def _take_apart(
    held: HeldRecords,
    records: bytes | memoryview,
    locks: Sequence[AcquisitionLock],
    config: ShareConsumerConfig,
) -> _Batches:
    found: list[Record] = []
    corrupt: list[_Corrupt] = []
    end = -1
    ahead = iter(locks)
    lock = next(ahead)
    try:
        for position, header in scan(records):
            while lock.end <= header.base_offset and (following := next(ahead, None)) is not None:
                lock = following
            end = header.end_offset
            if header.is_control:
                continue
            try:
                found += read_batch(
                    records,
                    position,
                    header,
                    _made_under(lock),
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


def _made_under(lock: AcquisitionLock) -> Callable[[Iterable[RawRecord]], list[Record]]:
    """Makes the records of a batch, as if all of them were under this lock.

    The hot loop of reading.  `Record.__init__` is passed over, for its call takes as long as
    what it does, and an empty list of headers is let go of: the fewer objects live, the less
    the garbage collector has to look at.
    """
    new = Record.__new__

    def make(raw: Iterable[RawRecord]) -> list[Record]:
        made: list[Record] = []
        append = made.append
        for one in raw:
            record = new(Record)
            record._lock = lock
            record.offset = one.offset
            record.timestamp_ms = one.timestamp or 0
            record.key = one.key
            record.value = one.value
            record.headers = one.headers or ()
            append(record)
        return made

    return make


def _under(lock: AcquisitionLock, records: list[Record]) -> list[Record]:
    """These records, where a batch that several locks share was made under the first of them."""
    if records and not records[0]._lock is records[-1]._lock is lock:
        for record in records:
            record._lock = lock
    return records


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
    lock: AcquisitionLock, found: list[Record], config: ShareConsumerConfig
) -> Iterator[Delivery]:
    if config.key_deserializer is None and config.value_deserializer is None:
        if found:
            yield Delivery(lock, found, None)
        return
    records = []
    deserialization = Deserialization(config)
    for one in found:
        try:
            records.append(deserialization.read(one))
        except DeserializationError as error:
            if config.on_deserialization_error == "reject":
                lock.held.settle_unseen(lock, one.offset, one.offset + 1, AcknowledgeType.REJECT)
                log.warning("record.rejected group=%s error=%s", config.group_id, error)
                continue
            yield Delivery(lock, records, error)
            records = []
    if records:
        yield Delivery(lock, records, None)
