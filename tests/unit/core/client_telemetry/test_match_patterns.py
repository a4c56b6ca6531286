"""Patterns of client metrics, which any client may make expensive."""

from __future__ import annotations

import pytest

from sharegroup.core.client_telemetry.subscriptions import (
    PATTERN_CHARACTERS_MAX,
    TEXT_CHARACTERS_MAX,
    ClientIdentity,
    Subscription,
    parse_match,
)
from sharegroup.errors import InvalidConfig


def selects(pattern: str, client_id: str) -> bool:
    subscription = Subscription("s", ("*",), 1_000, parse_match([f"client_id={pattern}"]))
    return subscription.selects(ClientIdentity("", client_id, "", "", "", ""))


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("apache-kafka-java", "apache-kafka-java", True),
        ("apache-kafka-java", "apache-kafka-java2", False),
        (r"11\.1.*", "11.1.3", True),
        (r"11\.1.*", "1101", False),
        ("a|bc", "bc", True),
        ("(a|b)+", "abba", True),
        ("[^a-]b", "éb", True),
        ("é.*", "été", True),
        (".", "\n", False),
    ],
)
def test_a_pattern_selects_whole_texts(pattern: str, text: str, expected: bool) -> None:
    assert selects(pattern, text) is expected


@pytest.mark.parametrize("pattern", ["*", "[", "[a", "a\\", "(a", r"\b"])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidConfig, match="the pattern of client_id"):
        parse_match([f"client_id={pattern}"])


def test_long_patterns_are_refused_and_long_texts_do_not_match() -> None:
    with pytest.raises(InvalidConfig, match="200 characters, not 201"):
        parse_match(["client_id=" + "a" * (PATTERN_CHARACTERS_MAX + 1)])
    assert selects("a*", "a" * TEXT_CHARACTERS_MAX)
    assert not selects("a*", "a" * (TEXT_CHARACTERS_MAX + 1))


def test_pattern_that_takes_a_backtracking_engine_forever_is_quick() -> None:
    assert not selects("a*" * 80 + "b", "a" * 250)
    assert selects("x", "x")
