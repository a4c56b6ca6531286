"""Tiers: how a record waits for any length of time in topics that are read in order.

A topic of one fixed delay needs no index: who came first is due first.  A delay that is no
tier's walks down them, each time to the largest that fits what is left of it:

    7 h 3 s      6h ---> 1h ---> due ---> the group's own topic
                 6 h     1 h     3 s

What is left below the smallest tier waits in the topic ``due``, whose reader keeps its records
in a heap; it is small, because nothing stays there longer than the smallest tier.

A record never runs early.  It may run late by `LATE_SHARE` of its whole delay: a tier also takes
what is due a little before its time is over, since each step less is a write less, and since 1 h
that was decided 2 ms ago should still go to the tier of 1 h.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sharegroup.worker.declared.names import due_topic, own_topic, tier_topic
from sharegroup.worker.declared.route import RETRY_TIERS
from sharegroup.worker.durations import UNITS, Duration, seconds

LATE_SHARE = 0.02
"""Of the whole delay; what is promised is five times as much, or 100 ms."""
LATE_MS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Tier:
    """One fixed delay."""

    name: str
    delay_ms: int

    def topic(self, group: str) -> str:
        """Where records of this group wait for so long."""
        return tier_topic(group, self.name)


@dataclass(frozen=True, slots=True)
class Tiers:
    """A group's tiers, the longest first; `of` makes them."""

    tiers: tuple[Tier, ...]

    @staticmethod
    def of(delays: Iterable[Duration]) -> Tiers:
        """Tiers of these delays, in any order, each at least a millisecond."""
        found = sorted({round(seconds(delay) * 1000) for delay in delays}, reverse=True)
        if not found or found[-1] < 1:
            raise ValueError(f"retry tiers: expected delays of 1 ms or more, got {found} in ms")
        return Tiers(tuple(Tier(_name(delay_ms), delay_ms) for delay_ms in found))

    def next_topic(self, group: str, left_ms: int, delay_ms: int) -> str:
        """Where a record goes that is due in ``left_ms``, after ``delay_ms`` in all."""
        if left_ms <= 0:
            return own_topic(group)
        # Half of what is left: so short a rest is one step to ``due``, and precise there.
        late_ms = min(round(delay_ms * LATE_SHARE), LATE_MS_MAX, left_ms // 2)
        for tier in self.tiers:
            if tier.delay_ms <= left_ms + late_ms:
                return tier.topic(group)
        return due_topic(group)

    def topics(self, group: str) -> tuple[str, ...]:
        """Every topic where records of this group wait, ``due`` among them."""
        return (*(tier.topic(group) for tier in self.tiers), due_topic(group))

    def delay_ms(self, group: str, topic: str) -> int | None:
        """The delay of the tier with this topic; None: it is not one of a fixed delay."""
        for tier in self.tiers:
            if tier.topic(group) == topic:
                return tier.delay_ms
        return None


def _name(delay_ms: int) -> str:
    """As short as it can be said in the units of `durations`: 5s, 2m, 1h30m, 1s500ms."""
    name = ""
    for unit, length_seconds in UNITS.items():
        count, delay_ms = divmod(delay_ms, round(length_seconds * 1000))
        if count:
            name += f"{count}{unit}"
    return name


TIERS = Tiers.of(RETRY_TIERS)
