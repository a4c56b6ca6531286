"""Walks over records agree with the codec, stop at what is damaged, and work in slices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches.batches import HEADER_BYTES, BatchHeader, parse_header
from sharegroup.wire.batches.record_walk import (
    SLICE_RECORDS,
    SMALL_BYTES,
    Walk,
    WalkStep,
    body_of,
    check_records,
    every_record_has_a_key,
    finish,
    first_record_from,
    read_int,
    read_varint,
    small_records,
)
from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch

LIMIT = 1 << 26
OPTIONAL = st.none() | st.binary(max_size=200)
RECORDS = st.lists(
    st.builds(
        SimpleRecord,
        OPTIONAL,
        OPTIONAL,
        st.integers(-1, 2**41),
        st.lists(st.tuples(st.text(max_size=20), OPTIONAL), max_size=3),
    ),
    min_size=1,
    max_size=20,
)
CODECS = st.integers(0, 4)


def walked(batch: bytes, walk: Callable[..., Walk], **arguments: int):
    """The answer of a walk over one batch."""
    header = parse_header(batch)
    body = finish(body_of(batch, header, bytes_max=LIMIT))
    return finish(walk(body, header, **arguments))


@given(RECORDS, CODECS, st.integers(0, 2**41), st.integers(0, 20))
def test_first_record_from_a_time_is_that_of_the_codec(records, codec, timestamp_ms, start):
    batch = bytes(encode_batch(records, codec=codec))
    expected = [
        (record.timestamp, record.offset)
        for record in decode_records(batch)
        if (record.timestamp or 0) >= timestamp_ms and record.offset >= start
    ]
    found = walked(batch, first_record_from, timestamp_ms=timestamp_ms, start=start)
    if timestamp_ms > 0:
        assert found == (expected[0] if expected else None)


@given(RECORDS, CODECS)
def test_presence_of_keys_agrees_with_the_codec(records, codec):
    batch = bytes(encode_batch(records, codec=codec))
    assert walked(batch, every_record_has_a_key) == all(
        record.key is not None for record in records
    )


@given(RECORDS, CODECS)
def test_sound_records_pass_the_check(records, codec):
    walked(bytes(encode_batch(records, codec=codec)), check_records)


@given(RECORDS, st.integers(0, 10**6), st.integers(1, 255))
def test_records_that_pass_the_check_are_decoded(records, position, flip):
    """What the check lets through, clients can read, and they see as many records."""
    batch = bytearray(encode_batch(records))
    body_bytes = len(batch) - HEADER_BYTES
    batch[HEADER_BYTES + position % body_bytes] ^= flip
    try:
        walked(bytes(batch), check_records)
    except CorruptMessage:
        return
    offsets = [record.offset for record in decode_records(bytes(batch))]
    assert len(offsets) == len(records)
    assert offsets == sorted(set(offsets))


def test_a_number_of_32_bits_has_at_most_five_bytes():
    """Java refuses a longer one, so a batch with it could be written, and never read."""
    assert read_int(b"\xff\xff\xff\xff\x0f", 0) == (-(2**31), 5)
    with pytest.raises(CorruptMessage, match="at most 5 bytes at byte 0"):
        read_int(b"\xff\xff\xff\xff\x8f\x00", 0)


@given(st.binary(max_size=60), st.integers(61, 2**31 - 1))
def test_walks_over_noise_end(noise, claimed):
    header = parse_header(encode_batch([SimpleRecord(None, None, 0)]))
    header = header._replace(record_count=claimed, last_offset_delta=claimed - 1)
    with pytest.raises(CorruptMessage):
        finish(check_records(noise, header))
    with pytest.raises(CorruptMessage):
        finish(first_record_from(noise, header, timestamp_ms=2**62, start=0))
    try:
        assert not finish(every_record_has_a_key(noise, header))
    except CorruptMessage:
        return


@pytest.mark.parametrize("claimed", [2, 1_000, 2**31 - 1])
def test_missing_records_of_a_batch_are_detected(claimed):
    batch = bytes(encode_batch([SimpleRecord(b"k", b"v", 5)]))
    header = parse_header(batch)._replace(record_count=claimed, last_offset_delta=claimed - 1)
    for walk in (check_records, every_record_has_a_key):
        with pytest.raises(CorruptMessage):
            finish(walk(batch[HEADER_BYTES:], header))


def test_records_beyond_the_record_count_are_detected():
    batch = bytes(encode_batch([SimpleRecord(b"k", b"v", 5)] * 2))
    header = parse_header(batch)._replace(record_count=1, last_offset_delta=0)
    for walk in (check_records, every_record_has_a_key):
        with pytest.raises(CorruptMessage, match="1 records end at"):
            finish(walk(batch[HEADER_BYTES:], header))


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (0, 2)])
def test_offsets_that_do_not_ascend_are_detected(deltas):
    first, second = (bytes((2 * 6, 0, 0, 2 * delta, 1, 1, 0)) for delta in deltas)
    header = parse_header(encode_batch([SimpleRecord(None, None, 0)] * 2))
    with pytest.raises(CorruptMessage, match="offset delta"):
        finish(check_records(first + second, header))


def test_walks_pause_after_each_slice():
    """A decompressed batch of many records, and one record of many headers."""
    many = bytes(encode_batch([SimpleRecord(b"k", None, 5)] * (3 * SLICE_RECORDS)))
    headers = bytes(encode_batch([SimpleRecord(b"k", b"v", 5, [("", None)] * (3 * SLICE_RECORDS))]))
    walks: list[Walk] = [
        first_record_from(many[HEADER_BYTES:], header_of(many), timestamp_ms=6, start=0),
        every_record_has_a_key(many[HEADER_BYTES:], header_of(many)),
        check_records(many[HEADER_BYTES:], header_of(many)),
        check_records(headers[HEADER_BYTES:], header_of(headers)),
    ]
    for walk in walks:
        assert list(walk) == [WalkStep.PAUSE] * 3


def header_of(batch: bytes) -> BatchHeader:
    return parse_header(batch)


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_read(number):
    value = (number << 1) ^ (number >> 63)
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    assert read_varint(b"?" + octets + b"!", 1) == (number, len(octets) + 1)


def test_only_small_batches_are_decoded_at_once():
    small = bytes(encode_batch([SimpleRecord(None, bytes(1_000), 0)] * 60))
    large = bytes(encode_batch([SimpleRecord(None, bytes(1_000), 0)] * 70))
    packed = bytes(encode_batch([SimpleRecord(None, bytes(1_000), 0)] * 70, codec=4))
    assert len(packed) < SMALL_BYTES < len(large)
    assert small_records(small, parse_header(small)) is not None
    assert small_records(large, parse_header(large)) is None
    assert small_records(packed, parse_header(packed)) is None
