"""Progress of long commands: a bar on a terminal, nothing in pipes and files.

    sent dead letters ━━━━━━━━━━━━━━━━━╸━━━━━━━━━ 61%  12,204 of 20,000  0:00:07

A task draws the bar at intervals from what a function returns, so the work itself does not know of
the display. A command that ends within `PATIENCE_SECONDS` shows no bar and does not import rich.
The bar is drawn on standard error and removed at the end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE_SECONDS = 0.7
DRAW_SECONDS = 0.1

Done = Callable[[], float]
Total = Callable[[], float | None]


class Bar:
    """The bar of one command; it is drawn by `showing_progress`."""

    def __init__(self, text: str, done: Done, total: Total, unit: str) -> None:
        self._text = text
        self._done = done
        self._total = total
        self._unit = unit
        self._progress: Progress | None = None

    def echo(self, text: str) -> None:
        """Print a line of results on standard output, above the bar."""
        if self._progress is not None:
            # The bar is on standard error: without clearing it, the line would begin behind it.
            click.echo("\r\x1b[K", err=True, nl=False)
            sys.stderr.flush()
        click.echo(text)

    async def draw(self) -> None:
        """Draw the bar until this is cancelled."""
        began = time.monotonic()
        await asyncio.sleep(PATIENCE_SECONDS)
        # Imported here because it takes 100 ms, and most commands end before.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
        )
        progress = Progress(
            *columns, console=Console(stderr=True), transient=True, auto_refresh=False,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        with progress:
            self._progress = progress
            task = progress.add_task(self._text, total=None, count="")
            # The elapsed time counts from the beginning of the command, not from the first drawing.
            progress.tasks[0].start_time = began - time.monotonic() + progress.get_time()
            while True:
                done, total = self._done(), self._total()
                of_total = "" if total is None else f" of {total:,.0f}"
                count = f"{done:,.0f}{of_total} {self._unit}"
                progress.update(task, completed=done, total=total, count=count)
                progress.refresh()
                await asyncio.sleep(DRAW_SECONDS)


@asynccontextmanager
async def showing_progress(
    text: str, done: Done, *, total: Total = lambda: None, unit: str
) -> AsyncIterator[Bar]:
    """Show on a terminal, while the body runs, how much of it is done.

    ``done`` and ``total`` are counts of ``unit``; the total is None while it is not known.
    """
    bar = Bar(text, done, total, unit)
    if not sys.stderr.isatty():
        yield bar
        return
    drawing = asyncio.create_task(bar.draw())
    try:
        yield bar
    finally:
        drawing.cancel()
        with suppress(asyncio.CancelledError):
            await drawing
