"""Figures and checks of either half of the demo, as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from sharegroup.cli.flights.checks import Check

WHAT_WIDTH, MUCH_WIDTH = 21, 9
"""Of the first two columns, so that the tables of both halves stand in line."""


def told(checked: Sequence[Check]) -> list[dict[str, Any]]:
    """Checks as they are in ``summary.json``."""
    return [
        {"claim": one.claim, "expected": one.expected, "found": one.found, "ok": one.holds}
        for one in checked
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
