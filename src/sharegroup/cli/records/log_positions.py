"""Parses the positions in a log that options name: offset ranges and moments."""

from __future__ import annotations

import time

import click

from sharegroup.cli.common.log_positions import parse_moment
from sharegroup.ids import OFFSET_MAX
from sharegroup.worker.durations import seconds


def parse_offsets(text: str | None) -> tuple[int, int]:
    """Parse ``FIRST:END``, each of which can be omitted, or one offset; None means all offsets.

    >>> parse_offsets("5:8"), parse_offsets("5:")[0], parse_offsets("5")
    ((5, 8), 5, (5, 6))
    """
    if text is None:
        return 0, OFFSET_MAX
    first, colon, end = text.partition(":")
    if not all(_is_offset(part) or not part for part in (first, end)) or not (first or colon):
        raise click.BadParameter(f"{text!r}: expected FIRST:END", param_hint="--offsets")
    start = int(first or 0)
    if not colon:
        return start, start + 1
    return start, int(end) if end else OFFSET_MAX


def _is_offset(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(OFFSET_MAX)) and int(text) <= OFFSET_MAX


def moment_ms(text: str | None, option: str) -> int | None:
    """Return the milliseconds since 1970 of a date, or of a time before now such as ``2h``."""
    if text is None:
        return None
    try:
        return time.time_ns() // 1_000_000 - round(seconds(text) * 1000)
    except ValueError:
        pass  # The text is not a duration, so it has to be a date.
    try:
        return round(parse_moment(text).timestamp() * 1000)
    except click.BadParameter as error:
        raise click.BadParameter(
            f"{text!r}: expected YYYY-MM-DDThh:mm:ss[.sss][Z], or a time before now, such as '2h'",
            param_hint=option,
        ) from error
