"""Draws the dispatch over time: throughput, retries and dead letters, and the two kills.

The series differ in their lightness as well as in their hue, so that a copy in grey can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights.summary import Course
from examples.flights.timeline import Rates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DARK, LIGHT, RED = "#1f4e79", "#a9cbe6", "#c0392b"
OUTAGE = "#e0e0e0"
INCHES = (12.0, 7.0)
DOTS_PER_INCH = 100
LABEL_POINTS = 9
HEADROOM = 1.25
"""The height of the axis of throughput, as a multiple of its highest value: labels are on top."""


def draw_timeline(rates: Rates, course: Course, rows: int, path: Path) -> None:
    """Draw the rates of a run of ``rows`` records to a file."""
    # Imported here because it is an optional dependency; without pyplot it needs no display.
    from matplotlib.figure import Figure
    from matplotlib.ticker import StrMethodFormatter

    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    panels = figure.subplots(3, sharex=True, height_ratios=(2, 1, 1))
    throughput, retries, dead_letters = panels
    _area(throughput, rates, rates.done, LIGHT, "done")
    throughput.stairs(
        rates.produced, rates.edges, baseline=None, color=DARK, linewidth=1.4, label="produced"
    )
    throughput.set_ylim(0, HEADROOM * max(1, *rates.produced, *rates.done))
    _area(retries, rates, rates.retried, LIGHT, "retried with a delay, because it was cancelled")
    retries.stairs(
        rates.redelivered,
        rates.edges,
        baseline=None,
        color=RED,
        linewidth=1.4,
        label="redelivered, because its worker or the broker was killed",
    )
    _area(dead_letters, rates, rates.given_up, LIGHT, "given up after 5 attempts")
    dead_letters.stairs(
        rates.unreadable, rates.edges, baseline=None, color=DARK, linewidth=1.4, label="unreadable"
    )
    for axes, name in zip(panels, ("throughput", "retries", "dead letters"), strict=True):
        axes.set_ylabel(f"{name}\nrecords/s")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.margins(x=0)
        axes.spines[["top", "right"]].set_visible(False)
        # Above the axes, because any place in them may have a bar.
        axes.legend(
            loc="lower right",
            bbox_to_anchor=(1, 1),
            fontsize=LABEL_POINTS,
            ncols=2,
            frameon=False,
            borderaxespad=0,
        )
        _mark_kills(axes, course)
    _label_kills(throughput, course)
    for axes in (retries, dead_letters):
        axes.set_ylim(0, max(1, axes.get_ylim()[1]))
    dead_letters.set_xlabel("time since the first record, seconds")
    throughput.set_title(
        f"{rows:,} flights through a share group of six workers; a worker and the broker are "
        f"killed",
        loc="left",
        size=11,
    )
    figure.savefig(path)


def _area(axes: Axes, rates: Rates, values: Sequence[int], colour: str, label: str) -> None:
    axes.stairs(values, rates.edges, fill=True, color=colour, label=label)


def _mark_kills(axes: Axes, course: Course) -> None:
    """Draw a line at each kill, and shade the time without a broker."""
    axes.axvline(course.worker_killed_at, color=RED, linewidth=1.2, linestyle="--")
    back_at = course.broker_killed_at + course.broker_down_seconds
    axes.axvspan(course.broker_killed_at, back_at, color=OUTAGE, zorder=0)
    axes.axvline(course.broker_killed_at, color=RED, linewidth=1.2)


def _label_kills(axes: Axes, course: Course) -> None:
    """Name the kills: the worker's to the left of its line, the broker's to the right."""
    top = axes.get_xaxis_transform()
    axes.text(
        course.worker_killed_at,
        0.97,
        f"worker: kill -9 \nwith {course.worker_held} records ",
        transform=top,
        ha="right",
        va="top",
        size=LABEL_POINTS,
        color=RED,
    )
    axes.text(
        course.broker_killed_at + course.broker_down_seconds,
        0.97,
        f" broker: kill -9;\n back after {course.broker_down_seconds:.1f} s",
        transform=top,
        ha="left",
        va="top",
        size=LABEL_POINTS,
        color=RED,
    )
