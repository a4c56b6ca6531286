"""Records come back as they were given, from batches that are whole, and from no others."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from sharegroup.errors import CorruptMessage, UnsupportedCompressionType
from sharegroup.wire.batches.batches import (
    CONTROL,
    HEADER_BYTES,
    parse_header,
    scan,
    stamp,
    validate,
)
from sharegroup.wire.batches.compression import CODECS, GZIP, NONE, compress
from sharegroup.wire.batches.records import (
    SimpleRecord,
    batch_records,
    decode_records,
    encode_batch,
    single_record,
)
from sharegroup.wire.varints import zigzag

RECORDS = [
    SimpleRecord(b"key", b"value", 1_000, [("h", b"1"), ("h", None), ("grün", b"")]),
    SimpleRecord(None, None, 999),
    SimpleRecord(b"", b"x" * 300, 2_000),
]

new_records = st.builds(
    SimpleRecord,
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=200),
    st.integers(0, 2**42),
    st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=3),
)


def plain(records):
    return [
        (
            record.offset,
            record.key,
            record.value,
            record.timestamp,
            [tuple(h) for h in record.headers],
        )
        for record in records
    ]


def expected(records, base_offset=0):
    return [
        (base_offset + index, record.key, record.value, record.timestamp, list(record.headers))
        for index, record in enumerate(records)
    ]


@given(records=st.lists(new_records, min_size=1, max_size=6), codec=st.sampled_from(range(5)))
def test_records_survive_a_round_trip_through_every_codec(records, codec):
    batch = encode_batch(records, codec=codec)
    (header,) = validate(batch)
    assert (header.record_count, header.codec) == (len(records), codec)
    assert plain(decode_records(batch)) == expected(records)


def test_written_batch_is_read_by_kafka_python():
    batch = KafkaPythonBatch(bytes(encode_batch(RECORDS)))
    assert batch.validate_crc()
    assert plain(batch) == expected(RECORDS)


def test_offsets_follow_the_stamp():
    batch = encode_batch(RECORDS)
    stamp(batch, base_offset=500, leader_epoch=0)
    assert plain(decode_records(batch)) == expected(RECORDS, base_offset=500)


def test_producer_fields_are_in_the_header():
    batch = encode_batch(
        RECORDS, producer_id=7, producer_epoch=2, base_sequence=40, is_transactional=True
    )
    header = parse_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert header.is_transactional


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_are_read_from_any_buffer(kind):
    assert plain(decode_records(kind(bytes(encode_batch(RECORDS))))) == expected(RECORDS)


def test_incomplete_batch_at_the_end_is_left_out():
    first, second = encode_batch(RECORDS), encode_batch(RECORDS[:1])
    stamp(second, base_offset=3, leader_epoch=0)
    whole = bytes(first + second)
    assert len(decode_records(whole)) == 4
    for cut in range(len(first), len(whole)):
        assert len(decode_records(whole[:cut])) == 3


def test_control_batches_are_skipped_and_can_be_read_separately():
    control = encode_batch([SimpleRecord(b"\0\0\0\1", b"\0\0\0\0\0\0", 5)])
    control[22] |= CONTROL
    buffer = bytes(encode_batch(RECORDS) + control)
    assert len(decode_records(buffer)) == 3
    position, header = list(scan(buffer))[1]
    assert header.is_control
    (marker,) = batch_records(buffer, position, header)
    assert marker.key == b"\0\0\0\1"


def test_flipped_bit_is_found_with_check_crc():
    batch = encode_batch(RECORDS)
    batch[-2] ^= 1
    with pytest.raises(CorruptMessage, match="batch at offset 0: the checksum does not match"):
        decode_records(batch, check_crc=True)


def test_wrong_record_count_is_refused():
    for lie in (2, 4, 2**31 - 1):
        batch = encode_batch(RECORDS)
        batch[57:61] = lie.to_bytes(4, "big")
        with pytest.raises(CorruptMessage, match=f"batch at offset 0 of {lie} records"):
            decode_records(batch)


def test_header_count_of_billions_is_refused():
    batch = encode_batch([SimpleRecord(None, None, 0)])
    # The last byte is the count of headers; a varint of 2**31 takes its place.
    huge = batch[:-1] + b"\x80\x80\x80\x80\x20"
    huge[8:12] = (len(huge) - 12).to_bytes(4, "big")
    with pytest.raises(CorruptMessage):
        decode_records(huge)


def test_batch_that_decompresses_above_the_limit_is_refused():
    batch = encode_batch([SimpleRecord(None, bytes(1_000_000), 0)], codec=CODECS["zstd"])
    assert len(batch) < 1_000
    assert len(decode_records(batch, decompressed_bytes_max=1_000_100)) == 1
    with pytest.raises(CorruptMessage, match=r"batch at offset 0: .* more than 999999 bytes"):
        decode_records(batch, decompressed_bytes_max=999_999)


def test_unknown_codec_is_refused():
    batch = encode_batch(RECORDS)
    batch[22] |= 5
    with pytest.raises(UnsupportedCompressionType):
        decode_records(batch)


@pytest.mark.parametrize("codec", CODECS.values())
def test_damaged_batches_are_decoded_or_refused(codec):
    dice = random.Random(codec)
    for _ in range(1_500):
        batch = encode_batch(RECORDS[: dice.randint(1, 3)], codec=codec)
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(12, len(batch))
            batch[at : at + 1] = dice.choice((b"\xff", b"\x7f", b"\x80", dice.randbytes(4), b""))
        try:
            decode_records(batch, decompressed_bytes_max=100_000)
        except (CorruptMessage, UnsupportedCompressionType):
            continue


EXTREME_TIMES = (-(2**63), -(2**63) + 1, -5, -2, -1, 0, 1, 100, 2**63 - 2, 2**63 - 1)


@given(
    times=st.lists(st.sampled_from(EXTREME_TIMES) | st.integers(-(2**63), 2**63 - 1), min_size=1),
    codec=st.sampled_from([NONE, GZIP]),
)
@example(times=[-1, 100], codec=NONE)
def test_any_timestamps_can_be_beside_each_other_in_a_batch(times: list[int], codec: int) -> None:
    """The codec alone counts a batch that begins with -1 from its second record."""
    batch = encode_batch([(None, b"x", time, ()) for time in times], codec=codec)
    assert [record.timestamp for record in decode_records(batch, check_crc=True)] == times
    ((_, header),) = scan(batch)
    assert (header.first_timestamp, header.max_timestamp) == (times[0], max(times))


ODD = bytes.fromhex("80 02 02 8a00 b5b5b5b5b5 02 65 00")
"""Attributes 0x80, time 1, offset 1, a key of five bytes, the value b"e".

The compiled codec reads this as offset 5 without key and value, and finds nothing wrong.
"""


def body_of(*contents):
    return b"".join(zigzag(len(content)) + content for content in contents)


def with_records(body, *, count, last_offset_delta):
    """A batch with this body; the checksum is not set."""
    batch = bytearray(encode_batch([SimpleRecord(None, None, 1_000)])[:HEADER_BYTES] + body)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = last_offset_delta.to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    return bytes(batch)


def record_bytes(offset_delta, key=b"k", value=b"v"):
    return b"".join((b"\0\0", zigzag(offset_delta), _sized(key), _sized(value), b"\0"))


def _sized(content):
    return zigzag(len(content)) + content


@pytest.mark.parametrize(
    ("body", "count", "last", "offsets"),
    [
        (body_of(record_bytes(0), ODD), 2, 1, [0, 1]),
        (body_of(record_bytes(0), ODD, record_bytes(2)), 3, 2, [0, 1, 2]),
        (body_of(record_bytes(0), ODD, record_bytes(3)), 3, 9, [0, 1, 3]),  # Compacted.
        (body_of(ODD, record_bytes(3), record_bytes(7)), 3, 7, [1, 3, 7]),
    ],
)
def test_attributes_above_127_are_one_byte_as_in_java(body, count, last, offsets):
    batch = with_records(body, count=count, last_offset_delta=last)
    for codec in (NONE, GZIP):
        records = decode_records(recompressed(batch, codec))
        assert [record.offset for record in records] == offsets
        odd = records[offsets.index(1)]
        assert (odd.key, odd.value, odd.timestamp) == (b"\xb5" * 5, b"e", 1_001)


def test_single_record_with_attributes_above_127_is_read_from_any_place_of_its_batch():
    # The compiled codec takes the size of the key, 1, for an offset that is in the batch, too.
    content = bytes.fromhex("80 02 00 02 00 02 65 00")
    batch = with_records(body_of(content, record_bytes(1)), count=2, last_offset_delta=1)
    record = single_record(batch, parse_header(batch), body_of(content))
    assert (record.offset, record.key, record.value) == (0, b"\0", b"e")


def recompressed(batch, codec):
    if codec == NONE:
        return batch
    packed = bytearray(batch[:HEADER_BYTES] + compress(codec, batch[HEADER_BYTES:]))
    packed[8:12] = (len(packed) - 12).to_bytes(4, "big")
    packed[22] = codec
    return bytes(packed)
