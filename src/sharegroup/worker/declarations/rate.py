"""Rate limits of handlers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.numbers import is_number, is_whole
from sharegroup.worker.durations import seconds

BURST_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Limits how many records a handler starts in this process.

    It starts ``records`` in every ``seconds``, and up to ``burst`` at once.  ``burst`` defaults to
    ``records``, and is at least 1.
    """

    records: float
    seconds: float = 1.0
    burst: int | None = None

    def __post_init__(self) -> None:
        if not all(is_number(number, 0) and number > 0 for number in (self.records, self.seconds)):
            raise InvalidConfig(
                f"RateLimit: records={self.records!r}, seconds={self.seconds!r}; "
                f"expected numbers above 0"
            )
        if self.burst is not None and not is_whole(self.burst, 1, BURST_MAX):
            raise InvalidConfig(f"RateLimit: burst={self.burst!r}; expected 1 or more")


def rate_limit_of(value: RateLimit | str | None) -> RateLimit | None:
    """Convert the option ``rate_limit``, which may be ``"100/s"``, ``"5/m"`` or ``"10/2s"``."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*/\s*(\S+)\s*", value)
    if match is None:
        raise ValueError(f"expected a RateLimit, or a text like '100/s' or '10/2m'; got {value!r}")
    records, time = match.groups()
    return RateLimit(float(records), seconds(time if time[0].isdigit() else f"1{time}"))
