"""The ledger of a worker: a file with its decisions, which survives a kill of the worker.

Each worker has one file, with one JSON object per line, in the order of the events:

    started                    the worker is ready for records
    begun   batch, records     the handler was called with the records
    ended   batch, ends        the handler is about to return: done, or to be retried
    buried  record, reason     the dead letter is written, and the rejection is being sent

So the file has the state of the worker when it was killed. A batch without an end was in the
handler, and the outcomes of an ended batch may not have reached the broker. A line is one
``write``, which the page cache keeps when the process dies. A last line without a newline is an
incomplete write. Its event had not happened yet, so it is not read.

Times are in microseconds of the machine's monotonic clock, which all processes share, so that
lines of different workers can be ordered.
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
    """The event that a line records."""

    STARTED = "started"
    BEGUN = "begun"
    ENDED = "ended"
    BURIED = "buried"


class Begun(NamedTuple):
    """A record that the handler was called with."""

    partition: int
    offset: int
    attempt: int
    delivery_count: int
    produced_ms: int
    """The record's timestamp: the producer's wall clock."""


class Ended(NamedTuple):
    """The outcome of a record in the handler."""

    partition: int
    offset: int
    done: bool
    """False if the record is to be retried."""


class LineWriter:
    """Appends lines to a ledger's file, each with its time."""

    __slots__ = ("_file",)

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, line: Mapping[str, Any]) -> None:
        """Write one line; it is kept even if the process is killed after that."""
        text = json.dumps({**line, "at_us": time.monotonic_ns() // 1_000}, separators=(",", ":"))
        unwritten = text.encode() + b"\n"
        while unwritten:
            unwritten = unwritten[os.write(self._file, unwritten) :]

    def close(self) -> None:
        """Close the ledger's file."""
        os.close(self._file)


class LedgerWriter:
    """Writes the ledger of one worker."""

    __slots__ = ("_lines",)

    def __init__(self, path: Path) -> None:
        self._lines = LineWriter(path)

    def started(self) -> None:
        """Record that the worker is ready for records."""
        self._lines.append({"what": What.STARTED})

    def begun(self, batch: int, records: Sequence[Begun]) -> None:
        """Record that the handler was called with these records."""
        self._lines.append({"what": What.BEGUN, "batch": batch, "records": records})

    def ended(self, batch: int, ends: Sequence[Ended], *, wall_ms: int) -> None:
        """Record that the handler is about to return; ``wall_ms`` is for latencies."""
        self._lines.append({"what": What.ENDED, "batch": batch, "ends": ends, "wall_ms": wall_ms})

    def buried(self, partition: int, offset: int, reason: str) -> None:
        """Record that a dead letter was written."""
        self._lines.append({"what": What.BURIED, "record": [partition, offset], "reason": reason})

    def close(self) -> None:
        """Close the ledger's file."""
        self._lines.close()


class LedgerReader:
    """Reads a ledger while it grows: each call returns the lines added since the last one."""

    __slots__ = ("_path", "_position")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new_lines(self) -> list[dict[str, Any]]:
        """Return the complete lines added since the last call; [] if there is no file yet."""
        if not self._path.exists():
            return []
        with open(self._path, "rb") as file:
            file.seek(self._position)
            added = file.read()
        complete = added[: added.rfind(b"\n") + 1]
        self._position += len(complete)
        return [json.loads(line) for line in complete.splitlines()]
