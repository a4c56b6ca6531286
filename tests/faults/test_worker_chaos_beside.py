"""The judges of what runs beside the share group in the worker's chaos see what is wrong.

Journals, outputs and answers written by hand.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.worker_chaos.commands import Given
from tests.faults.worker_chaos.commands_verdict import (
    judge_answers,
    judge_exits,
    judge_runs,
    judge_waiting,
    judge_workers,
)
from tests.faults.worker_chaos.journal import Journal, Line, read
from tests.faults.worker_chaos.keyed import judge_keyed, judge_outputs
from tests.faults.worker_chaos.names import KEYED, KEYS, PLAIN

WORDS = {"A": "assigned", "G": "revoked", "B": "begin", "F": "raise", "E": "return"}
PID = 7


def line(what: str, at: float, number: int = -1, attempt: int = 0) -> Line:
    return Line(PID, what, at, 0, number, attempt, 0, (KEYED, 0, -1), None, None, "")


def history(text: str) -> list[Line]:
    """Entries of one partition and key: ``B0 E0`` is record 0, begun and finished."""
    return [
        line(WORDS[word[0]], at, int(word[1:]) * KEYS if word[1:] else -1)
        for at, word in enumerate(text.split())
    ]


@pytest.mark.parametrize(
    ("journal", "problem"),
    [
        ("A B0 E0 B1 E1", None),
        ("A B0 E0 B1 F1 B1 E1", None),
        ("A B0 E0 B1 G A B0 E0 B1 E1", None),
        ("A B0 E0 B1", "record 1 of key 0 was never finished"),
        ("A B0 B1 E0 E1", f"began while {0} ran"),
        ("A B1 E1 B0 E0", f"began after {KEYS}"),
        ("A B1 E1 G A B0 E0", "record 1 of key 0 began before record 0 of key 0 was finished"),
    ],
)
def test_keys_that_are_overtaken_and_lost_records_are_seen(
    journal: str, problem: str | None
) -> None:
    others = [
        line(what, 0, number)
        for number in range(KEYS + 1)
        if number % KEYS
        for what in ("begin", "return")
    ]
    problems = judge_keyed([*others, *history(journal)], KEYS + 1).problems
    assert bool(problems) is (problem is not None)
    assert problem is None or any(problem in found for found in problems)


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        ([0, 1, KEYS], None),
        ([0, 1, KEYS, 0], "key 0: outputs twice [0]"),
        ([1, KEYS], "key 0: outputs twice [], missing [0]"),
        ([0, KEYS], "key 1: outputs twice [], missing [1]"),
        ([KEYS, 0, 1], "key 0"),
        ([0, 1, KEYS, 2 * KEYS], "key 0"),
    ],
)
def test_outputs_that_are_twice_missing_or_out_of_order_are_seen(
    outputs: list[int], problem: str | None
) -> None:
    others = list(range(2, KEYS))
    problems = list(judge_outputs([*others, *outputs], KEYS + 1))
    assert bool(problems) is (problem is not None)
    assert problem is None or problems[0].startswith(problem)


def runs(name: str, *seconds: int, suffix: str = "") -> Counter[str]:
    return Counter(f"{name}@2026-11-30T12:00:{second:02}Z{suffix}" for second in seconds)


NOON = 1_796_040_000.0
"""2026-11-30T12:00:00Z, in seconds since 1970: the offset of a monotonic clock that began then."""


@pytest.mark.parametrize(
    ("found", "given", "problem"),
    [
        (runs("s9", 1, 2, 3), [], None),
        (runs("s9", 1, 2) + runs("s9", 2), [], "run s9@2026-11-30T12:00:02Z was written 2 times"),
        (runs("s9", 1, 3), [], "schedule s9 has no runs of"),
        (runs("s0", 1, 2, 20), [Given("pause", "s0", 2, 2.5, "done")], None),
        (runs("s0", 1, 2, 9, 20), [Given("pause", "s0", 2, 2.5, "done")], "in the pause of"),
        (runs("s0", 1, 2, 9, 20), [Given("pause", "s0", 2, 2.5, "failed")], None),
        (runs("s0", 1, 2, 20), [Given("resume", "s0", 2, 2.5, "done")], "did not run at"),
        (runs("s0", 1, 2, suffix="/ab"), [Given("run", "s0", 1, 1.5, "done")], "2 times"),
        (runs("s0", 1), [Given("run", "s0", 1, 1.5, "done")], "0 times"),
        (runs("s0", 1), [Given("run", "s0", 1, 1.5, "failed")], None),
    ],
)
def test_runs_that_are_twice_missing_or_not_asked_for_are_seen(
    found: Counter[str], given: list[Given], problem: str | None
) -> None:
    found += runs("s8", 20)
    until = [Given("pause", "s0", 19, 19.5, "done")]
    problems = list(judge_runs(found, found.keys(), [*given, *until], NOON))
    assert bool(problems) is (problem is not None)
    assert problem is None or problem in problems[0]


def test_run_that_was_not_handled_is_seen() -> None:
    found = runs("s9", *range(1, 30))
    (problem,) = judge_runs(found, found.keys() - runs("s9", 3).keys(), [], NOON)
    assert problem == "run s9@2026-11-30T12:00:03Z was not handled"


def test_process_that_is_quiet_and_begins_or_does_not_stop_is_seen() -> None:
    quiet = [Given("quiet", "7", 1, 2, "done"), Given("resume", "7", 5, 6, "done")]
    stop = [Given("stop", "8", 1, 2, "done")]
    assert list(judge_workers([*quiet, *stop], {7: [1.5, 5.5]}, {8: (3.0, 0)})) == []
    assert "began 1 records" in next(judge_workers(quiet, {7: [3.0]}, {}))
    assert "process 8 ended at inf" in next(judge_workers(stop, {}, {}))
    assert list(judge_exits(stop, {8: (3.0, 0), 9: (3.0, -9)})) == []
    assert "nobody had asked" in next(judge_exits([], {8: (3.0, 0)}))
    assert "ended at 3.0 with 1" in next(judge_exits([], {8: (3.0, 1)}))


@pytest.mark.parametrize(
    ("attempts", "letters", "command", "problem"),
    [
        ((1, 2), 0, "run", None),
        ((1,), 1, "cancel", None),
        ((1, 1, 2), 1, "cancel", None),
        ((1, 1), 0, "cancel", "no letter, did not run; expected one end"),
        ((1,), 0, "cancel", "no letter, did not run; expected one end"),
        ((1, 2), 1, "cancel", "a letter, ran"),
        ((1, 2), 0, "cancel", "commands {'cancel'} were done"),
        ((1,), 1, "run", "commands {'run'} were done"),
    ],
)
def test_waiting_record_with_two_ends_or_another_one_is_seen(
    attempts: tuple[int, ...], letters: int, command: str, problem: str | None
) -> None:
    lines = [line("begin", attempt, 5, attempt) for attempt in attempts]
    lines += [line("return", 3, 5, 2)] * (2 in attempts)
    given = [Given(command, "5", 1, 2, "done"), Given(command, "s0", 1, 2, "done")]
    problems = list(judge_waiting([5], lines, [5] * letters, given))
    assert bool(problems) is (problem is not None)
    assert problem is None or problem in problems[0]


def test_command_without_an_answer_in_time_is_seen() -> None:
    assert list(judge_answers([Given("run", "s0", 1, 80, "failed")])) == []
    assert "too late" in next(judge_answers([Given("run", "s0", 1, 100, "done")]))


def test_a_line_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for number in range(2):
        journal.write("begin", number, place=(PLAIN, 2, 3))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert [found.number for found in read(tmp_path)] == [0]
