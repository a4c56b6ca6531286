"""Schedules on a real broker: each due run is one record, whoever owns the schedule."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from sharegroup.client import Producer
from sharegroup.schedules import Interval, ScheduleNotFound, Schedules
from sharegroup.schedules.schedule import partition_of, transactional_id
from sharegroup.worker import App, Event, Missed, ScheduledRun
from tests.support.limits import HANGING_SECONDS


class Shop:
    """A process of an application with a schedule of each second."""

    def __init__(self, bootstrap: str, name: str, *, revision: int = 1, every: float = 1) -> None:
        self.ids: list[str] = []
        self.written: list[str] = []
        self.app = App(name, bootstrap_servers=bootstrap, grace="1s")
        self.app.on("schedule.run", self._note)

        @self.app.every(timedelta(seconds=every), missed=Missed.ALL, name="tick", revision=revision)
        @self.app.share_group(f"{name}-ticks", topics=f"{name}-ticks", retry=None)
        async def tick(run: ScheduledRun) -> None:
            self.ids.append(run.id)

    def _note(self, event: Event) -> None:
        self.written.append(event.details["run"])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANGING_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


def assert_each_second_once(ids: list[str]) -> None:
    seconds = sorted(ids)
    assert len(seconds) == len(set(seconds))
    first, last = seconds[0], seconds[-1]
    moments = [time.strptime(run_id, "tick@%Y-%m-%dT%H:%M:%SZ") for run_id in (first, last)]
    assert time.mktime(moments[1]) - time.mktime(moments[0]) == len(seconds) - 1


def test_each_second_is_one_record(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        shop = Shop(bootstrap, topic)
        async with shop.app:
            await until(lambda: len(shop.ids) >= 3)
            assert shop.app.worker is not None
            (figures,) = shop.app.worker.state.schedules
            assert (figures.schedule, figures.missed) == ("tick", 0)
            assert figures.runs >= 3
            assert figures.overdue_seconds is not None
            assert figures.overdue_seconds < HANGING_SECONDS
        assert_each_second_once(shop.ids)

    asyncio.run(run())


@pytest.mark.slow
def test_the_next_owner_continues_where_the_last_one_stopped(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        first, second = Shop(bootstrap, topic), Shop(bootstrap, topic)
        async with first.app:
            await until(lambda: len(first.written) >= 2)
        async with second.app:
            await until(lambda: len(second.written) >= 2)
            await until(lambda: len(first.ids) + len(second.ids) >= 4)
        assert_each_second_once(first.written + second.written)

    asyncio.run(run())


@pytest.mark.slow
def test_an_owner_that_is_fenced_takes_over_again_and_repeats_nothing(
    bootstrap: str, topic: str
) -> None:
    """Another producer takes the transactional id, as an owner does after a freeze of this one."""

    async def run() -> None:
        shop = Shop(bootstrap, topic)
        async with shop.app:
            await until(lambda: len(shop.written) >= 2)
            name = transactional_id(topic, partition_of("tick"))
            for _ in range(2):
                other = Producer(bootstrap_servers=bootstrap, transactional_id=name)
                await other.init_transactions()
                await other.close()
                count = len(shop.written)
                await until(lambda: len(shop.written) >= count + 2)  # noqa: B023  Awaited here.
            await until(lambda: set(shop.ids) >= set(shop.written))
        assert_each_second_once(shop.ids)

    asyncio.run(run())


def test_a_higher_revision_takes_effect_while_an_old_process_runs(
    bootstrap: str, topic: str
) -> None:
    async def run() -> None:
        old = Shop(bootstrap, topic)
        async with old.app:
            await until(lambda: len(old.written) >= 1)
            new = Shop(bootstrap, topic, revision=2, every=3600)
            async with new.app, Schedules(topic, bootstrap_servers=bootstrap) as schedules:
                async with asyncio.timeout(HANGING_SECONDS):
                    while (await schedules.list()).schedules[0].definition.revision < 2:
                        await asyncio.sleep(0.05)
            # An old process that starts does not put the old definition back.
            again = Shop(bootstrap, topic)
            async with again.app, Schedules(topic, bootstrap_servers=bootstrap) as schedules:
                result = await schedules.pause("tick")
                assert result.is_done
                (schedule,) = (await schedules.list()).schedules
                assert schedule.definition.timing == Interval(3_600_000)

    asyncio.run(run())


def test_a_schedule_that_is_unknown_is_said_to_be(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        async with Schedules(topic, bootstrap_servers=bootstrap) as schedules:
            assert (await schedules.list()).schedules == ()
            with pytest.raises(ScheduleNotFound, match="has no schedule 'tick'; it has none"):
                await schedules.run("tick")

    asyncio.run(run())
