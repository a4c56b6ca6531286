"""Measure our broker by itself: ``python -m tests.bench.alone [--only NAME]``.

With ``--quotable`` the figures are kept in ``build/bench/alone.json``, and the part "By itself" of
``docs/benchmarks.md`` is made from all that is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from statistics import median
from typing import Any

import click

from tests.bench.alone import core, long_polls, many_groups, state, wide_join
from tests.bench.alone.figure import Figure
from tests.bench.alone.report import report
from tests.bench.document import ROOT, write_part
from tests.bench.machine import commit, today

MEASUREMENTS: dict[str, Callable[[], list[Figure]]] = {
    "core": core.measure,
    "many_groups": many_groups.measure,
    "long_polls": long_polls.measure,
    "wide_join": wide_join.measure,
    "state": state.measure,
}

KEPT = ROOT / "build" / "bench" / "alone.json"


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(MEASUREMENTS)))
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--quotable", is_flag=True, help="Write the medians into docs/benchmarks.md.")
def main(*, only: tuple[str, ...], rounds: int, quotable: bool) -> None:
    """Measure, and say what reaches its limit; exit code 1 where one does not."""
    reached = True
    for name in only or MEASUREMENTS:
        figures = medians([MEASUREMENTS[name]() for _ in range(rounds)])
        for figure in figures:
            click.echo(
                f"{'reached' if figure.reached else 'MISSED '} {figure.value:14,.3f} "
                f"{figure.unit}  {figure.what}"
            )
            reached &= figure.reached
        if quotable:
            write_part("alone", report(_renew({name: _kept(figures, rounds)})))
    sys.exit(0 if reached else 1)


def medians(rounds: list[list[Figure]]) -> list[Figure]:
    """One figure for each line, with the median of its values."""
    return [
        Figure(**{**asdict(same[0]), "value": median(result.value for result in same)})
        for same in zip(*rounds, strict=True)
    ]


def _renew(measured: dict[str, Any]) -> dict[str, Any]:
    """Keep these in place of older ones of the same names, and all others as they were."""
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    known |= measured
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_text(json.dumps(known, indent=1))
    return {name: known[name] for name in MEASUREMENTS if name in known}


def _kept(figures: list[Figure], rounds: int) -> dict[str, Any]:
    return {
        "commit": commit(ROOT),
        "date": today(),
        "rounds": rounds,
        "figures": [asdict(figure) for figure in figures],
    }


if __name__ == "__main__":
    main()
