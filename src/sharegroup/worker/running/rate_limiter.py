"""Delays records of a route until its rate limit lets their handlers begin."""

from __future__ import annotations

from collections.abc import Sequence

from sharegroup.worker.declarations.rate import RateLimit
from sharegroup.worker.ports import WorkerClock
from sharegroup.worker.running.taken_record import TakenRecord
from sharegroup.worker.running.token_bucket import TokenBucket


class RateLimiter:
    """The rate limit of a route, and the records that wait because of it."""

    __slots__ = ("_bucket", "_clock", "waiting")

    def __init__(self, limit: RateLimit, clock: WorkerClock) -> None:
        self._bucket = TokenBucket(limit)
        self._clock = clock
        self.waiting: list[TakenRecord] = []

    async def wait(self, records: Sequence[TakenRecord]) -> None:
        """Wait until the handlers of all these records may begin."""
        now = self._clock.now()
        begin_at = max([self._bucket.reserve(now) for _ in records], default=now)
        # In sight while they wait: a quiet worker releases them, and they count for the room.
        self.waiting += records
        try:
            if begin_at > now:
                await self._clock.sleep_until(begin_at)
        finally:
            for record in records:
                self.waiting.remove(record)

    def give_back(self, runs: int) -> None:
        """Return the tokens of runs that do not begin."""
        for _ in range(runs):
            self._bucket.give_back()

    def room(self, now: float, seconds: float) -> int:
        """The number of handlers that may begin within ``seconds``."""
        return self._bucket.room(now, seconds)
