"""Batches compressed anew, for topics whose ``compression.type`` is not that of the producer.

The records of a batch are the same bytes with every codec, so they are never decoded for this: the
body is decompressed and compressed, and length, codec and checksum of the header change with it.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import NamedTuple

from sharegroup.errors import CorruptMessage, InvalidRecord
from sharegroup.wire.batches.batches import (
    CODEC_MASK,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    Buffer,
    checksum,
    header_bytes,
    parse_header,
)
from sharegroup.wire.batches.compression import compress
from sharegroup.wire.batches.record_walk import SLICE_RECORDS, Walk, WalkStep, body_of, read_varint

_crc = Struct(">I")


class TargetCompression(NamedTuple):
    """The codec with which a topic stores its batches, and the level of it."""

    codec: int
    level: int | None
    """None is Kafka's default level."""


def recompressed(header: BatchHeader, body: Buffer, target: TargetCompression) -> bytearray:
    """Return the batch of ``header`` with the decompressed records ``body`` in the target's codec.

    It takes long for a large body, and most of it without the interpreter lock.
    """
    records = compress(target.codec, body, level=target.level)
    changed = header._replace(
        attributes=header.attributes & ~CODEC_MASK | target.codec,
        length=HEADER_BYTES - LENGTH_END + len(records),
    )
    batch = bytearray(header_bytes(changed)) + records
    _crc.pack_into(batch, CRC_AT, checksum(batch, 0, changed))
    return batch


def repacked(batch: bytearray, target: TargetCompression, *, bytes_max: int) -> Walk[bytearray]:
    """Return a batch of the broker's own in the target's codec."""
    header = parse_header(batch)
    if header.codec == target.codec:
        return batch
    # There is no `END`, because the turn ends with the walk (`broker.load.record_jobs`).
    yield WalkStep.BEGIN
    body = yield from body_of(batch, header, bytes_max=bytes_max)
    packed = yield partial(recompressed, header, body, target)
    assert isinstance(packed, bytearray), "the work of a step was not done"
    return packed


def check_sizes(body: Buffer, header: BatchHeader, *, record_bytes_max: int) -> Walk[None]:
    """Check that the body has exactly the records that the header claims, none above the limit.

    Raises CorruptMessage, or InvalidRecord for a record that is too large.
    """
    position = 0
    for number in range(header.record_count):
        length, begin = read_varint(body, position)
        position = begin + length
        # With a negative length the loop would read the same records again.
        if length < 1 or position > len(body):
            raise CorruptMessage(
                f"record {number} has {length} bytes, {len(body) - begin} are left"
            )
        if length > record_bytes_max:
            raise InvalidRecord(
                f"record {number} has {length} bytes, max.decompressed.message.bytes is "
                f"{record_bytes_max}"
            )
        if number % SLICE_RECORDS == SLICE_RECORDS - 1:
            yield WalkStep.PAUSE
    if position != len(body):
        raise CorruptMessage(f"{header.record_count} records end at {position} of {len(body)}")
