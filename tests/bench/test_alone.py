"""What is measured of our broker by itself, small: each measurement works and says what it is."""

from __future__ import annotations

from dataclasses import asdict

from tests.bench.alone import core, long_polls, many_groups, wide_join
from tests.bench.alone.__main__ import medians
from tests.bench.alone.figure import Figure
from tests.bench.alone.report import report


def test_the_measurements_work() -> None:
    found = [
        *core.measure(records=200, rounds=1),
        *many_groups.measure(groups=2, seconds=0.1),
        *long_polls.measure(members=2, seconds=1.0),
        *wide_join.measure(members=2, partitions=4),
    ]
    assert [result.unit for result in found] == [
        "accepts/s of CPU time",
        "B per run",
        "% of a core",
        "MiB PSS",
        "% of a core",
        "s",
        "s of broker CPU",
    ]
    assert all(result.value >= 0 for result in found)


def test_figure_is_reached_within_its_limits() -> None:
    assert Figure(what="a", unit="s", value=1, at_most=1).reached
    assert not Figure(what="a", unit="s", value=1.1, at_most=1).reached
    assert Figure(what="a", unit="1/s", value=1, at_least=1).reached
    assert not Figure(what="a", unit="1/s", value=0.9, at_least=1).reached
    assert Figure(what="a", unit="s", value=9).reached


def test_report_shows_which_figures_were_reached() -> None:
    rounds = [
        [
            Figure(what="a", unit="s", value=value, at_most=2),
            Figure(what="b", unit="1/s", value=value, at_least=5),
        ]
        for value in (1, 9, 2)
    ]
    figures = [asdict(median) for median in medians(rounds)]
    kept = {"commit": "c", "date": "d", "rounds": 3, "figures": figures}
    text = report({"w": kept})
    assert "| a | s | **2** | ≤ 2 | 3 | c, d |\n| b | 1/s | 2 ✗ | ≥ 5 | 3 | c, d |" in text
