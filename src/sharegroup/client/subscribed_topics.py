"""The topics that an application passes to ``subscribe``: names, or one list of names."""

from __future__ import annotations

from collections.abc import Iterable


def topic_names(topics: tuple[str | Iterable[str], ...]) -> tuple[str, ...]:
    """Return the arguments of ``subscribe``, names or one list of names, sorted."""
    names_or_list: Iterable[object] = topics
    only: object = topics[0] if len(topics) == 1 else None
    if isinstance(only, Iterable) and not isinstance(only, str | bytes):
        names_or_list = only
    names = set()
    for name in names_or_list:
        if not isinstance(name, str):
            raise TypeError(
                f"topic {name!r}: expected the name of a topic, found {type(name).__name__}; "
                f"pass names, subscribe('a', 'b'), or one list of names, subscribe(['a', 'b'])"
            )
        if not name.strip():
            raise ValueError(f"topic {name!r}: expected the name of a topic, found blanks")
        names.add(name)
    return tuple(sorted(names))
