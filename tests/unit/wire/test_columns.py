"""Columns hold what the records' decoder reads, whatever the bytes are."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from sharegroup.errors import CorruptMessage, UnsupportedCompressionType
from sharegroup.wire.batches.batches import (
    CONTROL,
    HEADER_BYTES,
    checksum,
    parse_header,
    stamp,
    stamp_append_time,
)
from sharegroup.wire.batches.columns import OffsetRanges, record_columns
from sharegroup.wire.batches.compression import CODECS, TooLarge
from sharegroup.wire.batches.header_columns import HEADERS
from sharegroup.wire.batches.header_names import with_names
from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch
from tests.attacks.batches import batch_of_offsets

RECORDS = [
    SimpleRecord(b"key", b"value", 1_000, [("h", b"1"), ("h", None), ("grün", b"")]),
    SimpleRecord(None, None, 999),
    SimpleRecord(b"", b"x" * 300, 2_000),
]

new_records = st.builds(
    SimpleRecord,
    st.none() | st.binary(max_size=80),
    st.none() | st.binary(max_size=200),
    st.integers(0, 2**42),
    st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=20),
)
batches = st.tuples(
    st.lists(new_records, min_size=1, max_size=6),
    st.sampled_from([0, 0, 1, 2, 3, 4]),
    st.integers(0, 3),
    st.none() | st.integers(0, 2**42),
)


def log_of(parts) -> bytes:
    """Batches behind each other with gaps between their offsets, some with the broker's time."""
    log = bytearray()
    offset = 0
    for records, codec, gap, append_time in parts:
        batch = encode_batch(records, codec=codec)
        offset += gap
        stamp(batch, base_offset=offset, leader_epoch=0)
        if append_time is not None:
            stamp_append_time(batch, append_time)
        offset += len(records)
        log += batch
    return bytes(log)


def rows(groups):
    """All columns as tuples, in the shape of `expected`."""
    found = []
    for group in groups:
        headers = group.headers.to_pylist() if group.headers is not None else None
        for index, (key, value) in enumerate(
            zip(group.keys.to_pylist(), group.values.to_pylist(), strict=True)
        ):
            found.append(
                (
                    int(group.offsets[index]),
                    int(group.timestamps[index]),
                    key,
                    value,
                    [(header["key"], header["value"]) for header in (headers[index] or ())]
                    if headers is not None
                    else [],
                )
            )
    return found


def expected(buffer, *, headers=True):
    return [
        (
            record.offset,
            -1 if record.timestamp is None else record.timestamp,
            record.key,
            record.value,
            [tuple(header) for header in with_names(record.headers)] if headers else [],
        )
        for record in decode_records(buffer, check_crc=True)
    ]


@given(parts=st.lists(batches, max_size=5), group_bytes=st.sampled_from([1, 300, 1 << 20]))
def test_columns_are_equal_to_records(parts, group_bytes):
    log = log_of(parts)
    assert rows(record_columns(log, headers=True, group_bytes=group_bytes)) == expected(log)
    assert rows(record_columns(log)) == expected(log, headers=False)


@given(
    parts=st.lists(batches, min_size=1, max_size=5),
    bounds=st.lists(st.integers(0, 40), unique=True, max_size=8).map(sorted),
)
def test_only_records_within_the_ranges_are_read(parts, bounds):
    pairs = list(zip(bounds[0::2], bounds[1::2], strict=False))
    log = log_of(parts)
    groups = list(record_columns(log, OffsetRanges.of(pairs), headers=True, group_bytes=500))
    inside = [row for row in expected(log) if any(a <= row[0] < b for a, b in pairs)]
    assert rows(groups) == inside
    for group in groups:
        for offset, index in zip(group.offsets, group.range_index, strict=True):
            assert pairs[index][0] <= offset < pairs[index][1]


def test_columns_have_the_types_that_spark_compares():
    (group,) = record_columns(log_of([(RECORDS, 0, 0, None)]), headers=True)
    assert group.keys.type == group.values.type == pa.binary()
    assert group.headers.type == HEADERS
    assert str(HEADERS) == "list<element: struct<key: string, value: binary>>"
    assert group.offsets.dtype == group.timestamps.dtype == np.int64
    assert group.headers.to_pylist()[1:] == [None, None]
    group.keys.validate(full=True)
    group.values.validate(full=True)
    group.headers.validate(full=True)


def test_append_time_is_distinguished_from_the_producers_timestamp():
    log = log_of([(RECORDS, 0, 0, None), (RECORDS, 0, 0, 77)])
    (group,) = record_columns(log)
    assert group.timestamps.tolist() == [1_000, 999, 2_000, 77, 77, 77]
    assert group.timestamp_types.tolist() == [0, 0, 0, 1, 1, 1]


def test_control_batches_are_passed_over():
    control = encode_batch([SimpleRecord(b"\0\0\0\1", b"\0\0\0\0\0\0", 5)])
    control[22] |= CONTROL
    log = log_of([(RECORDS, 0, 0, None)])
    assert rows(record_columns(log + bytes(control) + log)) == expected(log + log, headers=False)


def test_incomplete_batch_at_the_end_is_left_out():
    first, both = log_of([(RECORDS, 0, 0, None)]), log_of([(RECORDS, 0, 0, None)] * 2)
    for cut in range(len(first), len(both)):
        assert len(rows(record_columns(both[:cut]))) == 3


def test_empty_input_gives_no_columns():
    assert list(record_columns(b"")) == []
    assert list(record_columns(log_of([(RECORDS, 0, 0, None)]), OffsetRanges.of([]))) == []


def test_batch_that_compaction_emptied_has_no_records():
    empty = encode_batch(RECORDS[:1])[:HEADER_BYTES]
    empty[8:12] = (HEADER_BYTES - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    sealed(empty)
    log = log_of([(RECORDS, 0, 0, None)])
    assert rows(record_columns(bytes(empty) + log)) == expected(log, headers=False)


@pytest.mark.parametrize("size", [0, 55, 56, 8_180, 8_190, 1_048_560, 1_048_570, 3_000_000])
def test_records_of_every_length_of_a_length_are_read(size):
    log = log_of([([SimpleRecord(None, bytes(size), 0), *RECORDS], 0, 0, None)] * 2)
    assert rows(record_columns(log)) == expected(log, headers=False)


@pytest.mark.parametrize("size", [0, 55, 56, 8_180, 8_190, 100_000])
def test_many_batches_of_unequal_counts_are_read(size):
    long = [SimpleRecord(None, bytes(size), 0), *RECORDS]
    counts = [1, 4, 2, 3, 40] * 12
    log = log_of([((long * 10)[:count], 0, 0, None) for count in counts])
    assert rows(record_columns(log)) == expected(log, headers=False)


def test_group_holds_no_more_than_its_bytes_and_one_batch():
    batch = [SimpleRecord(None, bytes(100_000), 0)]
    log = log_of([(batch, CODECS["zstd"], 0, None)] * 50)
    assert len(log) < 20_000
    sizes = [len(group.offsets) for group in record_columns(log, group_bytes=250_000)]
    assert sizes == [3] * 16 + [2]


@pytest.mark.parametrize("group_bytes", [1, 2_000, 1 << 20])
def test_groups_end_with_the_batch_that_fills_them(group_bytes):
    log = log_of([([SimpleRecord(None, bytes(93), 0)], 0, 0, None)] * 100)
    sizes = [len(group.offsets) for group in record_columns(log, group_bytes=group_bytes)]
    assert sizes == {1: [1] * 100, 2_000: [20] * 5, 1 << 20: [100]}[group_bytes]


def test_record_with_thousands_of_headers_is_read():
    many = [(f"name {index}", None if index % 3 else b"v") for index in range(5_000)]
    log = log_of([([SimpleRecord(b"k", b"v", 0, many), *RECORDS], 0, 0, None)])
    assert rows(record_columns(log, headers=True)) == expected(log)


def sealed(batch: bytearray) -> bytes:
    """The batch with the checksum that belongs to what it has become."""
    header = parse_header(batch)
    batch[17:21] = checksum(batch, 0, header).to_bytes(4, "big")
    return bytes(batch)


def test_flipped_bit_is_found():
    batch = encode_batch(RECORDS)
    batch[-2] ^= 1
    with pytest.raises(CorruptMessage, match="batch at offset 0: the checksum does not match"):
        list(record_columns(bytes(batch)))


def resealed(batch: bytearray) -> bytearray:
    """With a checksum that holds."""
    batch[17:21] = checksum(batch, 0, parse_header(batch)).to_bytes(4, "big")
    return batch


def spoiled(how: str, codec: int) -> bytearray:
    batch = encode_batch(RECORDS, codec=codec)
    match how:
        case "flipped":
            batch[-1] ^= 1
        case "cut off":
            batch = batch[:-9]
            batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
            resealed(batch)
        case "codec 7":
            batch[22] |= 7
            resealed(batch)
        case "count":
            batch[57:61] = (2).to_bytes(4, "big")
            resealed(batch)
    return batch


@pytest.mark.parametrize("group_bytes", [1, 400, 1 << 20])
@pytest.mark.parametrize("how", ["flipped", "cut off", "codec 7", "count"])
@pytest.mark.parametrize("codec", CODECS.values())
def test_unreadable_batches_are_skipped_and_reported(codec, how, group_bytes):
    sound = encode_batch(RECORDS, codec=codec)
    log = bytearray()
    for index, batch in enumerate((sound, spoiled(how, codec), sound, spoiled(how, codec))):
        stamp(batch, base_offset=3 * index, leader_epoch=0)
        log += batch
    told = []
    found = rows(
        record_columns(
            log,
            headers=True,
            group_bytes=group_bytes,
            unreadable=lambda first, end, error: told.append((first, end, type(error))),
        )
    )
    assert [row[0] for row in found] == [0, 1, 2, 6, 7, 8]
    assert [range_[:2] for range_ in told] == [(3, 6), (9, 12)]
    with pytest.raises(told[0][2]):
        list(record_columns(log, headers=True, group_bytes=group_bytes))


@pytest.mark.parametrize("lie", [2, 4, 2**31 - 1, -1])
def test_wrong_record_count_is_refused(lie):
    batch = encode_batch(RECORDS)
    batch[57:61] = lie.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptMessage, match=r"at offsets? 0"):
        list(record_columns(sealed(batch)))


def test_old_format_is_refused():
    batch = encode_batch(RECORDS)
    batch[16] = 1
    with pytest.raises(CorruptMessage, match=r"expected magic 2 .* found magic 1"):
        list(record_columns(bytes(batch)))


def test_record_above_the_limit_is_refused_alone():
    records = [SimpleRecord(None, bytes(size), 0) for size in (9, 1_000_000, 9)]
    batch = bytes(encode_batch(records, codec=CODECS["zstd"]))
    assert len(rows(record_columns(batch, decompressed_bytes_max=1_000_100))) == 3
    with pytest.raises(CorruptMessage, match="the record at offset 1 has 1000008 bytes"):
        list(record_columns(batch, decompressed_bytes_max=999_999))
    reported = []
    columns = record_columns(
        batch, decompressed_bytes_max=999_999, unreadable=lambda *failure: reported.append(failure)
    )
    assert [row[0] for row in rows(columns)] == [0, 2]
    assert [failure[:2] for failure in reported] == [(1, 2)]


def test_unknown_codec_is_refused():
    batch = encode_batch(RECORDS)
    batch[22] |= 5
    with pytest.raises(UnsupportedCompressionType):
        list(record_columns(sealed(batch)))


def number(value: int) -> bytes:
    """As records write numbers: zigzag, seven bits to a byte."""
    value = (value << 1) ^ (value >> 63)
    octets = bytearray()
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*octets, value])


def log_with(*fields: int | bytes) -> bytes:
    """A batch of two records: one of these fields, numbers or raw bytes, and a long honest one."""
    parts = (field if isinstance(field, bytes) else number(field) for field in fields)
    body = bytes([0, 0, 0]) + b"".join(parts)
    honest = bytes([0, 0, 2]) + number(-1) + number(500) + bytes(500) + number(0)
    batch = encode_batch(RECORDS[:2])[:HEADER_BYTES]
    for record in (body, honest):
        batch += number(len(record)) + record
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    return sealed(batch)


SIXTEEN = b"\x02h\x02v" * 16
"""So many headers are read together, further ones each by itself."""


@pytest.mark.parametrize(
    "fields",
    [
        (-1, -1, 0),
        (3, b"key", 5, b"value", 0),
        (-1, -1, 1, 1, b"h", -1),
        (-1, -1, 2, 1, b"h", 1, b"v", 0, 0),
        (-1, -1, 17, SIXTEEN, 1, b"h", 1, b"v"),
        (-1, -1, 2, 2, b"\xff\xed", 1, b"v", 1, b"h", 0),
        (-1, -1, 17, SIXTEEN, 1, b"\xff", 1, b"v"),
    ],
)
def test_records_made_by_hand_are_read(fields):
    log = log_with(*fields)
    assert rows(record_columns(log, headers=True)) == expected(log)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((100, b"key", 5, b"value", 0), "its key extends beyond its end"),
        ((3, b"key", 100, b"value", 0), "its value extends beyond its end"),
        ((3, b"key", 5, b"value"), "its value extends beyond its end"),
        ((3, b"key", 5, b"value", 0, b"more"), "unexpected bytes follow its value"),
        ((-1, -1, -3, b"more"), "it has a negative count of headers"),
        ((-1, -1, 50, 1, b"h", 1, b"v"), "a record is too short for its number of headers"),
        ((-1, -1, 1, -1, 1, b"v"), "a header's name extends beyond its record"),
        ((-1, -1, 1, 90, b"h", 1, b"v"), "a header's name extends beyond its record"),
        ((-1, -1, 1, 1, b"h", 90, b"v"), "a header's value extends beyond its record"),
        ((-1, -1, 1, 1, b"h", 1, b"v", b"more"), "unexpected bytes follow the headers of a record"),
        ((-1, -1, 17, SIXTEEN, -1, 0), "a header's name extends beyond its record"),
        ((-1, -1, 17, SIXTEEN, 90, b"h", 1, b"v"), "a header's name extends beyond its record"),
        ((-1, -1, 17, SIXTEEN, 1, b"h", 90, b"v"), "a header's value extends beyond its record"),
        (
            (-1, -1, 17, SIXTEEN, 1, b"h", 1, b"v", b"m"),
            "unexpected bytes follow the headers of a record",
        ),
        ((b"\x80" * 6, -1, 0), "expected a number of 5 bytes at most"),
        ((-1, -1, 17, SIXTEEN, b"\x80" * 6), "expected a number of 5 bytes at most"),
    ],
)
def test_inconsistent_record_field_is_refused(fields, message):
    log = log_with(*fields)
    with pytest.raises(CorruptMessage, match=message):
        list(record_columns(log, headers=True))
    same_or_refused(log)


def test_batch_too_small_for_its_record_count_is_not_scanned():
    batch = encode_batch(RECORDS)
    batch[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(CorruptMessage, match="the number of records does not match its size"):
        list(record_columns(sealed(batch)))


def same_or_refused(buffer: bytes) -> None:
    """What the two decoders make of the same bytes; columns may refuse more."""
    try:
        found = rows(record_columns(buffer, headers=True, decompressed_bytes_max=100_000))
    except (CorruptMessage, UnsupportedCompressionType):
        return
    with suppress(TooLarge):  # Columns read a stream as Java does, without a check of its content.
        assert found == expected(buffer)


@given(
    records=st.lists(new_records, min_size=1, max_size=4),
    codec=st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
    places=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=5)), min_size=1, max_size=3),
)
def test_damaged_records_are_read_as_by_the_codec_or_refused(records, codec, places):
    batch = encode_batch(records, codec=codec)
    for place, octets in places:
        at = 21 + int(place * (len(batch) - 22))
        batch[at : at + 1] = octets
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    if len(batch) >= HEADER_BYTES:
        same_or_refused(sealed(batch))


@pytest.mark.parametrize(
    "deltas", [(0, 5_000, 2), (0, -5_000, 2), (1, 0, 2), (0, 0, 1), (0, 1, 3), (2**31 - 1, 1, 2)]
)
def test_batch_whose_offsets_do_not_ascend_in_it_is_refused(deltas):
    """Its records would hide those of other batches, or have the offset of one of them."""
    around = log_of([(RECORDS, 0, 0, None)]), log_of([(RECORDS, 0, 0, None)])
    unreadable = []
    batches = record_columns(
        around[0] + batch_of_offsets(*deltas) + around[1],
        decompressed_bytes_max=100_000,
        unreadable=lambda first, end, error: unreadable.append((first, end)),
    )
    assert sum(len(columns.offsets) for columns in batches) == 2 * len(RECORDS)
    assert unreadable == [(0, 3)]
    with pytest.raises(CorruptMessage, match="offset"):
        decode_records(batch_of_offsets(*deltas))


@given(body=st.binary(max_size=60), count=st.integers(-1, 9))
def test_arbitrary_bytes_are_read_as_by_the_codec_or_refused(body, count):
    batch = encode_batch(RECORDS)[:HEADER_BYTES] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    same_or_refused(sealed(batch) + log_of([(RECORDS, 0, 0, None)]))


@given(body=st.binary(max_size=60), count=st.integers(-1, 9), before=st.integers(0, 30))
def test_arbitrary_bytes_among_batches_are_read_as_by_the_codec_or_refused(body, count, before):
    batch = encode_batch(RECORDS)[:HEADER_BYTES] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    parts = [(RECORDS, 0, 0, None)] * 30
    same_or_refused(log_of(parts[:before]) + sealed(batch) + log_of(parts[before:]))


@pytest.mark.parametrize("codec", CODECS.values())
def test_heavy_damage_is_read_as_by_the_codec_or_refused(codec):
    dice = random.Random(codec)
    for _ in range(600):
        batch = encode_batch(RECORDS[: dice.randint(1, 3)], codec=codec)
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(12, len(batch))
            batch[at : at + 1] = dice.choice((b"\xff", b"\x7f", b"\x80", dice.randbytes(4), b""))
        if len(batch) < HEADER_BYTES:
            continue
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        same_or_refused(sealed(batch))
