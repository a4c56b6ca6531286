"""Draws the result of the query: mean delays by carrier and hour, and by week and weather."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights.departures import table_path
from examples.flights.query_account import Delays, Week

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DEPARTED_MIN = 20
"""Fields with fewer departures stay blank, because their mean is not significant."""
MINUTES_MAX = 40
"""The end of the colour scale; longer delays have the same colour."""
WHITE_FROM_MINUTES = 28
"""Fields from this mean on are dark, so their figures are white."""
INCHES = (12.0, 10.0)
DOTS_PER_INCH = 100
WEEK_DAYS = 7
EARLY = "#9ecae1"
DRY, WET = "#a9743a", "#1f4e79"


def draw(delays: Sequence[Delays], weeks: Sequence[Week], path: Path) -> None:
    """Draw the mean delays to a file: by carrier and hour, and below by week and weather."""
    # Imported here because it is an optional dependency; without pyplot it needs no display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    by_carrier, over_weeks = figure.subplots(2, height_ratios=(7, 3))
    _draw_carriers(figure, by_carrier, delays)
    _draw_weeks(over_weeks, weeks)
    figure.savefig(path)


def _draw_carriers(figure: Figure, axes: Axes, delays: Sequence[Delays]) -> None:
    """Draw a row for each carrier, the one with the most departures on top, a column per hour."""
    # Imported here because it is an optional dependency.
    import matplotlib as mpl

    carriers = by_departures(delays)
    hours = hours_of(delays)
    fields = means(delays, carriers, hours)
    # Rounded as the figures are, so that a field's colour and its figure say the same.
    image = axes.imshow(
        [[float("nan") if mean is None else round(mean) for mean in row] for row in fields],
        aspect="auto",
        cmap=mpl.colormaps["YlOrRd"].with_extremes(under=EARLY),
        vmin=0,
        vmax=MINUTES_MAX,
    )
    bar = figure.colorbar(image, ax=axes, extend="both", shrink=0.8)
    bar.set_label("mean delay of departures, minutes; blue: before the scheduled time")
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


def _draw_weeks(axes: Axes, weeks: Sequence[Week]) -> None:
    """Draw a line of the weekly means of dry hours, and one of those with rain or snow."""
    for is_wet, name, colour in ((False, "dry hours", DRY), (True, "hours with rain or snow", WET)):
        days, minutes = weekly_means(weeks, is_wet=is_wet)
        axes.plot(days, minutes, color=colour, marker=".", label=name)  # type: ignore[arg-type]
    axes.set_ylabel("mean delay, minutes")
    axes.set_title(
        "By week, joined with the weather of airport and hour",
        loc="left",
        size=11,
    )
    axes.spines[["top", "right"]].set_visible(False)
    # Above the axes, because any place in them may have a line.
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)


def weekly_means(weeks: Sequence[Week], *, is_wet: bool) -> tuple[list[date], list[float]]:
    """Return the first days of all weeks, and their mean delays in minutes.

    The mean of a week with too few departures is NaN, which interrupts a line.
    """
    means_by_day = {
        date.fromisoformat(week.start): week.minutes / week.departed
        for week in weeks
        if week.wet is is_wet and week.departed >= DEPARTED_MIN
    }
    if not means_by_day:
        return [], []
    first, last = min(means_by_day), max(means_by_day)
    days = [first + timedelta(days=day) for day in range(0, (last - first).days + 1, WEEK_DAYS)]
    return days, [means_by_day.get(day, float("nan")) for day in days]


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
