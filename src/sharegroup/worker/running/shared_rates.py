"""The tokens of rate limits that the processes of a group share.

    fleet   each process has its part of the limit: one of as many as there are live processes
    store   a process reserves chunks of tokens in the store (`decisions.rate_chunks`)

A process that does not know the others, because the fleet's topic or the store is away, or because
it has just started, has one part of the `assumed_processes` of the limit.  So it neither stands
still, nor starts as many as all processes together may.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from sharegroup.worker.decisions.rate_chunks import RateChunks
from sharegroup.worker.declarations.route import RateLimit, Route
from sharegroup.worker.ports import WorkerClock
from sharegroup.worker.running.rate_limiter import RateLimiter, TokenBucket
from sharegroup.worker.stores.store import Reserved, Store
from sharegroup.worker.telemetry.state import HandlerCounts

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How long a wait for a token lasts at most before the rate is looked at again."""
CALL_SECONDS = 2.0
"""How long a call of the store may take."""
AWAY_SECONDS = 5.0
"""How long the store is not called after it failed."""
LEASE_SECONDS_MIN = 60.0
"""Chunks stay taken this long, so that no process whose clock is behind takes them again."""
KEEP_SECONDS = 60.0
"""How long the tokens of a chunk may be used, so a process with few records wastes few of them."""
SPREAD = 0.5
"""The part of the time between two chunks over which processes spread their calls at random."""
SPREAD_SECONDS_MAX = 0.5
NAME_CHARACTERS_MAX = 900

ProcessesOf = Callable[[str], int | None]
"""Returns the number of live processes of a group, with this one; None if it is not known."""


def shared_limiter(
    route: Route,
    counts: HandlerCounts,
    clock: WorkerClock,
    *,
    processes_of: ProcessesOf,
    store: Store | None,
) -> RateLimiter | None:
    """Return the limiter of a route whose limit is shared; None if it has no such limit."""
    limit = route.rate_limit
    if limit is None or limit.shared is None:
        return None
    if limit.shared == "fleet":
        return RateLimiter(PartTokens(limit, counts, clock, lambda: processes_of(route.group)))
    assert store is not None, "checked when the route was declared"
    meanwhile = PartTokens(limit, counts, clock, lambda: None)
    return RateLimiter(StoreTokens(route, counts, clock, store=store, meanwhile=meanwhile))


class PartTokens:
    """This process's part of a limit; the number of parts changes while it runs."""

    __slots__ = ("_bucket", "_clock", "_counts", "_limit", "_parts", "_processes", "_turn")

    def __init__(
        self,
        limit: RateLimit,
        counts: HandlerCounts,
        clock: WorkerClock,
        processes: Callable[[], int | None],
    ) -> None:
        self._limit = limit
        self._counts = counts
        self._clock = clock
        self._bucket = TokenBucket(limit)
        self._parts = 0
        """As many parts as the bucket is set up for; 0 before the first look."""
        self._turn = asyncio.Lock()
        self._processes = processes
        counts.rate_is_assumed = True

    async def take(self, runs: int) -> None:
        """Wait until this number of runs may begin; callers get tokens in the order of calls."""
        # One caller waits for a token, because its time changes with the number of processes.
        async with self._turn:
            await _take_all(self._take_one, runs, self.give_back)

    async def _take_one(self) -> None:
        while (begin_at := self.try_one(now := self._clock.now())) > now:
            await self._clock.sleep_until(min(begin_at, now + LOOK_SECONDS))

    def try_one(self, now: float) -> float:
        """Take a token if there is one; returns the time from which there is."""
        self._look(now)
        begin_at = self._bucket.reserve(now)
        if begin_at > now:
            self._bucket.give_back()
        return begin_at

    def spend(self, runs: int) -> None:
        """Take the tokens of runs that begin at once; later ones wait longer for them."""
        now = self._clock.now()
        self._look(now)
        for _ in range(runs):
            self._bucket.reserve(now)

    def give_back(self, runs: int) -> None:
        """Return the tokens of runs that do not begin."""
        for _ in range(runs):
            self._bucket.give_back()

    def room(self, now: float, seconds: float) -> int:
        """The number of handlers that may begin within ``seconds``."""
        self._look(now)
        return self._bucket.room(now, seconds)

    def _look(self, now: float) -> None:
        processes = self._processes()
        parts = self._limit.assumed_processes if processes is None else processes
        self._counts.rate_is_assumed = processes is None
        if parts == self._parts:
            return
        self._bucket.change(
            now,
            per_second=self._limit.per_second / parts,
            burst=max(1.0, self._limit.burst_records / parts),
            # Processes that start one after the other would each bring a burst.
            is_empty=self._parts == 0,
        )
        self._parts = parts


class StoreTokens:
    """Tokens that this process reserves in a store, chunk by chunk."""

    __slots__ = (
        "_away_until", "_chunks", "_clock", "_counts", "_left", "_left_until", "_looked_at",
        "_meanwhile", "_name", "_store", "_turn",
    )  # fmt: skip

    def __init__(
        self,
        route: Route,
        counts: HandlerCounts,
        clock: WorkerClock,
        *,
        store: Store,
        meanwhile: PartTokens,
    ) -> None:
        limit = route.rate_limit
        assert limit is not None, "only a route with a limit takes tokens"
        self._chunks = RateChunks.of(limit.per_second, limit.burst_records)
        # With the figures of the limit: chunks of another limit have other times.
        figures = f"{self._chunks.tokens}/{self._chunks.every_seconds!r}"
        group, handler = (
            quote(name, safe="")[:NAME_CHARACTERS_MAX] for name in (route.group, route.shape.name)
        )
        self._name = f"limit/{group}/{handler}/{figures}"
        self._counts = counts
        self._clock = clock
        self._store = store
        self._meanwhile = meanwhile
        """Tokens to use while the store is away."""
        self._left = 0
        """Tokens of the last chunk; below 0 if runs began without any."""
        self._left_until = 0.0
        self._looked_at: int | None = None
        """The highest number of a chunk that this process has tried to take."""
        self._away_until: float | None = None
        """Set while the store is away."""
        self._turn = asyncio.Lock()
        counts.rate_is_assumed = False

    async def take(self, runs: int) -> None:
        """Wait until this number of runs may begin; callers get tokens in the order of calls."""
        async with self._turn:
            await _take_all(self._take_one, runs, self.give_back)

    async def _take_one(self) -> None:
        while True:
            now = self._clock.now()
            if self._left > 0 and now < self._left_until:
                self._left -= 1
                return
            if self._away_until is None or now >= self._away_until:
                await self._look()
                continue
            begin_at = self._meanwhile.try_one(now)
            if begin_at <= now:
                return
            await self._clock.sleep_until(min(begin_at, self._away_until))

    def spend(self, runs: int) -> None:
        """Take the tokens of runs that begin at once; later ones wait longer for them."""
        self._left -= runs

    def give_back(self, runs: int) -> None:
        """Return the tokens of runs that do not begin."""
        self._left += runs

    def room(self, now: float, seconds: float) -> int:
        """The number of handlers that may begin within ``seconds``, if other processes rest."""
        chunks = self._chunks
        left = self._left if now < self._left_until else 0
        return max(0, left + int(seconds / chunks.every_seconds * chunks.tokens))

    async def _look(self) -> None:
        """Try to take the next chunk, or wait until it is minted."""
        chunks, seconds = self._chunks, self._clock.wall_ms() / 1000
        number = chunks.first(seconds, after=self._looked_at)
        wait_seconds = chunks.minted_at(number) - seconds
        if wait_seconds > 0:
            # Otherwise the process whose clock is ahead would get all chunks.
            spread = min(SPREAD * chunks.every_seconds, SPREAD_SECONDS_MAX)
            wait_seconds += random.uniform(0, spread)  # noqa: S311  No secret.
            # Not for longer, because the clock may be set meanwhile.
            await self._clock.sleep_until(self._clock.now() + min(wait_seconds, LOOK_SECONDS))
            return
        try:
            async with asyncio.timeout(CALL_SECONDS):
                reservation = await self._store.reserve(
                    f"{self._name}/{number}",
                    # Of this call alone, so the chunk of an answer that was lost stays taken.
                    secrets.token_hex(8),
                    lease_seconds=max(LEASE_SECONDS_MIN, 2 * chunks.kept * chunks.every_seconds),
                )
        # Whatever a store raises must not end the worker: it goes on without the store.
        except Exception as error:  # noqa: BLE001  A store may be the application's own.
            self._go_without(error)
            return
        self._return_to_store()
        self._looked_at = number
        if reservation == Reserved():
            self._left = min(self._left, 0) + chunks.tokens
            self._left_until = self._clock.now() + KEEP_SECONDS

    def _go_without(self, error: Exception) -> None:
        if self._away_until is None:
            log.warning(
                "event=rate.store_away name=%r error=%r effect='this process has one part of "
                "assumed_processes' action='the store is called again after %g s'",
                self._name,
                f"no answer within {CALL_SECONDS:g} s" if type(error) is TimeoutError else error,
                AWAY_SECONDS,
            )
        self._counts.rate_is_assumed = True
        self._away_until = self._clock.now() + AWAY_SECONDS

    def _return_to_store(self) -> None:
        if self._away_until is not None:
            log.info("event=rate.store_back name=%r", self._name)
            self._away_until = None
            self._counts.rate_is_assumed = False


async def _take_all(
    take_one: Callable[[], Awaitable[None]], runs: int, give_back: Callable[[int], None]
) -> None:
    """Take this number of tokens one after the other; a call that is cancelled takes none."""
    for taken in range(runs):
        try:
            await take_one()
        except asyncio.CancelledError:
            give_back(taken)
            raise
