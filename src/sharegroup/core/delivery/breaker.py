"""A circuit breaker of a share group: when too many records fail, delivery stops and is tried.

    CLOSED ──too many of the last records failed──▶ OPEN ──the pause is over──▶ PROBING
       ▲                                             ▲                            │
       │                                             └───────a record failed──────┤
       └──────────────────────a record was accepted───────────────────────────────┘

A bad deployment of a handler would otherwise move a whole topic into the dead letters, record by
record (KIP-1316 worries about that).  A record fails if a member rejects it or if it reaches the
delivery count limit.  A record that the log cannot read says nothing about the handlers, so it
does not count.

While the breaker is open, nothing is acquired.  While it probes, one record is acquired at a time.
If its outcome does not come within the pause, for example because its member has died, another one
is acquired; at once, if the member found no record there.  The outcome of any record counts, also
of one that was held before.

The breaker is in memory only.  A new one probes, because after a restart nobody knows how it was.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

PROBE_RECORDS = 1


class BreakerState(Enum):
    """See the module's text."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """The configuration of a group's breaker.

    It opens when ``percent`` of the last ``window`` records failed, and probes ``pause_ms`` later.
    """

    percent: int
    window: int
    pause_ms: int


class Breaker:
    """The breaker of one group; it remembers at most ``window`` outcomes."""

    __slots__ = ("_failed", "_forgotten", "_outcomes", "_seen", "_stopped_ms", "state")

    def __init__(self) -> None:
        self.state = BreakerState.PROBING
        self._outcomes: deque[tuple[int, int]] = deque()
        """Numbers of records that ended together, the oldest first, and how many failed."""
        self._forgotten = 0
        """Number of the oldest records that ended together which are beyond the window."""
        self._seen = 0
        self._failed = 0
        """Number of failed records in `_outcomes`."""
        self._stopped_ms: int | None = None
        """When the pause before the next probe began; None: there is no pause."""

    def room(self, limits: BreakerLimits, now_ms: int) -> int | None:
        """Return how many records may be acquired now; None means any number."""
        if self.state is BreakerState.CLOSED:
            return None
        return 0 if now_ms < self.next_probe_ms(limits) else PROBE_RECORDS

    def next_probe_ms(self, limits: BreakerLimits) -> int:
        """Return the time from which on a probe may be acquired; 0 if there is no pause."""
        # The pause of this moment counts: who has set it to an hour may think better of it.
        return 0 if self._stopped_ms is None else self._stopped_ms + limits.pause_ms

    def acquired(self, now_ms: int) -> None:
        """Note that records were acquired; while it is not closed, they are a probe."""
        if self.state is not BreakerState.CLOSED:
            self.state = BreakerState.PROBING
            self._stopped_ms = now_ms

    def settled(
        self, accepted: int, failed: int, limits: BreakerLimits, now_ms: int, *, absent: int = 0
    ) -> bool:
        """Note how records ended; return whether the state has changed, or the next probe is due.

        ``absent`` is the number of acquired offsets that had no record, like that of the end of a
        transaction: they say nothing about the handlers, so a probe of one is repeated.

        A request settles up to thousands of them; if that is more than the window, its part that
        failed counts.
        """
        match self.state:
            case BreakerState.PROBING if failed:
                return self._open(now_ms)
            case BreakerState.PROBING if accepted:
                self.state, self._stopped_ms = BreakerState.CLOSED, None
                return True
            case BreakerState.PROBING if absent:
                self._stopped_ms = None
                return True
            case BreakerState.CLOSED:
                failed = self._remember(accepted + failed, failed, window=limits.window)
                is_bad = failed * 100 >= limits.percent * limits.window
                return is_bad and self._open(now_ms)
            case _:
                return False  # What was held when it opened.

    def _open(self, now_ms: int) -> bool:
        self.state = BreakerState.OPEN
        self._stopped_ms = now_ms
        self._outcomes.clear()
        self._seen = self._failed = self._forgotten = 0
        return True

    def _remember(self, count: int, failed: int, *, window: int) -> int:
        """Add outcomes, forget the oldest ones beyond the window; return how many left failed."""
        if count:
            self._outcomes.append((count, failed))
            self._seen += count
            self._failed += failed
        # Also without new ones: the window may have become smaller.
        while (excess := self._seen - window) > 0:
            oldest, oldest_failed = self._outcomes[0]
            left = oldest - self._forgotten
            if left <= excess:
                self._outcomes.popleft()
                self._seen -= left
                self._failed -= oldest_failed
                self._forgotten = 0
            else:
                self._forgotten += excess
                self._seen = window
        if not self._forgotten:
            return self._failed
        oldest, oldest_failed = self._outcomes[0]
        # Rounded from what ended together, not from call to call, which would add up.
        kept = (2 * oldest_failed * (oldest - self._forgotten) + oldest) // (2 * oldest)
        return self._failed - oldest_failed + kept
