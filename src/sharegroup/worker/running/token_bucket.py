"""How soon a handler may begin, when its rate is limited.

A bucket holds up to ``burst`` tokens and is filled with ``records`` in every ``seconds``.  Each
begin takes one; when there is none, the next one that comes is reserved, so that those who wait
are served in the order in which they asked:

    tokens  3 . . 2 . . 1 . . 0 . . -1: the fourth waits until the bucket is back at 0
"""

from __future__ import annotations

from sharegroup.worker.declared.rate import RateLimit


class TokenBucket:
    """See the module's text.  Time comes in."""

    __slots__ = ("_burst", "_filled_at", "_per_second", "_tokens")

    def __init__(self, limit: RateLimit) -> None:
        self._per_second = limit.records / limit.seconds
        self._burst = float(max(1, limit.records) if limit.burst is None else limit.burst)
        self._tokens = self._burst
        self._filled_at: float | None = None

    def reserve(self, now: float) -> float:
        """Take a token; when it may be used."""
        if self._filled_at is not None:
            gained = (now - self._filled_at) * self._per_second
            self._tokens = min(self._burst, self._tokens + gained)
        self._filled_at = now
        self._tokens -= 1
        return now if self._tokens >= 0 else now - self._tokens / self._per_second

    def give_back(self) -> None:
        """A token that was reserved is not used."""
        self._tokens += 1

    def room(self, now: float, seconds: float) -> int:
        """How many may begin within so many seconds."""
        since = 0.0 if self._filled_at is None else now - self._filled_at
        return max(0, int(self._tokens + (since + seconds) * self._per_second))
