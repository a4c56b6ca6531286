"""Gives back what was held for too long: one heap and one timer for all share partitions.

Each share partition knows when its first lock ends (`SharePartition.next_expiry_ms`) and has
at most one entry here for it, so a hundred thousand locks cost one entry, not as many timers.
An entry that comes too soon, because the lock was renewed or settled, is put off when it comes
up; one that would come too late is overtaken by a new one.

Time is the monotonic clock's.  Setting the wall clock moves no lock, and while the process is
stopped (SIGSTOP) the time goes on: what ended meanwhile is given back when it runs again.  An
acknowledgement that comes before this module does is refused all the same, because the lock's
end is compared with the time and not with what was swept (`acknowledgement.check_held`).

So giving back need not happen all at once.  200,000 runs would take the event loop for seconds;
they are given back `RUNS_AT_ONCE` at a time, and after `TURN_MS` others have their turn.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from sharegroup.broker.clock import Alarm, Clock
from sharegroup.broker.distribution import Distribution
from sharegroup.broker.share.live_share_partition import LiveSharePartition

RUNS_AT_ONCE = 500
"""Given back by one call, which takes about five milliseconds and makes one state record."""

PAUSE_MS = 20
"""Between two looks at the locks of one share partition, unless there is more to give back: what
ends a millisecond apart is given back together, with one write, and not much later."""

TURN_MS = 10
"""After so long the timer lets the event loop go on, and comes again at once."""


class LockExpiry:
    """See the module's text; ``expire`` gives back up to `RUNS_AT_ONCE` runs that are due."""

    __slots__ = ("_alarm", "_clock", "_due", "_expire", "_order", "lateness")

    def __init__(self, clock: Clock, expire: Callable[[LiveSharePartition, int], None]) -> None:
        self._alarm = Alarm(clock, self._give_back)
        self._clock = clock
        self._expire = expire
        self._due: list[tuple[int, int, LiveSharePartition]] = []
        self._order = count()
        self.lateness = Distribution()
        """In seconds, by how much the first lock had ended when a share partition was swept."""

    def watch(self, live: LiveSharePartition) -> None:
        """See that somebody comes by when the first lock of ``live`` ends."""
        expiry_ms = live.state.next_expiry_ms()
        if expiry_ms is None:
            return
        if expiry_ms > live.swept_ms:
            expiry_ms = max(expiry_ms, live.swept_ms + PAUSE_MS)
        if live.expiry_ms is not None and live.expiry_ms <= expiry_ms:
            return
        live.expiry_ms = expiry_ms
        heapq.heappush(self._due, (expiry_ms, next(self._order), live))
        self._alarm.set(self._due[0][0])

    def _give_back(self) -> None:
        began_ms = now_ms = self._clock.now_ms()
        while self._due and self._due[0][0] <= now_ms < began_ms + TURN_MS:
            _, _, live = heapq.heappop(self._due)
            if not live.fenced:
                live.expiry_ms, live.swept_ms = None, now_ms
                ended_ms = live.state.next_expiry_ms()
                if ended_ms is not None and ended_ms <= now_ms:
                    self.lateness.observe((now_ms - ended_ms) / 1000)
                self._expire(live, now_ms)
                self.watch(live)
            now_ms = self._clock.now_ms()
        if self._due:
            self._alarm.set(self._due[0][0])
