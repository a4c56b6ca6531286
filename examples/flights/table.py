"""Prints the figures and checks of both halves of the demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.flights.checks import Check

WHAT_WIDTH, MUCH_WIDTH = 21, 9
"""The widths of the first two columns, so that the tables of both halves are aligned."""


def told(checked: Sequence[Check]) -> list[dict[str, Any]]:
    """Return the checks in the form of ``summary.json``."""
    return [
        {"claim": check.claim, "expected": check.expected, "found": check.found, "ok": check.holds}
        for check in checked
    ]


def show(
    rows: Sequence[tuple[str, str, str]], checks: Sequence[Mapping[str, Any]], console: Console
) -> None:
    """Print a table of figures, and the checks below it."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(justify="left", min_width=WHAT_WIDTH)
    table.add_column(justify="right", min_width=MUCH_WIDTH)
    table.add_column(justify="left", style="dim")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print()
    for check in checks:
        if check["ok"]:
            console.print(f"[green]ok[/]      {check['claim']}")
        else:
            console.print(
                f"[red]FAILED[/]  {check['claim']}: "
                f"expected {check['expected']}, found {check['found']}",
                soft_wrap=True,
            )
    console.print()
