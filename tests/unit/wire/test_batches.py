"""A producer's batch is let through or refused with Kafka's code, and stamped in place."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from sharegroup.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from sharegroup.wire.batches.batches import (
    RECORDS_MAX,
    BatchHeader,
    checksum_holds,
    parse_header,
    scan,
    stamp,
    stamp_append_time,
    validate,
)
from sharegroup.wire.batches.records import SimpleRecord, encode_batch

# Two records at base offset 0, written out; the checksum is made by `sealed`.
RECORDS = bytes.fromhex("10 00 00 00 02 61 02 78 00".replace(" ", "")) + bytes.fromhex(
    "10 00 06 02 02 62 02 79 00".replace(" ", "")
)
FIELDS = (
    b"\0\0"  # attributes
    b"\0\0\0\1"  # last offset delta
    b"\0\0\0\0\0\0\3\xe8"  # first timestamp, 1000
    b"\0\0\0\0\0\0\3\xeb"  # max timestamp, 1003
    b"\xff\xff\xff\xff\xff\xff\xff\xff"  # no producer id
    b"\xff\xff"  # no epoch
    b"\xff\xff\xff\xff"  # no sequence
    b"\0\0\0\2"  # records
)


def sealed(checked: bytes, magic: int = 2, length: int | None = None) -> bytes:
    """A batch around what the checksum covers."""
    size = len(checked) + 9 if length is None else length
    return (
        bytes(8)
        + size.to_bytes(4, "big", signed=True)
        + b"\xff\xff\xff\xff"
        + bytes([magic])
        + crc32c(checked).to_bytes(4, "big")
        + checked
    )


def changed(position: int, replacement: bytes) -> bytes:
    """The batch with other bytes in one of its checked fields, and a right checksum."""
    checked = bytearray(FIELDS + RECORDS)
    checked[position : position + len(replacement)] = replacement
    return sealed(bytes(checked))


BATCH = sealed(FIELDS + RECORDS)
ATTRIBUTES, LAST_DELTA, PRODUCER_ID, EPOCH, SEQUENCE, COUNT = 0, 2, 22, 30, 32, 36


def test_header_is_read_field_by_field():
    header = parse_header(b"??" + BATCH, 2)
    assert header == BatchHeader(
        base_offset=0,
        length=67,
        leader_epoch=-1,
        magic=2,
        crc=crc32c(FIELDS + RECORDS),
        attributes=0,
        last_offset_delta=1,
        first_timestamp=1000,
        max_timestamp=1003,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=2,
    )
    assert (header.size, header.last_offset, header.end_offset) == (79, 1, 2)
    assert (header.codec, header.is_control, header.is_transactional) == (0, False, False)


def test_right_batch_passes():
    assert validate(BATCH) == [parse_header(BATCH)]
    assert validate(bytearray(BATCH)) == validate(memoryview(BATCH)) == validate(BATCH)


def test_batch_of_an_idempotent_producer_passes():
    ids = (9).to_bytes(8, "big") + b"\0\1" + b"\0\0\0\5"
    (header,) = validate(changed(PRODUCER_ID, ids))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 5)


def test_all_batches_of_a_payload_are_checked():
    assert len(validate(BATCH + BATCH)) == 2
    with pytest.raises(CorruptMessage):
        validate(BATCH + BATCH[:-1] + b"?")


@pytest.mark.parametrize(
    ("payload", "error", "text"),
    [
        (b"", InvalidRecord, "expected a batch of 61 bytes or more, found 0"),
        (BATCH[:60], InvalidRecord, "expected a batch of 61 bytes or more, found 60"),
        (BATCH[:-1], InvalidRecord, "expected a batch of 79 bytes, found 78"),
        (BATCH + b"x", InvalidRecord, "expected a batch of 61 bytes or more, found 1"),
        (sealed(FIELDS + RECORDS, magic=0), InvalidRecord, "expected magic 2, found 0"),
        (sealed(FIELDS + RECORDS, magic=1), InvalidRecord, "expected magic 2, found 1"),
        (sealed(FIELDS + RECORDS, magic=3), CorruptMessage, "expected magic 2, found 3"),
        (sealed(FIELDS + RECORDS, magic=255), CorruptMessage, "expected magic 2, found 255"),
        (sealed(FIELDS + RECORDS, length=-1), CorruptMessage, "length of 49 or more, found -1"),
        (sealed(FIELDS + RECORDS, length=48), CorruptMessage, "length of 49 or more, found 48"),
        (sealed(FIELDS + RECORDS, length=2**31 - 1), InvalidRecord, "bytes, found 79"),
        (BATCH[:-1] + b"?", CorruptMessage, "expected checksum 0x"),
        (changed(COUNT, b"\0\0\0\0"), InvalidRecord, "found 0 records and last offset delta 1"),
        (changed(COUNT, b"\xff\xff\xff\xff"), InvalidRecord, "found -1 records"),
        (changed(COUNT, b"\0\0\0\3"), InvalidRecord, "found 3 records and last offset delta 1"),
        (
            changed(LAST_DELTA, b"\xff" * 4 + FIELDS[6:COUNT] + bytes(4)),
            InvalidRecord,
            "found 0 records and last offset delta -1",
        ),
        (changed(LAST_DELTA, b"\0\0\0\2"), InvalidRecord, "last offset delta 2"),
        (changed(LAST_DELTA, b"\xff\xff\xff\xff"), InvalidRecord, "last offset delta -1"),
        (changed(ATTRIBUTES, b"\0\5"), UnsupportedCompressionType, "codec 0 to 4, found 5"),
        (changed(ATTRIBUTES, b"\0\7"), UnsupportedCompressionType, "codec 0 to 4, found 7"),
        (changed(ATTRIBUTES, b"\0\x20"), InvalidRecord, "control batches are not accepted"),
        (changed(ATTRIBUTES, b"\0\x08"), InvalidRecord, "LogAppendTime is not accepted"),
        (changed(ATTRIBUTES, b"\0\x10"), InvalidRecord, "without a producer id"),
        (changed(ATTRIBUTES, b"\0\x40"), InvalidRecord, "found 0x0040: the other bits"),
        (changed(ATTRIBUTES, b"\0\x80"), InvalidRecord, "found 0x0080: the other bits"),
        (changed(ATTRIBUTES, b"\1\0"), InvalidRecord, "found 0x0100: the other bits"),
        (changed(ATTRIBUTES, b"\x80\0"), InvalidRecord, "found 0x8000: the other bits"),
        (changed(PRODUCER_ID, b"\xff" * 7 + b"\xfe"), InvalidRecord, "found -2, -1 and -1"),
        (changed(PRODUCER_ID, bytes(8)), InvalidRecord, "found 0, -1 and -1"),
        (changed(PRODUCER_ID, bytes(10)), InvalidRecord, "found 0, 0 and -1"),
    ],
)  # fmt: skip
def test_inconsistent_batch_is_refused(payload, error, text):
    with pytest.raises(error) as caught:
        validate(payload)
    assert type(caught.value) is error
    assert text in str(caught.value)


def claiming(record_count: int, body: bytes, codec: int = 0) -> bytes:
    """A batch that claims so many records in its body, and a right checksum."""
    fields = bytearray(FIELDS)
    fields[ATTRIBUTES : ATTRIBUTES + 2] = codec.to_bytes(2, "big")
    fields[LAST_DELTA : LAST_DELTA + 4] = (record_count - 1).to_bytes(4, "big")
    fields[COUNT : COUNT + 4] = record_count.to_bytes(4, "big")
    return sealed(bytes(fields) + body)


SMALLEST_RECORD = bytes.fromhex("0c 00 00 00 01 01 00")
"""Length 6, attributes, time, offset, no key, no value, no headers."""


def test_claimed_records_must_fit_into_the_body():
    for count in (1, 2, 100):
        assert validate(claiming(count, SMALLEST_RECORD * count))[0].record_count == count
        with pytest.raises(InvalidRecord, match=f"claims {count + 1} records, but its body of "):
            validate(claiming(count + 1, SMALLEST_RECORD * count))
    # The attack: 69 bytes that claim all offsets of a segment.
    with pytest.raises(InvalidRecord, match=r"claims 2147483647 records.* can contain at most 1"):
        validate(claiming(2**31 - 1, bytes(8)))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_claimed_records_of_a_compressed_batch_are_limited(codec):
    assert validate(claiming(640, bytes(10), codec))[0].record_count == 640
    with pytest.raises(InvalidRecord, match=r"claims 641 records.* can contain at most 640"):
        validate(claiming(641, bytes(10), codec))
    large = bytes(RECORDS_MAX // 64 + 1)
    assert validate(claiming(RECORDS_MAX, large, codec))
    with pytest.raises(InvalidRecord, match=f"can contain at most {RECORDS_MAX}"):
        validate(claiming(RECORDS_MAX + 1, large, codec))


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("count", [1, 7, 3_000, 60_000])
def test_batches_of_the_smallest_records_pass(codec, count):
    batch = encode_batch([SimpleRecord(None, None, 1_000)] * count, codec=codec)
    assert validate(batch)[0].record_count == count


def test_offset_and_epoch_are_stamped_without_touching_the_checksum():
    buffer = bytearray(b"??" + BATCH)
    stamp(buffer, 2, base_offset=2**40, leader_epoch=6)
    header = parse_header(buffer, 2)
    assert (header.base_offset, header.leader_epoch, header.end_offset) == (2**40, 6, 2**40 + 2)
    assert checksum_holds(buffer, 2, header)
    assert buffer[2 + 16 :] == BATCH[16:]


def test_append_time_is_stamped_with_a_new_checksum():
    buffer = bytearray(b"??" + BATCH)
    stamp_append_time(buffer, 5_000, 2)
    header = parse_header(buffer, 2)
    assert (header.max_timestamp, header.first_timestamp) == (5_000, 1_000)
    assert header.has_log_append_time
    assert header.crc != parse_header(BATCH).crc
    assert checksum_holds(buffer, 2, header)


def test_scan_finds_each_batch_and_stops_before_one_that_is_cut_off():
    whole = BATCH + BATCH
    assert [position for position, _ in scan(whole)] == [0, 79]
    for cut in range(79, len(whole)):
        assert [position for position, _ in scan(whole[:cut])] == [0]


@pytest.mark.parametrize(
    "damaged", [sealed(FIELDS + RECORDS, magic=1), sealed(FIELDS + RECORDS, length=0)]
)
def test_scan_refuses_bytes_that_are_no_batch(damaged):
    with pytest.raises(CorruptMessage, match="batch at byte 79: expected magic 2"):
        list(scan(BATCH + damaged))


def test_header_that_is_cut_off_is_refused():
    with pytest.raises(CorruptMessage, match="expected 61 bytes of header, found 60"):
        parse_header(BATCH[:60])
