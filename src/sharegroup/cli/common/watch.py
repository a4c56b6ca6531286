"""``--watch SECONDS``: shows a listing repeatedly until Ctrl-C.

A terminal shows the newest listing in place of the previous one. Other outputs get one JSON
object per listing, each on a line of its own, so that a file or a pipe keeps the history::

    {"at": "2026-11-21T12:00:01Z", "rows": [...]}
    {"at": "2026-11-21T12:00:03Z", "error": "RequestTimedOut: list_groups: gave up after ..."}

A failure of the first request ends the command. A later failure is shown in place of the rows,
and watching continues, so that a user can watch a broker restart.
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

from sharegroup.cli.common.output import Listing, in_colour, printable
from sharegroup.errors import KafkaError

HOME = "\x1b[H"
END_OF_LINE = "\x1b[K"
END_OF_SCREEN = "\x1b[J"
CLEAR = "\x1b[2J"


class View(Protocol):
    """The output of repeated listings."""

    def show(self, listing: Listing) -> None:
        """Show the newest listing."""

    def fail(self, error: str) -> None:
        """Show an error in place of a listing."""


async def watch(
    take: Callable[[], Awaitable[Listing]], every_s: float, *, as_json: bool
) -> NoReturn:
    """Show the listing of ``take`` every ``every_s`` seconds, without end."""
    view: View = Lines() if as_json or not sys.stdout.isatty() else Screen(every_s)
    # Outside of the try: an error of the first listing ends the verb, as it does without --watch.
    view.show(await take())
    taken_at = time.monotonic()
    while True:
        await asyncio.sleep(max(0.0, taken_at + every_s - time.monotonic()))
        taken_at = time.monotonic()
        try:
            listing = await take()
        except KafkaError as error:
            view.fail(f"{type(error).__name__}: {error}")
        # A verb raises it for errors of single items, which may be over at the next listing.
        except click.ClickException as error:
            view.fail(error.message)
        else:
            view.show(listing)


class Lines:
    """A view that prints one JSON object for each listing, on a line of its own."""

    def show(self, listing: Listing) -> None:
        """Print the rows and the failures."""
        errors = [f"{type(error).__name__}: {error}" for error in listing.failures]
        error_field = {"error": "\n".join(errors)} if errors else {}
        self._append(rows=[dict(row) for row in listing.rows], **error_field)

    def fail(self, error: str) -> None:
        """Print an error in place of rows."""
        self._append(error=error)

    def _append(self, **fact: object) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        click.echo(json.dumps({"at": at, **fact}))
        sys.stdout.flush()


class Screen:
    """A view that replaces the previous listing, cut to the height of the terminal."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._started = False

    def show(self, listing: Listing) -> None:
        """Draw the table and the failures."""
        errors = [printable(f"{type(error).__name__}: {error}") for error in listing.failures]
        self._draw("\n".join([listing.text(coloured=in_colour()), *errors]))

    def fail(self, error: str) -> None:
        """Draw an error in place of a table."""
        self._draw(printable(error))

    def _draw(self, text: str) -> None:
        height = shutil.get_terminal_size().lines
        title = f"every {self._every_s:g} s, last at {time.strftime('%H:%M:%S')}; Ctrl-C stops"
        # Names in the text have no line ends (`printable`), so each line is one row of the screen.
        lines = [title, "", *text.splitlines()]
        if len(lines) >= height:
            hidden = len(lines) - height + 2
            lines = [*lines[: -hidden or None], f"... {hidden} more lines"]
        # Overwrites the old picture line by line, because clearing the screen would flicker.
        picture = "".join(f"{line}{END_OF_LINE}\n" for line in lines)
        click.echo(("" if self._started else CLEAR) + HOME + picture + END_OF_SCREEN, nl=False)
        sys.stdout.flush()
        self._started = True
