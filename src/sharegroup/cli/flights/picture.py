"""The picture of what the query found: when the flights of which carrier leave late."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sharegroup.cli.flights.departures import table_path
from sharegroup.cli.flights.query_account import Delays

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEPARTED_MIN = 20
"""With fewer departures an hour's mean says nothing, and is left blank."""
MINUTES_MAX = 40
"""The end of the scale of colours; what is above has the same one."""
WHITE_FROM_MINUTES = 28
"""From here on the field is too dark for black figures."""
INCHES = (12.0, 7.0)
DOTS_PER_INCH = 150


def draw(delays: Sequence[Delays], path: Path) -> None:
    """Carriers down, the one with most flights on top; hours across; the mean in each field."""
    from matplotlib.figure import Figure  # An optional library; this way it needs no display.

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
    names = carrier_names()
    axes.set_yticks(range(len(carriers)), [names[one] for one in carriers])
    axes.set_xticks(range(len(hours)), [str(hour) for hour in hours])
    axes.set_xlabel("scheduled hour of departure, local time")
    departed = sum(one.departed for one in delays)
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
    """The means into their fields, and no lines around these."""
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
    """The carriers, the one with the most departures first."""
    departed: Counter[str] = Counter()
    for one in delays:
        departed[one.carrier] += one.departed
    return sorted(departed, key=lambda carrier: (-departed[carrier], carrier))


def hours_of(delays: Sequence[Delays]) -> range:
    """All hours from the first to the last with enough departures; with few flights, of all."""
    shown = [one.hour for one in delays if one.departed >= DEPARTED_MIN]
    shown = shown or [one.hour for one in delays]
    return range(min(shown), max(shown) + 1)


def means(
    delays: Sequence[Delays], carriers: Sequence[str], hours: Sequence[int]
) -> list[list[float | None]]:
    """By carrier and hour: the mean delay in minutes; None where too few departed."""
    found = {
        (one.carrier, one.hour): one.minutes / one.departed
        for one in delays
        if one.departed >= DEPARTED_MIN
    }
    return [[found.get((carrier, hour)) for hour in hours] for carrier in carriers]


def carrier_names() -> Mapping[str, str]:
    """What the carriers' codes stand for, without the ending that says they are companies."""
    with open(table_path().parent / "airlines.csv", encoding="utf-8", newline="") as file:
        return {
            row["carrier"]: row["name"].removesuffix(" Inc.").removesuffix(" Co.")
            for row in csv.DictReader(file)
        }
