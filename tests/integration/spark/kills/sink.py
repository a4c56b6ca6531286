"""The sink of a query under kills, and what must be true of it in the end.

A SQLite file outside of Spark.  A batch that is written again replaces what it wrote before,
in one transaction, so the sink is idempotent by batch; whether a *record* came twice is then
the query's doing alone, and is seen as one record in two batches.  A replay that is not the
same as the batch's first run is seen as well: what the first run had is gone.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

LOCK_SECONDS_MAX = 30.0
SHOWN_MAX = 20

Copied = Mapping[bytes, int]
"""How often the streaming sink has written a value."""
Place = tuple[int, int]
"""Partition and offset."""


class Delivered(NamedTuple):
    """A row that is in the sink."""

    batch: int
    partition: int
    offset: int
    value: bytes

    def __str__(self) -> str:
        return f"batch {self.batch} partition {self.partition} offset {self.offset} {self.value!r}"

    @property
    def place(self) -> Place:
        return self.partition, self.offset


class Sink:
    """Rows by batch; every call opens the file, so any thread and process may use it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._opened() as connection:
            connection.execute("pragma journal_mode=wal")
            connection.execute(
                "create table if not exists delivered "
                "(batch int, partition int, place int, value blob)"
            )
            connection.execute("create table if not exists written (batch int)")

    def write(self, batch: int, rows: Iterable[tuple[int, int, bytes]]) -> None:
        """Partition, offset and value of all rows of a batch."""
        with self._opened() as connection:
            connection.execute("delete from delivered where batch = ?", (batch,))
            connection.executemany(
                "insert into delivered values (?, ?, ?, ?)", ((batch, *row) for row in rows)
            )
            connection.execute("insert into written values (?)", (batch,))

    def count(self) -> int:
        """How many rows there are."""
        with self._opened() as connection:
            return int(connection.execute("select count(*) from delivered").fetchone()[0])

    def delivered(self) -> list[Delivered]:
        """All rows."""
        with self._opened() as connection:
            return [Delivered(*row) for row in connection.execute("select * from delivered")]

    def batches_written_again(self) -> int:
        """How many batches were run more than once, up to the end of their write."""
        with self._opened() as connection:
            found = connection.execute("select count(*) - count(distinct batch) from written")
            return int(found.fetchone()[0])

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        connecting = sqlite3.connect(self._path, timeout=LOCK_SECONDS_MAX)
        with closing(connecting) as connection, connection:
            yield connection


def problems(
    produced: Mapping[Place, bytes],
    delivered: Iterable[Delivered],
    in_doubt: Collection[bytes] = (),
) -> Iterator[str]:
    """One line for each thing that must not be; no more than twenty of a kind.

    ``in_doubt`` are values that were sent and not confirmed: they may be there.
    """
    rows = list(delivered)
    seen = Counter(row.place for row in rows)
    missing = sorted(set(produced) - set(seen))
    for partition, offset in missing[:SHOWN_MAX]:
        yield f"missing: partition {partition} offset {offset} ({len(missing)} in all)"
    twice = sorted(place for place, count in seen.items() if count > 1)
    for place in twice[:SHOWN_MAX]:
        batches = sorted(row.batch for row in rows if row.place == place)
        yield (
            f"duplicate: partition {place[0]} offset {place[1]} in the batches {batches} "
            f"({len(twice)} in all)"
        )
    wrong = [
        row
        for row in rows
        if produced.get(row.place) != row.value
        and (row.place in produced or row.value not in in_doubt)
    ]
    for row in wrong[:SHOWN_MAX]:
        yield f"wrong: {row}, produced {produced.get(row.place)!r} ({len(wrong)} in all)"


def copy_problems(produced: Iterable[bytes], copied: Copied) -> Iterator[str]:
    """One line for each thing that must not be in a copy that has each value at least once."""
    sent = set(produced)
    missing = sorted(sent - copied.keys())
    for value in missing[:SHOWN_MAX]:
        yield f"missing in the copy: {value!r} ({len(missing)} in all)"
    wrong = sorted(copied.keys() - sent)
    for value in wrong[:SHOWN_MAX]:
        yield f"wrong in the copy: {value!r} was not produced ({len(wrong)} in all)"
