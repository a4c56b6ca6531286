"""The runs of a share partition as ``sharegroup groups inspect`` shows them, from either source.

A run is a range of offsets with the same state. Both of its offsets are inclusive, as in Kafka's
tools and requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

AVAILABLE = "available"
ACQUIRED = "acquired"
ACKNOWLEDGED = "acknowledged"
ARCHIVING = "archiving"
ARCHIVED = "archived"
STATES = (AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED)

RUNS_MAX = 1_000
"""The default number of runs of a share partition that are shown."""


@dataclass(frozen=True, slots=True)
class ShownRun:
    """Offsets ``first_offset`` to ``last_offset`` with one state and delivery count."""

    first_offset: int
    last_offset: int
    state: str
    delivery_count: int
    member_id: str | None = None
    """The member that holds the acquisition lock; None unless the records are acquired."""
    lock_ms_left: int | None = None
    """The remaining time of the lock; None unless the records are acquired."""

    @property
    def count(self) -> int:
        """The number of offsets."""
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class ShownSharePartition:
    """A share partition with its runs, or with the first of them."""

    topic: str
    partition: int
    start_offset: int | None
    """None: the group has no offset yet, because no member has fetched from the partition."""
    end_offset: int | None
    """The first offset that was never delivered."""
    high_watermark: int
    run_count: int
    """The number of all runs, also of those that were left out."""
    runs: Sequence[ShownRun]

    @property
    def left_out(self) -> int:
        """The number of runs that are not in ``runs``."""
        return self.run_count - len(self.runs)

    def row(self, group: str) -> dict[str, Any]:
        """Return the share partition as a row of JSON."""
        return {"group": group, **asdict(self)}
