"""``--watch SECONDS``: a listing again and again, until Ctrl-C.

A terminal shows the newest in place of the one before.  Anything else gets one JSON object a
time, each on a line of its own, so that a file or a pipe keeps the history::

    {"at": "2026-11-21T12:00:01Z", "rows": [...]}
    {"at": "2026-11-21T12:00:03Z", "error": "RequestTimedOut: list_groups: gave up after ..."}

The first answer must come; a later failure is shown where the rows would be, and the next one
is waited for: who watches a broker start again wants to see it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn, Protocol

import click

from sharegroup.cli.output import Listing, in_colour, printable
from sharegroup.errors import KafkaError

HOME = "\x1b[H"
END_OF_LINE = "\x1b[K"
END_OF_SCREEN = "\x1b[J"
CLEAR = "\x1b[2J"


class View(Protocol):
    """Where the answers are shown."""

    def show(self, listing: Listing) -> None:
        """Show the newest answer."""

    def fail(self, error: str) -> None:
        """Show why there is none."""


async def watch(
    take: Callable[[], Awaitable[Listing]], every_s: float, *, as_json: bool
) -> NoReturn:
    """Show what ``take`` returns, every so many seconds, without end."""
    view: View = Lines() if as_json or not sys.stdout.isatty() else Screen(every_s)
    view.show(await take())
    taken = time.monotonic()
    while True:
        await asyncio.sleep(max(0.0, taken + every_s - time.monotonic()))
        taken = time.monotonic()
        try:
            listing = await take()
        except KafkaError as error:
            view.fail(f"{type(error).__name__}: {error}")
        except click.ClickException as error:
            view.fail(error.message)
        else:
            view.show(listing)


class Lines:
    """One JSON object for each answer, on a line of its own."""

    def show(self, listing: Listing) -> None:
        """Append the rows."""
        errors = [f"{type(error).__name__}: {error}" for error in listing.failures]
        more = {"error": "\n".join(errors)} if errors else {}
        self._append(rows=[dict(row) for row in listing.rows], **more)

    def fail(self, error: str) -> None:
        """Append why there are none."""
        self._append(error=error)

    def _append(self, **fact: object) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        click.echo(json.dumps({"at": at, **fact}))
        sys.stdout.flush()


class Screen:
    """The newest answer in place of the one before, cut to the height of the terminal."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._started = False

    def show(self, listing: Listing) -> None:
        """Draw the table."""
        errors = [printable(f"{type(error).__name__}: {error}") for error in listing.failures]
        self._draw("\n".join([listing.text(coloured=in_colour()), *errors]))

    def fail(self, error: str) -> None:
        """Draw why there is none."""
        self._draw(printable(error))

    def _draw(self, text: str) -> None:
        height = shutil.get_terminal_size().lines
        title = f"every {self._every_s:g} s, last at {time.strftime('%H:%M:%S')}; Ctrl-C ends"
        lines = [title, "", *text.splitlines()]
        if len(lines) >= height:
            hidden = len(lines) - height + 2
            lines = [*lines[: -hidden or None], f"... {hidden} more lines"]
        # Line by line over the old picture: a cleared screen would flicker.
        picture = "".join(f"{line}{END_OF_LINE}\n" for line in lines)
        click.echo(("" if self._started else CLEAR) + HOME + picture + END_OF_SCREEN, nl=False)
        sys.stdout.flush()
        self._started = True
