"""Schedules with `App.test`: the owner is the real one, time and topics are in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from sharegroup.errors import InvalidTimestamp
from sharegroup.schedules.schedule import StoredSchedule, partition_of
from sharegroup.schedules.schedule_records import parsed
from sharegroup.worker import App, Event, NotConnected, Record, Retry, ScheduledRun
from sharegroup.worker.scheduling.partition_owner import Present
from sharegroup.worker.testing import AppTest
from sharegroup.worker.transport.memory_clock import MemoryClock


def run(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    def runs() -> None:
        asyncio.run(test())

    runs.__name__ = test.__name__
    return runs


@dataclass
class Shop:
    """An application with a schedule, and the runs that its handler got."""

    interval: str = "5m"
    options: dict[str, Any] = field(default_factory=dict)
    app: App = field(default_factory=lambda: App("shop"))
    ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        @self.app.every(self.interval, **self.options)
        @self.app.share_group("reports", topics="reports")
        async def report(run: ScheduledRun) -> None:
            self.ids.append(run.id)


def stored(t: AppTest, name: str = "report") -> StoredSchedule:
    """The newest state of a schedule."""
    states = [
        parsed(record.key, record.value)
        for record in t.in_topic("shop.schedules")
        if record.key == f"schedule/{name}".encode() and record.value is not None
    ]
    assert isinstance(states[-1], StoredSchedule)
    return states[-1]


@run
async def test_each_due_run_is_one_record() -> None:
    shop = Shop()
    async with shop.app.test() as t:
        await t.advance("16m")

        assert shop.ids == [
            "report@2026-01-01T00:05:00Z",
            "report@2026-01-01T00:10:00Z",
            "report@2026-01-01T00:15:00Z",
        ]
        records = t.in_topic("reports")
        assert [record.headers for record in records] == [
            (("sharegroup-run", run_id.encode()),) for run_id in shop.ids
        ]
        assert {record.key for record in records} == {b"report"}
        assert (stored(t).runs, stored(t).last_run_ms) == (3, records[-1].timestamp_ms)


@run
async def test_a_cron_expression_in_virtual_time() -> None:
    app, seen = App("shop"), []

    @app.share_group("reports", topics="reports")
    async def report(text: str, record: Record) -> None:
        assert record.scheduled_run is not None
        seen.append((text, record.scheduled_run.due.isoformat()))

    app.cron("0 6 * * 1-5", timezone="Europe/Berlin", to=report, payload="daily", name="daily")
    async with app.test() as t:
        await t.advance("4d")

    # The test begins on Thursday, 2026-01-01.
    assert seen == [
        ("daily", "2026-01-01T05:00:00+00:00"),
        ("daily", "2026-01-02T05:00:00+00:00"),
    ]


@run
async def test_a_retry_keeps_the_run() -> None:
    app, seen = App("shop"), []

    @app.every("1h")
    @app.share_group(
        "reports", topics="reports", retry=Retry(max_attempts=2, initial_delay="30s", jitter=0)
    )
    async def report(run: ScheduledRun, record: Record) -> None:
        assert record.scheduled_run is not None
        seen.append((record.attempt, record.scheduled_run.id == run.id))
        if record.attempt == 1:
            raise ConnectionError

    async with app.test() as t:
        await t.advance("1h5m")

    assert seen == [(1, True), (2, True)]


@run
async def test_a_process_that_is_killed_repeats_nothing() -> None:
    shop = Shop()
    async with shop.app.test() as t:
        await t.advance("12m")
        await t.crash()
        await t.advance("12m")

    assert len(shop.ids) == len(set(shop.ids)) == 4


@pytest.mark.parametrize(
    ("missed", "made"),
    [
        ("all", ["00:05", "00:10", "00:15", "00:20"]),
        ("last", ["00:05", "00:15", "00:20"]),
        ("skip", ["00:05", "00:20"]),
    ],
)
def test_missed_runs_follow_the_policy(missed: str, made: list[str]) -> None:
    """Writes fail for ten minutes, as if no broker could be reached."""
    shop, told = Shop(options={"missed": missed}), []
    shop.app.on("schedule.missed", lambda event: told.append(event))

    async def test() -> None:
        async with shop.app.test() as t:
            await t.advance("6m")
            t.fail_writes("shop.schedules")
            await t.advance("11m40s")
            t.mend_writes("shop.schedules")
            await t.advance("5m")

    asyncio.run(test())
    assert [run_id[18:23] for run_id in shop.ids] == made
    assert bool(told) == (missed != "all")


@run
async def test_pause_resume_and_run() -> None:
    shop = Shop()
    async with shop.app.test() as t:
        await shop.app.schedules.pause("report")
        await t.advance("12m")
        assert shop.ids == []
        assert stored(t).paused_by is not None

        await shop.app.schedules.run("report")
        await t.settle()
        assert len(shop.ids) == 1
        assert shop.ids[0].startswith("report@2026-01-01T00:12:00Z/")

        await shop.app.schedules.resume("report")
        await t.advance("4m")
        assert shop.ids[1:] == ["report@2026-01-01T00:15:00Z"]
        # Nothing but the schedule and the claim is left, once the topic is compacted.
        newest = {record.key: record.value for record in t.in_topic("shop.schedules")}
        assert [key for key, value in newest.items() if value is not None] == [
            b"owner",
            b"schedule/report",
        ]


@run
async def test_a_topic_that_takes_no_runs_does_not_stop_the_others() -> None:
    app, seen = App("shop"), []

    @app.share_group("reports", topics="reports")
    async def report(run: ScheduledRun) -> None:
        seen.append(run.id)

    names = [name for name in map(str, range(100)) if partition_of(name) == 0][:2]

    @app.share_group("broken", topics="broken")
    async def broken(run: ScheduledRun) -> None: ...

    app.every("5m", to=report, name=names[0])
    app.every("5m", to=broken, name=names[1])
    async with app.test() as t:
        t.fail_writes("broken")
        await t.advance("11m")
        assert seen == [f"{names[0]}@2026-01-01T00:05:00Z", f"{names[0]}@2026-01-01T00:10:00Z"]

        t.mend_writes("broken")
        await t.advance("1m")
        assert len(t.in_topic("broken")) == 1


@run
async def test_a_run_is_told() -> None:
    shop = Shop()
    told: list[Event] = []
    shop.app.on("schedule.run", told.append)
    async with shop.app.test() as t:
        await t.advance("5m")

    assert [(event.topic, event.details) for event in told] == [
        ("reports", {"schedule": "report", "run": "report@2026-01-01T00:05:00Z"})
    ]


def test_a_clock_that_differs_by_more_than_an_hour_is_wrong() -> None:
    clock = MemoryClock()
    present = Present(clock)
    present.told(clock.wall_ms() + 3_600_000)
    assert present.ms() == clock.wall_ms() + 3_600_000

    with pytest.raises(InvalidTimestamp, match=r"differs by 3601 s; expected at most 3600 s"):
        present.told(clock.wall_ms() - 3_601_000)


@run
async def test_a_function_before_send_adds_headers_to_runs() -> None:
    shop = Shop()
    shop.app.before_send(lambda _topic, headers: headers.append(("trace", b"7")))
    async with shop.app.test() as t:
        await t.advance("5m")
        (record,) = t.in_topic("reports")

    assert record.headers[1] == ("trace", b"7")


@run
async def test_a_forged_record_in_the_topic_is_left_out() -> None:
    shop = Shop()
    async with shop.app.test() as t:
        for value in (b"{", b"[" * 10_000, b'{"format":1}', b"\xff\x1b[2J"):
            await t.send("shop.schedules", value, key="command/report/1")
            await t.send("shop.schedules", value, key="\x1b[2J")
        await t.advance("5m")

    assert len(shop.ids) == 1


@run
async def test_an_unexpected_error_of_an_owner_does_not_end_the_worker() -> None:
    shop, fails = Shop(), [True]

    def fail_once(_topic: str, _headers: object) -> None:
        if fails.pop() if fails else False:
            raise ZeroDivisionError

    shop.app.before_send(fail_once)
    async with shop.app.test() as t:
        await t.advance("6m")

    assert shop.ids == ["report@2026-01-01T00:05:00Z"]


@run
async def test_a_command_without_a_running_application_says_what_to_do() -> None:
    with pytest.raises(NotConnected, match=r"app\.client\(\)"):
        await Shop().app.schedules.pause("report")


@run
async def test_a_command_is_carried_out_once_although_its_record_is_read_again() -> None:
    """The next owner reads the topic from the last committed offset on, which may be its start."""
    shop = Shop()
    async with shop.app.test() as t:
        await shop.app.schedules.run("report")
        await t.settle()
        for _ in range(2):
            await t.crash()
            await t.advance("1s")

    assert len(shop.ids) == 1


@run
async def test_a_handler_of_a_consumer_group_gets_the_runs() -> None:
    app, seen = App("shop"), []

    @app.every("5m")
    @app.consumer_group("audit", topics="reports")
    async def report(run: ScheduledRun) -> None:
        seen.append(run.id)

    async with app.test() as t:
        await t.advance("6m")

    assert seen == ["report@2026-01-01T00:05:00Z"]
