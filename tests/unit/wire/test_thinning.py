"""Batches lose records and keep their place, their producer and what is left of them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches.batches import (
    CONTROL,
    HEADER_BYTES,
    TRANSACTIONAL,
    header_bytes,
    parse_header,
    stamp,
    stamp_append_time,
)
from sharegroup.wire.batches.compression import TooLarge
from sharegroup.wire.batches.markers import decode_marker, encode_marker
from sharegroup.wire.batches.record_contents import batch_body, encoded_names, record_content
from sharegroup.wire.batches.records import (
    SimpleRecord,
    batch_records,
    decode_records,
    encode_batch,
)
from sharegroup.wire.batches.thinning import emptied, thinned

RECORDS = [
    SimpleRecord(b"a", b"first", 5_000, [("h", b"1")]),
    SimpleRecord(b"b", None, 4_000),
    SimpleRecord(b"a", b"second" * 50, 9_000),
    SimpleRecord(b"c", b"", 6_000, [("grün", None)]),
]


def placed(codec: int = 0) -> bytearray:
    batch = encode_batch(
        RECORDS,
        codec=codec,
        producer_id=8,
        producer_epoch=3,
        base_sequence=70,
        is_transactional=True,
    )
    stamp(batch, base_offset=40, leader_epoch=0)
    return batch


def plain(batch: bytearray) -> list[tuple[object, ...]]:
    return [
        (
            record.offset,
            record.key,
            record.value,
            record.timestamp,
            [tuple(h) for h in record.headers],
        )
        for record in decode_records(batch, check_crc=True)
    ]


def expected(*numbers: int) -> list[tuple[object, ...]]:
    return [
        (40 + number, record.key, record.value, record.timestamp, list(record.headers))
        for number, record in enumerate(RECORDS)
        if number in numbers
    ]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("horizon_ms", [None, 1_000, 7_000, 2**41])
def test_kept_records_and_their_offsets_are_unchanged(codec: int, horizon_ms: int | None) -> None:
    before = placed(codec)
    header = parse_header(before)
    kept = [False, True, True, False]
    batch = thinned(before, header, kept, delete_horizon_ms=horizon_ms)
    after = parse_header(batch)
    assert plain(batch) == expected(1, 2)
    assert (after.base_offset, after.last_offset, after.record_count) == (40, 43, 2)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (8, 3, 70)
    assert (after.codec, after.is_transactional, after.max_timestamp) == (codec, True, 9_000)
    assert after.delete_horizon_ms == horizon_ms
    assert KafkaPythonBatch(bytes(batch)).validate_crc()


def test_delete_horizon_is_kept_once_set() -> None:
    batch = placed()
    for kept in ([True, True, True, False], [False, True, False]):
        horizon_ms = 7_000 if len(kept) == 4 else None
        batch = thinned(batch, parse_header(batch), kept, delete_horizon_ms=horizon_ms)
    assert plain(batch) == expected(1)
    assert parse_header(batch).delete_horizon_ms == 7_000


def test_the_largest_timestamp_is_that_of_the_records_left() -> None:
    before = placed()
    kept = [True, True, False, False]
    batch = thinned(before, parse_header(before), kept, delete_horizon_ms=None)
    assert parse_header(batch).max_timestamp == 5_000


def test_append_time_of_all_records_is_kept() -> None:
    before = placed()
    stamp_append_time(before, 12_345)
    kept = [True, False, False, False]
    batch = thinned(before, parse_header(before), kept, delete_horizon_ms=7_000)
    assert [record.timestamp for record in decode_records(batch)] == [12_345]


def test_emptied_batch_keeps_the_state_of_its_producer() -> None:
    batch = emptied(parse_header(placed(codec=4)))
    header = parse_header(batch)
    assert plain(batch) == []
    assert (len(batch), header.size, header.codec, header.record_count) == (61, 61, 0, 0)
    assert (header.base_offset, header.last_offset) == (40, 43)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 3, 70)
    assert header.attributes == TRANSACTIONAL
    assert KafkaPythonBatch(bytes(batch)).validate_crc()


def test_marker_gets_a_delete_horizon_and_stays_a_marker() -> None:
    marker = encode_marker(is_commit=True, producer_id=8, producer_epoch=3, timestamp=5)
    batch = thinned(marker, parse_header(marker), [True], delete_horizon_ms=99)
    assert decode_marker(batch) == decode_marker(marker)
    assert parse_header(batch).delete_horizon_ms == 99
    empty = emptied(parse_header(batch))
    assert decode_marker(empty) is None
    assert parse_header(empty).attributes == TRANSACTIONAL | CONTROL


@given(
    times=st.lists(st.integers(0, 2**45), min_size=1, max_size=8),
    chance=st.lists(st.booleans(), min_size=8, max_size=8),
    horizon_ms=st.none() | st.integers(0, 2**45),
)
def test_any_records_keep_their_times(
    times: list[int], chance: list[bool], horizon_ms: int | None
) -> None:
    kept = [*chance[: len(times)]]
    kept[0] = True
    before = encode_batch([SimpleRecord(b"%d" % time, None, time) for time in times])
    batch = thinned(before, parse_header(before), kept, delete_horizon_ms=horizon_ms)
    left = [time for time, is_kept in zip(times, kept, strict=True) if is_kept]
    assert [record.timestamp for record in batch_records(batch, 0, parse_header(batch))] == left
    assert parse_header(batch).max_timestamp == max(left)


@pytest.mark.parametrize("horizon_ms", [None, 7_000])
def test_a_time_delta_of_64_bits_overflows_as_in_java(horizon_ms: int | None) -> None:
    """Any producer can send it, and a failure here would end the compaction of every log."""
    first, latest = 5_000, -(2**63) + 4_999  # The sum of ``first`` and the largest delta.
    contents = [record_content(encoded_names(()), part) for part in ((b"a", b"x"), (b"b", b"y"))]
    records = [(contents[0], latest), (contents[1], first)]
    body = batch_body(records, first)
    header = parse_header(encode_batch([SimpleRecord(b"a", b"x", first)] * 2))
    size = HEADER_BYTES + len(body) - header.size
    batch = header_bytes(header._replace(length=header.length + size)) + body
    kept = thinned(batch, parse_header(batch), [True, False], delete_horizon_ms=horizon_ms)
    [record] = batch_records(kept, 0, parse_header(kept))
    assert (record.key, record.timestamp) == (b"a", latest)
    assert parse_header(kept).max_timestamp == latest


def test_batch_above_the_limit_of_memory_is_refused_and_compaction_keeps_it() -> None:
    """`TooLarge` is a `CorruptMessage`, for which a pass leaves the batch as it is."""
    large = [SimpleRecord(b"k", bytes(900_000), 1) for _ in range(80)]
    batch = encode_batch(large, codec=4)
    with pytest.raises(TooLarge) as refused:
        thinned(batch, parse_header(batch), [True] * 79 + [False], delete_horizon_ms=None)
    assert isinstance(refused.value, CorruptMessage)


def test_records_that_are_cut_off_are_corrupt() -> None:
    batch = placed()[:-3]
    with pytest.raises(CorruptMessage, match="incomplete record"):
        thinned(batch, parse_header(batch), [False, False, False, True], delete_horizon_ms=None)
