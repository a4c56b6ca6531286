"""Reports, in a queue of their own; where Celery had a chord, the last part joins all."""

from __future__ import annotations

from examples.shop_tasks import tables
from examples.shop_tasks.celery import app


@app.task
def sales(period: str) -> int:
    """Add up the sales."""
    total = sum(row["cents"] for row in tables.ORDERS.values() if row["state"] == "shipped")
    tables.REPORTS[f"sales-{period}"] = total
    return total


@app.task
def stock() -> dict[str, int]:
    """List the stock."""
    return dict(tables.STOCK)


@app.task
def yearly(year: int) -> None:
    """Begin a report of twelve parts."""
    tables.REPORTS[f"{year}"] = {"parts": {}, "joined": None}
    for month in range(1, 13):
        monthly.delay(year, month)


@app.task
def monthly(year: int, month: int) -> None:
    """Make one part; the part that finds all others there sends the join."""
    report = tables.REPORTS[f"{year}"]
    report["parts"][month] = month * 100  # In a database: an upsert, so a second run adds nothing.
    if len(report["parts"]) == 12:
        join.delay(year)


@app.task
def join(year: int) -> int:
    """Join the parts."""
    report = tables.REPORTS[f"{year}"]
    report["joined"] = sum(report["parts"].values())
    return int(report["joined"])


@app.task(ignore_result=True)
def export(name: str, rows: list[list[int]]) -> None:
    """Write rows to a file."""
    tables.REPORTS[name] = len(rows)
