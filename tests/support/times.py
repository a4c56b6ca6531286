"""Measures how long the targets of the gate take, and writes that into CONTRIBUTING.md.

    python -m tests.support.times [TARGET ...]      `make times`; all of `TARGETS` by default

No other place says how long a target takes.  The processor time is the better measure on a machine
that does other work, too.  A target that fails keeps its former row, and the exit code is 1.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"
TARGETS = ("check", "unit", "fast", "test", "test-slow")
HEAD = "| target | time | processor time | processors |"
TABLE = re.compile(re.escape(HEAD) + r"\n\|[-|]+\|\n((?:\|.*\n)+)")
ROW = re.compile(r"\| `make ([\w-]+)` \|.*\n")


class Measured(NamedTuple):
    """The time of one run of a target, in seconds."""

    seconds: float
    processor_seconds: float
    processors: int

    def row(self, target: str) -> str:
        """Return the row of the table."""
        spent = f"{_text(self.seconds)} | {_text(self.processor_seconds)}"
        return f"| `make {target}` | {spent} | {self.processors} |\n"


def with_rows(page: str, measured: Mapping[str, Measured]) -> str:
    """Return the page with the rows of these targets; other rows stay."""
    table = TABLE.search(page)
    assert table is not None, f"expected a table with the heading {HEAD!r} in {PAGE.name}"
    rows = {match[1]: match[0] for match in ROW.finditer(table[1])}
    rows |= {target: times.row(target) for target, times in measured.items()}
    ordered = [rows[target] for target in TARGETS if target in rows]
    return page[: table.start(1)] + "".join(ordered) + page[table.end(1) :]


def main(targets: Sequence[str], make: Sequence[str] = ("make",)) -> int:
    """Measure these targets one after the other; return the exit code."""
    unknown = sorted(set(targets) - set(TARGETS))
    if unknown:
        print(f"expected targets among {', '.join(TARGETS)}, got {', '.join(unknown)}")
        return 2
    measured, failed = {}, []
    for target in targets or TARGETS:
        times = _measured([*make, target])
        if times is None:
            failed.append(target)
            continue
        measured[target] = times
        print(times.row(target), end="", flush=True)
    PAGE.write_text(with_rows(PAGE.read_text(), measured))
    if failed:
        print(f"not measured, because they failed: {', '.join(failed)}")
    return 1 if failed else 0


def _measured(command: Sequence[str]) -> Measured | None:
    """Run a command; None if it fails."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ended = subprocess.run(command, check=False)
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return Measured(seconds, spent, processors) if ended.returncode == 0 else None


def _text(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
