"""Transaction markers: the control batches that end a producer's transaction in a log.

A marker is a batch of one control record of the producer whose transaction it ends::

    key      version (int16, 0), type (int16: 0 abort, 1 commit)
    value    version (int16, 0), epoch of the transaction coordinator (int32)

It takes an offset like any record, but is not delivered to consumers. Control records of other
types exist (of Kafka's own quorum); they end no transaction.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches.batches import (
    CHECKED_AT,
    CONTROL,
    CRC_AT,
    Buffer,
    checksum,
    parse_header,
)
from sharegroup.wire.batches.records import SimpleRecord, batch_records, encode_batch

ABORT = 0
COMMIT = 1

_key = Struct(">hh")
_value = Struct(">hi")
_attributes = Struct(">h")
_crc = Struct(">I")


class TransactionMarker(NamedTuple):
    """The content of a control batch: the outcome of its producer's transaction."""

    is_commit: bool
    coordinator_epoch: int


def encode_marker(
    *,
    is_commit: bool,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    coordinator_epoch: int = 0,
) -> bytearray:
    """Return a control batch, at base offset 0, that ends the producer's transaction."""
    key = _key.pack(0, COMMIT if is_commit else ABORT)
    batch = encode_batch(
        [SimpleRecord(key, _value.pack(0, coordinator_epoch), timestamp)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
    )
    header = parse_header(batch)
    # Set afterwards, because `encode_batch` writes what producers send, and they must not send
    # control batches (`batches.validate`).
    _attributes.pack_into(batch, CHECKED_AT, header.attributes | CONTROL)
    _crc.pack_into(batch, CRC_AT, checksum(batch, 0, header))
    return batch


def decode_marker(batch: Buffer) -> TransactionMarker | None:
    """Return the marker in a whole control batch; None if it ends no transaction.

    A batch without records is one whose marker compaction has removed.
    """
    header = parse_header(batch)
    assert header.is_control, "only a control batch holds a marker"
    if header.record_count == 0:
        return None
    record = batch_records(batch, 0, header)[0]
    # Longer ones are of newer versions, which begin with these fields: a change of the format has
    # to be backwards compatible (ControlRecordType.java).
    if record.key is None or len(record.key) < _key.size:
        raise CorruptMessage(f"control record at offset {record.offset}: no version and type")
    _, kind = _key.unpack_from(record.key)
    if kind not in (ABORT, COMMIT):
        return None
    if record.value is None or len(record.value) < _value.size:
        raise CorruptMessage(f"control record at offset {record.offset}: no coordinator epoch")
    _, coordinator_epoch = _value.unpack_from(record.value)
    return TransactionMarker(kind == COMMIT, coordinator_epoch)


def outcome_of(key: bytes | None) -> bool | None:
    """Return whether a control record with this key commits; None if it ends no transaction."""
    if key is None or len(key) < _key.size:
        return None
    _, kind = _key.unpack_from(key)
    return kind == COMMIT if kind in (ABORT, COMMIT) else None
