"""The topics that match the regular expressions of consumer groups, cached.

A pattern is matched with all topic names when a member first subscribes to it, and again when
topics were created or deleted.  That is done in slices: each name takes at most a few milliseconds,
and a pattern that takes much more time than patterns should is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.core.modern_group.patterns import TopicPattern
from sharegroup.errors import InvalidRegularExpression
from sharegroup.ids import TopicName
from sharegroup.steps import STEP_MASK, Steps

PATTERNS_KEPT_MAX = 100
"""Patterns in the cache; the one that was used least recently is dropped."""

STEPS_FREE = 200_000
STEPS_PER_NAME_MAX = 2_000
"""Steps of a pattern's automaton that are allowed: so many, and so many more for each topic."""

STEPS_PER_SLICE = 5_000
"""Steps of automata after which other requests get their turn, about a millisecond."""


class TopicPatterns:
    """The topics that match each pattern, for the current topics of the catalog."""

    __slots__ = ("_catalog", "_matches")

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._matches: dict[str, tuple[int, frozenset[TopicName]]] = {}

    def known(self, pattern: str) -> frozenset[TopicName] | None:
        """Return the topics that match a pattern; None if it must be matched first."""
        found = self._matches.pop(pattern, None)
        if found is None or found[0] != self._catalog.topics_version:
            return None
        self._matches[pattern] = found  # At the end: it was used most recently.
        return found[1]

    def match(self, patterns: Iterable[str]) -> Steps[None]:
        """Match patterns with all topics; raise InvalidRegularExpression for an invalid one."""
        for pattern in patterns:
            if self.known(pattern) is None:
                version = self._catalog.topics_version
                found = yield from _matching(pattern, tuple(self._catalog.names))
                if len(self._matches) >= PATTERNS_KEPT_MAX:
                    del self._matches[next(iter(self._matches))]
                self._matches[pattern] = (version, found)


def _matching(pattern: str, names: tuple[TopicName, ...]) -> Steps[frozenset[TopicName]]:
    compiled = TopicPattern(pattern)
    allowed = STEPS_FREE + STEPS_PER_NAME_MAX * len(names)
    found: list[TopicName] = []
    pause_at = STEPS_PER_SLICE
    for index, name in enumerate(names):
        if compiled.matches(name):
            found.append(name)
        if compiled.steps_taken > allowed:
            raise InvalidRegularExpression(
                f"regular expression {pattern[:200]!r} takes too long to match; use a simpler one"
            )
        if index & STEP_MASK == STEP_MASK or compiled.steps_taken > pause_at:
            pause_at = compiled.steps_taken + STEPS_PER_SLICE
            yield
    return frozenset(found)
