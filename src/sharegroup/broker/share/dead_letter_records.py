"""What a dead letter looks like (KIP-1191), and the original that it is a copy of.

    original        key   value   headers h1 h2
    dead letter     key   value   headers h1 h2 __dlq.errors.topic .partition .offset ...

Key, value and headers are there where the group has its records copied, else the letter says
only where its record is.  The names of the headers, their texts and the time (that of writing)
are Kafka's; that the original's own headers are copied, too, is ours.  What an original says
under those names, because it was a dead letter before, gives way: where it came from is told by
the letter that it was.

Letters of one share partition go into batches below the topic's ``max.message.bytes``.  One that
is too large alone is compressed; if that is not enough, it goes without its record and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from sharegroup.core.delivery import DeadLetter, Reason
from sharegroup.errors import (
    CorruptMessage,
    KafkaStorageError,
    MessageTooLarge,
    OffsetOutOfRange,
    UnsupportedCompressionType,
)
from sharegroup.ids import GroupId, TopicName
from sharegroup.storage.partition_log import PartitionLog
from sharegroup.wire.batches import HEADER_BYTES
from sharegroup.wire.compression import NONE, ZSTD
from sharegroup.wire.records import Headers, NewRecord, Record, decode_records, encode_batch

PREFIX = "__dlq.errors."
NOT_COPIED = "sharegroup.dlq.not.copied"
"""Ours: why a letter has no record although the group has them copied."""

MESSAGES: Mapping[Reason, bytes] = {
    Reason.REJECTED: b"Offset rejected by client.",
    Reason.EXHAUSTED: b"Offset delivery count exceeded the threshold.",
    Reason.UNREADABLE: b"Offset could not be read from the log.",
}
"""The first two are Kafka's, letter by letter; it has no third."""

RECORDS_MAX = 500
"""Letters of one batch: some milliseconds of work between two turns of the event loop."""

BATCH_BYTES_MAX = 1024 * 1024
"""Of more than one letter, however much the topic would take: memory is bounded by it."""

ORIGINAL_BYTES_MAX = 16 * 1024 * 1024
"""Of a log batch, decompressed: a batch that claims to be larger would hold up everybody."""

RECORD_OVERHEAD_BYTES = 36
"""Lengths, deltas and attributes of a record take no more."""

HEADER_OVERHEAD_BYTES = 10

NO_RECORD = "there is no record at this offset any more"

Range = tuple[int, int]


class Origin(NamedTuple):
    """Whose letters these are, and where their records come from."""

    group_id: GroupId
    topic: TopicName
    partition: int


class Originals:
    """Reads records to be copied; keeps one log batch, as the next offset is likely in it."""

    __slots__ = ("_end", "_first", "_log", "_missing", "_records")

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._first = self._end = 0
        self._records: dict[int, Record] = {}
        self._missing = NO_RECORD

    def at(self, offset: int) -> Record | str:
        """The record, or why there is none to copy."""
        if not self._first <= offset < self._end:
            self._load(offset)
        return self._records.get(offset, self._missing)

    def _load(self, offset: int) -> None:
        self._first, self._end = offset, offset + 1
        self._records, self._missing = {}, NO_RECORD
        try:
            found = self._log.batches(offset, bytes_max=1, count_max=1)
            if not found.firsts or found.firsts[0] > offset:
                return  # Compacted away.
            self._first, self._end = found.firsts[0], found.ends[0]
            data = self._log.read_range(self._first, self._end)
            self._records = {
                record.offset: record
                for record in decode_records(data, decompressed_bytes_max=ORIGINAL_BYTES_MAX)
            }
        except OffsetOutOfRange:
            return  # Deleted while its letter waited.
        except (CorruptMessage, KafkaStorageError, UnsupportedCompressionType) as error:
            self._missing = f"the record cannot be read: {error}"


class LetterBatch(NamedTuple):
    """A batch for the dead-letter topic, and the offsets whose letters are in it."""

    batch: bytearray
    ranges: tuple[Range, ...]
    record_count: int
    not_copied_count: int


def letter_batch(
    letters: Iterable[DeadLetter],
    origin: Origin,
    originals: Originals | None,
    *,
    bytes_max: int,
    wall_ms: int,
) -> LetterBatch:
    """The first of these letters, as many as go into one batch; one at least.

    ``originals`` is None where the group does not have its records copied.
    """
    records: list[NewRecord] = []
    ranges: list[Range] = []
    room, missing = min(bytes_max, BATCH_BYTES_MAX) - HEADER_BYTES, 0
    for offset, headers in _each(letters, origin):
        original = originals.at(offset) if originals is not None else None
        record = _letter(original, headers, wall_ms)
        room -= _size_max(record)
        if records and (room < 0 or len(records) == RECORDS_MAX):
            break
        records.append(record)
        missing += isinstance(original, str)
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    if len(records) == 1:
        return _single(records[0], ranges[0], origin, missing=missing, bytes_max=bytes_max)
    return LetterBatch(encode_batch(records), tuple(ranges), len(records), missing)


def _each(letters: Iterable[DeadLetter], origin: Origin) -> Iterator[tuple[int, Headers]]:
    """Every offset with the headers that say where it is and why it is here."""
    topic = (PREFIX + "topic", origin.topic.encode())
    partition = (PREFIX + "partition", b"%d" % origin.partition)
    group = (PREFIX + "group", origin.group_id.encode())
    for letter in letters:
        count = (PREFIX + "delivery.count", b"%d" % letter.delivery_count)
        message = (PREFIX + "message", MESSAGES[letter.reason])
        for offset in range(letter.first, letter.end):
            where = (PREFIX + "offset", b"%d" % offset)
            yield offset, (topic, partition, where, group, count, message)


def _letter(original: Record | str | None, headers: Headers, wall_ms: int) -> NewRecord:
    if original is None:
        return NewRecord(None, None, wall_ms, headers)
    if isinstance(original, str):
        return NewRecord(None, None, wall_ms, (*headers, (NOT_COPIED, original.encode())))
    kept = [one for one in original.headers if not one[0].startswith((PREFIX, NOT_COPIED))]
    return NewRecord(original.key, original.value, wall_ms, (*kept, *headers))


def _single(
    record: NewRecord, where: Range, origin: Origin, *, missing: int, bytes_max: int
) -> LetterBatch:
    """A batch of one letter: as it is, compressed, or without its record."""
    for codec in (NONE, ZSTD):
        batch = encode_batch([record], codec=codec)
        if len(batch) <= bytes_max:
            return LetterBatch(batch, (where,), 1, missing)
    why = f"the record is larger than max.message.bytes={bytes_max} of the dead-letter topic"
    own = [one for one in record.headers if one[0].startswith((PREFIX, NOT_COPIED))]
    bare = NewRecord(None, None, record.timestamp, (*own, (NOT_COPIED, why.encode())))
    batch = encode_batch([bare])
    if len(batch) > bytes_max:
        raise MessageTooLarge(
            f"group={origin.group_id!r} topic={origin.topic!r} partition={origin.partition} "
            f"offset={where[0]}: a dead letter without its record has {len(batch)} bytes, "
            f"max.message.bytes of the dead-letter topic is {bytes_max}"
        )
    return LetterBatch(batch, (where,), 1, 1)


def _size_max(record: NewRecord) -> int:
    """The record takes no more bytes than this."""
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        # A character takes up to four bytes.
        characters = len(name) if name.isascii() else 4 * len(name)
        size += HEADER_OVERHEAD_BYTES + characters + len(value or b"")
    return size
