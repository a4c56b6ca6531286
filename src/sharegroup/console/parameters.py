"""The parameters of the console's addresses and forms."""

from __future__ import annotations

DIGITS_MAX = 18
"""Digits of a number: an offset has no more."""


class BadQuery(ValueError):
    """A parameter of the page's address is not as expected."""


def is_number(text: str) -> bool:
    """Whether a text of an address is a whole number of 0 or more, as large as an offset."""
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX
