"""Draws ``docs/benchmarks.svg``: all measured ratios of each workload, on one scale, by peer.

A row is a line of ``docs/benchmarks.md``, so that each mark has a name, and the chart leaves out no
line in which the peer is better. Workloads that compare sharegroup
with itself are not in it.

    python -m tests.bench.peers.chart     draw it again from docs/benchmarks.json
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench.document import ROOT
from tests.bench.peers.brokers import FLUSHED, FSYNC, KAFKA, KAFKA_TLS, OS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Transform

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
NUMBER_POINTS = {FSYNC: 40, OS: 82}
"""Where the numbers end, to the right of the scale."""
GAP = 0.35
"""The space above a heading, in lines."""
PEER_BETTER = "#eeeeee"
INCHES_WIDE, INCHES_A_LINE, INCHES_AROUND = 8.6, 0.205, 1.9
"""At 690 pixels, the width of a page, a point is 1.11 pixels, so texts of 10 points have 11."""
INCHES_OF_LABELS, INCHES_OF_NUMBERS = 4.3, 1.2
INDENT = "   "
LABEL_CHARACTERS = 50
RATIO_MIN, RATIO_MAX = 0.1, 1_000
LABEL_POINTS = 10
WORDS = re.compile(r", |: | : ")
"""What stands between the words that say what a line measures."""


class ChartRow(NamedTuple):
    """A line of a workload and a peer: its ratios by the broker that our side used."""

    label: str
    ratios: Mapping[str, float]
    is_heading: bool = False
    """Whether it begins the lines of a workload and a peer; one that has a single line is both."""


def chart_rows(results: Mapping[str, Any]) -> list[ChartRow]:
    """Return the rows of the chart, in the order of the workloads."""
    rows: list[ChartRow] = []
    for name, result in results.items():
        if name in AGAINST_ITSELF:
            continue
        subject = SUBJECTS[name]
        by_peer: dict[str, dict[str, dict[str, float]]] = {}
        for compared in result["comparisons"]:
            if compared["ratio"] is not None:
                peer = subject.peer or PEERS.get(compared["peer_is"], compared["peer_is"])
                line = by_peer.setdefault(peer, {}).setdefault(compared["what"], {})
                line[compared["ours_is"].removesuffix(" TLS")] = compared["ratio"]
        for peer, lines in by_peer.items():
            rows += _rows(f"{subject.label} : {peer}", lines)
    return rows


def _rows(heading: str, lines: Mapping[str, Mapping[str, float]]) -> list[ChartRow]:
    """Return the rows of a workload and a peer; a line is named by what the others do not say."""
    if len(lines) == 1:
        return [ChartRow(heading, *lines.values(), is_heading=True)]
    words = [WORDS.split(what) for what in lines]
    common = set(words[0]).intersection(*words)
    names = [", ".join(word for word in line if word not in common) for line in words]
    return [
        ChartRow(heading, {}, is_heading=True),
        *(ChartRow(name, ratios) for name, ratios in zip(names, lines.values(), strict=True)),
    ]


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
    places = [0.0]
    for row in rows:
        places.append(places[-1] + len(_label_lines(row)) + GAP * row.is_heading)
    height = INCHES_AROUND + INCHES_A_LINE * places[-1]
    with mpl.rc_context({"svg.hashsalt": "sharegroup"}):
        figure = Figure(figsize=(INCHES_WIDE, height))
        axes = figure.subplots()
        figure.subplots_adjust(
            left=INCHES_OF_LABELS / INCHES_WIDE,
            right=1 - INCHES_OF_NUMBERS / INCHES_WIDE,
            top=1 - 0.75 / height,
            bottom=0.85 / height,
        )
        _draw_scale(axes, places[-1])
        _draw_rows(axes, rows, places)
        figure.suptitle(_title(results), x=0.01, y=1 - 0.1 / height, ha="left", va="top", size=11)
        handles, names = axes.get_legend_handles_labels()
        by_name = dict(zip(names, handles, strict=True))  # Each row has drawn marks of its own.
        figure.legend(
            by_name.values(),
            by_name,
            loc="lower center",
            ncols=len(MARKS),
            frameon=False,
            fontsize=LABEL_POINTS,
        )
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


def _label_lines(row: ChartRow) -> list[str]:
    """Return the lines of a label; a heading may reach over the marks of others."""
    width = LABEL_CHARACTERS if row.ratios else 2 * LABEL_CHARACTERS
    return textwrap.wrap(row.label, width, subsequent_indent=INDENT)


def _draw_rows(axes: Axes, rows: Sequence[ChartRow], places: Sequence[float]) -> None:
    """Draw the label, the marks and the numbers of each row; its last line is at its marks."""
    at_left, at_right = axes.get_yaxis_transform(), axes.get_yaxis_transform()
    left = -INCHES_OF_LABELS / (INCHES_WIDE - INCHES_OF_LABELS - INCHES_OF_NUMBERS) + 0.02
    for row, end in zip(rows, places[1:], strict=True):
        lines = _label_lines(row)
        for number, line in enumerate(lines):
            axes.text(
                left,
                end - len(lines) + number + 0.5,
                line if row.is_heading else INDENT + line,
                transform=at_left,
                va="center",
                size=LABEL_POINTS,
                weight="bold" if row.is_heading else "normal",
            )
        for ours, ratio in row.ratios.items():
            _draw_mark(axes, ours, ratio, end - 0.5)
            if ours in NUMBER_POINTS:
                _write_number(axes, at_right, end - 0.5, NUMBER_POINTS[ours], _number(ratio))
    for ours, points in NUMBER_POINTS.items():
        _write_number(axes, at_right, -0.5, points, ours.split()[-1])


def _draw_mark(axes: Axes, ours: str, ratio: float, place: float) -> None:
    mark = dict(MARKS[ours])
    face = mark["color"] if ours == FSYNC else "white"
    axes.plot([ratio], [place], linestyle="none", markersize=6, markerfacecolor=face, **mark)


def _write_number(axes: Axes, transform: Transform, place: float, points: int, text: str) -> None:
    axes.annotate(
        text,
        (1, place),
        xycoords=transform,
        xytext=(points, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        size=LABEL_POINTS,
        weight="bold" if place < 0 else "normal",
    )


def _draw_scale(axes: Axes, end: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(RATIO_MIN, RATIO_MAX)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.tick_params(labelsize=LABEL_POINTS)
    axes.axvspan(RATIO_MIN, 1, color=PEER_BETTER, zorder=0)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks([])
    axes.set_ylim(end + 0.4, -1.2)
    axes.spines[["top", "right", "left"]].set_visible(False)
    for place, side, text in ((0.9, "right", "peer"), (1.1, "left", "sharegroup better")):
        axes.text(place, -0.5, text, ha=side, va="center", size=LABEL_POINTS)
    axes.set_xlabel("ratio to the peer: 2 is twice the rate, half the time", size=LABEL_POINTS)


if __name__ == "__main__":
    draw(json.loads(RESULTS.read_text()), CHART)
