"""Converts the due times of delayed records between the stored wall clock and the broker's clock.

While the broker runs, delays go by its monotonic clock, so a jump of the wall clock neither ends
nor extends them. The stored due times are of the wall clock, because they must survive a restart.
If the clock was wrong then or is wrong now, a delay may end at once, or last for `DELAY_MS_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.broker.clock import Clock
from sharegroup.core.delivery.delivery import Delta, StateBatch, still_due
from sharegroup.protocol_enums import DELAY_MS_MAX

DRIFT_MS_MAX = 1_000
"""Drift of the two clocks below which their distance is not taken anew.

Due times that are equal in memory would otherwise differ by a millisecond in the log, and be runs
of their own.
"""


class DueTimes:
    """Converts due times; knows how far the broker's two clocks are apart."""

    __slots__ = ("_ahead_ms", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = clock.wall_ms() - clock.now_ms()

    def stored(self, delta: Delta) -> Delta:
        """Return a change with the due times of the wall clock."""
        ahead_ms = self._wall_ahead_ms()
        batches = tuple(
            batch._replace(due_ms=batch.due_ms + ahead_ms) if batch.due_ms else batch
            for batch in delta.batches
        )
        return delta._replace(batches=batches)

    def loaded(self, batches: Iterable[StateBatch]) -> list[StateBatch]:
        """Return stored batches with the due times of the broker's clock, without passed ones."""
        ahead_ms, now_ms = self._wall_ahead_ms(), self._clock.now_ms()
        last_ms = now_ms + DELAY_MS_MAX
        return [
            batch._replace(due_ms=min(batch.due_ms - ahead_ms, last_ms)) if batch.due_ms else batch
            for batch in still_due(batches, now_ms + ahead_ms)
        ]

    def _wall_ahead_ms(self) -> int:
        """Return the distance of the wall clock from the monotonic clock."""
        ahead_ms = self._clock.wall_ms() - self._clock.now_ms()
        if abs(ahead_ms - self._ahead_ms) > DRIFT_MS_MAX:
            self._ahead_ms = ahead_ms
        return self._ahead_ms
