"""``docs/benchmarks.svg``: how many times better, on one scale, with how sure that is.

One bar for the weakest comparison of each durability of each workload; the line is 1, a tick is
what was to be reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.peers.brokers import FSYNC, OS
from tests.bench.peers.results import weakest

COLOURS = {FSYNC: "#2f6f9f", OS: "#8fbcd9"}
REACH: dict[str, Any] = {"color": "#c0392b", "markersize": 12}
BAR = 0.38
INCHES_WIDE, INCHES_A_LINE = 9.0, 0.55


def bars(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of each workload: the weakest comparison of each of our durabilities."""
    found = []
    for name, result in results.items():
        compared = [said for said in result["comparisons"] if said["ratio"] is not None]
        for durability in COLOURS:
            mine = [said for said in compared if said["ours_is"] == durability]
            if mine:
                found.append({"label": f"{name}  {result['title']}", **weakest(mine)})
    return found


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draw it; the same results give the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "sharegroup"
    import matplotlib.pyplot as plt

    shown = bars(results)
    if not shown:
        return
    labels = list(dict.fromkeys(bar["label"] for bar in shown))
    figure, axes = plt.subplots(
        figsize=(INCHES_WIDE, 1.4 + INCHES_A_LINE * len(labels)), layout="constrained"
    )
    for durability, shift in ((FSYNC, -BAR / 2), (OS, BAR / 2)):
        mine = [bar for bar in shown if bar["ours_is"] == durability]
        places = [labels.index(bar["label"]) + shift for bar in mine]
        ratios = [bar["ratio"] for bar in mine]
        errors = [
            [max(0.0, bar["ratio"] - bar["interval"][0]) for bar in mine],
            [max(0.0, bar["interval"][1] - bar["ratio"]) for bar in mine],
        ]
        axes.barh(places, [ratio - 1 for ratio in ratios], BAR, left=1, color=COLOURS[durability],
                  label=durability)  # fmt: skip
        axes.errorbar(ratios, places, xerr=errors, fmt="none", ecolor="black", capsize=2)
        wanted = [(bar["reach"], at) for bar, at in zip(mine, places, strict=True) if bar["reach"]]
        axes.plot([reach for reach, _ in wanted], [at for _, at in wanted], "|", **REACH)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("times better than the peer; red: to reach; whiskers: 95 % or spread")
    axes.legend(loc="best")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
