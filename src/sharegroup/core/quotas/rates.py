"""Rates: what a client has used in the last seconds, and how long it must pause.

`Rate` measures an average over windows, as Kafka does.  The time that counts is the time since the
oldest window that is kept, and at least all windows but one, so a client may use the whole limit of
these windows at once.  `TokenBucket` is for changes of the cluster: it fills with the limit per
second, and a change is allowed unless the bucket is overdrawn.

Times are milliseconds of one clock and never decrease.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

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
