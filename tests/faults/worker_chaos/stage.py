"""The processes of a trial: a broker, workers that are always started again, and a producer.

    producing  |------------------------------------------|
    kills      |   w  w   B   w   w   B  w  w  |                    none in the last third:
    all done   |                               |----------+----->   delays are measured there

Kills come at times drawn from the seed.  A worker that died, by a kill or by its own handler, is
started again at once; when it was seen dead is written down (`Death`).
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sharegroup.client import AdminClient, OffsetSpec, Producer, TopicPartition
from sharegroup.errors import KafkaError
from tests.faults.worker_chaos.journal import Journal, feel_the_pulse
from tests.faults.worker_chaos.records import CRUNCH, GROUP, JOBS, Sent
from tests.support.processes import ServeProcess

APP = "tests.faults.worker_chaos.app"
OWN = f"{GROUP}.retry"
SCHEDULERS = f"{OWN}-scheduler"
LOOK_SECONDS = 0.05
LAG_SECONDS = 0.5
CALM_SHARE = 1 / 3
"""Of the time in which records are sent: the last part, without kills."""
BROKER = 0
"""In the place of a worker's process id."""


class Death(NamedTuple):
    """A process ended: between ``at`` and ``seen``, on the monotonic clock."""

    pid: int
    at: float
    seen: float
    back: float
    """Of the broker, when it took connections again; of a worker, when another was started."""


@dataclass(slots=True)
class Plan:
    """How much of everything."""

    records: Sequence[Sent]
    workers: int
    worker_kills: int
    broker_kills: int
    send_seconds: float
    finish_seconds_max: float
    seed: int


@dataclass(slots=True)
class Stage:
    """Runs the broker, the workers and the producer of a trial, and restarts workers."""

    folder: Path
    plan: Plan
    broker: ServeProcess
    deaths: list[Death] = field(default_factory=list)
    kills: int = 0
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    async def play(self) -> None:
        """From the first record to the last one's end; the workers are gone when it returns."""
        self.journals.mkdir(parents=True)
        ended = feel_the_pulse(Journal(self.journals))
        try:
            for number in range(self.plan.workers):
                self._start(f"worker-{number}")
            async with AdminClient(bootstrap_servers=self.broker.bootstrap_servers) as admin:
                await self._until(self._prepared, admin, what="the workers to make their topics")
                await self._trouble(admin)
            await self._stop()
        finally:
            ended.set()
            for process in self._running.values():
                process.kill()
                process.wait()

    @property
    def journals(self) -> Path:
        """Where every process writes down what it does."""
        return self.folder / "journals"

    # The course of a trial.

    async def _trouble(self, admin: AdminClient) -> None:
        began = time.monotonic()
        sending = asyncio.create_task(self._send())
        kills = self._kill_times(began)
        while not sending.done() or kills:
            await self._look()
            if kills and time.monotonic() >= kills[0][0]:
                await self._kill(kills.pop(0)[1])
            await asyncio.sleep(LOOK_SECONDS)
        await sending
        await self._until(self._finished, admin, what="every record to come to its end")

    def _kill_times(self, began: float) -> list[tuple[float, str]]:
        chance = random.Random(self.plan.seed)
        span = self.plan.send_seconds * (1 - CALM_SHARE)
        workers = [
            (began + chance.uniform(0.1, 1.0) * span, "worker")
            for _ in range(self.plan.worker_kills)
        ]
        share = span / (self.plan.broker_kills + 1)
        brokers = [
            (began + share * (index + 1), "broker") for index in range(self.plan.broker_kills)
        ]
        return sorted(workers + brokers)

    async def _send(self) -> None:
        """All records, evenly over the time; each is confirmed in the end."""
        rate = len(self.plan.records) / self.plan.send_seconds
        began = time.monotonic()
        confirmations = []
        async with Producer(bootstrap_servers=self.broker.bootstrap_servers) as producer:
            for index, planned in enumerate(self.plan.records):
                if index % 32 == 0:
                    await asyncio.sleep(max(0.0, began + index / rate - time.monotonic()))
                confirmations.append(
                    await producer.send(planned.topic, planned.value, key=planned.key)
                )
            for confirmation in confirmations:
                await confirmation

    async def _until(self, condition: object, admin: AdminClient, *, what: str) -> None:
        limit = time.monotonic() + self.plan.finish_seconds_max
        while not await condition(admin):  # type: ignore[operator]
            assert time.monotonic() < limit, (
                f"waited {self.plan.finish_seconds_max} s for {what}; {self.log_tails()}"
            )
            await self._look()
            await asyncio.sleep(LAG_SECONDS)

    async def _prepared(self, admin: AdminClient) -> bool:
        return {JOBS, CRUNCH, OWN} <= set(await admin.list_topics())

    async def _finished(self, admin: AdminClient) -> bool:
        """Whether nothing is left to be done: neither for the share group nor in the tiers."""
        try:
            return await share_lag(admin) == 0 and await tier_lag(admin) == 0
        except KafkaError:
            return False  # The broker is away; asked again.

    # Processes.

    def _start(self, name: str) -> None:
        environment = {
            **os.environ,
            "CHAOS_BOOTSTRAP": self.broker.bootstrap_servers,
            "CHAOS_JOURNALS": str(self.journals),
        }
        with open(self.folder / f"{name}.log", "ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "sharegroup", "worker", f"{APP}:app"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def _kill(self, what: str) -> None:
        self.kills += 1
        if what == "worker":
            chance = random.Random(self.plan.seed + self.kills)
            name = chance.choice(sorted(self._running))
            self._running[name].kill()
            self._running[name].wait()
            await self._look()
            return
        at = time.monotonic()
        await asyncio.to_thread(self.broker.kill9)
        seen = time.monotonic()
        await asyncio.to_thread(self.broker.start)
        self.deaths.append(Death(BROKER, at, seen, time.monotonic()))

    async def _look(self) -> None:
        """Start again what has died."""
        assert self.broker.running, self.broker.log_tail()
        for name, process in tuple(self._running.items()):
            if process.poll() is not None:
                seen = time.monotonic()
                self._start(name)
                self.deaths.append(Death(process.pid, seen - 2 * LOOK_SECONDS, seen, seen))

    async def _stop(self) -> None:
        """SIGTERM, and wait: a worker with nothing to do leaves at once."""
        for process in self._running.values():
            process.terminate()
        for name, process in self._running.items():
            code = await asyncio.to_thread(process.wait, 30)
            assert code == 0, f"{name} ended with {code}: {self.log_tail(name)}"

    def log_tail(self, name: str) -> str:
        """The last that a worker said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2_000:]

    def log_tails(self) -> str:
        return "\n".join(f"{name}: {self.log_tail(name)}" for name in self._running)


async def share_lag(admin: AdminClient) -> int:
    """Records that the share group has not settled, retries that are due among them."""
    listed = (await admin.list_share_group_offsets({GROUP: None}))[GROUP]
    if isinstance(listed, KafkaError):
        raise listed
    # Unknown is not zero; and the application's topics are always among them.
    known = [lag_.lag if not isinstance(lag_, KafkaError) else None for lag_ in listed.values()]
    topics = {where.topic for where in listed}
    if not {JOBS, CRUNCH} <= topics or None in known:
        return 1
    return sum(lag or 0 for lag in known)


async def tier_lag(admin: AdminClient) -> int:
    """Records that wait in the retry topics."""
    names = [topic for topic in await admin.list_topics() if topic.startswith(f"{OWN}.")]
    described = await admin.describe_topics(names)
    places = [
        TopicPartition(name, partition.partition)
        for name in names
        for partition in described[name].partitions
    ]
    ends = await admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    committed = (await admin.list_consumer_group_offsets({SCHEDULERS: None}))[SCHEDULERS]
    if isinstance(committed, KafkaError):
        raise committed
    return sum(
        ends[place].offset - (committed[place].offset or 0 if place in committed else 0)
        for place in places
    )
