"""Schedules on a real broker: each due run is one record, whoever owns the schedule."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

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
        assert_each_second_once(shop.ids)

    asyncio.run(run())


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
