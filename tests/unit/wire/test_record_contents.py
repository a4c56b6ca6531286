"""Batches of records whose contents were encoded before are those that the compiled codec makes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, strategies as st

from sharegroup.wire.batches.header_names import header_name, name_bytes
from sharegroup.wire.batches.record_contents import encoded_names, record_content
from sharegroup.wire.batches.records import decode_records, encode_batch, encode_contents

SIZES = st.sampled_from([0, 1, 63, 64, 1023, 1024, 8191, 8192, 20_000])
CONTENTS = st.none() | SIZES.map(lambda size: b"x" * size)
NAMES = st.text(max_size=5) | SIZES.map(lambda size: "n" * size)
HEADERS = st.lists(st.tuples(NAMES, CONTENTS), max_size=4)
TIMES = st.integers(-1, 2**40)
RECORDS = st.lists(st.tuples(CONTENTS, CONTENTS, TIMES, HEADERS), min_size=1, max_size=5)


def content_of(key: bytes | None, value: bytes | None, headers: Any) -> bytes:
    names = encoded_names([name for name, _ in headers])
    return record_content(names, [key, value, *(content for _, content in headers)])


@given(records=RECORDS, codec=st.integers(0, 4), is_transactional=st.booleans())
def test_batch_of_contents_is_that_of_the_codec(
    records: list[Any], codec: int, is_transactional: bool
) -> None:
    options: dict[str, Any] = {
        "codec": codec,
        "producer_id": 7,
        "producer_epoch": 2,
        "base_sequence": 99,
        "is_transactional": is_transactional,
    }
    contents = [(content_of(key, value, headers), at) for key, value, at, headers in records]
    assert encode_contents(contents, **options) == encode_batch(records, **options)


def test_places_of_many_records() -> None:
    records = [(b"k", b"v", 8, [("n", b"c")])] * 9_000
    contents = [(content_of(b"k", b"v", [("n", b"c")]), 8)] * 9_000
    assert encode_contents(contents) == encode_batch(records)


def test_name_that_is_not_utf8_keeps_its_bytes() -> None:
    batch = encode_contents([(content_of(None, None, [(header_name(b"\xff"), b"")]), 8)])
    ((name, _),) = decode_records(batch)[0].headers
    assert name_bytes(name) == b"\xff"
