"""Limits the rate at which handlers of a route begin, with a token bucket.

A bucket holds up to ``burst`` tokens and gains ``records`` tokens in every ``seconds``.  Each
handler run takes a token.  If there is none, the run reserves the next token, so waiting runs
begin in the order of their requests:

    tokens  3 . . 2 . . 1 . . 0 . . -1: the fourth waits until the bucket is back at 0
"""

from __future__ import annotations

from sharegroup.worker.declarations.rate import RateLimit


class TokenBucket:
    """A token bucket for a rate limit.  It has no clock; callers pass the time in seconds."""

    __slots__ = ("_burst", "_filled_at", "_per_second", "_tokens")

    def __init__(self, limit: RateLimit) -> None:
        self._per_second = limit.records / limit.seconds
        self._burst = float(max(1, limit.records) if limit.burst is None else limit.burst)
        self._tokens = self._burst
        self._filled_at: float | None = None

    def reserve(self, now: float) -> float:
        """Take a token; returns the time from which it may be used."""
        if self._filled_at is not None:
            gained = (now - self._filled_at) * self._per_second
            self._tokens = min(self._burst, self._tokens + gained)
        self._filled_at = now
        self._tokens -= 1
        return now if self._tokens >= 0 else now - self._tokens / self._per_second

    def give_back(self) -> None:
        """Return a reserved token that is not used."""
        self._tokens += 1

    def room(self, now: float, seconds: float) -> int:
        """The number of runs that may begin within ``seconds``."""
        elapsed = 0.0 if self._filled_at is None else now - self._filled_at
        return max(0, int(self._tokens + (elapsed + seconds) * self._per_second))
