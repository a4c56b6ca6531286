"""What is made once for all browsers of an address."""

from __future__ import annotations

import asyncio

from sharegroup.console.web.shared_pages import FRESH_SECONDS, KEPT_MAX, Shared


class Clock:
    """A clock that a test moves."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Made:
    """Counts what was made, and waits until it may be ready."""

    def __init__(self) -> None:
        self.count = 0
        self.may_be_ready = asyncio.Event()

    async def make(self) -> int:
        self.count += 1
        await self.may_be_ready.wait()
        return self.count


def test_ten_browsers_get_one_result() -> None:
    async def body() -> None:
        shared, made = Shared[int](), Made()
        asking = [asyncio.create_task(shared.get("page", made.make)) for _ in range(10)]
        await asyncio.sleep(0)
        made.may_be_ready.set()
        assert await asyncio.gather(*asking) == [1] * 10

    asyncio.run(body())


def test_result_is_made_again_when_it_is_old_or_of_another_key() -> None:
    async def body() -> None:
        clock, made = Clock(), Made()
        shared = Shared[int](clock)
        made.may_be_ready.set()
        assert await shared.get("page", made.make) == 1
        clock.seconds += FRESH_SECONDS / 2
        assert await shared.get("page", made.make) == 1
        assert await shared.get("other", made.make) == 2
        clock.seconds += FRESH_SECONDS
        assert await shared.get("page", made.make) == 3

    asyncio.run(body())


def test_browser_that_goes_away_takes_nothing_from_the_others() -> None:
    async def body() -> None:
        shared, made = Shared[int](), Made()
        first = asyncio.create_task(shared.get("page", made.make))
        second = asyncio.create_task(shared.get("page", made.make))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        made.may_be_ready.set()
        assert await second == 1

    asyncio.run(body())


def test_number_of_kept_results_is_bounded() -> None:
    async def body() -> None:
        clock, made = Clock(), Made()
        shared = Shared[int](clock)
        made.may_be_ready.set()
        for number in range(KEPT_MAX + 5):
            await shared.get(number, made.make)
        assert await shared.get(0, made.make) == 1
        assert await shared.get(KEPT_MAX, made.make) == KEPT_MAX + 6

    asyncio.run(body())
