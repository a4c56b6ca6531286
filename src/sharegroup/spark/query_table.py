"""A table of the running queries for a terminal, or a line for each report elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sharegroup.escaping import escaped
from sharegroup.spark.query_figures import OUTCOMES, GroupFigures, QueryFigures

COLUMNS = (
    *("query", "group", "batch", "rows", "rows/s", "batch ms", "lag", "held", "carried"),
    *(f"{outcome}/s" for outcome in OUTCOMES),
)
TEXT_COLUMNS = 2
"""The first columns are texts, the others numbers."""


class QueryTable:
    """Shows the last report of each running query."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: dict[tuple[str, str], tuple[str, ...]] = {}
        """By run and group."""
        self._live: Live | None = None

    def publish(self, figures: QueryFigures) -> None:
        """Show the report."""
        for group in figures.groups:
            row = cells(figures, group)
            self._rows[figures.run_id, group.group] = row
            if not self._console.is_terminal:
                named = zip(COLUMNS, row, strict=True)
                # A `Text`, because rich would take a name with brackets for its markup.
                self._console.print(Text("  ".join(f"{name} {cell}" for name, cell in named)))
        if self._console.is_terminal:
            self._show()

    def end(self, query_id: str, run_id: str) -> None:  # noqa: ARG002  Of all publishers.
        """Remove a run that has ended; the last one leaves its table on the screen."""
        left = {key: row for key, row in self._rows.items() if key[0] != run_id}
        if left:
            self._rows = left
            if self._console.is_terminal:
                self._show()
            return
        self._rows = {}
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _show(self) -> None:
        table = Table()
        for index, name in enumerate(COLUMNS):
            table.add_column(name, justify="left" if index < TEXT_COLUMNS else "right")
        for row in self._rows.values():
            table.add_row(*map(Text, row))
        if self._live is None:
            # Refreshed here alone, so that there is no thread that writes to the terminal.
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(table, refresh=True)


def cells(figures: QueryFigures, group: GroupFigures) -> tuple[str, ...]:
    """Return the texts of a row, in the order of `COLUMNS`."""
    return (
        escaped(figures.name),
        escaped(group.group),
        str(figures.batch_id),
        f"{figures.rows:,}",
        f"{figures.rows_per_second:,.0f}",
        f"{figures.batch_ms:,}",
        _lag(group),
        f"{group.held:,}",
        f"{group.carried:,}",
        *(f"{group.per_second[outcome]:,.0f}" for outcome in OUTCOMES),
    )


def _lag(group: GroupFigures) -> str:
    """Return the text of the lag, with the time for which no broker has answered, if any."""
    lag = "?" if group.lag is None else f"{group.lag:,}"
    return f"{lag}, idle {group.idle_seconds:,} s" if group.idle_cause else lag
