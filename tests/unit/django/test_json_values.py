"""JSON values that PostgreSQL would refuse are refused before it sees them."""

from __future__ import annotations

import pytest

from sharegroup.django.json_values import NotStorable, storable


@pytest.mark.parametrize("value", [None, 1, "a", "\\u0000", "\\\\u0000", {"a": [1.5]}, "é"])
def test_values_stay(value: object) -> None:
    assert storable(value, "it", 100) is value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\0b", "U+0000"),
        ("\\\0", "U+0000"),
        ({"\0": 1}, "U+0000"),
        (float("nan"), "cannot be stored as JSON"),
        ([float("inf")], "cannot be stored as JSON"),
        ("\ud800", "cannot be stored as JSON"),
        ("é" * 50, "102 bytes as JSON; expected up to 100"),
    ],
)
def test_others_are_refused(value: object, text: str) -> None:
    with pytest.raises(NotStorable, match=r"^it: ") as raised:
        storable(value, "it", 100)
    assert text in str(raised.value)
