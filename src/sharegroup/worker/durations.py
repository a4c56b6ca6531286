"""Lengths of time as people write them: ``"250ms"``, ``"1h30m"``, ``"7d"``, ``2.5``, a timedelta.

A number is seconds.  A text has a unit behind every number, the larger unit first: ``"90"`` could
be anything, and is refused.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta

Duration = float | int | str | timedelta

UNITS = {
    "w": 604_800.0,
    "d": 86_400.0,
    "h": 3_600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 0.001,
}
"""Seconds of each, in the order in which they are written."""

_PATTERN = re.compile(
    "".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?)\s*{unit}\s*)?" for unit in UNITS),
)


def seconds(value: Duration) -> float:
    """As a number of seconds, 0 or more."""
    given: object = value  # Who has no type checker may give anything.
    if isinstance(given, timedelta):
        number = given.total_seconds()
    elif isinstance(given, str):
        number = _parsed(given)
    elif isinstance(given, int | float) and not isinstance(given, bool):
        number = float(given)
    else:
        raise TypeError(
            f"a duration: expected seconds, a text like '1m30s' or a timedelta, "
            f"got {type(value).__name__}"
        )
    if not 0 <= number < math.inf:
        raise ValueError(f"a duration: expected 0 or more, and an end; got {value!r}")
    return number


def _parsed(text: str) -> float:
    found = _PATTERN.fullmatch(text.strip())
    parts = {unit: part for unit, part in found.groupdict().items() if part} if found else {}
    if not parts:
        raise ValueError(
            f"a duration: expected numbers with units, as '250ms', '30s', '1h30m' or '7d', "
            f"the larger unit first; got {text!r}"
        )
    # Rounded, so that '100ms' is what 0.1 is.
    return round(sum(float(part) * UNITS[unit] for unit, part in parts.items()), 6)
