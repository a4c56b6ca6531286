"""The time that decides what has expired: the wall clock, except for a while after it jumps ahead.

Retention deletes records, offsets and ids by the wall clock.  A clock that is a year ahead for five
seconds would delete all of them.  The monotonic clock does not jump, so the difference of the two
shows a jump:

    wall      ─────────────┐        ┌──────────  a year ahead for some seconds
                           └── ... ─┘
    expiry    ─────────────────────────────────  goes on as before the jump

After `PAUSE_MS` the new time is believed, because a clock may also be set right by a jump.  A
broker that starts compares with the time of the last write to its data directory.  A long stop
looks like a jump: then expiry begins `PAUSE_MS` after the start.

A jump back deletes nothing, so it is believed at once.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

JUMP_MS = 60_000
"""How far the wall clock may be ahead of the monotonic clock from one reading to the next."""

STOP_MS = 24 * 3_600_000
"""How long the last write to the data directory may lie back at the start."""

PAUSE_MS = 15 * 60_000
"""How long a jump ahead is not believed.  Clocks are corrected in the first minutes of a start."""


class Phase(Enum):
    """What a reading has found out about a jump."""

    BEGAN = "began"
    BELIEVED = "believed"
    """The clock has stayed ahead for `PAUSE_MS`."""
    OVER = "over"
    """The clock is back."""


class Jump(NamedTuple):
    """A change that an operator should see."""

    phase: Phase
    ahead_ms: int


class ExpiryTime:
    """Follows the wall clock, except for `PAUSE_MS` after each jump ahead."""

    __slots__ = ("_began_ms", "_jumped_ms", "_offset_ms")

    def __init__(self, *, now_ms: int, wall_ms: int, last_write_ms: int | None) -> None:
        """Begin at a monotonic and a wall time; ``last_write_ms`` is None without former writes."""
        is_late = last_write_ms is not None and wall_ms - last_write_ms > STOP_MS
        believed_ms = last_write_ms if is_late and last_write_ms is not None else wall_ms
        self._offset_ms = believed_ms - now_ms
        """The believed wall time at monotonic zero."""
        self._began_ms: int | None = None
        """When the jump was noticed; None without a jump."""
        self._jumped_ms = 0
        """The wall time at monotonic zero that is not believed yet."""

    def read(self, *, now_ms: int, wall_ms: int) -> tuple[int, Jump | None]:
        """Return the wall time by which things expire, and what has changed."""
        offset_ms = wall_ms - now_ms
        ahead_ms = offset_ms - self._offset_ms
        jump = None
        if ahead_ms <= JUMP_MS:
            jump = None if self._began_ms is None else Jump(Phase.OVER, ahead_ms)
            self._believe(offset_ms)
        # A further jump ahead begins the wait anew.
        elif self._began_ms is None or offset_ms - self._jumped_ms > JUMP_MS:
            self._began_ms, self._jumped_ms = now_ms, offset_ms
            jump = Jump(Phase.BEGAN, ahead_ms)
        elif now_ms - self._began_ms >= PAUSE_MS:
            jump = Jump(Phase.BELIEVED, ahead_ms)
            self._believe(offset_ms)
        return now_ms + self._offset_ms, jump

    def _believe(self, offset_ms: int) -> None:
        self._offset_ms, self._began_ms = offset_ms, None
