"""Keyed records by hand, against the compiled codec."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches.batches import CHECKED_AT, CONTROL
from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch
from sharegroup.wire.batches.small_batches import keyed_records

GZIP = 1
sizes = st.integers(0, 40) | st.sampled_from([63, 64, 65, 127, 128, 8_191, 8_192, 8_193, 20_000])
contents = sizes.map(bytes) | st.none()
records = st.builds(
    SimpleRecord,
    contents,
    contents,
    st.integers(0, 2**40),
    st.lists(st.tuples(st.text(max_size=3), contents), max_size=1),
)
batches = st.lists(st.tuples(st.lists(records, min_size=1, max_size=3), st.sampled_from([0, GZIP])))


def by_codec(data: bytes) -> list[tuple[int, bytes, bytes | None]]:
    return [
        (record.offset, bytes(record.key), record.value)
        for record in decode_records(data)
        if record.key is not None
    ]


@given(batches)
def test_records_agree_with_the_compiled_codec(
    made: list[tuple[list[SimpleRecord], int]],
) -> None:
    data = b"".join(bytes(encode_batch(some, codec=codec)) for some, codec in made)
    assert list(keyed_records(data)) == by_codec(data)


@given(batches, st.integers(1, 200))
def test_truncated_batch_at_the_end_is_left_out(
    made: list[tuple[list[SimpleRecord], int]], cut: int
) -> None:
    data = b"".join(bytes(encode_batch(some, codec=codec)) for some, codec in made)[:-cut]
    assert list(keyed_records(data)) == by_codec(data)


def test_control_batches_are_passed_over() -> None:
    batch = encode_batch([SimpleRecord(b"k", b"v", 1)])
    control = bytearray(batch)
    control[CHECKED_AT + 1] |= CONTROL
    assert list(keyed_records(bytes(control + batch))) == [(0, b"k", b"v")]


def test_a_record_that_contradicts_its_batch_is_refused() -> None:
    batch = encode_batch([SimpleRecord(b"key", b"value", 1)])
    position = batch.index(b"key") - 1
    batch[position] = 2 * 60  # The key would end behind the batch.
    with pytest.raises(CorruptMessage):
        list(keyed_records(bytes(batch)))


@given(st.binary(max_size=40), st.binary(max_size=40), st.data())
def test_damaged_batch_is_read_as_by_the_compiled_codec(
    key: bytes, value: bytes, data: st.DataObject
) -> None:
    batch = encode_batch([SimpleRecord(key, value, 1)])
    position = data.draw(st.integers(61, len(batch) - 1))
    batch[position] = data.draw(st.integers(0, 255))
    try:
        expected = by_codec(bytes(batch))
    except CorruptMessage:
        return
    assert list(keyed_records(bytes(batch))) == expected
