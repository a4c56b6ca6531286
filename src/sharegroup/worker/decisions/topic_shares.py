"""Divides the room of a handler among its topics by their weights; pure.

Each topic has a virtual time, which a record moves ahead by 1 / weight.  Among topics with a
backlog, the one that is furthest behind takes the next records::

    urgent, weight 4    0   1/4   2/4   3/4    1     ...   so it takes 4 records
    bulk,   weight 1    0    1                             for each record of this one

No topic starves, because the others move ahead of it.  A topic without a backlog holds up no other,
and gains nothing from the time in which it had none.
"""

from __future__ import annotations

from collections.abc import Mapping


class TopicShares:
    """The weights of the topics of one handler, and how far each of them is."""

    __slots__ = ("_backlogged", "_times", "_weights")

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = dict(weights)
        self._times = dict.fromkeys(weights, 0.0)
        self._backlogged: set[str] = set()
        """The topics whose last take was limited by its room."""

    def room(self, topic: str, room: int) -> int:
        """How many of ``room`` records to take from a topic now."""
        others = self._backlogged - {topic}
        if not others:
            # In parts, because records of each topic are taken independently.
            return -(-room // len(self._weights))
        if self._times[topic] > min(self._times[other] for other in others):
            return 0
        if room <= 0:
            return 0
        weight = self._weights[topic]
        total = weight + sum(self._weights[other] for other in others)
        return max(1, room * weight // total)

    def holds_up(self, topic: str) -> bool:
        """Whether other topics may have to wait while this one takes."""
        return topic in self._backlogged

    def took(self, topic: str, *, asked: int, got: int) -> bool:
        """Note a take; returns whether others may take now that could not before."""
        was_backlogged = topic in self._backlogged
        if got:
            others = self._backlogged - {topic}
            start = self._times[topic]
            if others and not was_backlogged:
                start = max(start, min(self._times[other] for other in others))
            self._times[topic] = start + got / self._weights[topic]
        if got >= asked:
            self._backlogged.add(topic)
        else:
            self._backlogged.discard(topic)
        return bool(got) or was_backlogged
