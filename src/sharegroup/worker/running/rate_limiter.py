"""Delays records of a route until its rate limit lets their handlers begin.

records ready --> RateLimiter --take--> Tokens: `OwnTokens` of this process, or shared ones
                                                (`shared_rates`)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sharegroup.worker.declarations.route import RateLimit
from sharegroup.worker.ports import WorkerClock
from sharegroup.worker.running.taken_record import TakenRecord


class Tokens(Protocol):
    """The tokens of a rate limit; each handler run takes one."""

    async def take(self, runs: int) -> None:
        """Wait until this number of runs may begin; callers get tokens in the order of calls."""

    def spend(self, runs: int) -> None:
        """Take the tokens of runs that begin at once; later ones wait longer for them."""

    def give_back(self, runs: int) -> None:
        """Return the tokens of runs that do not begin."""

    def room(self, now: float, seconds: float) -> int:
        """The number of handlers that may begin within ``seconds``."""


class RateLimiter:
    """The rate limit of a route, and the records that wait because of it."""

    __slots__ = ("tokens", "waiting")

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.waiting: list[TakenRecord] = []

    async def wait(self, records: Sequence[TakenRecord]) -> list[TakenRecord]:
        """Wait until the handlers of all these records may begin.

        Returns those that nobody has taken back meanwhile.
        """
        # In sight while they wait: a quiet worker releases them, and they count for the room.
        self.waiting += records
        try:
            await self.tokens.take(len(records))
        finally:
            still = [record for record in records if record in self.waiting]
            for record in still:
                self.waiting.remove(record)
        return still


# A bucket holds up to ``burst`` tokens and gains ``records`` tokens in every ``seconds``. Each
# handler run takes a token. If there is none, the run reserves the next token, so waiting runs
# begin in the order of their requests:
#
#     tokens  3 . . 2 . . 1 . . 0 . . -1: the fourth waits until the bucket is back at 0


class TokenBucket:
    """A token bucket for a rate limit.  It has no clock; callers pass the time in seconds."""

    __slots__ = ("_burst", "_filled_at", "_per_second", "_tokens")

    def __init__(self, limit: RateLimit) -> None:
        self._per_second = limit.per_second
        self._burst = float(limit.burst_records)
        self._tokens = self._burst
        self._filled_at: float | None = None

    def change(
        self, now: float, *, per_second: float, burst: float, is_empty: bool = False
    ) -> None:
        """Go on with another rate; tokens above the burst are lost, or all if ``is_empty``."""
        self._fill(now)
        self._per_second, self._burst = per_second, burst
        self._tokens = 0.0 if is_empty else min(self._tokens, burst)

    def reserve(self, now: float) -> float:
        """Take a token; returns the time from which it may be used."""
        self._fill(now)
        self._tokens -= 1
        return now if self._tokens >= 0 else now - self._tokens / self._per_second

    def _fill(self, now: float) -> None:
        if self._filled_at is not None:
            gained = (now - self._filled_at) * self._per_second
            self._tokens = min(self._burst, self._tokens + gained)
        self._filled_at = now

    def give_back(self) -> None:
        """Return a reserved token that is not used."""
        self._tokens += 1

    def room(self, now: float, seconds: float) -> int:
        """The number of runs that may begin within ``seconds``."""
        elapsed = 0.0 if self._filled_at is None else now - self._filled_at
        # After an idle hour there is no more than the burst, as for `reserve`.
        tokens = min(self._burst, self._tokens + elapsed * self._per_second)
        return max(0, int(tokens + seconds * self._per_second))


class OwnTokens:
    """The tokens of a limit that each process has for itself."""

    __slots__ = ("_bucket", "_clock")

    def __init__(self, limit: RateLimit, clock: WorkerClock) -> None:
        self._bucket = TokenBucket(limit)
        self._clock = clock

    async def take(self, runs: int) -> None:
        """Wait until this number of runs may begin."""
        now = self._clock.now()
        begin_at = max([self._bucket.reserve(now) for _ in range(runs)], default=now)
        if begin_at > now:
            await self._clock.sleep_until(begin_at)

    def spend(self, runs: int) -> None:
        """Take the tokens of runs that begin at once; later ones wait longer for them."""
        for _ in range(runs):
            self._bucket.reserve(self._clock.now())

    def give_back(self, runs: int) -> None:
        """Return the tokens of runs that do not begin."""
        for _ in range(runs):
            self._bucket.give_back()

    def room(self, now: float, seconds: float) -> int:
        """The number of handlers that may begin within ``seconds``."""
        return self._bucket.room(now, seconds)
