"""Durations and due times as users write them: ``"250ms"``, ``"7d"``, ``2.5``, a datetime.

A number means seconds.  A text has a unit after every number, larger units first.  A text without
a unit, such as ``"90"``, is ambiguous and refused.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from sharegroup.protocol_enums import DELAY_MS_MAX

Duration = float | int | str | timedelta

UNITS = {
    "w": 604_800.0,
    "d": 86_400.0,
    "h": 3_600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 0.001,
}
"""The seconds of each unit, in the order in which units are written."""

DELAY_DAYS_MAX = 366
"""The longest delay of a retry or of a delayed record."""
SECONDS_MAX = (2**63 - 1) // 1000
"""Longer durations do not fit into the milliseconds of headers and settings."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_PATTERN = re.compile(
    "".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?)\s*{unit}\s*)?" for unit in UNITS),
)


def seconds(value: Duration) -> float:
    """The duration in seconds, 0 or more.

    Raises TypeError for other types, and ValueError for a text that is not a duration, a negative
    number, NaN, and more than `SECONDS_MAX`.
    """
    given: object = value  # At run time any value is accepted; only type checkers see the type.
    if isinstance(given, timedelta):
        number = given.total_seconds()
    elif isinstance(given, str):
        number = _parsed(given)
    elif isinstance(given, int | float) and not isinstance(given, bool):
        number = float(min(given, SECONDS_MAX + 1))  # An int may be too large for a float.
    else:
        raise TypeError(
            f"a duration: expected seconds, a text like '1m30s' or a timedelta, "
            f"got {type(value).__name__}"
        )
    if not 0 <= number <= SECONDS_MAX:
        raise ValueError(
            f"a duration: expected a finite number, 0 or more, up to {SECONDS_MAX} "
            f"seconds; got {value!r:.80}"
        )
    return number


def delay_seconds(value: Duration) -> float:
    """The delay of a retry in seconds; raises ValueError if it exceeds `DELAY_DAYS_MAX`."""
    number = seconds(value)
    if number > DELAY_DAYS_MAX * UNITS["d"]:
        raise ValueError(f"a delay: expected up to {DELAY_DAYS_MAX} days; got {value!r:.80}")
    return number


def release_seconds(value: Duration) -> float:
    """The delay of a released record in seconds; raises ValueError if the broker cannot keep it."""
    number = seconds(value)
    if round(number * 1000) > DELAY_MS_MAX:
        raise ValueError(f"expected a delay of 0 to 24 hours, found {value!s:.80}")
    return number


def due_ms_of(at: datetime, *, now_ms: int) -> int:
    """The milliseconds since 1970 of a time with a zone, never rounded to an earlier one.

    Raises TypeError for other types, and ValueError for a time without a zone and for one that is
    more than `DELAY_DAYS_MAX` after ``now_ms``.
    """
    given: object = at
    if not isinstance(given, datetime):
        raise TypeError(f"at: expected a datetime with a zone, got {type(at).__name__}")
    if at.utcoffset() is None:
        raise ValueError(
            f"at: {at.isoformat()} has no zone, so it is another time on each machine; give one: "
            "datetime.now(UTC), or datetime(2027, 1, 31, 9, 0, tzinfo=ZoneInfo('Europe/Berlin'))"
        )
    due_ms = -((_EPOCH - at) // _MILLISECOND)  # Rounded up, because a record is never early.
    if due_ms - now_ms > DELAY_DAYS_MAX * UNITS["d"] * 1000:
        raise ValueError(
            f"at: expected a time within the next {DELAY_DAYS_MAX} days, got {at.isoformat()}; "
            "send it later, for example from a handler that sends itself a record until then"
        )
    return due_ms


def _parsed(text: str) -> float:
    match = _PATTERN.fullmatch(text.strip())
    parts = {unit: part for unit, part in match.groupdict().items() if part} if match else {}
    if not parts:
        raise ValueError(
            f"a duration: expected numbers with units, as '250ms', '30s', '1h30m' or '7d', "
            f"the larger unit first; got {text!r}"
        )
    # Rounded to microseconds, so '100ms' equals 0.1.
    return round(sum(float(part) * UNITS[unit] for unit, part in parts.items()), 6)
