"""What a worker writes down about its own work, so that its death hides nothing.

One file for each worker, one JSON object a line, in the order in which things happened:

    started                    the worker can be given records
    begun   batch, records     the handler was called, and looks at them next
    ended   batch, ends        the handler returns this next: done, or to be tried again
    buried  record, reason     it lies with the dead letters, and its rejection is on its way

What the worker knew when it was killed is thus in its file: a batch that did not end was in its
hands, and what a batch ended with may not have reached the broker any more.  A line is one
``write``, which the page cache keeps when the process dies; a last line without its end is a
write that was cut off, so what it announces was not done yet, and it is not read.

Times are microseconds of the machine's monotonic clock, which all processes share, so that
lines of different workers can be put in order.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple


class What(StrEnum):
    """What a line tells."""

    STARTED = "started"
    BEGUN = "begun"
    ENDED = "ended"
    BURIED = "buried"


class Begun(NamedTuple):
    """A record as it was handed to the handler."""

    partition: int
    offset: int
    attempt: int
    delivery_count: int
    produced_ms: int
    """Wall clock, by the producer."""


class Ended(NamedTuple):
    """What the handler says of a record."""

    partition: int
    offset: int
    done: bool
    """Else it is to be tried again."""


class LineWriter:
    """A ledger's file, open for appending; each line is stamped with its time."""

    __slots__ = ("_file",)

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, line: Mapping[str, Any]) -> None:
        """Write one line; nothing of it is lost when the process is killed after that."""
        text = json.dumps({**line, "at_us": time.monotonic_ns() // 1_000}, separators=(",", ":"))
        rest = text.encode() + b"\n"
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def close(self) -> None:
        os.close(self._file)


class LedgerWriter:
    """One worker's file."""

    __slots__ = ("_lines",)

    def __init__(self, path: Path) -> None:
        self._lines = LineWriter(path)

    def started(self) -> None:
        """The worker can be given records from now on."""
        self._lines.append({"what": What.STARTED})

    def begun(self, batch: int, records: Sequence[Begun]) -> None:
        """The handler was called with these records."""
        self._lines.append({"what": What.BEGUN, "batch": batch, "records": records})

    def ended(self, batch: int, ends: Sequence[Ended], *, wall_ms: int) -> None:
        """It returns this next; ``wall_ms`` is compared with the producer's times."""
        self._lines.append({"what": What.ENDED, "batch": batch, "ends": ends, "wall_ms": wall_ms})

    def buried(self, partition: int, offset: int, reason: str) -> None:
        """A record is with the dead letters."""
        self._lines.append({"what": What.BURIED, "record": [partition, offset], "reason": reason})

    def close(self) -> None:
        self._lines.close()


class LedgerReader:
    """Reads a ledger while it grows: each call returns the lines that were added since."""

    __slots__ = ("_path", "_position")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new_lines(self) -> list[dict[str, Any]]:
        """The whole lines since the last call; none while there is no file."""
        if not self._path.exists():
            return []
        with open(self._path, "rb") as file:
            file.seek(self._position)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._position += len(whole)
        return [json.loads(line) for line in whole.splitlines()]
