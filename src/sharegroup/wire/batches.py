"""Record batches, format 2, as opaque bytes behind a header of 61 bytes.

The broker moves batches without looking at their records.  The header says what it needs::

    0          8        12      16      17    21           23        ...      57      61
    | base     | length | leader | magic | crc | attributes | deltas,  ...     | count | records
    | offset   |        | epoch  |  (2)  |     |            | times, producer  |       |
    '--- outside the checksum ---------------' '--- inside the checksum ------------------ - -

Base offset and leader epoch lie outside, so they are stamped without touching the checksum;
the time of appending lies inside and needs a new one.

`validate` is what stands between a producer and the log.  Its codes are Kafka's as observed,
except that an unknown codec is UNSUPPORTED_COMPRESSION_TYPE here and an unknown error there.
The record bodies are not looked at: whoever decodes them has to be ready for anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from sharegroup.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType

Buffer = bytes | bytearray | memoryview
Writable = bytearray | memoryview

HEADER_BYTES = 61
LENGTH_END = 12
"""The length counts what follows it; so many bytes stand before."""
LENGTH_MIN = HEADER_BYTES - LENGTH_END
MAGIC_AT = 16
CRC_AT = 17
CHECKED_AT = 21
"""Where the part begins that the checksum covers."""
MAX_TIMESTAMP_AT = 35
MAGIC = 2

CODEC_MASK = 0x07
CODEC_NEWEST = 4
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

_header = Struct(">qiibIhiqqqhii")
_length = Struct(">i")
_crc = Struct(">I")
_attributes = Struct(">h")
_offset_or_time = Struct(">q")
_leader_epoch = Struct(">i")
assert _header.size == HEADER_BYTES


class BatchHeader(NamedTuple):
    """The fields as they stand in the batch; offsets inclusive, as on the wire."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_END + self.length

    @property
    def last_offset(self) -> int:
        """Offset of the last record, or of one that compaction took from the end."""
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """Whether it holds a transaction's marker and no records for consumers."""
        return self.attributes & CONTROL != 0

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when on compaction may drop the batch's tombstones and marker.

        None while compaction has not met them.  It stands in place of the first timestamp.
        """
        return self.first_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def has_log_append_time(self) -> bool:
        """Whether ``max_timestamp`` is the time of all its records."""
        return self.attributes & LOG_APPEND_TIME != 0


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at ``position``; its fields are not judged."""
    if len(buffer) - position < HEADER_BYTES:
        raise CorruptMessage(
            f"batch at byte {position}: expected {HEADER_BYTES} bytes of header, "
            f"came {len(buffer) - position}"
        )
    return BatchHeader._make(_header.unpack_from(buffer, position))


def header_bytes(header: BatchHeader) -> bytes:
    """The header as it stands in a batch."""
    return _header.pack(*header)


def scan(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch with its position; stops before one that is cut off at the end.

    A broker may end its answer within a batch.  Raises CorruptMessage at what is no batch.
    """
    size = len(buffer)
    while size - position >= HEADER_BYTES:
        header = BatchHeader._make(_header.unpack_from(buffer, position))
        if header.magic != MAGIC or header.length < LENGTH_MIN:
            raise CorruptMessage(
                f"batch at byte {position}: expected magic 2 and a length of {LENGTH_MIN} "
                f"or more, found magic {header.magic} and length {header.length}"
            )
        if header.size > size - position:
            break
        yield position, header
        position += header.size


def checksum(buffer: Buffer, position: int, header: BatchHeader) -> int:
    """The CRC-32C that the batch at ``position`` should have."""
    with memoryview(buffer) as view:
        return crc32c(view[position + CHECKED_AT : position + header.size])


def checksum_holds(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch at ``position`` is as its producer wrote it."""
    return checksum(buffer, position, header) == header.crc


def validate(buffer: Buffer) -> list[BatchHeader]:
    """The headers of all batches that a producer sent for a partition; one is the rule.

    Raises CorruptMessage, InvalidRecord or UnsupportedCompressionType.
    """
    headers: list[BatchHeader] = []
    position = 0
    while position < len(buffer) or not headers:
        header = _checked_header(buffer, position)
        headers.append(header)
        position += header.size
    return headers


def stamp(buffer: Writable, position: int = 0, *, base_offset: int, leader_epoch: int) -> None:
    """Write what the log decides into the batch at ``position``; its checksum still holds."""
    _offset_or_time.pack_into(buffer, position, base_offset)
    _leader_epoch.pack_into(buffer, position + LENGTH_END, leader_epoch)


def stamp_append_time(buffer: Writable, append_time: int, position: int = 0) -> None:
    """Give all records of the batch at ``position`` this time, in ms, and it a new checksum."""
    (attributes,) = _attributes.unpack_from(buffer, position + CHECKED_AT)
    _attributes.pack_into(buffer, position + CHECKED_AT, attributes | LOG_APPEND_TIME)
    _offset_or_time.pack_into(buffer, position + MAX_TIMESTAMP_AT, append_time)
    header = BatchHeader._make(_header.unpack_from(buffer, position))
    _crc.pack_into(buffer, position + CRC_AT, checksum(buffer, position, header))


def _checked_header(buffer: Buffer, position: int) -> BatchHeader:
    _check_extent(buffer, position)
    header = BatchHeader._make(_header.unpack_from(buffer, position))
    found = checksum(buffer, position, header)
    if found != header.crc:
        raise CorruptMessage(f"expected checksum {header.crc:#010x}, found {found:#010x}")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"expected one record or more and a last offset delta one below, found "
            f"{header.record_count} records and last offset delta {header.last_offset_delta}"
        )
    _check_attributes(header)
    return header


def _check_extent(buffer: Buffer, position: int) -> None:
    """That a whole batch of format 2 is there."""
    size = len(buffer) - position
    if size > MAGIC_AT and buffer[position + MAGIC_AT] != MAGIC:
        magic = buffer[position + MAGIC_AT]
        text = f"expected magic {MAGIC}, found {magic}"
        raise InvalidRecord(text) if magic < MAGIC else CorruptMessage(text)
    if size < HEADER_BYTES:
        raise InvalidRecord(f"expected a batch of {HEADER_BYTES} bytes or more, came {size}")
    (length,) = _length.unpack_from(buffer, position + LENGTH_END - _length.size)
    if length < LENGTH_MIN:
        raise CorruptMessage(f"expected a batch length of {LENGTH_MIN} or more, found {length}")
    if LENGTH_END + length > size:
        raise InvalidRecord(f"batch of {LENGTH_END + length} bytes, but {size} came")


def _check_attributes(header: BatchHeader) -> None:
    if header.codec > CODEC_NEWEST:
        raise UnsupportedCompressionType(
            f"expected codec 0 to {CODEC_NEWEST}, found {header.codec}"
        )
    if header.is_control:
        raise InvalidRecord("control batches are the broker's to write")
    if header.has_log_append_time:
        raise InvalidRecord("the time of appending is the broker's to write")
    if header.producer_id == NO_PRODUCER_ID:
        if header.is_transactional:
            raise InvalidRecord("transactional batch without a producer id")
    elif header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
        raise InvalidRecord(
            f"expected producer id, epoch and sequence of 0 or more, found {header.producer_id}, "
            f"{header.producer_epoch} and {header.base_sequence}"
        )
