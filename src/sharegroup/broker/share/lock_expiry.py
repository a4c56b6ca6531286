"""Releases records whose acquisition locks have expired: one heap and one timer for all of them.

It ends the delays of released records (`core.delivery.redelivery`), too. Each share partition knows
when its first lock or delay ends (`SharePartition.next_expiry_ms`) and has at most one current
entry here.  So a hundred thousand locks cost one entry, not as many timers.
If the lock was renewed or settled, its entry is due too early and is rescheduled then.  If an
entry would be due too late, a new entry replaces it.

An entry does not keep its share partition in memory.  A member that opens and closes its session
again and again loads the share partition each time.  The entries stay until the locks would have
expired: with 4,000 runs each, 60 a second for half a minute.  Stale entries are dropped when they
are the majority.

Times are those of the monotonic clock.  Setting the wall clock moves no lock.  While the process is
stopped (SIGSTOP), time continues, and locks that expired meanwhile are released when it resumes.
An acknowledgement that comes after the deadline but before the release is still refused, because
it is compared with the deadline (`acknowledgement.check_held`).

So the release need not happen all at once.  200,000 runs would take the event loop for seconds;
they are released `RUNS_AT_ONCE` at a time, and after `TURN_MS` others have their turn.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from weakref import ref

from sharegroup.broker.clock import Alarm, Clock
from sharegroup.broker.load.request_counters import Distribution
from sharegroup.broker.share.live_share_partition import LiveSharePartition

RUNS_AT_ONCE = 500
"""Maximum number of runs that one call releases, which takes about five milliseconds."""

PAUSE_MS = 20
"""Pause between two checks of one share partition's locks, unless more are due.  Locks that expire
a millisecond apart are released together, with one write, and not much later."""

ENTRIES_MIN = 256
"""Stale entries are not dropped below this number of entries."""

TURN_MS = 10
"""Time after which the timer gives way to the event loop; it continues as soon as possible."""


class LockExpiry:
    """Calls ``expire`` for share partitions with expired locks, for `RUNS_AT_ONCE` runs at a
    time.
    """

    __slots__ = ("_alarm", "_clock", "_due", "_entries_max", "_expire", "_order", "lateness")

    def __init__(self, clock: Clock, expire: Callable[[LiveSharePartition, int], None]) -> None:
        self._alarm = Alarm(clock, self._expire_due)
        self._clock = clock
        self._expire = expire
        self._due: list[tuple[int, int, ref[LiveSharePartition]]] = []
        self._entries_max = ENTRIES_MIN
        """With more entries, the stale ones are dropped."""
        self._order = count()
        self.lateness = Distribution()
        """The delays in seconds from the expiry of a first lock to its check."""

    def watch(self, live: LiveSharePartition, lock_deadline_ms: int) -> None:
        """Schedule a check for when the first lock of ``live`` expires.

        The locks that are not watched yet have the deadline ``lock_deadline_ms`` or a later one.
        """
        # The usual case: older locks end before, and their check schedules the next one.
        if live.expiry_ms is not None and live.expiry_ms <= lock_deadline_ms:
            return
        self.schedule(live)

    def schedule(self, live: LiveSharePartition) -> None:
        """Schedule a check for when the first lock or delay of ``live`` ends."""
        expiry_ms = live.state.next_expiry_ms()
        if expiry_ms is None:
            return
        # An earlier lock was left over by a check that reached `RUNS_AT_ONCE`, and must not wait
        # for the pause.
        if expiry_ms > live.swept_ms:
            expiry_ms = max(expiry_ms, live.swept_ms + PAUSE_MS)
        if live.expiry_ms is not None and live.expiry_ms <= expiry_ms:
            return
        live.expiry_ms = expiry_ms
        # The number decides between equal times, because references cannot be compared.
        heapq.heappush(self._due, (expiry_ms, next(self._order), ref(live)))
        if len(self._due) > self._entries_max:
            self._due = [entry for entry in self._due if _leads_somewhere(entry[0], entry[2]())]
            heapq.heapify(self._due)
            self._entries_max = max(ENTRIES_MIN, 2 * len(self._due))
        self._alarm.set(self._due[0][0])

    def stop(self) -> None:
        """Release nothing more."""
        self._alarm.stop()

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._due)

    def _expire_due(self) -> None:
        """Release the expired locks of all share partitions that are due, for up to `TURN_MS`."""
        began_ms = now_ms = self._clock.now_ms()
        while self._due and self._due[0][0] <= now_ms < began_ms + TURN_MS:
            live = heapq.heappop(self._due)[2]()
            # A share partition that was dropped has no locks any more; its successor has its own
            # entry.
            if live is not None and not live.fenced:
                # This entry is used up, so `schedule` may add the next one.
                live.expiry_ms, live.swept_ms = None, now_ms
                ended_ms = live.state.next_expiry_ms()
                if ended_ms is not None and ended_ms <= now_ms:
                    self.lateness.observe((now_ms - ended_ms) / 1000)
                self._expire(live, now_ms)
                self.schedule(live)
            now_ms = self._clock.now_ms()
        if self._due:
            self._alarm.set(self._due[0][0])


def _leads_somewhere(due_ms: int, live: LiveSharePartition | None) -> bool:
    """Return whether an entry is the current one of its share partition."""
    return live is not None and not live.fenced and live.expiry_ms == due_ms
