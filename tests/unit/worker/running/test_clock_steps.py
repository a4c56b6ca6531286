"""A step of the wall clock changes no delay that was decided before it (`App.test`)."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.dead_letters.story_headers import story_of
from sharegroup.errors import NotLeaderOrFollower
from sharegroup.worker import App, Holding, Retry
from sharegroup.worker.retrying.waiting import WRITTEN
from sharegroup.worker.testing.app_test import AppTest
from sharegroup.worker.transport import memory_clock

HOUR_MS = 60 * 60 * 1000
DELAY_SECONDS = 3.0
ONCE = Retry(initial_delay="3s", multiplier=1, jitter=0)
STEPS = pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS], ids=["back", "forth"])


class World:
    """An app whose handler fails in its first run, and a wall clock that can be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, holding: Holding) -> None:
        self._monkeypatch = monkeypatch
        self.runs: list[float] = []
        self.app = App("clocks")
        self.app.share_group(
            "billing", topics="orders", handler=self._handle, retry=ONCE, holding=holding
        )
        self.test: AppTest = self.app.test()

    async def _handle(self, value: bytes) -> None:
        self.runs.append(self.test.now)
        if len(self.runs) == 1:
            raise TimeoutError

    def step(self, by_ms: int) -> None:
        self._monkeypatch.setattr(memory_clock, "START_WALL_MS", memory_clock.START_WALL_MS + by_ms)

    def delay_ms(self) -> int:
        """The time that the copy in the retry topic is to wait, as its headers say."""
        (copy,) = self.test.in_topic("billing.retry.due")
        due_ms = story_of(copy.headers).due_ms
        assert due_ms is not None
        return due_ms - int(dict(copy.headers)[WRITTEN] or 0)


@STEPS
def test_a_blocked_write_keeps_the_delay(monkeypatch: pytest.MonkeyPatch, step_ms: int) -> None:
    async def scene() -> None:
        world = World(monkeypatch, Holding(records=0))
        async with world.test as t:
            t.fail_writes("billing.retry.due", NotLeaderOrFollower("no leader"))
            await t.send("orders", b"a")
            await t.settle()
            await t.advance(0.5)
            world.step(step_ms)
            t.mend_writes("billing.retry.due")
            await t.advance(HOUR_MS / 1000 * 2)
            assert world.runs == [0.0, pytest.approx(DELAY_SECONDS, abs=0.1)]

    asyncio.run(scene())


def test_a_delay_that_ends_during_the_block_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        world = World(monkeypatch, Holding(records=0))
        async with world.test as t:
            t.fail_writes("billing.retry.due", NotLeaderOrFollower("no leader"))
            t.fail_writes("billing.retry", NotLeaderOrFollower("no leader"))
            await t.send("orders", b"a")
            await t.settle()
            await t.advance(DELAY_SECONDS + 1)
            world.step(-HOUR_MS)
            t.mend_writes("billing.retry.due")
            t.mend_writes("billing.retry")
            await t.advance(30)
            assert len(world.runs) == 2

    asyncio.run(scene())


@STEPS
def test_a_held_record_keeps_its_delay_in_the_retry_topic(
    monkeypatch: pytest.MonkeyPatch, step_ms: int
) -> None:
    async def scene() -> None:
        world = World(monkeypatch, Holding())
        async with world.test as t:
            await t.send("orders", b"a")
            await t.settle()
            await t.advance(1)
            world.step(step_ms)
        assert (len(world.runs), world.delay_ms()) == (1, (DELAY_SECONDS - 1) * 1000)

    asyncio.run(scene())
