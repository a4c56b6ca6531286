"""Writes docs/comparison.md: what sharegroup is beside other systems, with every measured line.

The figures are those of docs/benchmarks.json, which `make bench-peers` writes.  The words around
them are written by hand, outside the part that is named ``lines``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.bench.peers.brokers import FSYNC, OS

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.json"
NONE = "-"
BELOW = 0.995
"""A ratio that is shown as 1.00 is not behind."""
GROWTH = "Beside itself: many groups, partitions and records in flight, and the bounds of locks"
SUBJECTS = {
    "Share groups: reading records": ("P1", "P2", "P3", "P4", "P5", "P6"),
    "Time from produce to consume": ("P9",),
    "Producing": ("P10",),
    "Over TLS": ("P20",),
    "Transactions": ("P18",),
    "Plain consumers in a consumer group": ("P19",),
    "Start and memory": ("P7", "P8", "cli-start"),
    "Our share consumer beside confluent's, on the same broker": ("P11",),
    "Workers beside other queues": ("P12",),
    "Spark beside Spark's own Kafka source": ("P13",),
    GROWTH: ("P14", "P15", "spark-default-limits"),
}
"""The workloads of the benchmark by subject; a test holds this to be all of them."""

HEADING = (
    "| what | unit | ours, `fsync` | ours, `os` | peer | its figure "
    "| ratio, `fsync` | ratio, `os` |"
)


def comparison() -> Iterator[str]:
    """The lines of the generated part."""
    results = json.loads(RESULTS.read_text())
    first = results["P1"]
    machine = "; ".join(f"{name} {value}" for name, value in first["machine"].items())
    yield ""
    yield f"Measured {first['date']} at {first['commit']}: {machine}."
    yield ""
    yield "## Where sharegroup is behind"
    yield ""
    beside_others = [
        said
        for subject, names in SUBJECTS.items()
        if subject != GROWTH
        for name in names
        for said in results[name]["comparisons"]
    ]
    behind = [row for row in rows(beside_others) if row.lowest is not None and row.lowest < BELOW]
    yield from table(sorted(behind, key=lambda row: row.lowest or 0.0))
    for subject, names in SUBJECTS.items():
        yield f"\n## {subject}\n"
        yield from table(rows(said for name in names for said in results[name]["comparisons"]))


class Row:
    """One line of the benchmark beside one peer, with each durability that was measured."""

    def __init__(self, what: str, unit: str, peer: str) -> None:
        self.what, self.unit, self.peer = what, unit, peer
        self.peers_figure: float | None = None
        self.ours: dict[str, float | None] = {}
        self.ratios: dict[str, float | None] = {}

    @property
    def lowest(self) -> float | None:
        """The lowest ratio; None if nothing could be compared."""
        return min((ratio for ratio in self.ratios.values() if ratio is not None), default=None)

    def cells(self) -> list[str]:
        return [
            self.what,
            self.unit,
            figure(self.ours.get(FSYNC)),
            figure(self.ours.get(OS)),
            self.peer,
            figure(self.peers_figure),
            ratio_text(self.ratios.get(FSYNC)),
            ratio_text(self.ratios.get(OS)),
        ]


def rows(comparisons: Iterable[dict[str, Any]]) -> list[Row]:
    """The comparisons, those of both durabilities with one peer in one row."""
    found: dict[tuple[str, str, float | None], Row] = {}
    for said in comparisons:
        what, durability = said["what"], said["ours_is"].removesuffix(" TLS")
        if durability not in (FSYNC, OS):  # Our client, on a broker that is not ours.
            what, durability = f"{what}, on {durability}", OS
        row = found.setdefault(
            (what, said["peer_is"], said["peer"]), Row(what, said["unit"], said["peer_is"])
        )
        row.ours[durability] = said["ours"]
        row.ratios[durability] = said["ratio"]
        row.peers_figure = said["peer"]
    return list(found.values())


def table(shown: Iterable[Row]) -> Iterator[str]:
    yield HEADING
    yield "|---|---|---:|---:|---|---:|---:|---:|"
    for row in shown:
        yield f"| {' | '.join(row.cells())} |"


def figure(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def ratio_text(ratio: float | None) -> str:
    if ratio is None:
        return NONE
    return (
        f"**{ratio:.2f}**" if ratio < BELOW else f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"
    )
