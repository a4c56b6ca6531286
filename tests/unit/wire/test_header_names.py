"""Names of headers are shown as Java shows them, and keep their bytes."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, strategies as st

from sharegroup.wire.batches.header_names import (
    NAMES,
    UndecodedName,
    header_name,
    name_bytes,
    with_names,
    without_names,
)
from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch

names = st.binary(max_size=8) | st.text(max_size=4).map(str.encode) | st.just(b"\xef\xbf\xbd")
headers_of_bytes = st.lists(st.tuples(names, st.none() | st.binary(max_size=3)), max_size=5)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\xff", "\ufffd"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),  # A surrogate: one character in Java, three in Python.
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0x", "\ufffdx"),
        (b"\xed\xa0\x80\xed\xb0\x80", "\ufffd\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
        (b"\xed\x9f\xbf", "\ud7ff"),
    ],
)
def test_name_is_shown_as_in_java(raw: bytes, shown: str) -> None:
    assert header_name(raw) == shown


@given(raw=names)
def test_name_keeps_its_bytes_in_copies(raw: bytes) -> None:
    name = header_name(raw)
    assert name_bytes(name) == raw
    for copied in (pickle.loads(pickle.dumps(name)), copy.deepcopy(name), copy.copy(name)):
        assert (copied, name_bytes(copied)) == (name, raw)


def test_name_in_utf_8_is_a_plain_str() -> None:
    assert type(header_name("grün".encode())) is str


@given(headers=headers_of_bytes, codec=st.integers(0, 4))
def test_record_written_again_has_the_names_of_its_original(headers, codec) -> None:
    given_headers = [(header_name(raw), content) for raw, content in headers]
    records = [SimpleRecord(b"k", None, 1), SimpleRecord(None, b"v", -5, given_headers)]
    (plain, found) = decode_records(encode_batch(records, codec=codec))
    assert (plain.offset, plain.key, plain.value, plain.timestamp) == (0, b"k", None, 1)
    assert (found.offset, found.key, found.value, found.timestamp) == (1, None, b"v", -5)
    assert [(name_bytes(name), content) for name, content in found.headers] == headers


def test_name_of_another_subclass_of_str_is_written_as_its_text() -> None:
    class Name(str):
        __slots__ = ()

    (found,) = decode_records(encode_batch([SimpleRecord(None, None, 0, [(Name("n"), b"")])]))
    assert found.headers == [("n", b"")]


@given(headers=headers_of_bytes)
def test_names_come_back_from_headers_of_plain_text(headers) -> None:
    named = [(header_name(raw), content) for raw, content in headers]
    shown = with_names(named)
    assert all(type(name) is str for name, _ in shown)
    text = [(name.encode().decode(), content) for name, content in shown]
    found = without_names(text)
    if any(isinstance(name, UndecodedName) for name, _ in named):
        assert [(name_bytes(name), content) for name, content in found] == headers
    else:
        assert (shown, list(found)) == (named, named)


def test_forged_names_change_no_name_that_is_shown() -> None:
    forged = [("a", b"1"), (NAMES, b"Yg==,YQ==,/w==,no base64"), ("\ufffd", b"2")]
    found = without_names(forged)
    assert found == [("a", b"1"), ("\ufffd", b"2")]
    assert [name_bytes(name) for name, _ in found] == [b"a", b"\xff"]
