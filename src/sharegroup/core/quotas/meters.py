"""Meters of quotas, bounded in number: one for each quota and each client that uses it.

Peers choose their client ids, so they could make any number of meters.  If there are too many, a
meter that equals an unused one is removed for a new one.  If there is none, further clients use one
common meter.  Then they share one limit: they get less than they should, never more.

One user may make only a part of the meters (`core.shared_totals`).  Its further clients use a
common meter of their own, so they use up neither the meters nor the common limit of other users.
"""

from __future__ import annotations

from array import array
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


# Rates: what a client has used in the last seconds, and how long it must pause.
#
# `Rate` measures an average over windows, as Kafka does. The time that counts is the time since the
# oldest window that is kept, and at least all windows but one, so a client may use the whole limit
# of these windows at once. `TokenBucket` is for changes of the cluster: it fills with the limit per
# second, and a change is allowed unless the bucket is overdrawn.
#
# Times are milliseconds of one clock and never decrease.


PAUSE_MS_MAX = float(2**53)
"""The longest throttle time.  Limits near 0 would give a time that is no number."""


class Windows(NamedTuple):
    """How a rate is averaged: over ``number`` windows, of which the last is incomplete."""

    number: int
    window_ms: int

    @property
    def kept_ms(self) -> int:
        """The time after which a use has no effect any more."""
        return self.number * self.window_ms


BEGIN, LAST_USE, USED = range(3)
"""The positions of a window's values; `Rate` keeps the windows in one array to save memory."""


class Rate:
    """The use of one client in the last windows.

    The sum of all windows is kept as well, because it is needed for every request.
    """

    __slots__ = ("_total", "_windows", "used_ms")

    def __init__(self) -> None:
        self._windows = array("d")
        """Begin, time of the last use, and use of each window, the oldest first."""
        self._total = 0.0
        self.used_ms = 0
        """The time of the last use."""

    def record(self, amount: float, windows: Windows, now_ms: int) -> None:
        """Count a use; a negative amount takes an earlier use back."""
        self._forget(windows, now_ms)
        own = self._windows
        # The last window: its three values are the end of the array.
        if own and now_ms - own[BEGIN - 3] < windows.window_ms:
            own[LAST_USE - 3] = now_ms
            own[USED - 3] += amount
        else:
            own.extend((now_ms, now_ms, amount))
        self._total += amount
        self.used_ms = now_ms

    def per_second(self, windows: Windows, now_ms: int) -> float:
        """Return the average use per second."""
        self._forget(windows, now_ms)
        return self._total * 1000 / self._averaged_ms(windows, now_ms)

    def throttle_ms(self, limit: float, windows: Windows, now_ms: int) -> int:
        """Return after how many milliseconds without a use the rate is within the limit."""
        rate = self.per_second(windows, now_ms)
        if rate <= limit:
            return 0
        # Kafka's formula (`QuotaUtils.throttleTime`).
        pause_ms = (rate - limit) / limit * self._averaged_ms(windows, now_ms)
        return round(min(pause_ms, PAUSE_MS_MAX))

    def room(self, limit: float, windows: Windows, now_ms: int) -> float:
        """Return how much may be used now within the limit."""
        self._forget(windows, now_ms)
        return limit * self._averaged_ms(windows, now_ms) / 1000 - self._total

    def is_idle(self, windows: Windows, now_ms: int) -> bool:
        """Return whether the rate equals that of a client that has used nothing."""
        return now_ms - self.used_ms >= windows.kept_ms

    def _averaged_ms(self, windows: Windows, now_ms: int) -> int:
        number, window_ms = windows
        elapsed_ms = now_ms - int(self._windows[BEGIN]) if self._windows else 0
        # As in Kafka's `Rate.windowSize`: without the missing windows a client's first requests
        # would count as an endless rate.
        missing = max(0, number - 1 - elapsed_ms // window_ms)
        return max(1, elapsed_ms + missing * window_ms)

    def _forget(self, windows: Windows, now_ms: int) -> None:
        """Forget the windows whose last use is too long ago."""
        own, kept_ms, count = self._windows, windows.kept_ms, 0
        while count < len(own) and now_ms - own[count + LAST_USE] >= kept_ms:
            count += 3
        if count:
            del own[:count]
            self._total = sum(own[USED::3])


class TokenBucket:
    """The changes that one client may make; it begins as a full bucket."""

    __slots__ = ("_filled_ms", "_tokens", "used_ms")

    def __init__(self) -> None:
        self._tokens: float | None = None  # None: the bucket has not been used.
        self._filled_ms = 0
        self.used_ms = 0
        """The time of the last use."""

    def record(self, amount: float, limit: float, windows: Windows, now_ms: int) -> None:
        """Take tokens, also more than there are."""
        self._tokens = self.tokens(limit, windows, now_ms) - amount
        self.used_ms = now_ms

    def tokens(self, limit: float, windows: Windows, now_ms: int) -> float:
        """Return the tokens in the bucket; they are negative if it is overdrawn."""
        burst = limit * windows.kept_ms / 1000
        if self._tokens is None:
            tokens = burst
        else:
            tokens = min(burst, self._tokens + limit * (now_ms - self._filled_ms) / 1000)
        self._tokens, self._filled_ms = tokens, now_ms
        return tokens

    def throttle_ms(self, limit: float, windows: Windows, now_ms: int) -> int:
        """Return after how many milliseconds the bucket is no longer overdrawn."""
        tokens = self.tokens(limit, windows, now_ms)
        return 0 if tokens >= 0 else max(1, round(min(-tokens / limit * 1000, PAUSE_MS_MAX)))

    def is_idle(self, limit: float, windows: Windows, now_ms: int) -> bool:
        """Return whether the bucket is full, as one that was never used."""
        return self.tokens(limit, windows, now_ms) >= limit * windows.kept_ms / 1000
