"""The demo's progress display: bars on a terminal, otherwise a line at intervals."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PLAIN_LINE_SECONDS = 5.0


class Screen(Protocol):
    """The display of progress and events."""

    def progress(self, *records: int) -> None:
        """Show the progress in records: one number for each counter of the screen."""

    def event(self, text: str) -> None:
        """Show the text of an event."""


@contextmanager
def screen(
    console: Console, rows: int, *things: str, line_seconds: float = PLAIN_LINE_SECONDS
) -> Iterator[Screen]:
    """Show counters from 0 to ``rows``, named by ``things``: as bars, or as plain lines.

    A terminal has bars.
    """
    if not console.is_terminal:
        yield _Lines(console, rows, things, line_seconds)
        return
    columns = (
        TextColumn("{task.description:9}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        yield _Bars(bars, rows, things)


class _Bars:
    def __init__(self, bars: Progress, rows: int, things: Sequence[str]) -> None:
        self._bars = bars
        self._tasks = [bars.add_task(counter, total=rows) for counter in things]

    def progress(self, *records: int) -> None:
        for task, reached in zip(self._tasks, records, strict=True):
            self._bars.update(task, completed=reached)

    def event(self, text: str) -> None:
        self._bars.console.print(text)


class _Lines:
    def __init__(
        self, console: Console, rows: int, things: Sequence[str], line_seconds: float
    ) -> None:
        self._console = console
        self._rows = rows
        self._things = things
        self._line_seconds = line_seconds
        self._last = time.monotonic()
        self._told = (0,) * len(things)

    def progress(self, *records: int) -> None:
        is_due = time.monotonic() - self._last >= self._line_seconds
        if is_due and records != self._told:
            self._last = time.monotonic()
            self._told = records
            progress_items = zip(self._things, records, strict=True)
            text = " and ".join(f"{counter} {count:,}" for counter, count in progress_items)
            self.event(f"{text} of {self._rows:,}")

    def event(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)
