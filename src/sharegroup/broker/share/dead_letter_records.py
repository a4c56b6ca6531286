"""The contents of a dead letter (KIP-1191), and reading the original record that it copies.

    original        key   value   headers h1 h2
    dead letter     key   value   headers h1 h2 __dlq.errors.topic .partition .offset ...

Key, value and headers are copied if the group is configured so; otherwise the letter only has the
position of its record.  The names of the headers, their texts and the timestamp (that of writing)
are Kafka's; copying the original's own headers is ours.  If the original is itself a dead letter,
its ``__dlq`` headers are replaced, because that dead letter still has them.

Letters of one share partition are put into batches below the topic's ``max.message.bytes``.  A
letter that is too large alone is compressed.  If that is not enough, it is written without its
record and has a header that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from sharegroup.core.delivery.delivery import DeadLetterRange, Reason
from sharegroup.errors import (
    CorruptMessage,
    KafkaStorageError,
    MessageTooLarge,
    OffsetOutOfRange,
    UnsupportedCompressionType,
)
from sharegroup.ids import GroupId, TopicName
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.wire.batches.batches import (
    HEADER_BYTES,
    LETTER_PRODUCER_ID,
    UNREADABLE,
    BatchHeader,
    Buffer,
    parse_header,
)
from sharegroup.wire.batches.compression import NONE, ZSTD, TooLarge
from sharegroup.wire.batches.record_walk import (
    Walk,
    WalkStep,
    body_of,
    header_count,
    places_of_records,
)
from sharegroup.wire.batches.records import (
    DecodedRecord,
    Headers,
    SimpleRecord,
    encode_batch,
    single_record,
)
from sharegroup.wire.internal_topics.dead_letter_headers import KAFKA_PREFIX, NOT_COPIED

if TYPE_CHECKING:
    from sharegroup.wire.batches.record_pieces import UnreadableRange, WholeRecords

MESSAGES: Mapping[Reason, bytes] = {
    Reason.REJECTED: b"Offset rejected by client.",
    Reason.EXHAUSTED: b"Offset delivery count exceeded the threshold.",
    Reason.UNREADABLE: b"Offset could not be read from the log.",
}
"""The texts of the first two are those of Kafka; the third reason does not exist in Kafka."""

RECORDS_MAX = 500
"""Maximum number of letters in one batch, which take a few milliseconds."""

BATCH_BYTES_MAX = 1024 * 1024
"""Maximum size of a batch with several letters, to bound memory, even if the topic allows more."""

ORIGINAL_BYTES_MAX = 16 * 1024 * 1024
"""Maximum decompressed size of a log batch that is held in memory, and of a record to copy."""

ORIGINAL_STREAM_BYTES_MAX = 512 * 1024 * 1024
"""Maximum decompressed size of a log batch that is read in pieces, to bound time."""

ORIGINAL_RECORDS_MAX = 20_000
"""Maximum number of records of a log batch whose records are copied: their positions are kept."""

ORIGINAL_HEADERS_MAX = 10_000
"""Maximum number of headers of a copied record; decoding that many takes about a millisecond."""

COPIES_AT_ONCE = 50
"""Maximum number of records that are decoded and copied in one turn of the event loop."""

RECORD_OVERHEAD_BYTES = 36
"""Maximum size in bytes of the lengths, deltas and attributes of a record."""

HEADER_OVERHEAD_BYTES = 10

NO_RECORD = "the record at this offset no longer exists"

Range = tuple[int, int]


class OriginalPartition(NamedTuple):
    """The group and the partition whose records these dead letters are for."""

    group_id: GroupId
    topic: TopicName
    partition: int


class Originals:
    """Reads records to copy; keeps one log batch, because it likely contains the next offset."""

    __slots__ = (
        "_batch", "_body", "_end", "_first", "_header", "_log", "_missing", "_places", "_stream",
    )  # fmt: skip

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._first = self._end = 0
        self._batch: Buffer = b""
        self._header: BatchHeader | None = None
        self._body: Buffer = b""
        self._places: dict[int, tuple[int, int]] = {}
        self._missing = NO_RECORD
        self._stream: Iterator[WholeRecords | UnreadableRange | None] | None = None
        """What is left of a batch that is too large to be decompressed as a whole."""

    def at(self, offset: int) -> Walk[DecodedRecord | str]:
        """Return the record at ``offset``, or a text that says why it cannot be copied."""
        if not self._first <= offset < self._end:
            yield from self._load(offset)
        place = self._places.get(offset)
        if place is None:
            return self._missing
        assert self._header is not None, "places are those of a batch"
        try:
            if (headers := header_count(self._body, place)) > ORIGINAL_HEADERS_MAX:
                return f"it has {headers} headers, and at most {ORIGINAL_HEADERS_MAX} are copied"
            content = self._body[place[0] : place[1]]
            return single_record(self._batch, self._header, content)
        except CorruptMessage as error:
            return f"the record cannot be read: {error}"

    def _load(self, offset: int) -> Walk[None]:
        """Read the batch that contains ``offset``, and find its records."""
        if self._end <= offset and (yield from self._read_stream(offset)):
            return
        # Each line below may fail.  If no batch is found, only this offset counts as looked up, and
        # its record as missing.
        self._first, self._end, self._stream = offset, offset + 1, None
        self._body, self._places, self._missing = b"", {}, NO_RECORD
        try:
            # One batch, whatever its size (`PartitionLog.batches`).
            spans = self._log.batches(offset, bytes_max=1, count_max=1)
            if not spans.firsts or spans.firsts[0] > offset:
                return  # The record was compacted away.
            self._first, self._end = spans.firsts[0], spans.ends[0]
            self._batch = self._log.read_range(self._first, self._end)
            self._header = header = parse_header(self._batch)
            if header.record_count > ORIGINAL_RECORDS_MAX:
                self._missing = (
                    f"its batch has {header.record_count} records; records of a batch are "
                    f"only copied if it has at most {ORIGINAL_RECORDS_MAX}"
                )
                return
            self._body = yield from _body(self._batch, header)
            self._places = yield from places_of_records(self._body, header)
        except TooLarge:
            # Imported here because few brokers ever read such a batch.
            from sharegroup.wire.batches.record_pieces import cut_in_steps

            self._stream = cut_in_steps(
                memoryview(self._batch),
                header,
                record_bytes_max=ORIGINAL_BYTES_MAX,
                stream_bytes_max=ORIGINAL_STREAM_BYTES_MAX,
            )
            self._first, self._end = offset, offset + 1
            yield from self._read_stream(offset)
        except OffsetOutOfRange:
            return  # The record was deleted while its letter waited.
        except (CorruptMessage, KafkaStorageError, UnsupportedCompressionType) as error:
            self._missing = f"the record cannot be read: {error}"

    def _read_stream(self, offset: int) -> Walk[bool]:
        """Read the rest of a large batch up to ``offset``; return whether it was reached."""
        if self._stream is None:
            return False
        # Imported here because few brokers ever read such a batch.
        from sharegroup.wire.batches.record_pieces import UnreadableRange

        header = self._header
        for piece in self._stream:
            if piece is None:
                yield WalkStep.PAUSE
                continue
            assert header is not None, "a stream is that of a batch"
            if piece.end <= offset:
                continue
            self._first, self._end = min(piece.first, offset), piece.end
            self._body, self._places, self._missing = b"", {}, NO_RECORD
            if isinstance(piece, UnreadableRange):
                self._missing = f"the record cannot be read: {piece.error}"
            else:
                part = header._replace(record_count=piece.record_count)
                self._body = piece.body
                self._places = yield from places_of_records(self._body, part)
            return True
        return False


def _body(batch: Buffer, header: BatchHeader) -> Walk[Buffer]:
    """Return the records of a batch, decompressed while no other large batch is."""
    # Without decompression it takes no more memory, so it needs no turn.
    if header.codec == NONE:
        return memoryview(batch)[HEADER_BYTES : header.size]
    yield WalkStep.BEGIN
    try:
        body = yield from body_of(batch, header, bytes_max=ORIGINAL_BYTES_MAX)
    except UNREADABLE:
        # The walk goes on with other records after this error, so the turn ends here.
        yield WalkStep.END
        raise
    yield WalkStep.END
    return body


class LetterBatch(NamedTuple):
    """A batch for the dead-letter topic, and the offsets whose letters are in it."""

    batch: bytearray
    ranges: tuple[Range, ...]
    record_count: int
    not_copied_count: int


def letter_batch(
    letters: Iterable[DeadLetterRange],
    origin: OriginalPartition,
    originals: Originals | str | None,
    *,
    bytes_max: int,
    wall_ms: int,
) -> Walk[LetterBatch]:
    """Make a batch of the first of these letters, as many as fit, but at least one.

    ``originals`` is None if the group does not have its records copied, or a text that says why
    none may be copied.
    """
    records: list[SimpleRecord] = []
    ranges: list[Range] = []
    room, missing_count = min(bytes_max, BATCH_BYTES_MAX) - HEADER_BYTES, 0
    for offset, headers in _each(letters, origin):
        original: DecodedRecord | str | None
        if originals is None or isinstance(originals, str):
            original = originals
        else:
            original = yield from originals.at(offset)
        record = _letter(original, headers, wall_ms)
        room -= _size_max(record)
        # The letter that does not fit is made again, as the first of the next batch.
        if records and (room < 0 or len(records) == RECORDS_MAX):
            break
        records.append(record)
        missing_count += isinstance(original, str)
        if ranges and ranges[-1][1] == offset:
            # Joined, because core archives offset ranges: those of a rejected batch become one.
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
        if len(records) % COPIES_AT_ONCE == 0:
            yield WalkStep.PAUSE
    if len(records) == 1:
        return _single(records[0], ranges[0], origin, missing=missing_count, bytes_max=bytes_max)
    return LetterBatch(_encoded(records), tuple(ranges), len(records), missing_count)


def _each(
    letters: Iterable[DeadLetterRange], origin: OriginalPartition
) -> Iterator[tuple[int, Headers]]:
    """Yield every offset with the headers for its record's position and the reason."""
    topic = (KAFKA_PREFIX + "topic", origin.topic.encode())
    partition = (KAFKA_PREFIX + "partition", b"%d" % origin.partition)
    group = (KAFKA_PREFIX + "group", origin.group_id.encode())
    for letter in letters:
        count = (KAFKA_PREFIX + "delivery.count", b"%d" % letter.delivery_count)
        message = (KAFKA_PREFIX + "message", MESSAGES[letter.reason])
        for offset in range(letter.first, letter.end):
            position = (KAFKA_PREFIX + "offset", b"%d" % offset)
            yield offset, (topic, partition, position, group, count, message)


def _letter(original: DecodedRecord | str | None, headers: Headers, wall_ms: int) -> SimpleRecord:
    """Make a dead letter; ``original`` is the record to copy, why there is none, or None."""
    if original is None:
        return SimpleRecord(None, None, wall_ms, headers)
    if isinstance(original, str):
        return SimpleRecord(None, None, wall_ms, (*headers, (NOT_COPIED, original.encode())))
    kept_headers = [
        header
        for header in original.headers
        # Any producer can write these names; a letter must have only those of the broker.
        if not header[0].startswith((KAFKA_PREFIX, NOT_COPIED))
    ]
    return SimpleRecord(original.key, original.value, wall_ms, (*kept_headers, *headers))


def _single(
    record: SimpleRecord, where: Range, origin: OriginalPartition, *, missing: int, bytes_max: int
) -> LetterBatch:
    """Make a batch of one letter: as it is, compressed, or without its record."""
    for codec in (NONE, ZSTD):
        batch = _encoded([record], codec)
        if len(batch) <= bytes_max:
            return LetterBatch(batch, (where,), 1, missing)
    reason = f"the record is larger than max.message.bytes={bytes_max} of the dead-letter topic"
    own_headers = [
        header for header in record.headers if header[0].startswith((KAFKA_PREFIX, NOT_COPIED))
    ]
    bare = SimpleRecord(None, None, record.timestamp, (*own_headers, (NOT_COPIED, reason.encode())))
    batch = _encoded([bare])
    if len(batch) > bytes_max:
        raise MessageTooLarge(
            f"group={origin.group_id!r} topic={origin.topic!r} partition={origin.partition} "
            f"offset={where[0]}: a dead letter without its record has {len(batch)} bytes, "
            f"max.message.bytes of the dead-letter topic is {bytes_max}"
        )
    return LetterBatch(batch, (where,), 1, 1)


def _encoded(letters: list[SimpleRecord], codec: int = NONE) -> bytearray:
    """Return a batch with the mark of the broker's own letters (ADR 0036)."""
    return encode_batch(letters, codec=codec, producer_id=LETTER_PRODUCER_ID, producer_epoch=0)


def _size_max(record: SimpleRecord) -> int:
    """Return an upper limit of the bytes that the record takes."""
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        # A character takes up to four bytes.
        characters = len(name) if name.isascii() else 4 * len(name)
        size += HEADER_OVERHEAD_BYTES + characters + len(value or b"")
    return size
