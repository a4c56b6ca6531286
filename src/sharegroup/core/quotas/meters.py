"""The meters: one for each quota and each client that uses it, bounded in number.

Peers choose their client ids, so they could make any number of meters.  If there are too many, a
meter that equals an unused one is removed for a new one.  If there is none, further clients use one
common meter.  Then they share one limit: they get less than they should, never more.

One user may make only a part of the meters (`core.shared_totals`).  Its further clients use a
common meter of their own, so they use up neither the meters nor the common limit of other users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from sharegroup.core.quotas.entities import QuotaKey
from sharegroup.core.security.principal import Principal
from sharegroup.core.shared_totals import SharedTotal
from sharegroup.errors import ThrottlingQuotaExceeded

METER_BYTES = 1_000
"""The approximate memory of a meter with its windows and its user, in bytes, without its names."""

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

    __slots__ = ("_common", "_make", "_meters", "count_max", "shared_count", "total")

    def __init__(self, make: Callable[[], M], *, count_max: int, user_percent: int = 100) -> None:
        self._make = make
        self._meters: dict[MeterKey, M] = {}
        self._common: dict[tuple[QuotaKey, Principal | None], M] = {}
        self.count_max = count_max
        self.shared_count = 0
        """How often a client had to use a common meter."""
        self.total = SharedTotal[MeterKey](
            "quota meters", "client", ThrottlingQuotaExceeded, user_percent
        )
        """The meters, by the users who made them."""

    def __len__(self) -> int:
        return len(self._meters)

    def of(
        self,
        key: MeterKey,
        is_idle: Callable[[MeterKey, M], bool],
        user: Principal | None = None,
    ) -> M:
        """Return the meter of a client, which is made at its first use.

        ``is_idle`` says whether a meter equals one that was never used.  ``user`` is the one who
        makes a meter, if it may make only a part of them.
        """
        meter = self._meters.pop(key, None)
        if meter is None:
            if not (self._has_room() and self._fits(key, user)):
                self._remove_idle(is_idle)
            if not self._fits(key, user):
                self.total.refused_count += 1
                return self._common_of(key.quota, user)
            if not self._has_room():
                return self._common_of(key.quota, None)
            meter = self._make()
            self.total.change(key, 1)
            self.total.claim(key, user, 1)
        self._meters[key] = meter  # The last one is the one that was used last.
        return meter

    def _has_room(self) -> bool:
        return len(self._meters) < self.count_max

    def _fits(self, key: MeterKey, user: Principal | None) -> bool:
        return self.total.excess(key, user, 1, limit=self.count_max) <= 0

    def _common_of(self, quota: QuotaKey, user: Principal | None) -> M:
        """Return the meter that clients share; a user without meters has none of its own."""
        self.shared_count += 1
        if user is not None and not self.total.held_by(user):
            user = None
        meter = self._common.get((quota, user))
        if meter is None:
            for other in [other for other in self._common if self._is_over(other[1])]:
                del self._common[other]
            meter = self._common[quota, user] = self._make()
        return meter

    def _is_over(self, user: Principal | None) -> bool:
        """Return whether a user has no meters any more, so its common one is not kept."""
        return user is not None and not self.total.held_by(user)

    def _remove_idle(self, is_idle: Callable[[MeterKey, M], bool]) -> None:
        """Remove one of the meters that were unused for longest, if it equals an unused one."""
        oldest = iter(self._meters.items())
        for _ in range(min(LOOKED_AT_MAX, len(self._meters))):
            key, meter = next(oldest)
            if is_idle(key, meter):
                del self._meters[key]
                self.total.change(key, -1)
                return
