"""What a person sees while the demo works: bars on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sharegroup.cli.flights.run import Reached

PLAIN_LINE_SECONDS = 5.0


class Screen(Protocol):
    """Where progress and events go."""

    def progress(self, reached: Reached) -> None:
        """How far it is."""

    def event(self, text: str) -> None:
        """Something happened."""


@contextmanager
def screen(console: Console, rows: int) -> Iterator[Screen]:
    """Bars on a terminal, plain lines elsewhere."""
    if not console.is_terminal:
        yield _Lines(console, rows)
        return
    columns = (
        TextColumn("{task.description:9}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        yield _Bars(bars, rows)


class _Bars:
    def __init__(self, bars: Progress, rows: int) -> None:
        self._bars = bars
        self._produced = bars.add_task("produced", total=rows)
        self._settled = bars.add_task("settled", total=rows)

    def progress(self, reached: Reached) -> None:
        self._bars.update(self._produced, completed=reached.produced)
        self._bars.update(self._settled, completed=reached.settled)

    def event(self, text: str) -> None:
        self._bars.console.print(text)


class _Lines:
    def __init__(self, console: Console, rows: int) -> None:
        self._console = console
        self._rows = rows
        self._last = time.monotonic()

    def progress(self, reached: Reached) -> None:
        if time.monotonic() - self._last >= PLAIN_LINE_SECONDS:
            self._last = time.monotonic()
            self.event(
                f"produced {reached.produced:,} and settled {reached.settled:,} of {self._rows:,}"
            )

    def event(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)
