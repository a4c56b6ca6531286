"""Transaction markers are Kafka's bytes, and only they end a transaction."""

from __future__ import annotations

import pytest
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches.batches import (
    CHECKED_AT,
    CONTROL,
    CRC_AT,
    checksum,
    parse_header,
    stamp,
)
from sharegroup.wire.batches.markers import (
    TransactionMarker,
    decode_marker,
    encode_marker,
    outcome_of,
)
from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch


def control_batch(key: bytes | None, value: bytes | None) -> bytearray:
    batch = encode_batch([SimpleRecord(key, value, 5)], producer_id=9, producer_epoch=1)
    attributes = parse_header(batch).attributes | CONTROL
    batch[CHECKED_AT : CHECKED_AT + 2] = attributes.to_bytes(2, "big")
    batch[CRC_AT : CRC_AT + 4] = checksum(batch, 0, parse_header(batch)).to_bytes(4, "big")
    return batch


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_survives_a_round_trip(is_commit):
    batch = encode_marker(
        is_commit=is_commit, producer_id=9, producer_epoch=2, timestamp=5, coordinator_epoch=4
    )
    stamp(batch, base_offset=70, leader_epoch=0)
    header = parse_header(batch)
    assert decode_marker(batch) == TransactionMarker(is_commit, 4)
    assert (header.is_control, header.is_transactional, header.record_count) == (True, True, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, -1)
    assert decode_records(batch) == []


def test_another_client_reads_the_marker():
    batch = KafkaPythonBatch(
        bytes(encode_marker(is_commit=False, producer_id=9, producer_epoch=2, timestamp=5))
    )
    assert batch.validate_crc()
    assert batch.is_control_batch
    (record,) = batch
    assert (record.key, record.value) == (b"\0\0\0\0", b"\0\0\0\0\0\0")


def test_a_control_record_of_another_type_marks_nothing():
    assert decode_marker(control_batch(b"\0\0\0\2", b"")) is None


@pytest.mark.parametrize(("key", "value"), [(None, b""), (b"\0", b""), (b"\0\0\0\1", b"\0\0")])
def test_a_control_record_that_is_cut_short_is_corrupt(key, value):
    with pytest.raises(CorruptMessage, match="control record at offset 0"):
        decode_marker(control_batch(key, value))


@pytest.mark.parametrize(
    ("key", "outcome"),
    [
        (b"\0\0\0\1", True),
        (b"\0\0\0\0", False),
        (b"\0\0\0\5", None),  # A leader change of Kafka's quorum.
        (b"\0\0", None),
        (None, None),
    ],
)
def test_key_of_a_control_record_has_the_outcome(key, outcome):
    assert outcome_of(key) is outcome
