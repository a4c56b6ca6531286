"""``sharegroup top``: the overview of the console, live in a terminal.

watcher ─▶ ClusterView, History ─▶ attention, rows ─▶ Listing ─▶ screen, or lines of JSON
"""

from __future__ import annotations

import asyncio
import sys
import textwrap
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from sharegroup.cli.common.cluster_access import (
    WATCH_SECONDS_MIN,
    Access,
    ask,
    cluster_options,
    json_option,
)
from sharegroup.cli.common.options import FiniteRange
from sharegroup.cli.common.output import Listing, counted, printable
from sharegroup.cli.common.tables import lasting, leaves_out, table
from sharegroup.cli.common.watch import view_of, watch
from sharegroup.client import AdminClient
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.console.watch.attention import Attention, attention
from sharegroup.console.watch.group_rows import group_row, recent_lags
from sharegroup.console.watch.history import History
from sharegroup.console.watch.watcher import Watcher

PROBLEMS_MAX = 4
"""Problems that the terminal shows, so that groups have room on 24 lines; the rest is a number."""
LOOKED_MAX = 50
"""Groups that are described each time; the others have their turn within a minute."""
COLUMNS = ("group", "state", "members", "waiting", "oldest", "settled_per_second", "last_15_min")
SPARE = ("state", "last_15_min", "members")
COLOURS = {"CRITICAL": "red", "WARNING": "yellow"}
LOOK_SECONDS_MAX = 3.0
"""Time after which it shows what is known, while a look goes on because a broker is away."""
BARS = "▁▂▃▄▅▆▇█"
BARS_MAX = 15
"""The length of the drawing of waiting records: one bar for each minute."""
MINUTE_MS = 60_000
EMPTY = "There are no share groups yet. A group is there once its first member has joined."


@click.command("top")
@click.option(
    "--every",
    "every_s",
    type=FiniteRange(WATCH_SECONDS_MIN),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks at the cluster.",
)
@json_option
@cluster_options
@leaves_out(SPARE)
def command(*, every_s: float, as_json: bool, access: Access) -> None:
    """Show live what needs attention, and the share groups, most waiting records first.

    It has what the first page of `sharegroup console` has, and needs no extra.  A pipe, a file and
    --json get a line of JSON each time.  Ctrl-C stops it.

    \b
        sharegroup top --bootstrap-server 127.0.0.1:9092
    """
    view = view_of(every_s, as_json=as_json)

    async def run(admin: AdminClient) -> NoReturn:
        reading = Cluster(config_from(ReadingConfig, access.client_options(ReadingConfig)))
        history = History()
        watcher = Watcher(admin, reading, history)

        looks: set[asyncio.Task[None]] = set()

        async def take() -> Listing:
            if not looks:
                looks.add(asyncio.create_task(watcher.look(), name="look at the cluster"))
            ended, _ = await asyncio.wait(looks, timeout=LOOK_SECONDS_MAX)
            looks.difference_update(ended)
            for look in ended:
                look.result()
            return _listing(watcher, history)

        try:
            await admin.describe_cluster()  # If no broker answers, this says it and ends the verb.
            await watch(view, take, every_s)
        finally:
            for look in looks:
                look.cancel()
            await asyncio.gather(*looks, return_exceptions=True)
            reading.close()

    ask(access, run, tell=view.note)


def _listing(watcher: Watcher, history: History) -> Listing:
    view, now_ms = watcher.view, int(time.time() * 1000)
    groups = [group_row(group, history, now_ms) for group in view.share_groups]
    groups.sort(key=lambda row: (-(row["lag"] or 0), row["group"]))
    watcher.looks_at(row["group"] for row in groups[:LOOKED_MAX])
    problems = attention(view, history, now_ms=now_ms)
    letters = sum(topic.recent_letters or 0 for topic in view.letters.values())

    def drawn(coloured: bool, width: int | None) -> str:
        cells = [
            [*_cells(row), _bars(recent_lags(row["group"], history, now_ms), now_ms)]
            for row in groups
        ]
        summary = _summary(len(view.brokers), groups, letters)
        parts = [
            "\n".join(_wrapped(summary, width)),
            "\n".join(_problem_lines(problems, coloured=coloured, width=width)),
            table(cells, COLUMNS, coloured=coloured, width=width, spare=SPARE) if cells else EMPTY,
        ]
        return "\n\n".join(part for part in parts if part)

    facts = {
        "brokers": len(view.brokers),
        "letters_of_the_last_hour": letters,
        "attention": [_problem_row(problem) for problem in problems],
    }
    return Listing(groups, (), EMPTY, drawn=drawn, facts=facts)


def _problem_row(problem: Attention) -> dict[str, Any]:
    return {
        "severity": problem.severity.name.lower(),
        "subject": problem.subject,
        "problem": problem.problem,
        "action": problem.action,
        "metric": problem.metric,
    }


def _summary(brokers: int, groups: Sequence[dict[str, Any]], letters: int) -> str:
    waiting = sum(row["lag"] or 0 for row in groups)
    rate = sum(row["rate"] or 0 for row in groups)
    return ", ".join(
        (
            counted(brokers, "broker"),
            counted(len(groups), "share group"),
            counted(sum(row["members"] or 0 for row in groups), "member"),
            f"{waiting:,} waiting",
            f"{rate:,.1f} settled/s",
            f"{counted(letters, 'dead letter')}/h",
        )
    )


def _problem_lines(
    problems: Sequence[Attention], *, coloured: bool, width: int | None
) -> list[str]:
    """Return each problem with what to do, its further lines indented."""
    lines = []
    for problem in problems[:PROBLEMS_MAX]:
        head = f"{problem.severity.name:<8}  "
        text = f"{problem.subject}: {problem.problem}; {problem.action}"
        room = None if width is None else width - len(head)
        first, *others = _wrapped(printable(text), room)
        colour = COLOURS.get(problem.severity.name) if coloured else None
        lines.append(f"{click.style(head, fg=colour) if colour else head}{first}")
        lines += [" " * len(head) + line for line in others]
    if len(problems) > PROBLEMS_MAX:
        lines.append(f"... and {counted(len(problems) - PROBLEMS_MAX, 'more problem')}")
    return lines


def _wrapped(text: str, width: int | None) -> list[str]:
    """Break a text at blanks only: a number such as 1,950 stays in one piece."""
    if width is None:
        return [text]
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False)


def _cells(row: dict[str, Any]) -> list[str]:
    age_ms = row["oldest_age_ms"]
    return [
        printable(row["group"]),
        row["state"],
        _number(row["members"]),
        _number(row["lag"]),
        "-" if age_ms is None else lasting(age_ms / 1000),
        _number(row["rate"]),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}"


def _bars(lags: Sequence[tuple[int, int]], now_ms: int) -> str:
    """Return a bar for the most waiting records of each minute that is known, the newest last."""
    if "utf" not in (sys.stdout.encoding or "").lower():
        return "-"
    by_minute: dict[int, int] = {}
    for at_ms, lag in lags:
        minute = (now_ms - at_ms) // MINUTE_MS
        by_minute[minute] = max(by_minute.get(minute, 0), lag)
    most = max(by_minute.values(), default=0)
    return "".join(
        BARS[by_minute[minute] * (len(BARS) - 1) // most if most else 0]
        for minute in range(BARS_MAX - 1, -1, -1)
        if minute in by_minute
    )
