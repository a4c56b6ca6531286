"""Draws the query over time, as its listener was told: rows, lag, and the kill."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights.pipeline_run import PipelineCourse
from examples.flights.query_account import Figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DARK, LIGHT, RED = "#1f4e79", "#a9cbe6", "#c0392b"
OUTAGE = "#e0e0e0"
INCHES = (12.0, 7.0)
DOTS_PER_INCH = 100
LABEL_POINTS = 9


def draw_query(figures: Sequence[Figures], course: PipelineCourse, rows: int, path: Path) -> None:
    """Draw the figures of a run over ``rows`` records to a file."""
    # Imported here because it is an optional dependency; without pyplot it needs no display.
    from matplotlib.figure import Figure
    from matplotlib.ticker import StrMethodFormatter

    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    panels = figure.subplots(3, sharex=True, height_ratios=(2, 1, 1))
    throughput, locked, lag = panels
    for begin, seconds, rate in batches(figures, course.begin):
        throughput.bar(begin, rate, seconds, align="edge", color=LIGHT, edgecolor=DARK)
    times = [told.at - course.begin for told in figures]
    locked.step(
        times, [told.held for told in figures], color=DARK, where="post", label="held: locked by it"
    )
    locked.step(
        times,
        [told.carried for told in figures],
        color=RED,
        where="post",
        label="carried: not confirmed",
    )
    known = [(told.at - course.begin, told.lag) for told in figures if told.lag is not None]
    lag.step([at for at, _ in known], [value for _, value in known], color=DARK, where="post")
    names = ("rows/s of each batch", "records of the query", "lag of its group")
    for axes, name in zip(panels, names, strict=True):
        axes.set_ylabel(name)
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.spines[["top", "right"]].set_visible(False)
        _mark_kill(axes, course)
    # Above the axes, because any place in them may have a line.
    locked.legend(
        loc="lower right", bbox_to_anchor=(1, 1), fontsize=LABEL_POINTS, ncols=2, frameon=False
    )
    lag.set_xlabel("time since the query was started, seconds")
    lag.set_ylim(bottom=0)
    throughput.set_title(
        f"A Spark query over {rows:,} flights of a share group, killed with kill -9 in a batch: "
        "driver, JVM and readers",
        loc="left",
        size=11,
    )
    figure.savefig(path)


def batches(figures: Sequence[Figures], begin: float) -> list[tuple[float, float, float]]:
    """Return the start and the duration of each batch in seconds, and its rows per second."""
    found = []
    for told in figures:
        if told.rows and told.batch_ms:
            seconds = told.batch_ms / 1000
            found.append((told.at - seconds - begin, seconds, told.rows / seconds))
    return found


def _mark_kill(axes: Axes, course: PipelineCourse) -> None:
    """Draw a line at the kill, and shade the time until the batch ran again."""
    if not course.killed:
        return
    killed = course.killed - course.begin
    axes.axvline(killed, color=RED, linewidth=1.2)
    axes.axvspan(killed, max(course.back, course.killed) - course.begin, color=OUTAGE, zorder=0)
