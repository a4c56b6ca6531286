"""The topics that a mover writes to: which of them take writes now, and from when the others do.

    open --a write fails--> closed for a while, longer each time --a write succeeds--> open
      `--writes begin, and are not acknowledged in time--> busy --they end--> open or closed

The records for a topic that is closed or busy go back to the shelf, and the others go on.  When
the topic is open again, they are written in the order of their due times (`shelf`).

Times are milliseconds of the process's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import NamedTuple

from sharegroup.errors import InvalidRecord, MessageTooLarge

ITS_OWN_FAULT = (MessageTooLarge, InvalidRecord)
"""Errors that concern one record only, so its topic takes the others."""
BACKOFF_MS = 500
BACKOFF_MS_MAX = 30_000


class Closed(NamedTuple):
    """A topic whose latest writes have failed, or are not acknowledged yet."""

    since_ms: int
    until_ms: int


class Targets:
    """The states of the topics that the records of one partition go to."""

    __slots__ = ("_busy", "_closed", "_refused", "_waiting")

    def __init__(self) -> None:
        # Both are bounded by the number of tiers.
        self._closed: dict[str, Closed] = {}
        self._busy: dict[str, int] = {}
        """The topics with pending writes, and since when."""
        # Bounded by the records of the shelf.
        self._waiting: dict[str, set[int]] = {}
        """The offsets of the records that wait for a topic."""
        self._refused: dict[int, int] = {}
        """The records that were refused for a fault of their own, by offset, and since when."""

    def again_ms(self, topic: str, now_ms: int) -> int | None:
        """Return when to look again at a topic that takes no writes now; None if it does."""
        busy_since_ms = self._busy.get(topic)
        if busy_since_ms is not None:
            return _again_ms(busy_since_ms, now_ms)
        closed = self._closed.get(topic)
        return None if closed is None or closed.until_ms <= now_ms else closed.until_ms

    def begin(self, topic: str, now_ms: int) -> None:
        """Note that writes to a topic begin; no others do until `end`."""
        assert topic not in self._busy, "records for a topic with pending writes wait"
        self._busy[topic] = now_ms

    def end(self, topic: str) -> None:
        """Note that no write to a topic is pending."""
        del self._busy[topic]

    def failed(self, topic: str, now_ms: int) -> int:
        """Note that a write failed; returns when the next attempt may begin."""
        # The pause is as long as the writes have failed so far, so it doubles each time,
        # independent of how many records fail at once.
        closed = self._closed.get(topic)
        since_ms = now_ms if closed is None else closed.since_ms
        until_ms = _again_ms(since_ms, now_ms)
        self._closed[topic] = Closed(since_ms, until_ms)
        return until_ms

    def refused(self, offset: int, now_ms: int) -> int:
        """Note that a record cannot be written; returns when its next attempt may begin."""
        return _again_ms(self._refused.setdefault(offset, now_ms), now_ms)

    def wait(self, topic: str, offset: int) -> None:
        """Note that a record waits for a topic."""
        self._waiting.setdefault(topic, set()).add(offset)

    def succeeded(self, topic: str, offsets: Collection[int]) -> Set[int]:
        """Note that these records were written to a topic; returns those that waited for it."""
        self._closed.pop(topic, None)
        if self._refused:
            for offset in offsets:
                self._refused.pop(offset, None)
        if not self._waiting:
            return frozenset()
        for others in self._waiting.values():
            # Some have waited for another topic before, until they were due.
            others.difference_update(offsets)
        return self._waiting.pop(topic, frozenset())


def _again_ms(since_ms: int, now_ms: int) -> int:
    return now_ms + max(BACKOFF_MS, min(now_ms - since_ms, BACKOFF_MS_MAX))
