"""A record that ends its process each time costs only itself, in virtual time.

Its handler never ends, and neither do those that begin while it runs.  Then the process is killed,
as if it had ended by itself, so all of their delivery counts grow.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from sharegroup.worker import App, DeadLetter, Retry
from sharegroup.worker.testing.app_test import AppTest

LIMIT = 5
CRASHES_MAX = 30
POISON = b"poison"


class Shop:
    """An application whose handlers never end while a poison record is in one of them."""

    def __init__(self, topics: int, **options: Any) -> None:
        self.app = App("shop")
        self.poisoned = False
        self.runs: Counter[bytes] = Counter()
        for number in range(topics):
            self.app.share_group(
                f"billing{number}",
                topics=f"orders{number}",
                dead_letter=DeadLetter("orders.dead"),
                retry=Retry(max_attempts=2),
                max_handling="1h",
                handler=self.batch if options.get("is_batch") else self.handle,
                **{name: value for name, value in options.items() if name != "is_batch"},
            )

    async def handle(self, value: bytes) -> None:
        await self.run([value])

    async def batch(self, values: list[bytes]) -> None:
        await self.run(values)

    async def run(self, values: list[bytes]) -> None:
        self.runs.update(values)
        self.poisoned = self.poisoned or any(value.startswith(POISON) for value in values)
        await asyncio.sleep(0)
        if self.poisoned:
            await asyncio.Event().wait()

    async def crashes(self, t: AppTest) -> int:
        """Kill the process whenever a poison record runs; returns how often."""
        for crashes in range(CRASHES_MAX):
            await t.advance("5m")
            if not self.poisoned:
                return crashes
            self.poisoned = False
            await t.crash()
        raise AssertionError(f"after {CRASHES_MAX} crashes it still goes on: {t.outcomes}")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"concurrency": 1}, id="one at a time"),
        pytest.param({"concurrency": 100}, id="all together"),
        pytest.param({"concurrency": 8, "order_by": "key"}, id="by key"),
        pytest.param({"is_batch": True}, id="batches"),
        pytest.param({"concurrency": 8, "rate_limit": "1000/s"}, id="with a rate limit"),
    ],
)
@pytest.mark.parametrize("topics", [1, 3])
def test_record_that_ends_its_process_is_the_only_dead_letter(
    options: dict[str, Any], topics: int
) -> None:
    async def test() -> None:
        shop = Shop(topics, **options)
        async with shop.app.test(delivery_limit=LIMIT, patience_seconds=0.02) as t:
            records = [
                await t.send(f"orders{n % topics}", b"%d" % n, key=b"%d" % (n % 7))
                for n in range(20)
            ]
            poison = await t.send("orders0", POISON, key=b"1")
            records += [
                await t.send(f"orders{n % topics}", b"%d" % n, key=b"%d" % (n % 7))
                for n in range(20, 40)
            ]
            crashes = await shop.crashes(t)
            assert Counter(record.outcome for record in records) == {"accepted": 40}
            assert poison.outcome == "dead_lettered"
            assert len(t.dead_letters) == 1
            assert shop.runs[POISON] == crashes
            # With several topics, it may meet others in its last run, and begins anew.
            assert crashes == LIMIT - 1 or (topics > 1 and crashes <= 2 * LIMIT)

    asyncio.run(test())


def test_several_such_records_are_the_only_dead_letters() -> None:
    async def test() -> None:
        shop = Shop(2, concurrency=100)
        async with shop.app.test(delivery_limit=LIMIT, patience_seconds=0.02) as t:
            names = [POISON + b"%d" % n if n in (3, 4, 17) else b"%d" % n for n in range(40)]
            records = [await t.send(f"orders{n % 2}", name) for n, name in enumerate(names)]
            await shop.crashes(t)
            for name, record in zip(names, records, strict=True):
                is_poison = name.startswith(POISON)
                assert record.outcome == ("dead_lettered" if is_poison else "accepted"), name
            assert len(t.dead_letters) == 3

    asyncio.run(test())


@pytest.mark.parametrize("crashes", [1, 2, 3])
def test_stop_puts_aside_what_would_be_judged_at_the_next_delivery(crashes: int) -> None:
    """Interrupted by a stop each time: a release would make an honest record a dead letter."""

    async def test() -> None:
        app, is_slow = App("shop"), True

        @app.share_group("billing", topics="orders", dead_letter=DeadLetter("orders.dead"))
        async def handle(value: bytes) -> None:
            if is_slow:
                await asyncio.Event().wait()

        async with app.test(delivery_limit=LIMIT, patience_seconds=0.02) as t:
            record = await t.send("orders", b"slow")
            await t.settle()
            for _ in range(crashes):
                await t.crash()
            for _ in range(4):
                await t._stop()
                await t._start()
            is_slow = False
            await t._stop()
            await t._start()
            await t.advance("5m")
            assert record.outcome == "accepted"
            assert t.dead_letters == []

    asyncio.run(test())
