"""Patterns of client metrics match like regular expressions, in linear time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.core.client_telemetry.text_pattern import PATTERN_CHARACTERS_MAX, TextPattern
from sharegroup.errors import InvalidConfig


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("apache-kafka-java", "apache-kafka-java", True),
        ("apache-kafka-java", "apache-kafka-java2", False),
        (r"11\.1.*", "11.1.3", True),
        (r"11\.1.*", "1101", False),
        ("a|bc|", "bc", True),
        ("a|bc|", "", True),
        ("a|bc", "ab", False),
        (r"[a-c_]+\d?", "abc_1", True),
        (r"[a-c_]+\d?", "abc_12", False),
        ("[^a-]b", "cb", True),
        ("[^a-]b", "-b", False),
        (r"\w+\.\w+", "a_1.b", True),
        ("x*", "", True),
        (".", "\n", False),
    ],
)
def test_pattern_matches_the_whole_text(pattern: str, text: str, expected: bool) -> None:
    assert TextPattern.parse(pattern).matches(text) is expected


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "a{2}", "^a", "a$", "*", "a**", "[", "[a", "[]", "a\\"]
)
def test_other_constructs_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidConfig, match="pattern"):
        TextPattern.parse(pattern)


def test_long_patterns_are_refused_and_long_texts_do_not_match() -> None:
    with pytest.raises(InvalidConfig, match="200 characters, not 201"):
        TextPattern.parse("a" * (PATTERN_CHARACTERS_MAX + 1))
    assert TextPattern.parse("a*").matches("a" * 250)
    assert not TextPattern.parse("a*").matches("a" * 251)


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\."])
PATTERNS = st.lists(st.tuples(ATOMS, st.sampled_from(["", "*", "+", "?"])), max_size=6).map(
    lambda elements: "".join(atom + quantifier for atom, quantifier in elements)
)


@given(st.lists(PATTERNS, min_size=1, max_size=3).map("|".join), st.text("ab1.", max_size=8))
def test_patterns_match_as_python_regular_expressions(pattern: str, text: str) -> None:
    expected = re.fullmatch(pattern, text) is not None
    assert TextPattern.parse(pattern).matches(text) is expected


def test_pattern_that_takes_a_backtracking_engine_forever_is_quick() -> None:
    assert not TextPattern.parse("a*" * 80 + "b").matches("a" * 250)
