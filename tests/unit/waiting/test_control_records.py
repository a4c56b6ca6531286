"""Commands and answers survive their way through the topic, and no record can break a reader."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sharegroup.waiting.control_records import (
    BY_CHARACTERS_MAX,
    Answer,
    Command,
    ControlRecord,
    Forgotten,
    Intent,
    Place,
    Reply,
    encoded,
    key_of,
    parsed,
)

numbers = st.integers(0, 2**63 - 1)
ids = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=BY_CHARACTERS_MAX)
topics = st.text("abcXYZ019._-", min_size=1, max_size=249).filter(lambda name: name.strip("."))
places = st.builds(Place, topics, st.integers(0, 2**31 - 1), numbers)
commands = st.builds(
    Command, record_id=ids, intent=st.sampled_from(Intent), place=st.none() | places,
    ask=ids, by=texts, asked_ms=numbers,
)  # fmt: skip
replies = st.builds(
    Reply, record_id=ids, answer=st.sampled_from(Answer), place=st.none() | places,
    ask=st.just("") | ids, at_ms=numbers, member=texts,
)  # fmt: skip
COMMAND = Command(
    record_id="f00", intent=Intent.CANCEL, place=Place("g.retry.1h", 1, 17),
    ask="a1", by="anna", asked_ms=5,
)  # fmt: skip


@given(st.one_of(commands, replies))
def test_control_record_survives_a_round_trip(record: Command | Reply) -> None:
    assert parsed(*encoded(record)) == record


def test_control_records_are_json_that_other_tools_can_read() -> None:
    key, value = encoded(COMMAND)
    assert key == b"command/g.retry.1h/1/17"
    assert json.loads(value) == {
        "format": 1, "id": "f00", "ask": "a1", "intent": "cancel", "by": "anna", "asked_ms": 5,
    }  # fmt: skip


def test_record_without_a_value_forgets_its_key() -> None:
    assert parsed(key_of("answer", "f00"), None) == Forgotten("answer", "f00")
    place = Place("g.retry.1h", 1, 17)
    assert parsed(key_of("command", place), None) == Forgotten("command", place)


@pytest.mark.parametrize(
    "key",
    [
        None, b"", b"command", b"command/", b"delete/f00", b"command/a b", b"command/t/1",
        b"command/t/1/2/3", b"command/t/-1/2", b"command/../1/2", b"command/t/1/" + b"9" * 19,
        b"command/t/1/\xff", b"command/" + b"x" * 65, "command/t/1/٣".encode(),
    ],
)  # fmt: skip
def test_key_that_is_none_is_refused(key: bytes | None) -> None:
    with pytest.raises(ValueError, match="expected the key of a command or an answer"):
        parsed(key, encoded(COMMAND)[1])


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2}, {"format": "1"}, {"id": "a b"}, {"id": 7}, {"intent": "delete"},
        {"by": None}, {"asked_ms": -1}, {"asked_ms": 1.5}, {"asked_ms": True}, {"ask": ["a"]},
        {"asked_ms": 2**63},
    ],
)  # fmt: skip
def test_command_that_is_none_is_refused(changes: dict[str, Any]) -> None:
    key, value = encoded(COMMAND)
    with pytest.raises(ValueError, match="expected a command"):
        parsed(key, json.dumps({**json.loads(value), **changes}).encode())


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"1", b"[" * 4_000, b"{}" + b" " * 5_000])
def test_value_that_is_no_document_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="expected"):
        parsed(encoded(COMMAND)[0], value)


def test_question_names_the_same_id_in_its_key() -> None:
    _, value = encoded(COMMAND)
    with pytest.raises(ValueError, match="with key"):
        parsed(b"command/f01", value)


@given(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=200))
def test_any_bytes_are_a_control_record_or_an_error(key: bytes | None, value: bytes | None) -> None:
    try:
        record: ControlRecord = parsed(key, value)
    except ValueError:
        return
    assert isinstance(record, Command | Reply | Forgotten)


def test_text_that_no_header_can_have_is_replaced() -> None:
    key, value = encoded(COMMAND)
    odd = value.replace(b'"anna"', b'"\\ud800' + b"x" * 300 + b'"')
    record = parsed(key, odd)
    assert isinstance(record, Command)
    assert record.by == "?" + "x" * (BY_CHARACTERS_MAX - 1)
