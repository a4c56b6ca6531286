"""The judge of the worker's chaos takes a run alone for the delays that it explains, and no others.

Journals written by hand: one process runs a record alone, and a retry that was due at 100.0 begins.
"""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from tests.faults.worker_chaos.journal import ALONE, Line
from tests.faults.worker_chaos.records import JOBS
from tests.faults.worker_chaos.topics import Topics
from tests.faults.worker_chaos.verdict import ALONE_SECONDS_MAX, Verdict, verdict

PID, OTHER = 7, 8
DUE = 100.0
DELAY_MS = 300
SUSPECT = ("chaos.retry", 0, 1)
WALL_OFFSET_MS = time.time_ns() // 1_000_000 - round(time.monotonic() * 1000)


def line(
    what: str,
    at: float,
    offset: int = 0,
    *,
    pid: int = PID,
    place: tuple[str, int, int] | None = None,
) -> Line:
    where = place or (JOBS, 0, offset)
    return Line(
        pid, what, at, WALL_OFFSET_MS + round(at * 1000), offset, 1, 1, where, None, None, ""
    )


def retry(at: float, offset: int = 1) -> Line:
    """The begin of a retry that was due at `DUE`."""
    due_ms = WALL_OFFSET_MS + round(DUE * 1000)
    return line("begin", at, offset)._replace(attempt=2, due_ms=due_ms, failed_ms=due_ms - DELAY_MS)


def alone(begin: float, end: float | None, *, pid: int = PID) -> list[Line]:
    lines = [line(ALONE, begin, pid=pid, place=SUSPECT), line("begin", begin, place=SUSPECT)]
    return lines if end is None else [*lines, line("return", end, place=SUSPECT)]


def judged(*lines: Line) -> Verdict:
    ordered = sorted(lines, key=lambda line: line.at)
    assert all(first.at <= second.at for first, second in pairwise(ordered))
    return verdict([], ordered, [], Topics(sources=[], own=[], tiers=[], letters=[]))


@pytest.mark.parametrize(
    ("lines", "begins"),
    [
        pytest.param(alone(100.1, 101), 101.1, id="during the run"),
        pytest.param(alone(108.9, 109), 109.1, id="the others had to end before"),
        pytest.param(alone(98.5, 99.9), 102.3, id="it was settled late"),
        pytest.param(alone(100, None), 102, id="the process was killed"),
        pytest.param([*alone(99.5, 100), *alone(103.9, 105)], 107.4, id="two runs, one by one"),
        pytest.param([line("record.put_aside", 104)], 104.05, id="its turn did not come"),
        pytest.param(alone(100, 102), 117.05, id="the longest settlement, and what is promised"),
    ],
)
def test_delay_that_runs_alone_explain_is_counted_apart(lines: list[Line], begins: float) -> None:
    others = [line("begin", 200, number, pid=OTHER) for number in range(2)]
    found = judged(*lines, retry(begins), line("begin", begins, 9), *others)
    assert (found.delays.late, len(found.delays.behind_alone_ms)) == (0, 1)


@pytest.mark.parametrize(
    ("lines", "begins"),
    [
        pytest.param([], 101, id="no run alone"),
        pytest.param(alone(100.1, 101, pid=OTHER), 101.1, id="in another process"),
        pytest.param(alone(100, 100.5), 116.5, id="longer than a settlement"),
        pytest.param(alone(100, 130), 130, id="a run without an end"),
        pytest.param(alone(111, 111.1), 111.2, id="longer than the others may take before"),
        pytest.param([*alone(100.1, 100.2), line("begin", 100.3, 5)], 102, id="open again"),
        pytest.param([*alone(104, 104.1), line("begin", 103.5, 5)], 104.2, id="open still"),
        pytest.param([line("record.put_aside", 104), line("begin", 104, 5)], 106, id="put aside"),
        pytest.param([line("record.put_aside", 102)] * 3, 103, id="the same time three times"),
    ],
)
def test_delay_that_runs_alone_do_not_explain_is_late(lines: list[Line], begins: float) -> None:
    found = judged(*lines, retry(begins))
    assert (found.delays.late, found.delays.behind_alone_ms) == (1, [])
    assert "late after a delay of 300 ms" in "".join(found.problems)


def test_delay_counted_for_one_run_alone_has_a_bound() -> None:
    counted = [
        late
        for begin in range(980, 1120)
        for end in range(begin, 1120, 7)
        for late in judged(
            *alone(begin / 10, end / 10), retry(end / 10 + 2.4)
        ).delays.behind_alone_ms
    ]
    assert 8_000 < max(counted) <= ALONE_SECONDS_MAX * 1000 + 100


def test_many_delays_behind_runs_alone_are_a_problem() -> None:
    on_time = [retry(DUE + 0.01, offset)._replace(pid=OTHER) for offset in range(10, 14)]
    behind = [retry(101, offset) for offset in range(4)]
    lines = [*alone(100, 101), *behind, *on_time]
    assert judged(*lines).problems == []
    (problem,) = judged(*lines, retry(101, 5)).problems
    assert problem.startswith("5 of 9 retries were late because of runs alone")
