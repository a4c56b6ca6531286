"""Moments in addresses and forms."""

from __future__ import annotations

from datetime import UTC, datetime

from sharegroup.console.parameters import BadQuery


def moment_ms(name: str, text: str) -> int | None:
    """Read a moment, in UTC unless it has a zone, as ms since 1970; None for an empty text."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise BadQuery(f"{name}: expected 2026-11-30T12:00 in UTC, found {text[:40]!r}") from error
