"""The output of the verbs: tables for people, JSON for programs.

Both are made from the same rows. JSON always has every key of a row, so a program needs no
``--verbose``. A table has the columns that its verb chose, under the headings of Kafka's tools.
Only a terminal gets colours, and only if ``NO_COLOR`` is not set.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from sharegroup.errors import KafkaError
from sharegroup.escaping import escaped

Row = Mapping[str, Any]

HEADINGS = {
    "coordinator": "COORDINATOR (ID)",
    "members": "#MEMBERS",
    "partitions": "#PARTITIONS",
}
"""Headings of Kafka's tools that are not the key in capitals."""

COLOURS = {
    "Dead": "red",
    "Empty": "yellow",
    "Stable": "green",
}
"""The colours of cells that a reader should notice."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows with the same keys, and how to show them as a table."""

    rows: Sequence[Row]
    columns: Sequence[str]
    empty: str
    """The text in place of a table without rows; JSON has ``[]``."""
    failures: Sequence[KafkaError] = ()
    """The errors of the requested items that have no row."""
    drawn: Callable[[bool], str] | None = None
    """Returns the text in place of a table, with or without colours; None: a table."""

    def text(self, *, coloured: bool = False) -> str:
        """Return a table; without rows the text `empty`, or "" if there are failures."""
        if not self.rows:
            return "" if self.failures else self.empty
        if self.drawn is not None:
            return self.drawn(coloured)
        cells = [[_cell(row.get(column)) for column in self.columns] for row in self.rows]
        return table(cells, self.columns, coloured=coloured)

    def json(self) -> str:
        """Return a JSON array with an object for each row."""
        # In ASCII, json's default: names with control characters reach a terminal as escapes only.
        return json.dumps([dict(row) for row in self.rows], indent=2)


def in_colour() -> bool:
    """Return whether standard output is a terminal and the environment allows colours."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout.isatty()


def table(cells: Sequence[Sequence[str]], columns: Sequence[str], *, coloured: bool = False) -> str:
    """Return left-aligned columns under their headings, two blanks apart."""
    heads = [HEADINGS.get(column, column.upper().replace("_", "-")) for column in columns]
    widths = [max(len(line[i]) for line in (heads, *cells)) for i in range(len(heads))]
    widths[-1] = 0  # The last column needs no padding.
    lines = [
        [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        for line in (heads, *cells)
    ]
    if coloured:
        lines = [[click.style(head, bold=True) for head in lines[0]], *map(_tinted, lines[1:])]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def print_listing(listing: Listing, *, as_json: bool) -> None:
    """Print the rows of a listing; the caller handles its failures."""
    text = listing.json() if as_json else listing.text(coloured=in_colour())
    if text:
        click.echo(text)


def done(text: str, *, as_json: bool, **facts: object) -> None:
    """Print that a change was made: ``text``, or ``facts`` as JSON."""
    click.echo(json.dumps(facts) if as_json else printable(text))


def complain(text: str) -> None:
    """Print a message on standard error, with escapes because its names come from outside."""
    lines = "\n".join(map(printable, text.split("\n")))
    click.echo(f"sharegroup: {lines}", err=True)


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


def _tinted(line: Sequence[str]) -> list[str]:
    colours = [COLOURS.get(cell.rstrip()) for cell in line]
    return [
        click.style(cell, fg=colour) if colour else cell
        for cell, colour in zip(line, colours, strict=True)
    ]
