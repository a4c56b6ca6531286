"""Numbers that somebody wrote: of the right kind, or refused in words, not by a comparison."""

from __future__ import annotations


def is_whole(value: object, low: int, high: int) -> bool:
    """Whether it is a whole number from ``low`` to ``high``; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: object, low: float) -> bool:
    """Whether it is a number, and ``low`` or more; a bool is none, and neither is NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= low
