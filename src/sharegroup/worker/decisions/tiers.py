"""Tiers: the retry topics of fixed delays, through which a record can wait for any delay.

A topic of one fixed delay needs no index, because records are due in log order.  A record with
another delay passes through several tiers, each time the largest that fits its remaining delay:

    7 h 3 s      6h ---> 1h ---> due ---> the group's own topic
                 6 h     1 h     3 s

A remaining delay below the smallest tier is spent in the topic ``due``, whose reader keeps its
records in a heap.  The heap is small, because no record stays there longer than the smallest tier.

A record never runs early.  It may run late by `LATE_SHARE` of its whole delay, because a tier also
takes records whose remaining delay is slightly shorter than its own.  This saves writes, and a
delay of 1 h that was decided 2 ms ago still goes to the tier of 1 h.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sharegroup.dead_letters.topics import own_topic
from sharegroup.durations import UNITS, Duration, seconds
from sharegroup.waiting.retry_topics import due_topic, tier_topic
from sharegroup.worker.declarations.route import RETRY_TIERS

LATE_SHARE = 0.02
"""Maximum lateness of a record, as a part of its tier's delay; docs/retry-and-dead-letters.md."""
LATE_MS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Tier:
    """A tier: a fixed delay and its name."""

    name: str
    delay_ms: int

    def topic(self, group: str) -> str:
        """Return the retry topic of this tier for a group."""
        return tier_topic(group, self.name)


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers of a group, the longest delay first; made by `of`."""

    tiers: tuple[Tier, ...]

    @staticmethod
    def of(delays: Iterable[Duration]) -> Tiers:
        """Return tiers of these delays, given in any order; each must be at least 1 ms."""
        delays_ms = sorted({round(seconds(delay) * 1000) for delay in delays}, reverse=True)
        if not delays_ms or delays_ms[-1] < 1:
            raise ValueError(f"retry tiers: expected delays of 1 ms or more, got {delays_ms} in ms")
        return Tiers(tuple(Tier(_name(delay_ms), delay_ms) for delay_ms in delays_ms))

    def next_topic(self, group: str, left_ms: int, delay_ms: int) -> str:
        """Return the next topic of a record that is due in ``left_ms``, of a total ``delay_ms``."""
        if left_ms <= 0:
            return own_topic(group)
        # At most half of the remaining delay, so a short rest goes to ``due``, which is precise.
        late_ms = min(round(delay_ms * LATE_SHARE), LATE_MS_MAX, left_ms // 2)
        for tier in self.tiers:
            if tier.delay_ms <= left_ms + late_ms:
                return tier.topic(group)
        return due_topic(group)

    def topics(self, group: str) -> tuple[str, ...]:
        """Return all retry topics of this group, including ``due``."""
        return (*(tier.topic(group) for tier in self.tiers), due_topic(group))

    def delay_ms(self, group: str, topic: str) -> int | None:
        """Return the delay of the tier with this topic; None if the topic has no fixed delay."""
        for tier in self.tiers:
            if tier.topic(group) == topic:
                return tier.delay_ms
        return None


def _name(delay_ms: int) -> str:
    """Return the shortest text for a delay in the units of `durations`: 5s, 2m, 1h30m, 1s500ms."""
    name = ""
    for unit, length_seconds in UNITS.items():
        count, delay_ms = divmod(delay_ms, round(length_seconds * 1000))
        if count:
            name += f"{count}{unit}"
    return name


TIERS = Tiers.of(RETRY_TIERS)
