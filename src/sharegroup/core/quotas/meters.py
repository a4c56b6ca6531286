"""The meters: one for each quota and each client that uses it, bounded in number.

Peers choose their client ids, so they could make any number of meters.  If there are too many, a
meter that equals an unused one is removed for a new one.  If there is none, further clients use one
common meter.  Then they share one limit: they get less than they should, never more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from sharegroup.core.quotas.entities import QuotaKey

METER_BYTES = 850
"""The approximate memory of a meter with all its windows, in bytes, without its names."""

LOOKED_AT_MAX = 4
"""How many of the meters that were unused for longest are looked at for one that can be removed."""


class MeterKey(NamedTuple):
    """Whose use a meter counts, and for which quota."""

    quota: QuotaKey
    user: str
    client_id: str


M = TypeVar("M")


class Meters(Generic[M]):
    """At most ``count_max`` meters, in the order of their last use."""

    __slots__ = ("_common", "_make", "_meters", "count_max", "shared_count")

    def __init__(self, make: Callable[[], M], *, count_max: int) -> None:
        self._make = make
        self._meters: dict[MeterKey, M] = {}
        self._common: dict[QuotaKey, M] = {}
        self.count_max = count_max
        self.shared_count = 0
        """How often a client had to use a common meter."""

    def __len__(self) -> int:
        return len(self._meters)

    def of(self, key: MeterKey, is_idle: Callable[[MeterKey, M], bool]) -> M:
        """Return the meter of a client, which is made at its first use.

        ``is_idle`` says whether a meter equals one that was never used.
        """
        meter = self._meters.pop(key, None)
        if meter is None:
            if len(self._meters) >= self.count_max and not self._remove_idle(is_idle):
                self.shared_count += 1
                return self._common.setdefault(key.quota, self._make())
            meter = self._make()
        self._meters[key] = meter  # The last one is the one that was used last.
        return meter

    def _remove_idle(self, is_idle: Callable[[MeterKey, M], bool]) -> bool:
        oldest = iter(self._meters.items())
        for _ in range(min(LOOKED_AT_MAX, len(self._meters))):
            key, meter = next(oldest)
            if is_idle(key, meter):
                del self._meters[key]
                return True
        return False
