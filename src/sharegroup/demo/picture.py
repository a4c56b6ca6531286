"""Draws the result of the query: the mean delay of departures by carrier and hour."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sharegroup.demo.departures import table_path
from sharegroup.demo.query_account import Delays

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEPARTED_MIN = 20
"""Fields with fewer departures stay blank, because their mean is not significant."""
MINUTES_MAX = 40
"""The end of the colour scale; longer delays have the same colour."""
WHITE_FROM_MINUTES = 28
"""Fields from this mean on are dark, so their figures are white."""
INCHES = (12.0, 7.0)
DOTS_PER_INCH = 100


def draw(delays: Sequence[Delays], path: Path) -> None:
    """Draw the mean delays to a file: a row for each carrier, a column for each hour.

    The carrier with the most departures is on top.
    """
    # Imported here because it is an optional dependency; without pyplot it needs no display.
    from matplotlib.figure import Figure

    carriers = by_departures(delays)
    hours = hours_of(delays)
    fields = means(delays, carriers, hours)
    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        [[float("nan") if mean is None else mean for mean in row] for row in fields],
        aspect="auto",
        cmap="YlOrRd",
        vmin=0,
        vmax=MINUTES_MAX,
    )
    bar = figure.colorbar(image, ax=axes, extend="max", shrink=0.8)
    bar.set_label("mean delay of departures, minutes")
    names_by_code = carrier_names()
    axes.set_yticks(range(len(carriers)), [names_by_code[delay] for delay in carriers])
    axes.set_xticks(range(len(hours)), [str(hour) for hour in hours])
    axes.set_xlabel("scheduled hour of departure, local time")
    departed = sum(delay.departed for delay in delays)
    axes.set_title(
        f"Delays of {departed:,} departures from New York in 2013, by carrier and hour\n"
        f"as counted by a Spark query on a share group; blank: fewer than {DEPARTED_MIN} "
        f"departures",
        loc="left",
        size=11,
    )
    _write_figures(axes, fields)
    figure.savefig(path)


def _write_figures(axes: Axes, fields: Sequence[Sequence[float | None]]) -> None:
    """Write the means into their fields, and hide the ticks and the borders."""
    for row, means_of_carrier in enumerate(fields):
        for column, mean in enumerate(means_of_carrier):
            if mean is not None:
                colour = "white" if mean >= WHITE_FROM_MINUTES else "black"
                minutes = str(round(mean))
                axes.text(column, row, minutes, ha="center", va="center", size=8, color=colour)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def by_departures(delays: Sequence[Delays]) -> list[str]:
    """Return the carriers, the one with the most departures first."""
    departed: Counter[str] = Counter()
    for delay in delays:
        departed[delay.carrier] += delay.departed
    return sorted(departed, key=lambda carrier: (-departed[carrier], carrier))


def hours_of(delays: Sequence[Delays]) -> range:
    """Return the hours from the first to the last one that has enough departures.

    If no hour has enough, all hours with departures count.
    """
    shown = [delay.hour for delay in delays if delay.departed >= DEPARTED_MIN]
    shown = shown or [delay.hour for delay in delays]
    return range(min(shown), max(shown) + 1)


def means(
    delays: Sequence[Delays], carriers: Sequence[str], hours: Sequence[int]
) -> list[list[float | None]]:
    """Return the mean delays in minutes by carrier and hour; None for too few departures."""
    means_by_field = {
        (delay.carrier, delay.hour): delay.minutes / delay.departed
        for delay in delays
        if delay.departed >= DEPARTED_MIN
    }
    return [[means_by_field.get((carrier, hour)) for hour in hours] for carrier in carriers]


def carrier_names() -> Mapping[str, str]:
    """Return the names of the carriers by their codes, without " Inc." and " Co."."""
    with open(table_path().parent / "airlines.csv", encoding="utf-8", newline="") as file:
        return {
            row["carrier"]: row["name"].removesuffix(" Inc.").removesuffix(" Co.")
            for row in csv.DictReader(file)
        }
