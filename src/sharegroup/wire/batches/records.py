"""Records inside batches: decoding for consumers and coordinators, encoding for producers.

aiokafka's compiled codec does the work: 60 us for 500 records, for which Python takes milliseconds.
This module adds what it lacks: batches that are cut off at the end of a response, decompression
under a limit (`compression`), control batches, and our errors.

The codec's record objects are returned as they are, see `DecodedRecord`, because converting them
would double the time.

The compiled code reads numbers of up to ten bytes without a check whether the buffer is that long.
It therefore always gets a view into a larger buffer, with readable bytes behind the view's end
(`_guarded`); these bytes never become part of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import lt
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c

from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches.batches import (
    CHECKED_AT,
    CODEC_MASK,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    MAX_TIMESTAMP_AT,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    checksum_holds,
    header_bytes,
    scan,
)
from sharegroup.wire.batches.compression import DECOMPRESSED_BYTES_MAX, NONE, compress, decompress

if TYPE_CHECKING:
    # Imported for its type alone: few processes have such records.
    from sharegroup.wire.batches.record_contents import EncodedRecord

GUARD_BYTES = 32
# The length field of a batch has 32 bits; smaller limits are those of producer and topic.
BATCH_BYTES_MAX = 2**31 - 1

REFUSED = (CorruptRecordException, UnicodeDecodeError, OverflowError, MemoryError)
"""The errors of the compiled codec.

A length close to 2**63 makes it request that much memory: MemoryError.
"""

Headers = Sequence[tuple[str, bytes | None]]
Encodable = tuple[bytes | None, bytes | None, int, Headers]
Made = TypeVar("Made")

_attributes = Struct(">h")
RECORD_COUNT_AT = HEADER_BYTES - 4
_length = Struct(">i")
_crc = Struct(">I")
_times = Struct(">qq")
FIRST_TIMESTAMP_AT = MAX_TIMESTAMP_AT - 8
TIMESTAMP_MAX = 2**63 - 1


class SimpleRecord(NamedTuple):
    """One record to encode; a plain tuple of the same order can be used as well."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    """Milliseconds since 1970."""
    headers: Headers = ()


class DecodedRecord(Protocol):
    """One decoded record."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int | None:
        """Milliseconds since 1970; None if the producer set none."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> list[tuple[str, bytes | None]]: ...


def decode_records(
    buffer: Buffer,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    check_crc: bool = False,
) -> list[DecodedRecord]:
    """Return the records of all whole batches in order, without control batches.

    Raises CorruptMessage for an invalid batch or invalid records, and UnsupportedCompressionType
    for an unknown codec. An incomplete batch at the end is left out.
    """
    records: list[DecodedRecord] = []
    for position, header in scan(buffer):
        if not header.is_control:
            records += batch_records(
                buffer,
                position,
                header,
                decompressed_bytes_max=decompressed_bytes_max,
                check_crc=check_crc,
            )
    return records


def batch_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    check_crc: bool = False,
) -> list[DecodedRecord]:
    """Return the records of the batch that `scan` found at ``position``, with control records."""
    return read_batch(
        buffer,
        position,
        header,
        list[DecodedRecord],
        decompressed_bytes_max=decompressed_bytes_max,
        check_crc=check_crc,
    )


def read_batch(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    make: Callable[[Iterable[DecodedRecord]], Made],
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    check_crc: bool = False,
) -> Made:
    """Return the result of ``make`` for the records of the batch that `scan` found; one pass.

    A ``make`` that creates objects of its own and drops each record at once saves garbage
    collection: the collector runs when many more objects were created than freed.
    """
    if check_crc and not checksum_holds(buffer, position, header):
        raise CorruptMessage(f"batch at offset {header.base_offset}: the checksum does not match")
    if not header.record_count:
        return make(())  # Java does not look at the body, either.
    if header.codec == NONE:
        batch = _guarded(buffer, position, header)
    else:
        batch = _decompressed(buffer, position, header, decompressed_bytes_max)
    return _made(batch, header, header.record_count, make)


def _made(
    batch: memoryview,
    header: BatchHeader,
    count: int,
    make: Callable[[Iterable[DecodedRecord]], Made],
) -> Made:
    """Return the result of ``make`` for ``count`` records that are not compressed.

    Java may accept what the compiled codec refuses or misreads: the other decoder finds out, and
    says what is wrong if not.
    """
    with suppress(*REFUSED):
        made = make(DefaultRecordBatch(batch))
        if _are_in_order(made, header):
            return made
    # Imported here because few processes ever read such a batch.
    from sharegroup.wire.batches import odd_records

    name = f"batch at offset {header.base_offset} of {header.record_count} records"
    try:
        made = make(odd_records.decode(batch[HEADER_BYTES:], header, count))
    except CorruptMessage as error:
        raise CorruptMessage(f"{name}: {error}") from error
    if not _are_in_order(made, header):
        raise CorruptMessage(f"{name}: their offsets do not ascend from its first to its last one")
    return made


def _are_in_order(made: object, header: BatchHeader) -> bool:
    """Whether these records have ascending offsets of their batch, if they are a list.

    The compiled codec misreads attributes of 128 or more, and a producer can lie about offsets.  A
    record with an offset of another batch would hide the records there from a reader.
    """
    if not isinstance(made, list) or not made:
        return True
    offsets: list[int] = [record.offset for record in made]
    first, end = header.base_offset, header.end_offset
    # Nearly every batch has no holes, and two lists compare faster than offset by offset.
    if offsets == list(range(first, first + len(offsets))):
        return offsets[-1] < end
    return first <= offsets[0] and offsets[-1] < end and all(map(lt, offsets, offsets[1:]))


def encode_batch(
    records: Sequence[Encodable],
    *,
    codec: int = NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytearray:
    """Return one batch of these records (see `SimpleRecord`), at base offset 0.

    There must be one record or more. The caller owns the buffer and may stamp and send it.
    """
    assert records, "a batch needs a record"
    has_time = records[0][2] != NO_TIMESTAMP
    builder = DefaultRecordBatchBuilder(
        MAGIC,
        NONE,
        int(is_transactional),
        producer_id,
        producer_epoch,
        base_sequence,
        BATCH_BYTES_MAX,
    )
    try:
        batch = _built(builder, records if has_time else _one_later(records))
    except TypeError:  # The compiled codec refuses names of a subclass of str.
        return encode_contents(
            _contents(records),
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
    if not has_time:
        _set_times(batch, NO_TIMESTAMP, max(record[2] for record in records))
    return batch if codec == NONE else _compressed(batch, codec)


def encode_contents(
    records: Sequence[EncodedRecord],
    *,
    codec: int = NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytearray:
    """Return the same batch as `encode_batch`, of records whose contents are encoded."""
    # Imported here because few processes have such records.
    from sharegroup.wire.batches.record_contents import batch_body

    assert records, "a batch needs a record"
    times = [timestamp for _, timestamp in records]
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL * is_transactional,
        last_offset_delta=len(records) - 1,
        first_timestamp=times[0],
        max_timestamp=max(times),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    body = compress(codec, batch_body(records, times[0]))
    return _with_body(bytearray(header_bytes(header)), body, codec=codec)


def _contents(records: Iterable[Encodable]) -> list[EncodedRecord]:
    """Return the contents of records, with the original bytes of all names."""
    # Imported here because few processes ever write such a batch.
    from sharegroup.wire.batches.record_contents import encoded_names, record_content

    contents = []
    for key, value, timestamp, headers in records:
        names = encoded_names([name for name, _ in headers])
        parts = [key, value, *(content for _, content in headers)]
        contents.append((record_content(names, parts), timestamp))
    return contents


def _built(
    builder: DefaultRecordBatchBuilder,
    records: Iterable[Encodable],
) -> bytearray:
    for count, (key, value, timestamp, headers) in enumerate(records):
        builder.append(count, timestamp, key, value, list(headers))
    batch: bytearray = builder.build()
    return batch


def _one_later(records: Sequence[Encodable]) -> Iterator[Encodable]:
    """Return the records one millisecond later; the largest timestamp becomes the smallest.

    The codec takes a first timestamp of -1 for a missing one, and would count the times of the
    batch from the second record. `_set_times` moves them back.
    """
    for key, value, timestamp, headers in records:
        yield (
            key,
            value,
            timestamp + 1 if timestamp < TIMESTAMP_MAX else -TIMESTAMP_MAX - 1,
            headers,
        )


def _set_times(batch: bytearray, first: int, latest: int) -> None:
    """Set the first and the largest timestamp of an uncompressed batch, and its checksum."""
    # The deltas of the records stay: moving all times by the same amount changes only the header.
    _times.pack_into(batch, FIRST_TIMESTAMP_AT, first, latest)
    with memoryview(batch) as view:
        crc = crc32c(view[CHECKED_AT:])
    _crc.pack_into(batch, CRC_AT, crc)


def _compressed(batch: bytearray, codec: int) -> bytearray:
    """Return the same batch with its records compressed, and its length and checksum updated."""
    with memoryview(batch) as view:
        body = compress(codec, view[HEADER_BYTES:])
    return _with_body(batch, body, codec=codec)


def _with_body(batch: bytearray, body: bytes, *, codec: int) -> bytearray:
    """Return a batch with the header of an uncompressed one, and this body."""
    result = batch[:HEADER_BYTES] + body
    (attributes,) = _attributes.unpack_from(result, CHECKED_AT)
    _attributes.pack_into(result, CHECKED_AT, attributes | codec)
    _length.pack_into(result, LENGTH_END - _length.size, len(result) - LENGTH_END)
    with memoryview(result) as view:
        crc = crc32c(view[CHECKED_AT:])
    _crc.pack_into(result, CRC_AT, crc)
    return result


def _guarded(buffer: Buffer, position: int, header: BatchHeader) -> memoryview:
    """Return the batch as a view with bytes behind it; copied only if the buffer ends with it."""
    end = position + header.size
    if len(buffer) - end >= GUARD_BYTES:
        return memoryview(buffer)[position:end]
    copy = bytes(buffer[position:end]) + bytes(GUARD_BYTES)
    return memoryview(copy)[: header.size]


def single_record(batch: Buffer, header: BatchHeader, content: Buffer) -> DecodedRecord:
    """Return the record of a batch whose decompressed bytes are ``content``.

    Its attributes are looked at first: a misread offset can lie within the batch.
    """
    # Imported here because few processes copy a record out of its batch.
    from sharegroup.wire.batches import odd_records

    _, attributes_at = odd_records.number(
        content, 0, odd_records.INT_BYTES_MAX, odd_records.INT_BITS
    )
    # The compiled codec takes such attributes for the first byte of a number (ADR 0033).
    if content[attributes_at] > 0x7F:
        return next(odd_records.decode(content, header, 1))
    (record,) = part_of_batch(batch, header, content, 1, list[DecodedRecord])
    return record


def part_of_batch(
    batch: Buffer,
    header: BatchHeader,
    content: Buffer,
    count: int,
    make: Callable[[Iterable[DecodedRecord]], Made],
) -> Made:
    """Return the result of ``make`` for ``count`` decompressed records of a batch."""
    head = bytearray(memoryview(batch)[:HEADER_BYTES])
    head[RECORD_COUNT_AT:HEADER_BYTES] = count.to_bytes(HEADER_BYTES - RECORD_COUNT_AT, "big")
    whole = _in_place_of_body(head, header, content)
    return _made(whole, header, count, make)


def _decompressed(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int) -> memoryview:
    """Return the batch with decompressed records, as a view with bytes behind it."""
    view = memoryview(buffer)[position : position + header.size]
    try:
        body = decompress(header.codec, view[HEADER_BYTES:], bytes_max=bytes_max)
    except CorruptMessage as error:
        # Of the same type, because a batch that is `TooLarge` is read as a stream, and not damaged.
        raise type(error)(f"batch at offset {header.base_offset}: {error}") from error
    return _in_place_of_body(bytearray(view[:HEADER_BYTES]), header, body)


def _in_place_of_body(head: bytearray, header: BatchHeader, content: Buffer) -> memoryview:
    """Return an uncompressed batch as a view with bytes behind it; it changes ``head``."""
    _attributes.pack_into(head, CHECKED_AT, header.attributes & ~CODEC_MASK)
    whole = b"".join((head, content, bytes(GUARD_BYTES)))
    return memoryview(whole)[:-GUARD_BYTES]
