"""Error codes: complete, with their retriable flags.  Texts: long ones are cut by bytes."""

from __future__ import annotations

import inspect

import pytest

from sharegroup import errors
from sharegroup.errors import BY_CODE, TEXT_BYTES_MAX, InvalidRequest


@pytest.mark.parametrize("text", ["", "short", "x" * TEXT_BYTES_MAX, "€" * (TEXT_BYTES_MAX // 3)])
def test_text_within_the_limit_is_kept(text: str) -> None:
    assert str(InvalidRequest(text)) == text


@pytest.mark.parametrize("character", ["x", "ü", "€", "😀"])
def test_longer_text_is_cut_between_characters_and_ends_in_an_ellipsis(character: str) -> None:
    text = str(InvalidRequest(character * 100_000))
    assert text.endswith("…")
    assert set(text[:-1]) == {character}
    assert TEXT_BYTES_MAX - 4 < len(text.encode()) <= TEXT_BYTES_MAX


def test_every_code_of_kafka_has_a_class() -> None:
    """Kafka 4.4 has the codes -1 to 136; 0 means: no error."""
    assert sorted([*BY_CODE, 0]) == [*range(-1, 137)]


def test_retriable_codes_are_those_of_kafkas_java_client() -> None:
    """From `Errors.java`: the codes whose exception is a RetriableException."""
    assert sorted(code for code, error in BY_CODE.items() if error.retriable) == [
        2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84,
        88, 89, 100, 103, 106, 122, 123, 133,
    ]  # fmt: skip


def test_each_error_has_a_docstring_which_is_its_text_without_one_of_a_broker() -> None:
    """`client/net/refusals.py` shows it; a class does not inherit that of its base class."""
    declared = [
        error
        for _, error in inspect.getmembers(errors, inspect.isclass)
        if error.__module__ == errors.__name__
    ]
    assert set(BY_CODE.values()) <= set(declared)
    assert [
        error.__name__ for error in declared if not (error.__dict__["__doc__"] or "").strip()
    ] == []
