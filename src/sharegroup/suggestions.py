"""Suggests the name that a mistyped one may stand for: verbs, groups, topics, faults."""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.escaping import escaped

NAMES_MAX = 2_000
"""The number of names that are compared; of more, those with the same first letter."""
SUGGESTIONS_MAX = 3


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence with the known names that are like this one; empty if none is.

    >>> did_you_mean("ordres", ["orders", "payments"])
    "; did you mean 'orders'?"
    >>> did_you_mean("x", ["orders"]), did_you_mean("orders", ["orders"])
    ('', '')
    """
    # Imported here because a command line without a mistake does not need it.
    from difflib import get_close_matches

    candidates = list(dict.fromkeys(known))
    if len(candidates) > NAMES_MAX:
        candidates = [other for other in candidates if other[:1] == name[:1]][:NAMES_MAX]
    if name in candidates:
        return ""  # It is not mistyped: something else is wrong with it.
    folded = {other.lower(): other for other in reversed(candidates)}
    matches = get_close_matches(name.lower(), folded, n=SUGGESTIONS_MAX)
    if not matches:
        return ""
    return f"; did you mean {' or '.join(repr(escaped(folded[match])) for match in matches)}?"
