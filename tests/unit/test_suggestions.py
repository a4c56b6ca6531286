"""Names that a mistyped one may stand for."""

from __future__ import annotations

import time

import pytest

from sharegroup.suggestions import did_you_mean


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ordres", "; did you mean 'orders'?"),
        ("ORDERS", "; did you mean 'orders'?"),
        ("paymentz", "; did you mean 'payments'?"),
        ("xyz", ""),
        ("", ""),
    ],
)
def test_similar_name_is_suggested(name: str, text: str) -> None:
    assert did_you_mean(name, ["payments", "orders"]) == text


def test_suggested_name_cannot_command_a_terminal() -> None:
    assert "\x1b" not in did_you_mean("orders", ["orders\x1b"])


def test_a_hundred_thousand_names_take_less_than_seconds() -> None:
    began = time.process_time()
    names = [f"topic-{number}" for number in range(100_000)]
    assert "topic-1" in did_you_mean("topic-1x", ["other", *names])
    assert time.process_time() - began < 5
