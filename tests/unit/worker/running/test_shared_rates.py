"""Rate limits that processes share, in virtual time: by parts of a fleet, and from a store.

Each process here is the tokens of one handler in one process, taken by as many runs as it can
begin.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sharegroup.testing import virtual_time
from sharegroup.worker import App, RateLimit
from sharegroup.worker.decisions.rate_chunks import RateChunks
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.running.rate_limiter import Tokens
from sharegroup.worker.running.shared_rates import shared_limiter
from sharegroup.worker.stores.memory import MemoryStore
from sharegroup.worker.stores.store import Held, Reservation, Store, StoreUnavailable
from sharegroup.worker.telemetry.state import HandlerCounts
from tests.unit.worker.running.loop_clock import LoopClock


def route_of(limit: RateLimit, group: str = "billing") -> Route:
    app = App("shop", announce=True, store=MemoryStore())

    @app.share_group(group, topics="orders", rate_limit=limit)
    async def bill(order: dict[str, int]) -> None: ...

    return bill.route


class SkewedClock(LoopClock):
    def __init__(self, ahead_seconds: float) -> None:
        self.set_ahead(ahead_seconds)

    def set_ahead(self, seconds: float) -> None:
        self._ahead_ms = round(seconds * 1000)

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms


class Process:
    """The handler of a process, which begins a run for each token that it gets."""

    def __init__(
        self,
        limit: RateLimit,
        *,
        processes: Callable[[], int | None] = lambda: 1,
        store: Store | None = None,
        ahead_seconds: float = 0.0,
        clock: SkewedClock | None = None,
    ) -> None:
        self.begun: list[float] = []
        route = route_of(limit)
        self.handler = route.shape.name
        self.counts = HandlerCounts("billing", "bill")
        limiter = shared_limiter(
            route, self.counts, clock or SkewedClock(ahead_seconds),
            processes_of=lambda _: processes(), store=store,
        )  # fmt: skip
        assert limiter is not None
        self.tokens: Tokens = limiter.tokens

    async def run(self, every: float = 0.0) -> None:
        """Begin runs, as many as it may, or one in each ``every`` seconds."""
        while True:
            await self.tokens.take(1)
            self.begun.append(LoopClock().now())
            if every:
                await asyncio.sleep(every)

    def within(self, first: float, end: float) -> int:
        return sum(first <= at < end for at in self.begun)


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    virtual_time.run(scene())


async def run_for(seconds: float, *runs: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(run) for run in runs]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


FLEET = RateLimit(100, shared="fleet")
STORED = RateLimit(100, shared="store")


def test_processes_of_a_fleet_start_the_limit_together_while_one_dies_and_comes_back() -> None:
    live = [3]
    processes = [Process(FLEET, processes=lambda: live[0]) for _ in range(3)]

    async def scene() -> None:
        begun_at = LoopClock().now()
        dying = asyncio.create_task(processes[2].run())
        others = asyncio.create_task(run_for(90, processes[0].run(), processes[1].run()))
        await asyncio.sleep(30)
        dying.cancel()
        live[0] = 2
        await asyncio.sleep(30)
        live[0] = 3
        back = asyncio.create_task(processes[2].run())
        await others
        back.cancel()
        for first in range(0, 90, 10):
            start = begun_at + first
            total = sum(process.within(start, start + 10) for process in processes)
            assert 900 <= total <= 1_100, f"{total} in the ten seconds from {first} on"

    play(scene)


def test_waiting_run_gets_its_part_when_another_process_has_died() -> None:
    """At 6/m for two, a token takes 20 s; the process that is alone gets one each 10 s."""
    live = [2]
    process = Process(RateLimit(6, 60.0, burst=1, shared="fleet"), processes=lambda: live[0])

    async def scene() -> None:
        begun_at = LoopClock().now()
        running = asyncio.create_task(process.run())
        await asyncio.sleep(21)
        live[0] = 1
        await asyncio.sleep(31)
        running.cancel()
        # The change is seen within a second.
        assert [round(at - begun_at) for at in process.begun] == [20, 31, 41, 51]

    play(scene)


def test_process_that_does_not_know_the_others_has_one_part_of_the_assumed_ones() -> None:
    limit = RateLimit(100, shared="fleet", assumed_processes=4)
    process = Process(limit, processes=lambda: None)

    async def scene() -> None:
        await run_for(20, process.run())
        assert process.counts.rate_is_assumed is True
        assert 490 <= len(process.begun) <= 501

    play(scene)


def test_start_of_a_process_brings_no_burst() -> None:
    process = Process(FLEET, processes=lambda: 2)

    async def scene() -> None:
        await run_for(1.0, process.run())
        assert 49 <= len(process.begun) <= 51

    play(scene)


def test_cancelled_wait_for_a_batch_gives_its_tokens_back() -> None:
    process = Process(RateLimit(10, burst=20, shared="fleet"))

    async def scene() -> None:
        waiting = asyncio.create_task(process.tokens.take(20))
        await asyncio.sleep(1.0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        assert process.tokens.room(LoopClock().now(), 0.0) == 10

    play(scene)


@pytest.mark.parametrize("ahead_seconds", [(0.0, 0.0, 0.0), (0.0, 0.4, -0.4)])
def test_processes_with_a_store_start_exactly_the_limit(ahead_seconds: tuple[float, ...]) -> None:
    async def scene() -> None:
        store = MemoryStore(now=LoopClock().now)
        processes = [Process(STORED, store=store, ahead_seconds=ahead) for ahead in ahead_seconds]
        begun_at = LoopClock().now()
        await run_for(60, *(process.run() for process in processes))
        total = sum(len(process.begun) for process in processes)
        # A minute, the burst, and the time by which the clocks differ, once.
        differ = max(ahead_seconds) - min(ahead_seconds)
        assert 5_950 <= total <= 6_000 + 100 + round(differ * 100)
        second = [
            sum(process.within(begun_at + at, begun_at + at + 10) for process in processes)
            for at in range(10, 60, 10)
        ]
        assert all(950 <= count <= 1_050 for count in second), second
        assert all(len(process.begun) > 0 for process in processes)

    play(scene)


def test_processes_with_few_records_do_not_waste_the_tokens_of_others() -> None:
    async def scene() -> None:
        store = MemoryStore(now=LoopClock().now)
        processes = [Process(STORED, store=store) for _ in range(20)]
        busy = Process(STORED, store=store)
        await run_for(120, busy.run(), *(process.run(every=1.0) for process in processes))
        assert all(len(process.begun) > 60 for process in processes)
        total = len(busy.begun) + sum(len(process.begun) for process in processes)
        assert 11_000 <= total <= 12_100

    play(scene)


class Unreliable:
    """A store that is away at times, or does not answer."""

    def __init__(self) -> None:
        self.store = MemoryStore(now=LoopClock().now)
        self.is_away = False
        self.is_silent = False
        self.calls = 0

    async def reserve(self, name: str, token: str, *, lease_seconds: float) -> Reservation:
        self.calls += 1
        if self.is_silent:
            await asyncio.sleep(3_600)
        if self.is_away:
            raise StoreUnavailable("nobody answers")
        return await self.store.reserve(name, token, lease_seconds=lease_seconds)


@pytest.mark.parametrize("fault", ["is_away", "is_silent"])
def test_process_goes_on_with_an_assumed_part_while_the_store_is_away(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        store = Unreliable()
        process = Process(STORED, store=store)  # type: ignore[arg-type]  # The call that it makes.
        running = asyncio.create_task(process.run())
        await asyncio.sleep(10)
        setattr(store, fault, True)
        await asyncio.sleep(5)
        begun, calls = len(process.begun), store.calls
        assert process.counts.rate_is_assumed is True
        await asyncio.sleep(70)
        # One tenth, without the time in which the store is called.
        assert 400 <= len(process.begun) - begun <= 701
        assert store.calls - calls <= 15
        setattr(store, fault, False)
        await asyncio.sleep(10)
        begun = len(process.begun)
        await asyncio.sleep(10)
        running.cancel()
        assert process.counts.rate_is_assumed is False
        assert 975 <= len(process.begun) - begun <= 1_025

    with caplog.at_level(logging.INFO):
        play(scene)
    events = [line.split()[0] for line in caplog.messages if line.startswith("event=rate")]
    assert events == ["event=rate.store_away", "event=rate.store_back"]


def test_chunks_are_a_quarter_of_a_second_and_few_enough_for_a_large_burst() -> None:
    assert RateChunks.of(100.0, 100.0) == (25, 0.25, 4)
    assert RateChunks.of(5 / 60, 5.0) == (1, 12.0, 5)
    assert RateChunks.of(100 / 60, 100.0) == (7, pytest.approx(4.2), 14)
    assert RateChunks.of(1_000.0, 1.0) == (250, 0.25, 1)


def test_chunks_are_looked_at_once_and_again_after_the_clock_was_set_back() -> None:
    chunks = RateChunks.of(100.0, 100.0)
    assert chunks.first(1_000.1, after=None) == 3_997
    assert chunks.first(1_000.1, after=3_999) == 4_000
    assert chunks.first(1_000.1, after=4_000) == 4_001
    assert chunks.first(1_100.1, after=4_000) == 4_397
    assert chunks.first(900.1, after=4_000) == 3_597
    # A clock that was set back by less than a chunk looks at none again.
    assert chunks.first(999.9, after=4_000) == 4_001
    assert chunks.first(999.9, after=4_001) == 3_996


def test_held_chunk_is_not_taken() -> None:
    class Full(Unreliable):
        async def reserve(self, name: str, token: str, *, lease_seconds: float) -> Reservation:
            self.calls += 1
            return Held(1.0)

    async def scene() -> None:
        store = Full()
        process = Process(STORED, store=store)  # type: ignore[arg-type]  # The call that it makes.
        await run_for(10, process.run())
        assert process.begun == []
        assert store.calls <= 4 + 40

    play(scene)


@pytest.mark.parametrize("shared", ["fleet", "store"])
def test_handler_of_a_test_has_the_whole_shared_limit(shared: Any) -> None:
    app = App("shop", announce=True, store=MemoryStore())
    begun: list[int] = []

    @app.share_group("billing", topics="orders", rate_limit=RateLimit(1, 10.0, shared=shared))
    async def bill(order: dict[str, int]) -> None:
        begun.append(order["id"])

    async def scene() -> None:
        async with app.test() as t:
            for number in range(20):
                await t.send(bill, {"id": number})
            await t.advance("95s")
            assert 8 <= len(begun) <= 10

    asyncio.run(scene())


# The parts of both kinds of tokens, one by one.


def test_part_of_a_process_has_its_part_of_the_burst_but_one_token_at_least() -> None:
    limit = RateLimit(100, burst=8, shared="fleet")
    rooms: dict[int, int] = {}

    async def scene() -> None:
        for parts in (1, 4, 100):
            process = Process(limit, processes=lambda parts=parts: parts)  # type: ignore[misc]
            await process.tokens.take(1)
            await asyncio.sleep(60)
            rooms[parts] = process.tokens.room(LoopClock().now(), 0.0)

    play(scene)
    assert rooms == {1: 8, 4: 2, 100: 1}


def test_part_is_assumed_only_while_the_processes_are_not_known() -> None:
    live: list[int | None] = [None]
    process = Process(FLEET, processes=lambda: live[0])
    assert process.counts.rate_is_assumed is True
    assumed = []

    async def scene() -> None:
        for known in (None, 2, None, 3):
            live[0] = known
            process.tokens.room(LoopClock().now(), 0.0)
            assumed.append(process.counts.rate_is_assumed)

    play(scene)
    assert assumed == [True, False, True, False]


def test_spent_tokens_of_a_part_are_missing_and_those_given_back_are_there() -> None:
    process = Process(RateLimit(10, burst=20, shared="fleet"))

    async def scene() -> None:
        tokens = process.tokens
        assert tokens.room(LoopClock().now(), 0.0) == 0
        await asyncio.sleep(2)
        tokens.spend(15)
        now = LoopClock().now()
        assert (tokens.room(now, 0.0), tokens.room(now, 1.0)) == (5, 15)
        tokens.give_back(3)
        assert tokens.room(now, 0.0) == 8
        tokens.spend(18)
        assert tokens.room(now, 0.0) == 0
        await tokens.take(1)  # Ten are owed, and this is one more.
        assert LoopClock().now() - now == pytest.approx(1.1)

    play(scene)


class Noting(Unreliable):
    """A store that notes what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, float]] = []

    async def reserve(self, name: str, token: str, *, lease_seconds: float) -> Reservation:
        self.asked.append((name, token, lease_seconds))
        return await super().reserve(name, token, lease_seconds=lease_seconds)


def test_tokens_of_a_chunk_are_counted() -> None:
    async def scene() -> None:
        store = Noting()
        process = Process(STORED, store=store)  # type: ignore[arg-type]  # The call that it makes.
        assert process.counts.rate_is_assumed is False
        tokens, now = process.tokens, LoopClock().now()
        await tokens.take(1)
        assert (tokens.room(now, 0.0), tokens.room(now, 1.0), store.calls) == (24, 124, 1)
        tokens.give_back(1)
        assert tokens.room(now, 0.0) == 25
        tokens.spend(51)
        assert tokens.room(now, 0.0) == 0
        await tokens.take(1)  # A chunk for what is owed, and another one.
        assert (tokens.room(now, 0.0), store.calls) == (23, 3)
        await asyncio.sleep(61)  # What was not used lapses.
        now = LoopClock().now()
        assert tokens.room(now, 0.0) == 0
        await tokens.take(1)
        assert (tokens.room(now, 0.0), store.calls) == (24, 4)

    play(scene)


@pytest.mark.parametrize(
    ("limit", "lease_seconds", "figures"),
    [
        (STORED, 60.0, "25/0.25"),
        (RateLimit(6, 60.0, burst=5, shared="store"), 100.0, "1/10.0"),
    ],
)
def test_chunk_is_reserved_by_its_number_and_for_long_enough(
    limit: RateLimit, lease_seconds: float, figures: str
) -> None:
    async def scene() -> None:
        store = Noting()
        process = Process(limit, store=store)  # type: ignore[arg-type]  # The call that it makes.
        await process.tokens.take(30 if limit is STORED else 2)
        (first, token, lease), (second, other, _) = store.asked
        assert lease == lease_seconds
        assert token != other
        place, number = first.rsplit("/", 1)
        assert place == f"limit/billing/{process.handler}/{figures}"
        assert second == f"{place}/{int(number) + 1}"

    play(scene)


def test_wait_for_a_chunk_sees_within_a_second_that_the_clock_was_set() -> None:
    async def scene() -> None:
        clock = SkewedClock(0.0)
        process = Process(
            RateLimit(1, 3_600.0, burst=1, shared="store"),
            store=MemoryStore(now=LoopClock().now),
            clock=clock,
        )
        await process.tokens.take(1)
        waiting = asyncio.create_task(process.tokens.take(1))
        await asyncio.sleep(10)
        clock.set_ahead(3_600.0)
        set_at = LoopClock().now()
        await waiting
        assert LoopClock().now() - set_at < 2

    play(scene)


def test_store_that_is_back_is_called_before_the_next_token_of_a_part() -> None:
    """One part of ten has a token each 100 s; the store is called each 5 s."""

    async def scene() -> None:
        store = Unreliable()
        store.is_away = True
        limit = RateLimit(6, 60.0, burst=1, shared="store")
        process = Process(limit, store=store)  # type: ignore[arg-type]  # The call that it makes.
        waiting = asyncio.create_task(process.tokens.take(1))
        await asyncio.sleep(12)
        store.is_away = False
        back_at = LoopClock().now()
        await waiting
        assert LoopClock().now() - back_at < 5

    play(scene)
