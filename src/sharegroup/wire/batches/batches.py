"""Record batches, format version 2: the header of 61 bytes, behind which records stay opaque.

The broker moves batches without looking at their records. The header has all it needs::

    0          8        12      16      17    21           23        ...      57      61
    | base     | length | leader | magic | crc | attributes | deltas,  ...     | count | records
    | offset   |        | epoch  |  (2)  |     |            | times, producer  |       |
    '--- outside the checksum ---------------' '--- inside the checksum ------------------ - -

Base offset and leader epoch lie outside, so they can be set without a new checksum. The append time
lies inside and needs a new one.

`validate` checks what producers send before it reaches the log. Its error codes are those observed
from Kafka, except that an unknown codec is UNSUPPORTED_COMPRESSION_TYPE here and an unknown error
there. It does not look at the records, so code that decodes them must expect any content.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from sharegroup.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType

Buffer = bytes | bytearray | memoryview
Writable = bytearray | memoryview

UNREADABLE = (CorruptMessage, UnsupportedCompressionType)
"""The errors of a batch whose records cannot be read."""

HEADER_BYTES = 61
LENGTH_END = 12
"""Number of bytes up to the end of the length field, which counts only the bytes behind it."""
LENGTH_MIN = HEADER_BYTES - LENGTH_END
MAGIC_AT = 16
CRC_AT = 17
CHECKED_AT = 21
"""Position at which the part covered by the checksum begins."""
MAX_TIMESTAMP_AT = 35
MAGIC = 2

CODEC_MASK = 0x07
CODEC_NEWEST = 4
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
CLIENT_ATTRIBUTES = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
"""The attribute bits that are valid in a batch from a producer.

The delete horizon belongs to compaction, and the other bits have no meaning yet.
"""
RESERVED_ATTRIBUTES = 0xFFFF & ~CLIENT_ATTRIBUTES

RECORD_BYTES_MIN = 7
"""One byte each for length, attributes, time, offset, both lengths, and header count."""
RECORDS_PER_COMPRESSED_BYTE_MAX = 64
"""Number of records that a compressed batch may claim for each byte of its body.

Empty records with ascending offsets reach 1.7 with zstd, 0.7 with gzip, and 0.25 with snappy and
lz4 (measured).
"""
RECORDS_MAX = 64 * 1024 * 1024 // RECORD_BYTES_MIN
"""Number of records that a compressed batch may claim: more do not fit into 64 MiB."""

NO_PRODUCER_ID = -1
LETTER_PRODUCER_ID = 1 << 62
"""The producer id of the dead letters that a broker of ours writes, without a sequence (ADR 0036).

It is the mark by which readers tell them from records of producers.  Produce refuses it, and also
any producer id without a sequence, as Apache Kafka does.  So no producer can write it to either.
"""
WITHOUT_PRODUCER = (NO_PRODUCER_ID, LETTER_PRODUCER_ID)
"""The producer ids of batches that belong to no producer, so no state is kept for them."""
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

_header = Struct(">qiibIhiqqqhii")
_length = Struct(">i")
_crc = Struct(">I")
_attributes = Struct(">h")
_offset_or_time = Struct(">q")
_leader_epoch = Struct(">i")
assert _header.size == HEADER_BYTES


class BatchHeader(NamedTuple):
    """The fields of a batch header; offsets are inclusive, as on the wire."""

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
        """Number of bytes of the whole batch."""
        return LENGTH_END + self.length

    @property
    def last_offset(self) -> int:
        """Offset of the last record, even if compaction has removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The compression codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """Whether it is a control batch, which has no records for consumers."""
        return self.attributes & CONTROL != 0

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_letter(self) -> bool:
        """Whether a broker of ours wrote the batch, and its records are dead letters."""
        return self.producer_id == LETTER_PRODUCER_ID and self.base_sequence == NO_SEQUENCE

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may drop the batch's tombstones and marker.

        None until a pass of compaction has met them. The field of the first timestamp holds it.
        """
        return self.first_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def has_log_append_time(self) -> bool:
        """Whether ``max_timestamp`` is the time of all its records."""
        return self.attributes & LOG_APPEND_TIME != 0


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at ``position`` without a check of its fields."""
    if len(buffer) - position < HEADER_BYTES:
        raise CorruptMessage(
            f"batch at byte {position}: expected {HEADER_BYTES} bytes of header, "
            f"found {len(buffer) - position}"
        )
    return BatchHeader._make(_header.unpack_from(buffer, position))


def header_bytes(header: BatchHeader) -> bytes:
    """Return the bytes of a header."""
    return _header.pack(*header)


def scan(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Iterate over whole batches with their positions, up to a batch that is cut off at the end.

    A broker may end its response within a batch. Raises CorruptMessage for bytes that are no batch.
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


def batch_positions(buffer: Buffer) -> list[int]:
    """Return the positions of the whole batches, without the rest of their headers. A hot loop.

    Raises CorruptMessage for bytes that are no batch.
    """
    positions = []
    position = 0
    size = len(buffer)
    unpack_length = _length.unpack_from
    while size - position >= HEADER_BYTES:
        (length,) = unpack_length(buffer, position + LENGTH_END - _length.size)
        if length < LENGTH_MIN or buffer[position + MAGIC_AT] != MAGIC:
            raise CorruptMessage(
                f"batch at byte {position}: expected magic {MAGIC} and a length of {LENGTH_MIN} "
                f"or more, found magic {buffer[position + MAGIC_AT]} and length {length}"
            )
        if LENGTH_END + length > size - position:
            break
        positions.append(position)
        position += LENGTH_END + length
    return positions


def checksum(buffer: Buffer, position: int, header: BatchHeader) -> int:
    """Return the CRC-32C that the batch at ``position`` should have."""
    with memoryview(buffer) as view:
        return crc32c(view[position + CHECKED_AT : position + header.size])


def checksum_holds(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the checksum of the batch at ``position`` is right."""
    return checksum(buffer, position, header) == header.crc


def validate(buffer: Buffer) -> list[BatchHeader]:
    """Return the headers of all batches that a producer sent for a partition, usually one.

    Raises CorruptMessage, InvalidRecord or UnsupportedCompressionType.
    """
    headers: list[BatchHeader] = []
    position = 0
    # An empty buffer is looked at, too, so that it is refused.
    while position < len(buffer) or not headers:
        header = _checked_header(buffer, position)
        headers.append(header)
        position += header.size
    return headers


def record_count_max(header: BatchHeader) -> int:
    """Return the number of records that a batch of this size may claim.

    Without compression this follows from the format: a record takes 7 bytes or more. With
    compression it is a limit far above what producers reach.
    """
    body_bytes = header.length - LENGTH_MIN
    if header.attributes & CODEC_MASK:
        return min(body_bytes * RECORDS_PER_COMPRESSED_BYTE_MAX, RECORDS_MAX)
    return body_bytes // RECORD_BYTES_MIN


def stamp(buffer: Writable, position: int = 0, *, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch of the batch at ``position``; its checksum stays right."""
    _offset_or_time.pack_into(buffer, position, base_offset)
    _leader_epoch.pack_into(buffer, position + LENGTH_END, leader_epoch)


def stamp_append_time(buffer: Writable, append_time: int, position: int = 0) -> None:
    """Set the append time in ms of the batch at ``position``, and compute its new checksum."""
    # The records keep their deltas: readers ignore them with this bit, and take this one time.
    (attributes,) = _attributes.unpack_from(buffer, position + CHECKED_AT)
    _attributes.pack_into(buffer, position + CHECKED_AT, attributes | LOG_APPEND_TIME)
    _offset_or_time.pack_into(buffer, position + MAX_TIMESTAMP_AT, append_time)
    header = BatchHeader._make(_header.unpack_from(buffer, position))
    _crc.pack_into(buffer, position + CRC_AT, checksum(buffer, position, header))


def _checked_header(buffer: Buffer, position: int) -> BatchHeader:
    _check_extent(buffer, position)
    header = BatchHeader._make(_header.unpack_from(buffer, position))
    crc = checksum(buffer, position, header)
    if crc != header.crc:
        raise CorruptMessage(f"expected checksum {header.crc:#010x}, found {crc:#010x}")
    # Compaction makes batches with holes, but a producer must not: offsets would be skipped.
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"expected one record or more and a last offset delta one below, found "
            f"{header.record_count} records and last offset delta {header.last_offset_delta}"
        )
    if not 0 <= header.attributes <= CODEC_NEWEST:  # Usually only a codec is set.
        _check_attributes(header)
    if header.producer_id != NO_PRODUCER_ID:
        _check_producer(header)
    # Few batches claim so many; without compression this is the limit itself.
    if header.record_count * RECORD_BYTES_MIN > header.length - LENGTH_MIN:
        _check_claim(header)
    return header


def _check_claim(header: BatchHeader) -> None:
    """Refuse a batch that claims more records than `record_count_max` permits."""
    limit = record_count_max(header)
    if header.record_count > limit:
        raise InvalidRecord(
            f"the batch claims {header.record_count} records, but its body of "
            f"{header.length - LENGTH_MIN} bytes (codec {header.codec}) can contain at most {limit}"
        )


def _check_extent(buffer: Buffer, position: int) -> None:
    """Raise unless the buffer has a whole batch of format version 2."""
    size = len(buffer) - position
    if size > MAGIC_AT and buffer[position + MAGIC_AT] != MAGIC:
        # As in Kafka, where `ByteBufferLogInputStream` finds a newer magic corrupt, and
        # `ProduceRequest` refuses an older one.
        magic = buffer[position + MAGIC_AT]
        text = f"expected magic {MAGIC}, found {magic}"
        raise InvalidRecord(text) if magic < MAGIC else CorruptMessage(text)
    if size < HEADER_BYTES:
        raise InvalidRecord(f"expected a batch of {HEADER_BYTES} bytes or more, found {size}")
    (length,) = _length.unpack_from(buffer, position + LENGTH_END - _length.size)
    if length < LENGTH_MIN:
        raise CorruptMessage(f"expected a batch length of {LENGTH_MIN} or more, found {length}")
    if LENGTH_END + length > size:
        raise InvalidRecord(f"expected a batch of {LENGTH_END + length} bytes, found {size}")


def _check_attributes(header: BatchHeader) -> None:
    if header.codec > CODEC_NEWEST:
        raise UnsupportedCompressionType(
            f"expected codec 0 to {CODEC_NEWEST}, found {header.codec}"
        )
    if header.attributes & RESERVED_ATTRIBUTES:
        raise InvalidRecord(
            f"expected attributes within {CLIENT_ATTRIBUTES:#06x}, found "
            f"{header.attributes & 0xFFFF:#06x}: the other bits are reserved"
        )
    if header.is_control:
        raise InvalidRecord("control batches are not accepted from producers")
    if header.has_log_append_time:
        raise InvalidRecord("timestamp type LogAppendTime is not accepted from producers")
    if header.is_transactional and header.producer_id == NO_PRODUCER_ID:
        raise InvalidRecord("transactional batch without a producer id")


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
        raise InvalidRecord(
            f"expected producer id, epoch and sequence of 0 or more, found {header.producer_id}, "
            f"{header.producer_epoch} and {header.base_sequence}"
        )
    if header.producer_id == LETTER_PRODUCER_ID:
        raise InvalidRecord(
            f"producer id {LETTER_PRODUCER_ID} is reserved for the broker's dead letters"
        )
