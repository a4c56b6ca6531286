"""The journal of one process: what its handlers did, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

TOPIC = "chaos-records"
OUTPUTS = "chaos-outputs"
"""What handlers send, if the trial is one of ``exactly_once``."""
PARTITIONS = 6


class Kind(StrEnum):
    """What happened."""

    ASSIGNED = "A"
    GONE = "G"
    BEGUN = "B"
    FAILED = "F"
    FINISHED = "E"


class Entry(NamedTuple):
    """One line; ``key`` and ``number`` are of the record, if it is about one."""

    kind: Kind
    at_ns: int
    partition: int
    key: str
    number: int


def line(kind: Kind, at_ns: int, partition: int, key: str, number: int) -> bytes:
    return f"{kind} {at_ns} {partition} {number} {key}\n".encode()


def entries(path: Path) -> Iterator[Entry]:
    """The entries of a process; a last line that is not whole is left out."""
    for text in path.read_text().split("\n")[:-1]:
        kind, at_ns, partition, number, key = text.split(" ", 4)
        yield Entry(Kind(kind), int(at_ns), int(partition), key, int(number))
