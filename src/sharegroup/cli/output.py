"""What the verbs print: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

Row = Mapping[str, Any]


def listing(rows: Sequence[Row], *, columns: Sequence[str], as_json: bool, empty: str) -> None:
    """Print rows: as a JSON array of objects, or under ``COLUMN`` headings.

    ``empty`` is what a person reads when there is no row; a program reads ``[]``.
    """
    if as_json:
        click.echo(json.dumps([dict(row) for row in rows], indent=2))
    elif not rows:
        click.echo(empty)
    else:
        click.echo(table([[_cell(row.get(column)) for column in columns] for row in rows], columns))


def table(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
    """Left-aligned columns under their names, two blanks apart."""
    heads = [column.upper().replace("_", "-") for column in columns]
    widths = [max(len(line[i]) for line in (heads, *cells)) for i in range(len(heads))]
    lines = (heads, *cells)
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def done(text: str, *, as_json: bool, **facts: object) -> None:
    """Say that something was done."""
    click.echo(json.dumps(facts) if as_json else text)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    return str(value)
