"""When a schedule is due: `Interval`, or `Cron` in a time zone.

    Interval   the multiples of the interval since 1970, so all processes agree on them
    Cron       the minutes (or, with six fields, the seconds) that the expression names

Both are sets of instants in milliseconds since 1970, and `next_after` is the only way to read them.
So the instants do not depend on when a process started, or on which process asks.

Daylight saving is treated as by Debian's cron.  A fixed time that the clock skips is due at the end
of the gap, and one that the clock repeats is due the first time alone.  An expression whose minute
or hour begins with ``*``, or that has seconds, follows real time: each hour that passes counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sharegroup.errors import InvalidConfig, MissingExtra
from sharegroup.installation import pip_install

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from cronsim import CronSim

INTERVAL_MS_MIN = 1_000
INTERVAL_MS_MAX = 366 * 86_400_000
EXPRESSION_CHARACTERS_MAX = 200
LOOK_BACK_MS = 60_000
"""The first span in which `last_in` looks for an instant; each further one is twice as long."""
SHIFT_YEARS = range(2025, 2038)
"""The years in which a zone's changes of the clock are looked at."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SKIPPED_MAX = 240
"""Instants of one change of the clock that a cron expression may have at the same time."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Due at each multiple of the interval since 1970-01-01T00:00Z."""

    every_ms: int

    def __post_init__(self) -> None:
        if not INTERVAL_MS_MIN <= self.every_ms <= INTERVAL_MS_MAX:
            raise InvalidConfig(
                f"an interval of {self.every_ms} ms; expected from {INTERVAL_MS_MIN} ms to "
                f"{INTERVAL_MS_MAX} ms, which are 366 days"
            )

    def next_after(self, instant_ms: int) -> int:
        """Return the first instant after this one."""
        return (instant_ms // self.every_ms + 1) * self.every_ms

    def __str__(self) -> str:
        return f"every {timedelta(milliseconds=self.every_ms)}"


@dataclass(frozen=True, slots=True)
class Cron:
    """Due at the times that a cron expression names, in a time zone."""

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if len(self.expression) > EXPRESSION_CHARACTERS_MAX:
            raise InvalidConfig(
                f"a cron expression of {len(self.expression)} characters; expected at most "
                f"{EXPRESSION_CHARACTERS_MAX}"
            )
        _check_shifts(self.timezone)
        # Also finds expressions without any instant, such as those for 30 February.
        self.next_after(0)

    def next_after(self, instant_ms: int) -> int:
        """Return the first instant after this one."""
        since = (_EPOCH + timedelta(milliseconds=instant_ms)).astimezone(_zone(self.timezone))
        times = self._times(since)
        for _ in range(_SKIPPED_MAX):
            # A time that the clock repeats is given again, and in a gap several times are one.
            due_ms = (next(times) - _EPOCH) // timedelta(milliseconds=1)
            if due_ms > instant_ms:
                return due_ms
        raise AssertionError(f"{self} goes back at {instant_ms}")

    def _times(self, since: datetime) -> Iterator[datetime]:
        cron = _cron()
        try:
            times: CronSim = cron.CronSim(self.expression, since)
            yield from times
        except cron.CronSimError as error:
            raise InvalidConfig(
                f"cron expression {self.expression!r}: {error}; expected five fields (minute, "
                "hour, day of month, month, day of week), such as '0 6 * * 1-5', or six with "
                "seconds first"
            ) from None
        raise InvalidConfig(
            f"cron expression {self.expression!r} has no time within fifty years; check its day "
            "and month"
        )

    def __str__(self) -> str:
        return f"{self.expression} {self.timezone}"


Timing = Interval | Cron


def last_in(timing: Timing, after_ms: int, until_ms: int) -> int | None:
    """Return the last instant of the range (after, until], or None."""
    span_ms = LOOK_BACK_MS
    while True:
        start_ms = max(after_ms, until_ms - span_ms)
        last = max(instants(timing, start_ms, until_ms), default=None)
        if last is not None or start_ms == after_ms:
            return last
        span_ms *= 2


def instants(timing: Timing, after_ms: int, until_ms: int) -> Iterator[int]:
    """Yield the instants of the range (after, until] in order."""
    due_ms = timing.next_after(after_ms)
    while due_ms <= until_ms:
        yield due_ms
        due_ms = timing.next_after(due_ms)


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    # Imported here, because only cron expressions need it.
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    # An OSError for the names of directories, and a ValueError for paths out of the database.
    except (KeyError, OSError, ValueError) as error:
        raise InvalidConfig(
            f"time zone {name!r}: expected a name of the IANA database, such as 'Europe/Berlin'; "
            "a machine without that database needs the package tzdata"
        ) from error


@lru_cache(maxsize=64)
def _check_shifts(name: str) -> None:
    """Raise InvalidConfig for a zone whose clocks change by a part of an hour.

    The library that reads the expressions counts in whole hours there, and leaves runs out.
    """
    dates = (
        datetime(year, month, 15, tzinfo=UTC) for year in SHIFT_YEARS for month in range(1, 13)
    )
    offsets = [date.astimezone(_zone(name)).utcoffset() or timedelta() for date in dates]
    for before, after in pairwise(offsets):
        if (after - before) % timedelta(hours=1):
            raise InvalidConfig(
                f"time zone {name!r}: its clocks change by {abs(after - before)}; expected whole "
                "hours. Use timezone='UTC', or every(...)"
            )


def _cron() -> Any:
    try:
        # Imported here, because only cron expressions need it.
        import cronsim
    except ModuleNotFoundError as error:
        raise MissingExtra(f"cron expressions need cronsim: {pip_install('worker')}") from error
    return cronsim
