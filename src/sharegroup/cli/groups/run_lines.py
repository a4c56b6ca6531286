"""The runs of share partitions as ``sharegroup groups inspect`` shows them, from either source.

A run is a range of offsets with the same state. Both of its offsets are inclusive, as in Kafka's
tools and requests. A terminal shows a line of marks for each share partition, and a table of runs:

    PARTITION  START  OLDEST TO NEWEST  END    RECORDS
    orders 0   100   [===x==##o.......] 5,120  #30 o12 x1 =800 .4,177

Before the line are topic, partition and start offset; behind it are the high watermark and the
number of records in each state. A mark stands for equally many offsets, and shows the state of most
of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, islice

import click

from sharegroup.cli.common.output import plural, printable
from sharegroup.cli.common.tables import shortened, table, text_width
from sharegroup.client.admin.types import ShareRun
from sharegroup.share_runs.share_runs import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    NEVER_DELIVERED,
    RETURNED,
    UNKNOWN,
    ShownSharePartition,
    cells,
)

RUNS_MAX = 1_000
"""The default number of runs of a share partition that are shown."""


MARKS: Mapping[str, str] = {
    ACQUIRED: "#",
    RETURNED: "o",
    ARCHIVING: "!",
    ARCHIVED: "x",
    ACKNOWLEDGED: "=",
    NEVER_DELIVERED: ".",
    UNKNOWN: "?",
}
"""The mark of each state. If two states are equally frequent, the first one here is shown."""
COLOURS = {
    ACQUIRED: "yellow",
    RETURNED: "cyan",
    ARCHIVING: "magenta",
    ARCHIVED: "red",
    ACKNOWLEDGED: "green",
}
LEGEND = {
    ACQUIRED: "acquired",
    RETURNED: "available again or delayed",
    ARCHIVING: "waits for its dead letter",
    ARCHIVED: "archived",
    ACKNOWLEDGED: "acknowledged",
    NEVER_DELIVERED: "never delivered",
    UNKNOWN: "not shown, see --max-runs",
}
LINE_MIN, LINE_MAX = 10, 100
"""The least and the greatest number of marks in a line."""
NAME_COLUMNS_MIN = 8
"""The width to which topics are shortened so that their lines fit the terminal."""
HEAD, LINE, TAIL = ("PARTITION", "START"), "OLDEST TO NEWEST", ("END", "RECORDS")
"""The headings of the lines of marks."""
WHAT_A_RUN_IS = "A run is a range of offsets with one state and one delivery count."
COLUMNS = (
    *("topic", "partition", "first_offset", "last_offset", "records", "state"),
    *("delivery_count", "member_id", "lock_s"),
)
SPARE = ("records", "lock_s", "member_id")


def drawing(share_partitions: Sequence[ShownSharePartition], *, width: int, coloured: bool) -> str:
    """Return a line for each share partition that fits a terminal of ``width``, and the legend."""
    heads = [HEAD, *map(_head, share_partitions)]
    tails = [TAIL, *map(_tail, share_partitions)]
    if _room(heads, tails, width) < LINE_MIN:
        tails = [(end, "") for end, _ in tails]
    lacking = LINE_MIN - _room(heads, tails, width)
    if lacking > 0:
        room = max(NAME_COLUMNS_MIN, _widest(heads, 0) - lacking)
        heads = [(shortened(name, room), start) for name, start in heads]
    marks_count = max(LINE_MIN, min(LINE_MAX, _room(heads, tails, width)))
    states = [cells(shown, marks_count) for shown in share_partitions]
    longest = max(map(len, states))
    lines = [f"[{_line(line, coloured)}]{' ' * (longest - len(line))}" for line in states]
    heading = shortened(LINE, longest + len("[]")).ljust(longest + len("[]"))
    drawn = [
        f"{name}  {start} {line} {end}  {counts}".rstrip()
        for (name, start), line, (end, counts) in zip(
            _aligned(heads), [heading, *lines], _aligned(tails), strict=True
        )
    ]
    return "\n".join([*drawn, "", *_legend(width, coloured)])


Pair = tuple[str, str]
"""Two neighbouring cells before or behind a line of marks."""


def _room(heads: Sequence[Pair], tails: Sequence[Pair], width: int) -> int:
    """Return the number of marks for which a line has room."""
    texts = sum(_widest(pairs, index) for pairs in (heads, tails) for index in (0, 1))
    return width - texts - len("  ") - len(" [] ") - len("  ")


def _widest(pairs: Sequence[Pair], index: int) -> int:
    return max(text_width(pair[index]) for pair in pairs)


def _aligned(pairs: Sequence[Pair]) -> list[Pair]:
    widths = [_widest(pairs, index) for index in (0, 1)]
    padded = [
        [text + " " * (width - text_width(text)) for text, width in zip(pair, widths, strict=True)]
        for pair in pairs
    ]
    return [(first, second) for first, second in padded]


def _line(states: Sequence[str], coloured: bool) -> str:
    return "".join(_marks(state, len(list(same)), coloured) for state, same in groupby(states))


def _legend(width: int, coloured: bool) -> list[str]:
    """Return the meanings of the marks, in as many lines as they take."""
    lines: list[list[str]] = [[]]
    room = width
    for state, text in LEGEND.items():
        item_width = len(f"{MARKS[state]} {text}  ")
        if item_width - len("  ") > room and lines[-1]:
            lines.append([])
            room = width
        lines[-1].append(f"{_marks(state, 1, coloured)} {text}")
        room -= item_width
    return list(map("  ".join, lines))


def _marks(state: str, count: int, coloured: bool) -> str:
    colour, marks = COLOURS.get(state), MARKS[state] * count
    return click.style(marks, fg=colour) if coloured and colour else marks


def _head(shown: ShownSharePartition) -> Pair:
    start = "-" if shown.start_offset is None else f"{shown.start_offset:,}"
    return f"{printable(shown.topic)} {shown.partition}", start


def _tail(shown: ShownSharePartition) -> Pair:
    end = f"{shown.high_watermark:,}"
    if shown.start_offset is None:
        return end, "no offset yet"
    counts = shown.counts()
    texts = [f"{mark}{counts[state]:,}" for state, mark in MARKS.items() if counts[state]]
    return end, " ".join(texts)


def run_table(
    share_partitions: Sequence[ShownSharePartition],
    *,
    lines_max: int | None = None,
    coloured: bool = False,
    width: int | None = None,
) -> str:
    """Return a table with a line for each run, and a sentence about the runs that are left out.

    ``lines_max`` is the maximum number of runs in it; None: all of them.  ``width`` is that of the
    terminal.
    """
    runs = [(shown, run) for shown in share_partitions for run in shown.runs]
    if not runs:
        return "There are no runs."
    rows = [
        [
            *(printable(shown.topic), str(shown.partition)),
            *(str(run.first_offset), str(run.last_offset), str(run.count), run.state),
            *(str(run.delivery_count), printable(run.member_id or "-"), _seconds(run)),
        ]
        for shown, run in islice(runs, lines_max)
    ]
    texts = [table(rows, COLUMNS, coloured=coloured, width=width, spare=SPARE)]
    if not_in_table := len(runs) - len(rows):
        runs_text = plural(not_in_table, "run")
        texts.append(f"... {not_in_table:,} more {runs_text}; a pipe, a file and --json get them")
    if left_out := sum(shown.left_out for shown in share_partitions):
        runs_text = plural(left_out, "run")
        texts.append(f"... {left_out:,} more {runs_text}; --max-runs shows more of them")
    return "\n".join(texts)


def _seconds(run: ShareRun) -> str:
    return "-" if run.lock_ms_left is None else f"{run.lock_ms_left / 1000:.1f}"
