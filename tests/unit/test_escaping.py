"""Text from peers in terminals and logs."""

from __future__ import annotations

import sys

import pytest

from sharegroup.escaping import escaped


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("Bestellungen für Łódź 注文 🎉", "Bestellungen für Łódź 注文 🎉"),
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("\x7f\x9b31m", r"\x7f\x9b31m"),
        ("gpj.\u202egnp.exe", r"gpj.\u202egnp.exe"),
        ("\u2066\u2028\u2029\u200b", r"\u2066\u2028\u2029\u200b"),
        ("\udc80\ud800", r"\udc80\ud800"),
        ("\U000e0001", r"\U000e0001"),
        (r"C:\new", r"C:\new"),
        ("", ""),
    ],
)
def test_text_is_shown_as(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_every_character_gives_one_printable_line() -> None:
    assert all(escaped(chr(code)).isprintable() for code in range(sys.maxunicode + 1))
