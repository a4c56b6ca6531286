"""JSON values that every database of Django stores: arguments, and return values."""

from __future__ import annotations

import json
from typing import Any


class NotStorable(ValueError):
    """A value that cannot be stored as JSON, or is too large."""


def storable(value: Any, what: str, bytes_max: int) -> Any:
    """Return a JSON value unchanged; raises NotStorable if a database would refuse it.

    PostgreSQL's jsonb has no NaN, no character U+0000 and no halves of surrogate pairs.  It would
    refuse them in the middle of the caller's transaction.
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        size = len(text.encode())
    except (UnicodeEncodeError, RecursionError, ValueError) as error:
        raise NotStorable(f"{what}: cannot be stored as JSON: {error}") from error
    # A backslash before it makes it six characters of a text.
    if "\\u0000" in text.replace("\\\\", ""):
        raise NotStorable(f"{what}: has the character U+0000, which PostgreSQL cannot store")
    if size > bytes_max:
        raise NotStorable(
            f"{what}: {size} bytes as JSON; expected up to {bytes_max}: store it elsewhere, and "
            f"pass its place"
        )
    return value
