"""Measure our broker by itself: ``python -m tests.bench.alone [--only NAME]``.

Figures are kept beside those of the other benchmarks, in ``build/bench/results.json``, and stand
in the same report.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from statistics import median
from typing import Any

import click

from tests.bench.__main__ import REPORT, ROOT, renew
from tests.bench.alone import core, long_polls, many_groups, state, wide_join
from tests.bench.alone.figure import Figure
from tests.bench.machine import commit, today
from tests.bench.report import report

MEASUREMENTS: dict[str, Callable[[], list[Figure]]] = {
    "core": core.measure,
    "many_groups": many_groups.measure,
    "long_polls": long_polls.measure,
    "wide_join": wide_join.measure,
    "state": state.measure,
}


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(MEASUREMENTS)))
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--quotable", is_flag=True, help="Write the medians into docs/benchmarks.md.")
def main(*, only: tuple[str, ...], rounds: int, quotable: bool) -> None:
    """Measure, and say what reaches its limit; exit code 1 where one does not."""
    reached = True
    for name in only or MEASUREMENTS:
        figures = medians([MEASUREMENTS[name]() for _ in range(rounds)])
        for one in figures:
            click.echo(
                f"{'reached' if one.reached else 'MISSED '} {one.value:14,.3f} {one.unit}  "
                f"{one.what}"
            )
            reached &= one.reached
        if quotable:
            REPORT.write_text(report(renew({}, {name: _kept(figures, rounds)})))
    sys.exit(0 if reached else 1)


def medians(rounds: list[list[Figure]]) -> list[Figure]:
    """One figure for each line, with the median of its values."""
    return [
        Figure(**{**asdict(same[0]), "value": median(one.value for one in same)})
        for same in zip(*rounds, strict=True)
    ]


def _kept(figures: list[Figure], rounds: int) -> dict[str, Any]:
    return {
        "commit": commit(ROOT),
        "date": today(),
        "rounds": rounds,
        "figures": [asdict(one) for one in figures],
    }


if __name__ == "__main__":
    main()
