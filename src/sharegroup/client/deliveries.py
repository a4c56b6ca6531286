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
- control batches are gaps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sharegroup.client.consumer_config import Deserializer, ShareConsumerConfig
from sharegroup.client.held_records import Acquired, HeldRecords
from sharegroup.client.records import AcknowledgeType, DeserializationError, Record
from sharegroup.client.share_session import AcquiredRange
from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches import scan
from sharegroup.wire.records import Record as RawRecord
from sharegroup.wire.records import batch_records


class Delivery(NamedTuple):
    """Records that go to the application, then an error about what follows them, if any."""

    held: HeldRecords
    records: Sequence[Record]
    lock_deadline: float
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
    acquired: Iterable[AcquiredRange],
    *,
    lock_deadline: float,
    config: ShareConsumerConfig,
) -> Iterator[Delivery]:
    """What of ``records`` is to be handed out; gaps and the like go straight into ``held``."""
    batches = _take_apart(held, records, config)
    for one in acquired:
        low = bisect_left(batches.offsets, one.first)
        high = bisect_left(batches.offsets, one.end, low)
        if high - low != one.end - one.first:
            _settle_missing(held, one, batches, batches.offsets[low:high])
        share = Acquired(held, one.delivery_count, lock_deadline)
        yield from _delivered(share, batches.records[low:high], config)
        for error in _settle_corrupt(held, one, batches.corrupt):
            yield Delivery(held, (), lock_deadline, error)


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


def _settle_missing(
    held: HeldRecords, acquired: AcquiredRange, batches: _Batches, offsets: Sequence[int]
) -> None:
    """Settle what was acquired and has no record; corrupt batches are settled elsewhere."""
    known_end = max(acquired.first, min(acquired.end, batches.end))
    unread = [(first, end) for first, end, _ in batches.corrupt if end is not None]
    present = sorted([*((offset, offset + 1) for offset in offsets), *unread])
    position = acquired.first
    for first, end in present:
        if first > position and position < known_end:
            held.add_gap(position, min(first, known_end))
        position = max(position, end)
    if position < known_end:
        held.add_gap(position, known_end)
    if max(position, known_end) < acquired.end:
        beyond = max(position, known_end)
        held.settle_unseen(beyond, acquired.end, AcknowledgeType.RELEASE)


def _settle_corrupt(
    held: HeldRecords,
    acquired: AcquiredRange,
    corrupt: Iterable[_Corrupt],
) -> Iterator[CorruptMessage]:
    for first, end, error in corrupt:
        first, limit = max(first, acquired.first), acquired.end if end is None else end
        limit = min(limit, acquired.end)
        if first < limit:
            if end is not None:
                held.settle_unseen(first, limit, AcknowledgeType.REJECT)
            yield error


def _delivered(
    share: Acquired, raw: Sequence[RawRecord], config: ShareConsumerConfig
) -> Iterator[Delivery]:
    if config.key_deserializer is None and config.value_deserializer is None:
        # The hot loop: one object for each record and nothing else.
        records = [
            Record(share, one.offset, one.timestamp or 0, one.key, one.value, one.headers)
            for one in raw
        ]
        if records:
            yield Delivery(share.held, records, share.lock_deadline, None)
        return
    records = []
    for one in raw:
        try:
            records.append(_deserialized(share, one, config))
        except DeserializationError as error:
            yield Delivery(share.held, records, share.lock_deadline, error)
            records = []
    if records:
        yield Delivery(share.held, records, share.lock_deadline, None)


def _deserialized(share: Acquired, raw: RawRecord, config: ShareConsumerConfig) -> Record:
    record = Record(share, raw.offset, raw.timestamp or 0, raw.key, raw.value, raw.headers)
    key = _read(record, "key", raw.key, config.key_deserializer)
    record.value = _read(record, "value", raw.value, config.value_deserializer)
    record.key = key  # Last: a record that comes with an error has both as bytes.
    return record


def _read(record: Record, name: str, raw: bytes | None, read: Deserializer | None) -> Any:
    if read is None or raw is None:
        return raw
    try:
        return read(raw)
    except Exception as error:
        text = (
            f"topic {record.topic!r} partition {record.partition} offset {record.offset}: "
            f"the {name} can't be deserialized: {error}"
        )
        raise DeserializationError(text, record) from error


class Inbox:
    """Deliveries that wait to be handed out, in the order in which they came."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[Delivery] = deque()

    def __len__(self) -> int:
        """How many deliveries wait."""
        return len(self._queue)

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """Queue these; the caller has already checked that their locks are held."""
        self._queue.extend(deliveries)

    def drop(self, lost: Iterable[HeldRecords]) -> int:
        """Forget what belongs to these tables; how many records that was."""
        tables = set(map(id, lost))
        dropped = sum(len(one.records) for one in self._queue if id(one.held) in tables)
        self._queue = deque(one for one in self._queue if id(one.held) not in tables)
        return dropped

    def take(self, count: int, *, now: float) -> list[Record]:
        """Up to ``count`` records, handed out; raises the failure that stands at the head.

        Records whose lock has ended are left out: somebody else may have them by now.
        """
        taken: list[Record] = []
        while self._queue and len(taken) < count:
            one = self._queue.popleft()
            if now >= one.lock_deadline:
                continue
            if one.failure is not None and not one.records:
                if taken:
                    self._queue.appendleft(one)
                    break
                if isinstance(one.failure, DeserializationError):
                    # It counts as handed out, and goes back unless somebody decides otherwise.
                    offset = one.failure.record.offset
                    one.held.hand_out([offset])
                    one.held.choose(offset, AcknowledgeType.RELEASE)
                raise one.failure
            part = one.records[: count - len(taken)]
            rest = one.records[len(part) :]
            if rest or one.failure is not None:
                self._queue.appendleft(one._replace(records=rest))
            one.held.hand_out([record.offset for record in part])
            taken = [*taken, *part] if taken else list(part)
        return taken
