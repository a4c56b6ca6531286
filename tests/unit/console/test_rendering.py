"""Filters of templates, live parts, and values as JSON."""

from __future__ import annotations

import json

import pytest

from sharegroup.console.web.rendering import MISSING, age, moment, number, printable, to_json


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"), (999, "999 ms"), (1000, "1 s"), (119_000, "119 s"), (120_000, "2 min"),
        (7_200_000, "2.0 h"), (172_800_000, "2.0 d"), (2**63, "106751991167.3 d"),
    ],
)  # fmt: skip
def test_age_is_a_time_as_people_say_it(milliseconds: int, text: str) -> None:
    assert age(milliseconds) == text


def test_unknown_values_are_no_zeros() -> None:
    assert age(None) == number(None) == moment(None) == MISSING


def test_moment_is_in_utc_with_the_machine_readable_time() -> None:
    assert moment(1_700_000_000_123) == (
        '<time datetime="2023-11-14T22:13:20.123000Z">2023-11-14 22:13:20 UTC</time>'
    )


@pytest.mark.parametrize("at_ms", [-1, -(2**63), 253_402_300_799_001, 2**63 - 1])
def test_moment_that_no_calendar_has_is_unknown(at_ms: int) -> None:
    assert moment(at_ms) == MISSING


def test_numbers_have_separators() -> None:
    assert (number(0), number(1_234_567), number(1234.56)) == ("0", "1,234,567", "1,234.6")


def test_texts_of_peers_have_no_control_characters_overrides_and_surrogates() -> None:
    assert printable("a\x00\u202eb\ud800") == r"a\x00\u202eb\ud800"


def test_json_has_texts_for_what_json_does_not_know() -> None:
    document = {"set": {1}, b"key": b"\xff", 3: ("a", None, True), "bad": "\ud800"}
    assert json.loads(to_json(document)) == {
        "set": [1],
        "b'key'": "b'\\xff'",
        "3": ["a", None, True],
        "bad": "\ud800",
    }


def test_large_value_is_made_when_the_document_is() -> None:
    assert to_json({"runs": lambda: [{"first_offset": 3}]}) == b'{"runs": [{"first_offset": 3}]}'


def test_json_has_no_numbers_that_json_does_not_know() -> None:
    assert to_json({"rate": float("nan"), "most": float("inf")}) == b'{"rate": null, "most": null}'
