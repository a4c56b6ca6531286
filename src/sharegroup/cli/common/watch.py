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

from sharegroup.cli.common.output import Listing, complain, plural, printable, shown_text
from sharegroup.cli.common.tables import shortened, text_width, wrapped
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

    def note(self, text: str) -> None:
        """Show a remark about the connection, beside the newest listing."""


def view_of(every_s: float, *, as_json: bool) -> View:
    """Return the view for standard output."""
    return Lines() if as_json or not sys.stdout.isatty() else Screen(every_s)


async def watch(view: View, take: Callable[[], Awaitable[Listing]], every_s: float) -> NoReturn:
    """Show the listing of ``take`` every ``every_s`` seconds, without end."""
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
        self._append(rows=[dict(row) for row in listing.rows], **listing.facts, **error_field)

    def fail(self, error: str) -> None:
        """Print an error in place of rows."""
        self._append(error=error)

    def note(self, text: str) -> None:
        """Print a remark on standard error."""
        complain(text)

    def _append(self, **fact: object) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        click.echo(json.dumps({"at": at, **fact}))
        sys.stdout.flush()


class Screen:
    """A view that replaces the previous listing, cut to the size of the terminal.

    The first line says when the listing was taken, and that no broker answers.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._started = False
        self._at = ""
        self._note = ""
        self._text = ""

    def show(self, listing: Listing) -> None:
        """Draw the table and the failures."""
        errors = [printable(f"{type(error).__name__}: {error}") for error in listing.failures]
        self._take("\n".join([shown_text(listing), *errors]))

    def fail(self, error: str) -> None:
        """Draw an error in place of a table."""
        self._take(printable(error))

    def note(self, text: str) -> None:
        """Draw a remark in the first line, until the next listing."""
        if not self._started:
            complain(text)
            return
        self._note = f"; {printable(text)}"
        self._draw()

    def _take(self, text: str) -> None:
        self._at, self._note, self._text = time.strftime("%H:%M:%S"), "", text
        self._draw()

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        title = f"every {self._every_s:g} s, last at {self._at}{self._note}; Ctrl-C stops"
        # Names in the text have no line ends (`printable`), so only width breaks a line. A line
        # that the terminal broke would move the first lines out of sight.
        lines = [shortened(title, size.columns), ""]
        for line in self._text.splitlines():
            fits = text_width(click.unstyle(line)) <= size.columns
            lines += [line] if fits else wrapped(click.unstyle(line), size.columns)
        if len(lines) >= size.lines:
            hidden = len(lines) - size.lines + 2
            lines = [*lines[: -hidden or None], f"... {hidden} more {plural(hidden, 'line')}"]
        # Overwrites the old picture line by line, because clearing the screen would flicker.
        picture = "".join(f"{line}{END_OF_LINE}\n" for line in lines)
        click.echo(("" if self._started else CLEAR) + HOME + picture + END_OF_SCREEN, nl=False)
        sys.stdout.flush()
        self._started = True
