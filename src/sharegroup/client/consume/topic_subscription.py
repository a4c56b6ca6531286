"""The subscription of a plain consumer: names of topics, or a pattern that topics must match."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """Names of topics or a pattern; without any of them this is no subscription."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    """A pattern that this client applies to the names of all topics."""
    broker_pattern: str | None = None
    """A pattern in RE2 syntax that the group coordinator applies (KIP-848)."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.pattern is not None or self.broker_pattern is not None)

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """Return those of these topics that the subscription has."""
        if self.pattern is not None:
            matches = self.pattern.fullmatch
            return frozenset(name for name in names if matches(name))
        return self.topics.intersection(names)
