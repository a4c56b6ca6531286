"""What a worker writes down about its own work, so that its death hides nothing.

One file for each worker, one JSON object a line, in the order in which things happened:

    started                     the worker can be given records
    delivered  batch, records   before the worker looks at them
    sent       batch, outcomes  before the acknowledgements go out
    answered   batch, errors    after the broker's reply, by partition; null is "confirmed"

What the worker knew when it was killed is thus in its file: a batch without `sent` was never
acknowledged, a batch without `answered` is in doubt.  A line is one ``write``, which the page
cache keeps when the process dies; a last line without its end is a write that was cut off, so
what it announces was not done yet, and it is not read.

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
    DELIVERED = "delivered"
    SENT = "sent"
    ANSWERED = "answered"


class Delivered(NamedTuple):
    """A record as it was handed to the worker."""

    partition: int
    offset: int
    delivery_count: int
    produced_ms: int
    """Wall clock, by the producer."""


class Sent(NamedTuple):
    """What the worker decided about a record; ``outcome`` is the acknowledge type's number."""

    partition: int
    offset: int
    outcome: int


Answers = Mapping[int, str | None]
"""By partition: None is confirmed, else the error, its class's name first."""

IN_DOUBT = "NetworkException"
"""The error that means: sent, and no answer came."""


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

    def delivered(self, batch: int, records: Sequence[Delivered]) -> None:
        """These records were handed to the worker."""
        self._lines.append({"what": What.DELIVERED, "batch": batch, "records": records})

    def sent(self, batch: int, outcomes: Sequence[Sent]) -> None:
        """These acknowledgements go out next."""
        self._lines.append({"what": What.SENT, "batch": batch, "outcomes": outcomes})

    def answered(self, batch: int, errors: Answers, *, wall_ms: int) -> None:
        """What became of them; ``wall_ms`` is compared with the producer's times."""
        line = {"what": What.ANSWERED, "batch": batch, "errors": errors, "wall_ms": wall_ms}
        self._lines.append(line)

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
