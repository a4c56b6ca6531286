"""A consumer group of workers while its processes die: the short trial, and its verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.consumer_chaos.journal import Entry, Kind, entries, line
from tests.faults.consumer_chaos.trial import SHORT, SHORT_EXACT, run
from tests.faults.consumer_chaos.verdict import Verdict, judge, judge_outputs


@pytest.mark.slow
def test_no_record_is_lost_and_no_key_overtaken_while_processes_die(tmp_path: Path) -> None:
    verdict = run(SHORT, 1, tmp_path)
    assert verdict.problems == []
    assert verdict.finished == SHORT.records
    # What a dead or frozen process had finished and not committed, of two kills and a freeze.
    assert verdict.repeated < SHORT.records / 2


@pytest.mark.slow
def test_each_record_has_one_output_in_transactions(tmp_path: Path) -> None:
    verdict = run(SHORT_EXACT, 2, tmp_path)
    assert verdict.problems == []


def test_the_verdict_of_outputs() -> None:
    fine, twice, missing = Verdict(), Verdict(), Verdict()
    judge_outputs(["k 0", "l 0", "k 1"], {"k": 2, "l": 1}, fine)
    judge_outputs(["k 0", "k 1", "k 0"], {"k": 2}, twice)
    judge_outputs(["k 1"], {"k": 2}, missing)
    assert fine.problems == []
    assert "twice [0]" in twice.problems[0]
    assert "missing [0]" in missing.problems[0]


def history(text: str) -> list[Entry]:
    """Entries of one partition and key: ``B0 E0`` is record 0, begun and finished."""
    return [
        Entry(Kind(word[0]), at, 0, "k" if word[1:] else "", int(word[1:] or -1))
        for at, word in enumerate(text.split())
    ]


@pytest.mark.parametrize(
    ("journal", "problem"),
    [
        ("A B0 E0 B1 E1", None),
        ("A B0 E0 B1 F1 B1 E1", None),
        ("A B0 E0 B1 G A B0 E0 B1 E1", None),
        ("A B0 E0 B1", "k 1 was never finished"),
        ("A B0 B1 E0 E1", "began while 0 was running"),
        ("A B1 E1 B0 E0", "began after 1"),
        ("A B1 E1 G A B0 E0", "k 1 began before 0 was finished"),
    ],
)
def test_the_verdict_sees_what_is_wrong(journal: str, problem: str | None) -> None:
    problems = judge({"one": history(journal)}, {"k": 2}).problems
    assert bool(problems) is (problem is not None)
    if problem is not None:
        assert any(problem in found for found in problems)


def test_a_line_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "1.journal"
    path.write_bytes(line(Kind.BEGUN, 5, 2, "k 1", 3) + line(Kind.FINISHED, 6, 2, "k 1", 3)[:-1])
    assert list(entries(path)) == [Entry(Kind.BEGUN, 5, 2, "k 1", 3)]
