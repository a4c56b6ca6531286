"""Lines over time: a small one for tables, and one with axes for a page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup, escape

SMALL_WIDTH, SMALL_HEIGHT = 120, 24
WIDTH, HEIGHT = 1_000, 200
DAY_MS = 24 * 60 * 60 * 1000
POINTS_MAX = 400
"""Points of a line; more are thinned out to the largest of each part."""
STEPS_Y = 4

UNITS = (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
ROUNDS_UP = 0.9995
"""From this part of a unit on, a number of the next smaller unit would be rounded to 1000."""

Points = Sequence[tuple[int, int]]
"""Moments in ms since 1970, and values."""


def sparkline(points: Points, label: str) -> Markup:
    """Return a small line without axes; its text says first, last and largest value."""
    thin = thinned(points, SMALL_WIDTH // 2)
    if len(thin) < 2:
        return Markup('<span class="unknown">-</span>')
    highest = max(value for _, value in thin) or 1
    path = _path(thin, highest, (0, 2, SMALL_WIDTH, SMALL_HEIGHT - 4))
    text = escape(f"{label}: from {thin[0][1]:,} to {thin[-1][1]:,}, at most {highest:,}")
    return Markup(  # noqa: S704  The text is escaped, and the rest is of numbers.
        f'<svg class="spark" viewBox="0 0 {SMALL_WIDTH} {SMALL_HEIGHT}" role="img" '
        f'aria-label="{text}"><title>{text}</title><path class="line" d="{path}"/></svg>'
    )


def line_chart(points: Points, label: str) -> Markup:
    """Return a line with axes; the page has a table of the same values behind it.

    The labels are text beside the drawing, so that they are readable at every width.
    """
    thin = thinned(points, POINTS_MAX)
    if len(thin) < 2:
        return Markup('<p class="empty">There is no history yet: it begins with the console.</p>')
    highest = _ceiling(max(value for _, value in thin))
    path = _path(thin, highest, (0, 0, WIDTH, HEIGHT))
    lines = "".join(
        f'<path class="grid" d="M0 {HEIGHT * step / STEPS_Y:.1f}H{WIDTH}"/>'
        for step in range(STEPS_Y + 1)
    )
    values = "".join(
        f"<span>{short(highest * step / STEPS_Y)}</span>" for step in range(STEPS_Y, -1, -1)
    )
    first_ms, last_ms = thin[0][0], thin[-1][0]
    is_long = last_ms - first_ms >= DAY_MS
    moments = "".join(
        _moment(at_ms, is_long=is_long) for at_ms in (first_ms, (first_ms + last_ms) // 2, last_ms)
    )
    text = escape(f"{label}: from {thin[0][1]:,} to {thin[-1][1]:,}")
    ground = f"M0 {HEIGHT}L{path[1:]}L{WIDTH} {HEIGHT}Z"
    return Markup(  # noqa: S704  The text is escaped, and the rest is of numbers.
        f'<div class="chart"><div class="values" aria-hidden="true">{values}</div>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{text}"><title>{text}</title>{lines}<path class="area" d="{ground}"/>'
        f'<path class="line" d="{path}"/></svg>'
        f'<div class="moments">{moments}</div></div>'
    )


def _moment(at_ms: int, *, is_long: bool) -> str:
    """Return a moment in UTC; the script shows it in the reader's zone."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    text = f"{at:%Y-%m-%d %H:%M} UTC" if is_long else f"{at:%H:%M:%S} UTC"
    kind = "" if is_long else ' class="clock"'
    return f'<time datetime="{at:%Y-%m-%dT%H:%M:%S}Z"{kind}>{text}</time>'


def thinned(points: Points, count_max: int) -> list[tuple[int, int]]:
    """Return at most ``count_max`` points: the largest of each of as many equal parts."""
    if len(points) <= count_max:
        return list(points)
    size = len(points) / count_max
    parts = (points[int(part * size) : int((part + 1) * size)] for part in range(count_max))
    return [max(part, key=lambda point: point[1]) for part in parts if part]


def short(number: float) -> str:
    """Return a number with at most four characters: 950, 1.2k, 35M, 9.2E."""
    for unit, factor in UNITS:
        if number >= factor * ROUNDS_UP:
            value = number / factor
            return f"{value:.1f}{unit}".replace(".0", "") if value < 9.95 else f"{value:.0f}{unit}"
    return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def _ceiling(value: int) -> int:
    """Return the next of 1, 2, 4, 5 and 10 times a power of ten."""
    power: int = 10 ** max(0, len(str(max(value, 1))) - 1)
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= max(value, 4))


def _path(points: Points, highest: int, area: tuple[int, int, int, int]) -> str:
    x, y, width, height = area
    first_ms, span = points[0][0], max(1, points[-1][0] - points[0][0])
    places = (
        f"{x + width * (at - first_ms) / span:.1f} {y + height - height * value / highest:.1f}"
        for at, value in points
    )
    return "M" + "L".join(places)
