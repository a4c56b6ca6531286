"""Waiting records are listed, run at once and cancelled, on a real broker."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from sharegroup.client import Producer
from sharegroup.client.fetch.record_reading import partition_ranges, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ReadingConfig
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.story_headers import story_of
from sharegroup.dead_letters.topics import own_topic
from sharegroup.errors import InvalidConfig
from sharegroup.waiting.control_records import Command, Intent, Place, encoded
from sharegroup.waiting.retry_topics import control_topic
from sharegroup.waiting.waiting_filter import EVERY_RECORD, WaitingFilter, WaitingRecord
from sharegroup.waiting.waiting_records import Outcome, WaitingRecords
from sharegroup.worker import App, Record, Retry
from sharegroup.worker.retrying import control_state, tier_mover
from tests.docs.write_docs import JSON_KEYS
from tests.integration.worker.scheduling import make_tiers, postponing, process, scheduling
from tests.integration.worker.test_jobs_cli import rows, run
from tests.support.limits import HANGING_SECONDS

LONG = Retry(max_attempts=3, initial_delay="1h", multiplier=1, jitter=0)
LOOK_SECONDS = 0.05


@dataclass
class Shop:
    """An application whose handler fails the first time, and what became of the records."""

    bootstrap: str
    group: str
    topic: str
    retry: Retry = LONG
    runs: Counter[bytes] = field(default_factory=Counter)
    succeeded: Counter[bytes] = field(default_factory=Counter)

    def app(self, *, steering: bool = True) -> App:
        app = App("steered", bootstrap_servers=self.bootstrap, grace="2s")

        @app.share_group(
            self.group,
            topics=self.topic,
            retry=self.retry,
            retry_tiers=("1s", "1h"),
            steering=steering,
        )
        async def work(value: bytes, record: Record) -> None:
            self.runs[value] += 1
            if record.attempt == 1:
                raise ConnectionError("the bank hung up")
            self.succeeded[value] += 1

        return app

    async def send(self, *values: bytes) -> None:
        async with Producer(bootstrap_servers=self.bootstrap) as producer:
            for value in values:
                await producer.send_and_wait(self.topic, value)

    async def waiting(
        self, waiting: WaitingRecords, count: int, selection: WaitingFilter = EVERY_RECORD
    ) -> dict[bytes, WaitingRecord]:
        """The records that wait, as soon as there are so many."""
        found: dict[bytes, WaitingRecord] = {}

        async def are_there() -> bool:
            found.clear()
            async for record in waiting.records(selection):
                found[record.value or b""] = record
            return len(found) == count

        await until(are_there, f"{count} waiting records")
        return found

    async def letters(self) -> Counter[tuple[bytes | None, str]]:
        """Value and reason of the dead letters."""
        found: Counter[tuple[bytes | None, str]] = Counter()
        async with DeadLetterQueue(f"{self.group}.dead", bootstrap_servers=self.bootstrap) as queue:
            async for chunk in queue.chunks():
                found.update((letter.value, str(letter.death.reason)) for letter in chunk.letters)
        return found


async def until(condition: Callable[[], object], what: str) -> None:
    limit = time.monotonic() + HANGING_SECONDS
    while True:
        result = condition()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return
        assert time.monotonic() < limit, f"waited {HANGING_SECONDS} s for {what}"
        await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def running(app: App) -> AsyncIterator[App]:
    await app.start()
    try:
        yield app
    finally:
        await app.stop()


@pytest.mark.slow
def test_waiting_record_runs_now_and_another_is_cancelled(
    bootstrap: str, group: str, topic: str
) -> None:
    shop = Shop(bootstrap, group, topic)

    async def scene() -> None:
        async with running(shop.app()), WaitingRecords(group, bootstrap_servers=bootstrap) as them:
            await shop.send(b"1", b"2", b"3")
            found = await shop.waiting(them, 3)
            assert {record.error_class for record in found.values()} == {"builtins.ConnectionError"}
            ids = {value: record.id or "" for value, record in found.items()}
            run = await them.run([ids[b"1"]], by="anna")
            cancelled = await them.cancel([ids[b"2"]], by="anna")
            assert (run[ids[b"1"]].outcome, cancelled[ids[b"2"]].outcome) == ("done", "done")
            await until(lambda: shop.succeeded[b"1"], "the run of 1")

            async def is_letter() -> bool:
                return await shop.letters() == {(b"2", "cancelled"): 1}

            await until(is_letter, "the letter of 2")
            assert set(await shop.waiting(them, 1)) == {b"3"}
            again = await them.cancel([ids[b"1"], ids[b"2"], "unknown"], by="anna")
            assert {steered.outcome for steered in again.values()} == {Outcome.TOO_LATE}
        assert shop.runs == {b"1": 2, b"2": 1, b"3": 1}

    asyncio.run(scene())


def test_held_record_is_named_with_its_process(bootstrap: str, group: str, topic: str) -> None:
    shop = Shop(bootstrap, group, topic, Retry(max_attempts=2, initial_delay="5s", jitter=0))
    held: list[str] = []

    async def scene() -> None:
        app = shop.app()
        app.on("record.held", lambda event: held.append(event.details["id"]))
        async with running(app), WaitingRecords(group, bootstrap_servers=bootstrap) as them:
            await shop.send(b"1")
            await until(lambda: held, "a held record")
            steered = (await them.run(held))[held[0]]
            assert steered.outcome is Outcome.HELD
            assert steered.member

    asyncio.run(scene())


def test_group_that_is_not_steered_says_what_to_declare(
    bootstrap: str, group: str, topic: str
) -> None:
    shop = Shop(bootstrap, group, topic)

    async def scene() -> None:
        async with (
            running(shop.app(steering=False)),
            WaitingRecords(group, bootstrap_servers=bootstrap) as them,
        ):
            await shop.send(b"1")
            (record,) = (await shop.waiting(them, 1)).values()
            with pytest.raises(InvalidConfig, match=r"declare its handlers with steering=True"):
                await them.run([record.id or ""])

    asyncio.run(scene())


@dataclass
class Race:
    """Records that become due all the time, commands for them, and schedulers that die."""

    bootstrap: str
    group: str
    seed: int
    records: int
    troubles: int

    async def run(self) -> Counter[tuple[bytes | None, bool]]:
        """Value, and whether it was cancelled, of each record in the group's own topic."""
        await make_tiers(self.bootstrap, self.group, delays=TIERS, steering=True)
        chance = random.Random(self.seed)
        with ExitStack() as stack:
            living = [self._start(stack) for _ in range(2)]
            async with (
                postponing(self.bootstrap, self.group, TIERS) as postponer,
                WaitingRecords(self.group, bootstrap_servers=self.bootstrap) as waiting,
            ):
                commands: set[asyncio.Task[None]] = set()
                every = max(1, self.records // (self.troubles + 1))
                for number in range(self.records):
                    due_ms = time.time_ns() // 1_000_000 + round(chance.uniform(500, 10_000))
                    await postponer.send_later("orders", b"%d" % number, due_ms=due_ms)
                    if number % 20 == 19:
                        commands.add(asyncio.create_task(self._command(waiting, chance)))
                    if number % every == every - 1 and self.troubles:
                        await self._trouble(stack, living, chance)
                for command in commands:
                    await command
                return await self._ends(waiting)

    def _start(self, stack: ExitStack) -> subprocess.Popen[bytes]:
        started = process(self.bootstrap, self.group, TIERS, steering=True)
        return stack.enter_context(started)

    async def _trouble(
        self, stack: ExitStack, living: list[subprocess.Popen[bytes]], chance: random.Random
    ) -> None:
        """Kill a scheduler, or freeze it for longer than its session; another one starts."""
        victim = living.pop(0)
        if chance.random() < 0.5:
            victim.kill()
        else:
            victim.send_signal(signal.SIGSTOP)
            asyncio.get_running_loop().call_later(4.0, victim.send_signal, signal.SIGCONT)
        living.append(await asyncio.to_thread(self._start, stack))

    async def _command(self, waiting: WaitingRecords, chance: random.Random) -> None:
        """Run some of the records that wait now, and cancel others."""
        found = [record.id or "" async for record in waiting.records()]
        some = chance.sample(found, min(len(found), 10))
        half = len(some) // 2
        await asyncio.gather(
            waiting.run(some[:half], by="race"), waiting.cancel(some[half:], by="race")
        )

    async def _ends(self, waiting: WaitingRecords) -> Counter[tuple[bytes | None, bool]]:
        async def is_over() -> bool:
            return not [record async for record in waiting.records()]

        await until(is_over, "the end of every wait")
        cluster = Cluster(ReadingConfig(bootstrap_servers=self.bootstrap))
        try:
            ends: Counter[tuple[bytes | None, bool]] = Counter()
            for log in await partition_ranges(cluster, own_topic(self.group)):
                async for records in read_records(cluster, log, committed=True):
                    for record in records:
                        is_cancelled = story_of(record.headers).cancelled_by is not None
                        ends[record.value, is_cancelled] += 1
            return ends
        finally:
            cluster.close()


TIERS = (1.0, 3.0)


@pytest.mark.parametrize(
    ("seed", "records", "troubles"),
    [
        (1, 100, 0),
        pytest.param(2, 300, 2, marks=pytest.mark.slow),
        pytest.param(3, 300, 3, marks=pytest.mark.slow),
    ],
)
def test_commands_race_the_scheduler_and_its_takeover(
    bootstrap: str, group: str, seed: int, records: int, troubles: int
) -> None:
    """Each record comes to the own topic once, to be run or to become a letter."""
    ends = asyncio.run(Race(bootstrap, group, seed, records, troubles).run())
    assert Counter(value for value, _ in ends.elements()) == {
        b"%d" % number: 1 for number in range(records)
    }
    assert 0 < sum(count for (_, is_cancelled), count in ends.items() if is_cancelled) < records


async def last_values(bootstrap: str, topic: str) -> dict[bytes | None, bytes | None]:
    """What compaction leaves of a topic in the end, by key."""
    cluster = Cluster(ReadingConfig(bootstrap_servers=bootstrap))
    values: dict[bytes | None, bytes | None] = {}
    try:
        for log in await partition_ranges(cluster, topic):
            async for records in read_records(cluster, log, committed=True):
                values.update((record.key, record.value) for record in records)
        return values
    finally:
        cluster.close()


@pytest.mark.slow
def test_commands_of_last_week_are_deleted_by_one_owner(
    bootstrap: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time between two looks and that after a start are shorter here."""
    monkeypatch.setattr(tier_mover, "TIDY_MS", 100)
    monkeypatch.setattr(control_state, "GRACE_MS", 0)
    topic, now_ms = control_topic(group), time.time_ns() // 1_000_000
    commands = [
        Command(
            record_id=f"f00d{days}", intent=Intent.RUN, place=place, ask=f"{days}", by="test",
            asked_ms=now_ms - days * 86_400_000,
        )
        for days, place in ((7, None), (8, Place(f"{group}.retry.9h", 0, 17)), (0, None))
    ]  # fmt: skip
    old, other, new = (encoded(command) for command in commands)

    async def scene() -> None:
        await make_tiers(bootstrap, group, delays=TIERS, steering=True)
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for key, value in (old, other, new):
                await producer.send_and_wait(topic, value, key=key)

        async def are_deleted() -> bool:
            left = await last_values(bootstrap, topic)
            return left == {old[0]: None, other[0]: None, new[0]: new[1]}

        async with scheduling(bootstrap, group, TIERS, steering=True):
            await until(are_deleted, "the end of the old commands")

    asyncio.run(scene())


@pytest.mark.slow
def test_command_line_lists_runs_and_cancels(bootstrap: str, group: str, topic: str) -> None:
    shop = Shop(bootstrap, group, topic)
    values = [b'{"total": %d}' % number for number in range(6)]

    async def scene() -> None:
        async with running(shop.app()), WaitingRecords(group, bootstrap_servers=bootstrap) as them:
            await shop.send(*values)
            found = await shop.waiting(them, 6)
            listed = await rows(bootstrap, "retries", "list", group, "--failures", "1")
            assert {row["id"] for row in listed} == {record.id for record in found.values()}
            assert listed[0].keys() == set(JSON_KEYS["retries list"].split())
            assert await run(bootstrap, "retries", "list", group, "--failures", "2") == (
                0, "No such record waits.\n", "",
            )  # fmt: skip
            first = found[values[0]].id or ""
            code, out, err = await run(bootstrap, "retries", "run", group, "--id", first)
            assert (code, out, err) == (0, f"{first}  done\n", "")
            code, out, err = await run(bootstrap, "retries", "cancel", group, "--id", first)
            assert (code, out, err) == (1, f"{first}  too-late\n", "")
            some = ("--where", "total > 3")
            counted = await run(bootstrap, "retries", "cancel", group, *some, "--dry-run")
            assert counted == (0, "would cancel 2 records\n", "")
            assert await run(bootstrap, "retries", "cancel", group, *some) == (
                0, "2 cancelled\n", "",
            )  # fmt: skip
            assert await run(bootstrap, "retries", "run", group, "--error-class", "*Error") == (
                0, "3 run now\n", "",
            )  # fmt: skip
            await until(lambda: sum(shop.succeeded.values()) == 4, "the runs of four")

            async def are_letters() -> bool:
                return await shop.letters() == {(value, "cancelled"): 1 for value in values[4:]}

            await until(are_letters, "the letters of two")
            (job, _) = [
                job
                for job in await rows(bootstrap, "jobs", "list")
                if job["topic"] == f"{group}.retry"
            ]
            assert (job["kind"], job["state"], job["done"]) == ("run-waiting", "done", 3)

    asyncio.run(scene())


def test_empty_filter_is_refused(bootstrap: str, group: str) -> None:
    code, _, err = asyncio.run(run(bootstrap, "retries", "cancel", group))
    assert code == 2
    assert "without a condition this would be for all waiting records" in err
