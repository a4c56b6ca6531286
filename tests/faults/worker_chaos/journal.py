"""What a worker's process writes down about its runs, so that its death hides nothing.

One file for each process, one line for each thing, written with one ``write``: what the kernel
has taken stays when the process dies.  A last line without its end is not read.  The processes
of one machine share the monotonic clock, so that their lines can be put in order.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

SUFFIX = ".journal"
STOOD_STILL = "stood still"
LOOP_LATE = "loop late"
ALONE = "alone"
"""A record begins that runs alone in its worker, whose line this is also if a child runs it."""
PULSE_SECONDS = 0.01


class Line(NamedTuple):
    """One thing that happened."""

    pid: int
    what: str
    """``begin``, ``return``, ``raise``, or the name of an event."""
    at: float
    """Seconds of the monotonic clock."""
    wall_ms: int
    number: int
    """Of the record."""
    attempt: int
    delivery_count: int
    place: tuple[str, int, int]
    """Topic, partition and offset of the delivery."""
    due_ms: int | None
    """When the run was due, of a retry."""
    failed_ms: int | None
    """When the run before it failed."""
    error: str
    fetched_at: float = 0.0
    """When the fetch was sent that brought the delivery; by consumers that are no workers."""


class Journal:
    """This process's file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid = 0
        self._file = -1

    def write(
        self,
        what: str,
        number: int,
        *,
        attempt: int = 0,
        delivery_count: int = 0,
        place: tuple[str, int, int] = ("", -1, -1),
        due_ms: int | None = None,
        failed_ms: int | None = None,
        error: str = "",
        fetched_at: float = 0.0,
        of_pid: int | None = None,
    ) -> None:
        """Write one line about this process, or about ``of_pid``."""
        if self._pid != os.getpid():  # A child process has a file of its own.
            self._pid = os.getpid()
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{self._pid}{SUFFIX}"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        line = (
            of_pid or self._pid, what, time.monotonic(), time.time_ns() // 1_000_000, number,
            attempt, delivery_count, place, due_ms, failed_ms, error, fetched_at,
        )  # fmt: skip
        text = json.dumps(line).encode() + b"\n"
        written = os.write(self._file, text)
        assert written == len(text), f"{written} of {len(text)} bytes were written"


def feel_the_pulse(journal: Journal) -> threading.Event:
    """Write down when this process did not get a processor: then nothing in it is on time.

    Until the event that it returns is set.
    """
    ended = threading.Event()

    def beat() -> None:
        before = time.monotonic()
        while not ended.wait(PULSE_SECONDS):
            stood_still = time.monotonic() - before - PULSE_SECONDS
            if stood_still > PULSE_SECONDS:
                journal.write(STOOD_STILL, -1, error=f"{stood_still:.3f}")
            before = time.monotonic()

    threading.Thread(target=beat, daemon=True).start()
    return ended


async def feel_the_loop(journal: Journal) -> None:
    """Write down when the event loop had other things to do than what was due."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(PULSE_SECONDS)
        late = time.monotonic() - before - PULSE_SECONDS
        if late > PULSE_SECONDS:
            journal.write(LOOP_LATE, -1, error=f"{late:.3f}")


def read(folder: Path) -> list[Line]:
    """The lines of all processes, in the order of their times."""
    lines = []
    for path in folder.glob(f"*{SUFFIX}"):
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        for text in whole.splitlines():
            pid, what, at, wall_ms, number, attempt, count, place, *rest = json.loads(text)
            lines.append(Line(pid, what, at, wall_ms, number, attempt, count, tuple(place), *rest))
    return sorted(lines, key=lambda line: line.at)
