"""The names of what runs beside the share group of `tests.faults.worker_chaos.app`."""

from __future__ import annotations

from enum import StrEnum

APP = "chaos"
KEYED, OUTPUTS, TICKS, LATER = "chaos.keyed", "chaos.outputs", "chaos.ticks", "chaos.later"
PLAIN, EXACT, SINK = "chaos.plain", "chaos.exact", "chaos.sink"
"""The consumer groups, and the group that reads `OUTPUTS`; the others have their topic's name."""
CANCELLED = f"{LATER}.dead"
KEYS, PARTITIONS = 200, 6
SCHEDULES = 12
STEERED_SCHEDULES = 2
"""The first of them are paused, resumed and run by commands."""
CUT, ENDING = "CHAOS_CUT", "ending"


class Point(StrEnum):
    """Where in a transaction a process ends itself."""

    PRODUCED = "produced"
    """The records are written, the offsets are not."""
    OFFSETS = "offsets"
    """The offsets are written, and the coordinator was not asked to commit."""
    ENDING = "ending"
    """The request to commit is under way."""
    COMMITTED = "committed"
    """The coordinator has answered, and the worker does not know yet."""
