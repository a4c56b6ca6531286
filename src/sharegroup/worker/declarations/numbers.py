"""Checks of the type and range of numbers in declarations."""

from __future__ import annotations


def is_whole(value: object, low: int, high: int) -> bool:
    """Whether ``value`` is an int, not a bool, from ``low`` to ``high`` (both included)."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: object, low: float) -> bool:
    """Whether ``value`` is an int or float of ``low`` or more; False for a bool and for NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= low
