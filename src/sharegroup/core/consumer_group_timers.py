"""What is due when, in all consumer groups together: one heap, however many members.

A heartbeat only notes the new time; the heap keeps an older, earlier entry until that comes up
and is then told the truth.  So a heartbeat costs a dictionary entry, and the heap has about one
entry for each timer.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from sharegroup.ids import GroupId, MemberId

UNTRUE_ENTRIES_MIN = 64
"""The heap is not worth making anew below this number of entries that lead nowhere."""


class Timer(NamedTuple):
    """A member's session, or with the member id "" the phase that its group is in.

    A group waits for members to join or for them to sync, never for both.
    """

    group_id: GroupId
    member_id: MemberId


class Timers:
    """See the module's text."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[Timer, int] = {}
        self._heap: list[tuple[int, Timer]] = []

    def __len__(self) -> int:
        return len(self._due)

    @property
    def entries(self) -> int:
        """What the heap holds, untrue entries included."""
        return len(self._heap)

    def set(self, timer: Timer, *, due_ms: int) -> None:
        """Let it be due then, whatever was noted before."""
        known_ms = self._due.get(timer)
        self._due[timer] = due_ms
        if known_ms is None or due_ms < known_ms:
            heappush(self._heap, (due_ms, timer))
            if len(self._heap) > 2 * len(self._due) + UNTRUE_ENTRIES_MIN:
                self._heap = [(due_ms, known) for known, due_ms in self._due.items()]
                heapify(self._heap)

    def cancel(self, timer: Timer) -> None:
        """It is not waited for any more, if it was."""
        self._due.pop(timer, None)

    def due_ms(self, timer: Timer) -> int | None:
        """When it is due; None while it is not set."""
        return self._due.get(timer)

    def next_ms(self) -> int | None:
        """When the first one is due; None while there is none."""
        while self._heap:
            entry_ms, timer = self._heap[0]
            due_ms = self._due.get(timer)
            if due_ms == entry_ms:
                return entry_ms
            if due_ms is None or due_ms < entry_ms:  # Gone, or another entry has it.
                heappop(self._heap)
            else:
                heapreplace(self._heap, (due_ms, timer))
        return None

    def pop(self, now_ms: int) -> Timer | None:
        """The first that is due by now; it is not set any more."""
        first_ms = self.next_ms()
        if first_ms is None or first_ms > now_ms:
            return None
        _, timer = heappop(self._heap)
        del self._due[timer]
        return timer
