"""Which retries wait in the process, and which find no room and go to a topic (`App.test`)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from sharegroup.worker import App, Holding, Retry
from sharegroup.worker.testing.history import Outcome

SOON = Retry(initial_delay="1s", multiplier=1, jitter=0)


def waits(holding: Holding, *values: bytes) -> dict[str, int]:
    """How often a retry was held and how often postponed, when all of these fail once."""
    ways: Counter[str] = Counter()

    async def fail(value: bytes) -> None:
        raise TimeoutError

    async def test() -> dict[str, int]:
        app = App("holding")
        app.share_group(
            "billing", topics="orders", handler=fail, concurrency=1, retry=SOON, holding=holding
        )
        for name in ("record.held", "record.postponed"):
            app.on(name, lambda event: ways.update([event.name.removeprefix("record.")]))
        async with app.test() as t:
            for value in values:
                await t.send("orders", value)
            await t.settle()
            assert len(t.retries) == len(values)
            return dict(ways)  # Before the stop, which postpones all of them.

    return asyncio.run(test())


@pytest.mark.parametrize(
    ("holding", "expected"),
    [
        (Holding(), {"held": 4}),
        (Holding(records=3), {"held": 3, "postponed": 1}),
        (Holding(bytes=250), {"held": 2, "postponed": 2}),
        (Holding(longest_seconds=1), {"held": 4}),
        (Holding(longest_seconds=0.9), {"postponed": 4}),
        (Holding(records=0), {"postponed": 4}),
    ],
    ids=["room for all", "so many", "so many bytes", "so long", "no longer", "none"],
)
def test_records_without_room_are_postponed_to_a_retry_topic(
    holding: Holding, expected: dict[str, int]
) -> None:
    assert waits(holding, *[b"x" * 100] * 4) == expected


def test_held_records_of_a_partition_are_limited_to_half_of_its_locks() -> None:
    """Kafka's default is 2,000 locks. More held records would keep others from being read."""
    assert waits(Holding(), *[b"x"] * 1_003) == {"held": 1_000, "postponed": 3}


def test_killed_process_forgets_the_failures_that_it_held_and_no_later_ones() -> None:
    async def test() -> tuple[int, Counter[str]]:
        app = App("holding")
        ways: Counter[str] = Counter()

        async def fail(value: bytes) -> None:
            raise TimeoutError

        retry = Retry(initial_delay="2s", multiplier=1, jitter=0, max_attempts=4)
        app.share_group("billing", topics="orders", handler=fail, retry=retry)
        for name in ("record.held", "record.postponed"):
            app.on(name, lambda event: ways.update([event.name.removeprefix("record.")]))
        async with app.test() as t:
            order = await t.send("orders", b"x")
            await t.settle()
            for _ in range(3):  # The first one meets a held record.
                await t.crash()
                await t.advance("2s")
            await t.advance("1m")
            assert order.outcome == Outcome.DEAD_LETTERED
            assert len(t.dead_letters) == 1
            return len(order.runs), ways

    runs, ways = asyncio.run(test())
    assert runs == 5, "one is forgotten, and four count"
    assert ways == {"held": 1, "postponed": 3}
