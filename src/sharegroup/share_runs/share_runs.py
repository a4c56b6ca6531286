"""The runs of a share partition: ranges of offsets with one state and one delivery count.

Both offsets of a run are inclusive, as in Kafka's tools and requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sharegroup.client.admin.types import ShareRun

AVAILABLE = "available"
ACQUIRED = "acquired"
ACKNOWLEDGED = "acknowledged"
ARCHIVING = "archiving"
ARCHIVED = "archived"
DELAYED = "delayed"
STATES = (AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED, DELAYED)

NEVER_DELIVERED, RETURNED, UNKNOWN = "never delivered", "returned", "not shown"
PRECEDENCE = (
    *(ACQUIRED, RETURNED, ARCHIVING, ARCHIVED, ACKNOWLEDGED),
    *(NEVER_DELIVERED, UNKNOWN),
)
"""What a drawing tells apart.  If two states of a cell are equally frequent, the first is shown."""


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
    runs: Sequence[ShareRun]

    @property
    def left_out(self) -> int:
        """The number of runs that are not in ``runs``."""
        return self.run_count - len(self.runs)

    @property
    def all_runs(self) -> tuple[ShareRun, ...]:
        """The runs, and on the last page the available records behind them, which have none."""
        end = self.end_offset
        if end is None or end >= self.high_watermark:
            return tuple(self.runs)
        if self.runs and self.runs[-1].last_offset + 1 < end:
            return tuple(self.runs)
        return (*self.runs, ShareRun(end, self.high_watermark - 1, AVAILABLE, 0))

    def counts(self) -> Counter[str]:
        """Return the number of offsets in each state of `PRECEDENCE`."""
        counts: Counter[str] = Counter()
        if self.start_offset is not None and self.end_offset is not None:
            end = max(self.high_watermark, self.end_offset)
            for first, run_end, state in stretches(self, end):
                counts[state] += max(0, run_end - first)
        return counts

    def row(self, group: str) -> dict[str, Any]:
        """Return the share partition as a row of JSON."""
        return {"group": group, **asdict(self)}


def cells(shown: ShownSharePartition, count: int) -> list[str]:
    """Return the state of most offsets in each of ``count`` equal parts of the share partition."""
    if shown.start_offset is None or shown.end_offset is None:
        return [NEVER_DELIVERED] * count
    first = shown.start_offset
    end = max(shown.high_watermark, shown.end_offset)
    if end <= first:
        return []
    count = min(count, end - first)
    weights: list[dict[str, int]] = [{} for _ in range(count)]
    for run_first, run_end, state in stretches(shown, end):
        number = (run_first - first) * count // (end - first)
        while run_first < run_end:
            # The first offset of the next cell; rounded up, as `number` is rounded down.
            cell_end = first - (-(number + 1) * (end - first) // count)
            here = min(run_end, cell_end) - run_first
            weights[number][state] = weights[number].get(state, 0) + here
            run_first, number = run_first + here, number + 1
    order = PRECEDENCE
    # A cell may have no run: two answers of a broker are from different moments.
    return [
        max(cell, key=lambda state: (cell[state], -order.index(state)), default=UNKNOWN)
        for cell in weights
    ]


def stretches(shown: ShownSharePartition, end: int) -> list[tuple[int, int, str]]:
    """Return the runs, half-open and without gap up to ``end``, with the states of `PRECEDENCE`."""
    assert shown.start_offset is not None, "the caller draws no line without a start offset"
    assert shown.end_offset is not None, "there is an end offset if there is a start offset"
    stretches = [(run.first_offset, run.last_offset + 1, state_of(run)) for run in shown.runs]
    shown_end = stretches[-1][1] if stretches else shown.start_offset
    if shown_end < shown.end_offset:
        stretches.append((shown_end, shown.end_offset, UNKNOWN))
    delivered_end = max(shown_end, shown.end_offset)
    if delivered_end < end:
        stretches.append((delivered_end, end, NEVER_DELIVERED))
    return [
        (max(a, shown.start_offset), min(b, end), state) for a, b, state in stretches if a < end
    ]


def state_of(run: ShareRun) -> str:
    """Return the state of `PRECEDENCE` that a run has: available is returned or never delivered."""
    if run.state == DELAYED:
        return RETURNED
    if run.state != AVAILABLE:
        return run.state
    return RETURNED if run.delivery_count else NEVER_DELIVERED
