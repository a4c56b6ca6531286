"""Draws ``docs/benchmarks.svg``: all measured ratios of each workload, on one scale, by peer.

A row is a workload and a peer, and a mark is the ratio of one line of ``docs/benchmarks.md``, so
that the chart leaves out no line in which the peer is better. Workloads that compare sharegroup
with itself are not in it.

    python -m tests.bench.peers.chart     draw it again from docs/benchmarks.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench.document import ROOT
from tests.bench.peers.brokers import FLUSHED, FSYNC, KAFKA, KAFKA_TLS, OS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESULTS = ROOT / "docs" / "benchmarks.json"
CHART = ROOT / "docs" / "benchmarks.svg"


class Subject(NamedTuple):
    """What a workload measures, in words for the chart."""

    label: str
    peer: str = ""
    """The peer's name if the comparisons do not name it, because it is a client or a tool."""


SUBJECTS = {
    "P1": Subject("share consume, 100 B, implicit acknowledgement"),
    "P2": Subject("share consume, 100 B, each record acknowledged"),
    "P3": Subject("share consume, 1 KiB"),
    "P4": Subject("share consume, 100 B, Kafka's Java performance tool"),
    "P5": Subject("share consume, a log of one-record batches"),
    "P6": Subject("time to the first record of a new share group"),
    "P7": Subject("time from start to the first answer"),
    "P8": Subject("resident memory"),
    "P9": Subject("latency from produce to consume, p50 and p99"),
    "P10": Subject("produce"),
    "P11": Subject("share consume, our client", "confluent-kafka"),
    "P12": Subject("a handler call and an accept for each record"),
    "P13": Subject("Spark streaming query"),
    "P18": Subject("transactions: commits, and latency of committed records"),
    "P19": Subject("plain consume in a consumer group"),
    "P20": Subject("share consume and produce, over TLS"),
    "cli-start": Subject("list groups on the command line", "kafka-share-groups"),
}
AGAINST_ITSELF = frozenset({"P14", "P15", "spark-default-limits"})
"""Workloads that compare sharegroup with itself, for example with more partitions."""
PEERS = {
    KAFKA: "Apache Kafka",
    FLUSHED: "Apache Kafka, flush.messages=1",
    KAFKA_TLS: "Apache Kafka",
}

MARKS: Mapping[str, Mapping[str, Any]] = {
    FSYNC: {"label": "sharegroup, durability=fsync", "marker": "o", "color": "#1f4e79"},
    OS: {"label": "sharegroup, durability=os", "marker": "s", "color": "#4a90c2"},
    KAFKA: {"label": "sharegroup's client on Apache Kafka", "marker": "^", "color": "#555555"},
}
"""The marks by the broker that our side used; the last two are hollow."""
MARK_SHIFT = {FSYNC: -0.17, OS: 0.17, KAFKA: 0.0}
PEER_BETTER = "#eeeeee"
INCHES_WIDE, INCHES_A_ROW, INCHES_AROUND = 12.0, 0.34, 2.1
RATIO_MIN, RATIO_MAX = 0.1, 1_000
LABEL_POINTS = 9
HEADING = -0.9
"""The place of the headings above the first row, in rows."""


class ChartRow(NamedTuple):
    """A workload and a peer, with its ratios by the broker that our side used."""

    label: str
    peer: str
    ratios: Mapping[str, Sequence[float]]


def chart_rows(results: Mapping[str, Any]) -> list[ChartRow]:
    """Return the rows of the chart, in the order of the workloads."""
    rows: list[ChartRow] = []
    for name, result in results.items():
        if name in AGAINST_ITSELF:
            continue
        subject = SUBJECTS[name]
        by_peer: dict[str, dict[str, list[float]]] = {}
        for compared in result["comparisons"]:
            if compared["ratio"] is None:
                continue
            peer = subject.peer or PEERS.get(compared["peer_is"], compared["peer_is"])
            ratios = by_peer.setdefault(peer, {})
            ours = compared["ours_is"].removesuffix(" TLS")
            ratios.setdefault(ours, []).append(compared["ratio"])
        rows += [ChartRow(subject.label, peer, ratios) for peer, ratios in by_peer.items()]
    return rows


def span(ratios: Sequence[float]) -> str:
    """Return the least and the greatest ratio as text; a single one if both read the same."""
    texts = [_number(ratio) for ratio in sorted(ratios)]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def _number(ratio: float) -> str:
    decimals = 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:.{decimals}f}"


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draw the chart to a file; the same results give the same bytes."""
    # Imported here, so that the other parts of the benchmark do not need it.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = chart_rows(results)
    if not rows:
        return
    with mpl.rc_context({"svg.hashsalt": "sharegroup"}):
        height = INCHES_AROUND + INCHES_A_ROW * len(rows)
        figure = Figure(figsize=(INCHES_WIDE, height), layout="constrained")
        axes = figure.subplots()
        _draw_marks(axes, rows)
        _write_numbers(axes, rows)
        _draw_scale(axes, rows)
        figure.suptitle(_title(results), x=0.01, ha="left", size=11)
        figure.legend(loc="outside lower center", ncols=len(MARKS), frameon=False)
        facts = {"Date": None, "Creator": None} if path.suffix == ".svg" else {}
        figure.savefig(path, metadata=facts)


def _title(results: Mapping[str, Any]) -> str:
    dates = sorted(result["date"] for result in results.values())
    machine = next(iter(results.values()))["machine"]
    measured = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    place = ", ".join(machine[name] for name in ("processor", "memory") if name in machine)
    return (
        "sharegroup beside its peers: every measured ratio\n"
        f"measured {measured}{' on ' if place else ''}{place}; details in docs/benchmarks.md"
    )


def _draw_marks(axes: Axes, rows: Sequence[ChartRow]) -> None:
    for ours, mark in MARKS.items():
        places = [
            (ratio, number + MARK_SHIFT[ours])
            for number, row in enumerate(rows)
            for ratio in row.ratios.get(ours, ())
        ]
        if places:
            face = mark["color"] if ours == FSYNC else "white"
            xs, ys = zip(*places, strict=True)
            axes.plot(xs, ys, linestyle="none", markersize=5.5, markerfacecolor=face, **mark)


def _write_numbers(axes: Axes, rows: Sequence[ChartRow]) -> None:
    """Write the span of the ratios beside each row, in a column for each durability."""
    columns = {FSYNC: (8, "fsync"), OS: (88, "os")}
    for ours, (points, heading) in columns.items():
        texts = {
            number: span(row.ratios[ours]) for number, row in enumerate(rows) if ours in row.ratios
        }
        for number, text in ({HEADING: heading} | texts).items():
            axes.annotate(
                text,
                (1, number),
                xycoords=axes.get_yaxis_transform(),
                xytext=(points, 0),
                textcoords="offset points",
                va="center",
                size=LABEL_POINTS,
                weight="bold" if number == HEADING else "normal",
            )


def _draw_scale(axes: Axes, rows: Sequence[ChartRow]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(RATIO_MIN, RATIO_MAX)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvspan(RATIO_MIN, 1, color=PEER_BETTER, zorder=0)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(
        range(len(rows)),
        [f"{row.label}  :  {row.peer}" for row in rows],
        size=LABEL_POINTS,
    )
    axes.set_ylim(len(rows) - 0.4, -1.3)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for place, side, text in ((0.9, "right", "peer better"), (1.1, "left", "sharegroup better")):
        axes.text(place, HEADING, text, ha=side, va="center", size=LABEL_POINTS)
    axes.set_xlabel("ratio to the peer, logarithmic: 2 is twice the rate, half the time or memory")


if __name__ == "__main__":
    draw(json.loads(RESULTS.read_text()), CHART)
