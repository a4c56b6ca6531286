"""What the verbs print: tables for people, JSON for programs.

The same rows serve both.  JSON has every key of a row, always, so that a program needs no
``--verbose``; a table has the columns that its verb chose, under the headings of Kafka's tools.
Colour is for a terminal only, and not even there when ``NO_COLOR`` is set.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from sharegroup.errors import KafkaError

Row = Mapping[str, Any]

HEADINGS = {
    "coordinator": "COORDINATOR (ID)",
    "members": "#MEMBERS",
    "partitions": "#PARTITIONS",
}
"""Headings of Kafka's that are not just the key in capitals."""

COLOURS = {
    "Dead": "red",
    "Empty": "yellow",
    "Stable": "green",
}
"""Cells whose meaning a person should see at a glance."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows with the same keys, and how a person reads them."""

    rows: Sequence[Row]
    columns: Sequence[str]
    empty: str
    """What a person reads when there is no row; a program reads ``[]``."""
    failures: Sequence[KafkaError] = ()
    """What was asked for and is not among the rows, with why."""

    def text(self, *, coloured: bool = False) -> str:
        """A table, or the sentence that there is nothing, or nothing beside failures."""
        if not self.rows:
            return "" if self.failures else self.empty
        cells = [[_cell(row.get(column)) for column in self.columns] for row in self.rows]
        return table(cells, self.columns, coloured=coloured)

    def json(self) -> str:
        """An array with an object for each row."""
        return json.dumps([dict(row) for row in self.rows], indent=2)


def in_colour() -> bool:
    """Whether standard output is a terminal whose user has nothing against colour."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout.isatty()


def table(cells: Sequence[Sequence[str]], columns: Sequence[str], *, coloured: bool = False) -> str:
    """Left-aligned columns under their names, two blanks apart."""
    heads = [HEADINGS.get(column, column.upper().replace("_", "-")) for column in columns]
    widths = [max(len(line[i]) for line in (heads, *cells)) for i in range(len(heads))]
    widths[-1] = 0  # Nothing stands behind it.
    lines = [
        [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        for line in (heads, *cells)
    ]
    if coloured:
        lines = [[click.style(head, bold=True) for head in lines[0]], *map(_tinted, lines[1:])]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def print_listing(listing: Listing, *, as_json: bool) -> None:
    """Print the rows; the failures are left to who knows what to do about them."""
    text = listing.json() if as_json else listing.text(coloured=in_colour())
    if text:
        click.echo(text)


def done(text: str, *, as_json: bool, **facts: object) -> None:
    """Say that something was done."""
    click.echo(json.dumps(facts) if as_json else printable(text))


def complain(text: str) -> None:
    """Say something on standard error, beside what is printed."""
    click.echo(f"sharegroup: {text}", err=True)


def printable(text: str) -> str:
    """The text with escapes for what could end a line or command a terminal.

    A group id may hold any character, and whoever made it need not be a friend.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def _cell(value: object) -> str:
    if isinstance(value, Mapping):  # Partitions by topic, as Kafka's tools write them.
        texts = (f"{topic}:{','.join(map(str, some))}" for topic, some in value.items())
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
