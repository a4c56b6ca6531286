"""What is shown of keys, values and headers: exact, bounded, and without anything that acts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from sharegroup.console.records.preview import (
    DEPTH_MAX,
    HEX_BYTES_MAX,
    SHORT_CHARACTERS,
    SHOWN_BYTES_MAX,
    preview,
    short,
)

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(document=st.lists(documents) | st.dictionaries(st.text(), documents))
def test_indented_json_is_the_same_document(document: object) -> None:
    shown = preview(json.dumps(document).encode())
    assert shown.kind == "json"
    assert json.loads(shown.text) == document


def test_numbers_and_repeated_names_stay_as_they_were_written() -> None:
    written = b'{"n":12345678901234567890123.450,"n":1e5,"d":[],"e":{}}'
    assert preview(written).text.split() == [
        "{", '"n":', "12345678901234567890123.450,", '"n":', "1e5,", '"d":', "[],", '"e":', "{}",
        "}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        (None, "null", "null"),
        (b"", "empty", ""),
        (b"paid", "text", "paid"),
        (b"12", "text", "12"),
        (b'{"a":', "text", '{"a":'),
        (b"red\x1b[31m", "text", "red\\x1b[31m"),
        ("abc\u202edef".encode(), "text", "abc\\u202edef"),
        (b"\xff\x00A", "hex", "000000  ff 00 41                                         ..A"),
    ],
)
def test_kinds(content: bytes | None, kind: str, text: str) -> None:
    shown = preview(content)
    assert (shown.kind, shown.text) == (kind, text)


def test_json_that_nests_too_deeply_is_not_indented() -> None:
    assert preview(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX).kind == "json"
    deep = preview(b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1))
    assert (deep.kind, "\n" in deep.text) == ("text", False)


def test_long_contents_are_cut_and_say_so() -> None:
    text = preview("é".encode() * SHOWN_BYTES_MAX)
    assert (text.is_cut, text.size, len(text.text)) == (
        True, 2 * SHOWN_BYTES_MAX, SHOWN_BYTES_MAX // 2,
    )  # fmt: skip
    numbers = preview(b"\xff" * (HEX_BYTES_MAX + 1))
    assert (numbers.kind, numbers.is_cut) == ("hex", True)
    assert len(numbers.text.splitlines()) == HEX_BYTES_MAX // 16


@given(content=st.binary())
def test_a_line_has_no_line_break_and_is_bounded(content: bytes) -> None:
    shown = short(content)
    assert len(shown.text) <= SHORT_CHARACTERS * 10
    assert shown.text.isprintable()


def test_a_line_that_is_cut_says_so() -> None:
    assert (short(b"paid").text, short(b"paid").is_cut) == ("paid", False)
    assert short(b"x" * (SHORT_CHARACTERS + 1)).is_cut
    assert not short(b"x" * SHORT_CHARACTERS).is_cut
