"""The overview: what needs attention first, then the share groups."""

from __future__ import annotations

from dataclasses import asdict
from urllib.parse import urlencode

from sharegroup.console.drawing.charts import sparkline
from sharegroup.console.pages.page import Page, Visit
from sharegroup.console.pages.tables import Column, Row, table
from sharegroup.console.watch.attention import SHOWN_MAX, attention
from sharegroup.console.watch.group_rows import group_row, recent_lags
from sharegroup.console.watch.history import Histories


def address(page: str, **query: object) -> str:
    """Return the address of a page for these parameters."""
    return f"{page}?{urlencode({name: str(value) for name, value in query.items()})}"


GROUP_COLUMNS = (
    Column("group", "Group", "id", link=lambda row: address("group", id=row["group"])),
    Column("state", "State", "state"),
    Column("members", "Members", "number", narrow=False),
    Column("lag", "Waiting", "number"),
    Column("oldest_age_ms", "Oldest", "age"),
    Column("rate", "Settled/s", "number", narrow=False),
    Column("spark", "Waiting, last 15 min", "spark", narrow=False),
    Column("topics", "Topics", "list", narrow=False),
)


async def overview(visit: Visit) -> Page:
    """Return what needs attention and the state of all share groups."""
    view, history = visit.watcher.view, visit.history
    rows = [group_row(group, history, visit.now_ms) for group in view.share_groups]
    problems = attention(view, history, now_ms=visit.now_ms)
    shown = table(
        "groups", GROUP_COLUMNS, rows, visit.query, sort="-lag",
        empty="There are no share groups yet. A group is there once its first member has joined.",
    )  # fmt: skip
    visit.watcher.looks_at(row["group"] for row in shown.rows)
    data = {"attention": [asdict(problem) for problem in problems], "groups": rows}
    return Page(
        "overview.html",
        "Overview",
        {
            "problems": problems[:SHOWN_MAX],
            "more_problems": max(0, len(problems) - SHOWN_MAX),
            "groups": shown,
            "spark": lambda row: spark(row, history, visit.now_ms),
            "waiting": sum(row["lag"] or 0 for row in rows),
            "members": sum(row["members"] or 0 for row in rows),
            "rate": round(sum(row["rate"] or 0.0 for row in rows), 1),
            "letters": sum(topic.recent_letters or 0 for topic in view.letters.values()),
        },
        data,
    )


def spark(row: Row, history: Histories, now_ms: int) -> object:
    """Return the line of a group's lag over the last quarter of an hour."""
    return sparkline(recent_lags(row["group"], history, now_ms), "records that wait")
