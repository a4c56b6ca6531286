"""A share partition as a bar of its runs, from the start offset to the end of the log."""

from __future__ import annotations

from itertools import groupby

from markupsafe import Markup, escape

from sharegroup.share_runs.share_runs import (
    ACKNOWLEDGED,
    NEVER_DELIVERED,
    PRECEDENCE,
    ShownSharePartition,
    cells,
    state_of,
)

WIDTH, HEIGHT = 1_000, 26
CELLS_MAX = 250
"""Parts of the bar; each shows the state of most of its offsets."""
GAP_CELLS_MAX = 80
"""Up to this number of offsets, each is a cell of its own with a gap beside it."""
CLASSES = {state: state.replace(" ", "-") for state in PRECEDENCE}
"""The class of each state in the style sheet."""


MARK_WIDTH, MARK_HEIGHT = 3, 10
MARKS_MAX = 400
"""Marks of runs that are too small for a cell."""


def runs_bar(shown: ShownSharePartition) -> Markup:
    """Return the bar; its text says the numbers, for who does not see it."""
    states = cells(shown, CELLS_MAX)
    counts = ", ".join(f"{count:,} {state}" for state, count in shown.counts().items() if count)
    title = escape(f"{shown.topic} {shown.partition}: {counts or 'no records'}")
    width = WIDTH / max(1, len(states))
    has_gaps = len(states) <= GAP_CELLS_MAX
    parts = []
    number = 0
    groups = ([state] for state in states) if has_gaps else (list(g) for _, g in groupby(states))
    for same in groups:
        x, length = number * width, len(same) * width - (2 if has_gaps else 0)
        parts.append(
            f'<rect class="run {CLASSES[same[0]]}" x="{x:.1f}" y="0" width="{length:.1f}" '
            f'height="{HEIGHT}"/>'
        )
        number += len(same)
    parts += _marks(shown, states, width)
    return Markup(  # noqa: S704  The title is escaped, and the rest is of numbers and names of ours.
        f'<svg class="runs" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{title}"><title>{title}</title>{"".join(parts)}</svg>'
    )


def _marks(shown: ShownSharePartition, states: list[str], width: float) -> list[str]:
    """Return a mark for each run that no cell shows: one record among thousands can be the one."""
    marks: dict[tuple[int, str], str] = {}
    first = shown.start_offset or 0
    offsets = max(shown.high_watermark, shown.end_offset or 0) - first
    for run in shown.runs if states else ():
        state = state_of(run)
        cell = (run.first_offset - first) * len(states) // offsets
        if state in (ACKNOWLEDGED, NEVER_DELIVERED) or not 0 <= cell < len(states):
            continue
        last = min(len(states) - 1, (run.last_offset - first) * len(states) // offsets)
        if state not in states[cell : last + 1] and len(marks) < MARKS_MAX:
            x = cell * width + (width - MARK_WIDTH) / 2
            marks[cell, state] = (
                f'<rect class="run {CLASSES[state]}" x="{x:.1f}" y="0" width="{MARK_WIDTH}" '
                f'height="{MARK_HEIGHT}"/>'
            )
    return list(marks.values())
