"""Dates in the patterns of Java's SimpleDateFormat, as Kafka's performance tools take them.

A pattern has letters, which stand for parts of a local time, and other characters, which are
printed as they are. Letters between apostrophes are printed, too; two apostrophes are one.
Supported are the letters that do not depend on a language:

    y year   M month   d day   H hour   m minute   s second   S millisecond   Z zone (+0100)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

DATE_FORMAT_DEFAULT = "yyyy-MM-dd HH:mm:ss:SSS"
"""The default of Kafka's tools."""
YEAR_DIGITS = 2
"""``yy`` is the year without its century."""
PIECE = re.compile(r"''|'((?:[^']|'')+)'|([A-Za-z])\2*|[^'A-Za-z]+")

PARTS: dict[str, Callable[[datetime], int]] = {
    "y": lambda time: time.year,
    "M": lambda time: time.month,
    "d": lambda time: time.day,
    "H": lambda time: time.hour,
    "m": lambda time: time.minute,
    "s": lambda time: time.second,
    "S": lambda time: time.microsecond // 1000,
}
ZONE = "Z"


class DateFormatError(ValueError):
    """The pattern is not one of SimpleDateFormat, or has a letter that is not supported."""


def check_date_format(pattern: str) -> str:
    """Return the pattern; raise DateFormatError if it cannot be used."""
    clock(0, pattern)
    return pattern


def clock(wall_ms: int, pattern: str = DATE_FORMAT_DEFAULT) -> str:
    """Format milliseconds since 1970 as local time.

    >>> clock(1_700_000_000_007, "SSS 'ms'")
    '007 ms'
    """
    local = datetime.fromtimestamp(wall_ms // 1000, tz=UTC).astimezone()
    local = local.replace(microsecond=wall_ms % 1000 * 1000)
    pieces: list[str] = []
    position = 0
    while position < len(pattern):
        matched = PIECE.match(pattern, position)
        if matched is None:
            raise DateFormatError(f"{pattern!r}: the apostrophe at {position} is not closed")
        pieces.append(_piece(local, matched, pattern))
        position = matched.end()
    return "".join(pieces)


def _piece(local: datetime, matched: re.Match[str], pattern: str) -> str:
    text, quoted, letter = matched[0], matched[1], matched[2]
    if quoted is not None:
        return quoted.replace("''", "'")
    if letter is None:
        return "'" if text == "''" else text
    if letter == ZONE:
        return local.strftime("%z")
    if letter not in PARTS or (letter == "M" and len(text) > len("MM")):
        raise DateFormatError(
            f"{pattern!r}: {text} is not supported; expected letters of {''.join(PARTS)}{ZONE}, "
            "a month as MM, and other text between apostrophes"
        )
    number = PARTS[letter](local)
    if letter == "y" and len(text) == YEAR_DIGITS:
        number %= 100
    return f"{number:0{len(text)}d}"
