"""The output of the verbs: tables for people, JSON for programs.

Both are made from the same rows. JSON always has every key of a row, so a program needs no
``--verbose``. A table has the columns that its verb chose, under the headings of Kafka's tools.
Only a terminal gets colours, and only if ``NO_COLOR`` is not set, and only there a table is fitted
to the width (`tables`).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from sharegroup.cli.common.tables import table
from sharegroup.errors import KafkaError
from sharegroup.escaping import escaped

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows with the same keys, and how to show them as a table."""

    rows: Sequence[Row]
    columns: Sequence[str]
    empty: str
    """The text in place of a table without rows; JSON has ``[]``."""
    failures: Sequence[KafkaError] = ()
    """The errors of the requested items that have no row."""
    drawn: Callable[[bool, int | None], str] | None = None
    """Returns the text in place of a table, with or without colours, in a width; None: a table."""
    spare: Sequence[str] = ()
    """The columns that a narrow terminal does without, the least important first."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """What a line of JSON has beside the rows."""

    def text(self, *, coloured: bool = False, width: int | None = None) -> str:
        """Return a table; without rows the text `empty`, or "" if there are failures.

        ``width`` is that of the terminal; None: as wide as the table is.
        """
        if self.drawn is not None and (self.rows or self.facts):
            return self.drawn(coloured, width)
        if not self.rows:
            return "" if self.failures else self.empty
        cells = [[_cell(row.get(column)) for column in self.columns] for row in self.rows]
        return table(cells, self.columns, coloured=coloured, width=width, spare=self.spare)

    def json(self) -> str:
        """Return a JSON array with an object for each row."""
        # In ASCII, json's default: names with control characters reach a terminal as escapes only.
        return json.dumps([dict(row) for row in self.rows], indent=2)


def in_colour() -> bool:
    """Return whether standard output is a terminal and the environment allows colours."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout.isatty()


def terminal_width() -> int | None:
    """Return the number of columns of the terminal; None if standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_listing(listing: Listing, *, as_json: bool) -> None:
    """Print the rows of a listing; the caller handles its failures."""
    text = listing.json() if as_json else shown_text(listing)
    if text:
        click.echo(text)


def shown_text(listing: Listing) -> str:
    """Return the table of a listing in the colours and the width of standard output."""
    return listing.text(coloured=in_colour(), width=terminal_width())


def done(text: str, *, as_json: bool, **facts: object) -> None:
    """Print that a change was made: ``text``, or ``facts`` as JSON."""
    click.echo(json.dumps(facts) if as_json else printable(text))


def complain(text: str) -> None:
    """Print a message on standard error, with escapes because its names come from outside."""
    lines = "\n".join(map(printable, text.split("\n")))
    click.echo(f"sharegroup: {lines}", err=True)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one.

    >>> counted(1, "record"), counted(0, "record")
    ('1 record', '0 records')
    """
    return f"{count} {plural(count, noun)}"


def plural(count: int, noun: str) -> str:
    """Return the noun in the form for a number.

    >>> plural(1, "delivery"), plural(2, "delivery"), plural(2, "batch")
    ('delivery', 'deliveries', 'batches')
    """
    if count == 1:
        return noun
    if noun.endswith("y"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def printable(text: str) -> str:
    """Return the text with escapes for characters that end a line or control a terminal."""
    return escaped(text)


def _cell(value: object) -> str:
    if isinstance(value, Mapping):  # Partitions by topic, as Kafka's tools write them.
        texts = (f"{topic}:{','.join(map(str, partitions))}" for topic, partitions in value.items())
        return printable(";".join(texts))
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return "-" if value in (None, "") else printable(str(value))
