"""The processes of a trial: a broker, workers that are always started again, and producers.

    producing  |------------------------------------------|
    faults     |   w  w   B   f   w   B  w  f  |                    none in the last third:
    commands   |-------------------------------|                    delays are measured there
    all done   |                               |----------+----->   the last commands, then

Faults come at times drawn from the seed: a worker is killed, or frozen for longer than its sessions
last; the broker is killed while a transaction is being committed.  Some workers end themselves in
the middle of a transaction (`fleet.Point`).  A worker that died or stopped is started again at
once; when it was seen dead is written down (`Death`).
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from sharegroup.client import AdminClient, NewTopic, OffsetSpec, Producer, TopicPartition
from sharegroup.errors import KafkaError
from tests.faults.worker_chaos.commands import Commander
from tests.faults.worker_chaos.journal import Journal, feel_the_pulse
from tests.faults.worker_chaos.names import (
    CUT,
    ENDING,
    EXACT,
    KEYED,
    KEYS,
    LATER,
    OUTPUTS,
    PARTITIONS,
    PLAIN,
    SINK,
    TICKS,
    Point,
)
from tests.faults.worker_chaos.records import CRUNCH, GROUP, JOBS, Sent
from tests.support.chosen_broker import RunningBroker

MODULE = "tests.faults.worker_chaos.fleet"
OWN = f"{GROUP}.retry"
SCHEDULERS = f"{OWN}-scheduler"
LOOK_SECONDS = 0.05
LAG_SECONDS = 0.5
CALM_SHARE = 1 / 3
"""Of the time in which records are sent: the last part, without kills."""
BROKER = 0
"""In the place of a worker's process id."""
ANYONE = -1
"""The same, if it may have been any worker."""
TIER_LOST = re.compile(r"^(\S+) .*event=tier_lost ", re.MULTILINE)
FROZEN_SECONDS = 8.0
"""Longer than every session, so a frozen process loses its records and partitions."""
UNAWARE_SECONDS = 0.25
"""The time in which a process that goes on ends its runs and has not heard of the loss yet."""
ENDING_SECONDS_MAX, ENDING_LOOK_SECONDS = 3.0, 0.001
"""How long the end of a transaction is waited for, to kill the broker in it."""
STOPPED = 0


class Death(NamedTuple):
    """A process ended, or was frozen: between ``at`` and ``seen``, on the monotonic clock."""

    pid: int
    at: float
    seen: float
    back: float
    """Of the broker, when it took connections again; of a worker, when another was started."""


@dataclass(slots=True)
class Plan:
    """How much of everything."""

    records: Sequence[Sent]
    keyed: int
    workers: int
    worker_kills: int
    broker_kills: int
    freezes: int
    cuts: int
    """Workers that end themselves in the middle of a transaction."""
    send_seconds: float
    finish_seconds_max: float
    seed: int


@dataclass(slots=True)
class Stage:
    """Runs the broker, the workers and the producers of a trial, and restarts workers."""

    folder: Path
    plan: Plan
    broker: RunningBroker
    deaths: list[Death] = field(default_factory=list)
    frozen: list[Death] = field(default_factory=list)
    ended: dict[int, tuple[float, int]] = field(default_factory=dict)
    """When each process was seen to have ended, and its exit code, by its id."""
    calm_at: float = 0.0
    """When the last fault and the last command were over."""
    stopped_at: float = 0.0
    cuts: int = 0
    commander: Commander = field(init=False)
    _left: dict[str, int] = field(default_factory=dict)
    """The records that the groups have not finished, as of the last answer."""
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _to_be_cut: set[str] = field(default_factory=set)
    """Half of the workers at most: the others go on."""
    _starts: int = 0
    _thaws: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.commander = Commander(
            self.broker.bootstrap_servers,
            self.plan.seed,
            lambda: {process.pid for process in self._running.values()},
        )

    async def play(self) -> None:
        """From the first record to the last one's end; the workers are gone when it returns."""
        self.journals.mkdir(parents=True)
        ended = feel_the_pulse(Journal(self.journals))
        try:
            async with AdminClient(bootstrap_servers=self.broker.bootstrap_servers) as admin:
                await admin.create_topics(
                    [NewTopic(KEYED, PARTITIONS), NewTopic(OUTPUTS, PARTITIONS)]
                )
                for number in range(self.plan.workers):
                    self._start(f"worker-{number}")
                is_prepared = await self._until(self._prepared, admin)
                assert is_prepared, f"the workers did not make their topics; {self.log_tails()}"
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
        span = self.plan.send_seconds * (1 - CALM_SHARE)
        faults = self._fault_times(span)
        tasks = [
            asyncio.create_task(work)
            for work in (self._send(), self._send_keyed(), self.commander.play(span))
        ]
        try:
            while faults or not all(task.done() for task in tasks):
                await self._look()
                if faults and time.monotonic() >= faults[0][0]:
                    await self._fault(faults.pop(0)[1])
                if not self.calm_at and not faults and tasks[-1].done() and not self._thaws:
                    self.calm_at = time.monotonic()
                await asyncio.sleep(LOOK_SECONDS)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        if not await self._until(self._finished, admin):
            # Judged all the same, because what has happened may say why.
            self.commander.problems.append(
                f"not every record had its end after {self.plan.finish_seconds_max} s; records "
                f"that are left: {self._left}"
            )
        ending = asyncio.create_task(self.commander.end())
        while not ending.done():
            await self._look()
            await asyncio.sleep(LOOK_SECONDS)
        await ending
        await self.commander.judge_schedules()

    def _fault_times(self, span: float) -> list[tuple[float, str]]:
        chance, began = random.Random(self.plan.seed), time.monotonic()
        plan = self.plan
        faults = ["worker"] * plan.worker_kills + ["freeze"] * plan.freezes
        at = [(began + chance.uniform(0.1, 1.0) * span, what) for what in faults]
        share = span / (plan.broker_kills + 1)
        at += [(began + share * (index + 1), "broker") for index in range(plan.broker_kills)]
        return sorted(at)

    async def _send(self) -> None:
        """All records of the share group."""
        await self._send_evenly([(sent.topic, sent.value, sent.key) for sent in self.plan.records])

    async def _send_keyed(self) -> None:
        """All records of the consumer groups: the keys in turn, each key's records in order."""
        await self._send_evenly(
            [(KEYED, b"%d" % number, b"%d" % (number % KEYS)) for number in range(self.plan.keyed)]
        )

    async def _send_evenly(self, records: Sequence[tuple[str, bytes, bytes]]) -> None:
        """Send evenly over the time; each record is confirmed in the end."""
        rate = len(records) / self.plan.send_seconds
        began = time.monotonic()
        confirmations = []
        async with Producer(
            bootstrap_servers=self.broker.bootstrap_servers, delivery_timeout_ms=120_000
        ) as producer:
            for index, (topic, value, key) in enumerate(records):
                if index % 32 == 0:
                    await asyncio.sleep(max(0.0, began + index / rate - time.monotonic()))
                confirmations.append(await producer.send(topic, value, key=key))
            for confirmation in confirmations:
                await confirmation

    async def _until(
        self, condition: Callable[[AdminClient], Awaitable[bool]], admin: AdminClient
    ) -> bool:
        """Whether it came to be in time."""
        limit = time.monotonic() + self.plan.finish_seconds_max
        while not await condition(admin):
            if time.monotonic() > limit:
                return False
            await self._look()
            await asyncio.sleep(LAG_SECONDS)
        return True

    async def _prepared(self, admin: AdminClient) -> bool:
        return {JOBS, CRUNCH, OWN, LATER, TICKS} <= set(await admin.list_topics())

    async def _finished(self, admin: AdminClient) -> bool:
        """Whether nothing is left to be done: neither for the groups nor in the tiers."""
        try:
            self._left = {
                GROUP: await share_lag(admin),
                "tiers": await tier_lag(admin),
                KEYED: await keyed_lag(admin),
                SINK: await share_lag(admin, SINK, {OUTPUTS}),
            }
        except KafkaError:
            return False  # The broker is away; asked again.
        return not any(self._left.values())

    # Processes.

    def _start(self, name: str) -> None:
        self._starts += 1
        environment = {
            **os.environ,
            "CHAOS_BOOTSTRAP": self.broker.bootstrap_servers,
            "CHAOS_JOURNALS": str(self.journals),
            "CHAOS_ANNOUNCES": "1",
            CUT: "",
        }
        self._to_be_cut.discard(name)
        is_cut = self.cuts < self.plan.cuts and not self.calm_at
        if is_cut and len(self._to_be_cut) < self.plan.workers // 2:
            environment[CUT] = tuple(Point)[self.cuts % len(Point)]
            self.cuts += 1
            self._to_be_cut.add(name)
        with open(self.folder / f"{name}.log", "ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "sharegroup", "worker", f"{MODULE}:app"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def _fault(self, what: str) -> None:
        match what:
            case "broker":
                await self._kill_broker()
            case "worker":
                process = self._running[self._victim()]
                process.kill()
                process.wait()
                await self._look()
            case "freeze":
                freeze = self._freeze(self._running[self._victim()])
                self._thaws.add(task := asyncio.create_task(freeze))
                task.add_done_callback(self._thaws.discard)

    def _victim(self) -> str:
        chance = random.Random(self.plan.seed + self._starts)
        return chance.choice(sorted(self._running))

    async def _kill_broker(self) -> None:
        """While a transaction is being committed: before, during or after its markers."""
        ending, limit = self.journals / ENDING, time.monotonic() + ENDING_SECONDS_MAX
        ending.unlink(missing_ok=True)
        while not ending.exists() and time.monotonic() < limit:
            await asyncio.sleep(ENDING_LOOK_SECONDS)
        at = time.monotonic()
        await asyncio.to_thread(self.broker.kill)
        seen = time.monotonic()
        await asyncio.to_thread(self.broker.start)
        self.deaths.append(Death(BROKER, at, seen, time.monotonic()))

    async def _freeze(self, process: subprocess.Popen[bytes]) -> None:
        at = time.monotonic()
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(FROZEN_SECONDS)
        process.send_signal(signal.SIGCONT)  # Of one that has died meanwhile, nothing happens.
        back = time.monotonic()
        self.frozen.append(Death(process.pid, at, back + UNAWARE_SECONDS, back))

    async def _look(self) -> None:
        """Start again what has died or stopped."""
        for name, process in tuple(self._running.items()):
            if (code := process.poll()) is None:
                continue
            seen = time.monotonic()
            self.ended[process.pid] = seen, code
            self._start(name)
            if code != STOPPED:
                self.deaths.append(Death(process.pid, seen - 2 * LOOK_SECONDS, seen, seen))

    async def _stop(self) -> None:
        """SIGTERM, and wait: a worker with nothing to do leaves at once."""
        self.stopped_at = time.monotonic()
        for process in self._running.values():
            process.terminate()
        for name, process in self._running.items():
            code = await asyncio.to_thread(process.wait, 30)
            assert code == STOPPED, f"{name} ended with {code}: {self.log_tail(name)}"

    def taken_for_dead(self) -> list[Death]:
        """When a process learned that others move its retries: it, or the broker, had stood still.

        As a death of any process, because nobody knows which of them wrote what comes twice.
        """
        offset = time.time() - time.monotonic()
        found = []
        for path in self.folder.glob("worker-*.log"):
            for moment in TIER_LOST.findall(path.read_text(errors="replace")):
                at = datetime.fromisoformat(moment).timestamp() - offset
                found.append(Death(ANYONE, at - FROZEN_SECONDS, at, at))
        return found

    def log_tail(self, name: str) -> str:
        """The last that a worker said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2_000:]

    def log_tails(self) -> str:
        return "\n".join(f"{name}: {self.log_tail(name)}" for name in self._running)


async def share_lag(
    admin: AdminClient, group: str = GROUP, topics_of_it: Collection[str] = (JOBS, CRUNCH)
) -> int:
    """Records that the share group has not settled, retries that are due among them."""
    listed = (await admin.list_share_group_offsets({group: None}))[group]
    if isinstance(listed, KafkaError):
        raise listed
    # Unknown is not zero; and the application's topics are always among them.
    known = [lag_.lag if not isinstance(lag_, KafkaError) else None for lag_ in listed.values()]
    topics = {where.topic for where in listed}
    if not {*topics_of_it} <= topics or None in known:
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
    return await consumer_lag(admin, SCHEDULERS, places)


async def keyed_lag(admin: AdminClient) -> int:
    """Records that one of the consumer groups has not finished."""
    places = [TopicPartition(KEYED, partition) for partition in range(PARTITIONS)]
    return sum([await consumer_lag(admin, group, places) for group in (PLAIN, EXACT)])


async def consumer_lag(admin: AdminClient, group: str, places: Sequence[TopicPartition]) -> int:
    """Records of these partitions that the group has not committed."""
    ends = await admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    committed = (await admin.list_consumer_group_offsets({group: None}))[group]
    if isinstance(committed, KafkaError):
        raise committed
    return sum(
        ends[place].offset - (committed[place].offset or 0 if place in committed else 0)
        for place in places
    )
