"""Runs a trial: a broker, workers, a producer, and faults that follow from a seed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from sharegroup.client import AdminClient, Consumer, NewTopic, Producer
from tests.faults.consumer_chaos.journal import OUTPUTS, PARTITIONS, TOPIC, Kind, entries
from tests.faults.consumer_chaos.verdict import Verdict, judge, judge_outputs
from tests.support.chosen_broker import SHORT_TIMES, RunningBroker, chosen, running

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = {**SHORT_TIMES, "group.consumer.session.timeout.ms": "3000"}
FROZEN_SECONDS = 5.0
"""Longer than the session timeout, so a frozen process loses its partitions."""
SETTLED_SECONDS = 120.0
STOP_SECONDS = 30.0
OPEN_SECONDS = 20.0
"""The transaction of a dead process is aborted within this time."""


@dataclass(frozen=True)
class Plan:
    """The size of a trial, and its faults."""

    records: int
    keys: int
    workers: int
    send_seconds: float
    kills: int
    freezes: int
    replacements: int
    broker_kills: int
    exactly_once: bool = False


SHORT = Plan(3_000, 40, 3, 12.0, kills=2, freezes=1, replacements=1, broker_kills=0)
SHORT_EXACT = replace(SHORT, exactly_once=True)
LONG = Plan(60_000, 200, 4, 150.0, kills=12, freezes=6, replacements=8, broker_kills=2)
LONG_EXACT = replace(LONG, exactly_once=True)


class Stage:
    """The worker processes of a trial."""

    def __init__(self, broker: RunningBroker, folder: Path, plan: Plan) -> None:
        self._broker = broker
        self._folder = folder
        self._is_exact = plan.exactly_once
        self._log = open(folder / "workers.log", "ab")  # noqa: SIM115  Closed by `close`.
        self.workers = [self._start() for _ in range(plan.workers)]

    def _start(self) -> subprocess.Popen[bytes]:
        command = (
            sys.executable,
            "-m",
            "sharegroup",
            "worker",
            "tests.faults.consumer_chaos.app:app",
        )
        return subprocess.Popen(
            [*command, "--groups", "chaos", "--bootstrap-server", self._broker.bootstrap_servers],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
                "JOURNAL": str(self._folder),
                "EXACTLY_ONCE": str(int(self._is_exact)),
            },
            stdout=self._log,
            stderr=self._log,
        )

    def kill(self, index: int) -> None:
        self.workers[index].kill()
        self.workers[index].wait()
        self.workers[index] = self._start()

    def freeze(self, index: int) -> None:
        frozen = self.workers[index]
        frozen.send_signal(signal.SIGSTOP)
        time.sleep(FROZEN_SECONDS)
        frozen.send_signal(signal.SIGCONT)

    def replace(self, index: int) -> None:
        """A rolling restart: the new process starts while the old one stops."""
        old, self.workers[index] = self.workers[index], self._start()
        old.terminate()
        assert old.wait(STOP_SECONDS) is not None

    def close(self) -> None:
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            try:
                worker.wait(STOP_SECONDS)
            finally:
                worker.kill()
        self._log.close()


def run(plan: Plan, seed: int, folder: Path) -> Verdict:
    """Run a trial in an empty folder."""
    dice = random.Random(seed)
    with ExitStack() as stack:
        broker = stack.enter_context(running(chosen(), folder / "broker", SETTINGS))
        asyncio.run(_create(broker.bootstrap_servers))
        stage = Stage(broker, folder, plan)
        stack.callback(stage.close)
        sent = asyncio.run(_send_while(broker, stage, plan, dice))
        over = time.monotonic() + SETTLED_SECONDS
        while len(_finished(folder)) < plan.records and time.monotonic() < over:
            time.sleep(0.5)
        outputs = (
            asyncio.run(_outputs(broker.bootstrap_servers, plan)) if plan.exactly_once else None
        )
    journals = {path.stem: entries(path) for path in sorted(folder.glob("*.journal"))}
    verdict = judge(journals, sent)
    if outputs is not None:
        judge_outputs(outputs, sent, verdict)
    return verdict


async def _outputs(bootstrap: str, plan: Plan) -> list[str]:
    """Read all committed outputs, until none came for as long as an open transaction may last."""
    lines: list[str] = []
    async with Consumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(OUTPUTS, number) for number in range(PARTITIONS)])
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < (OPEN_SECONDS if len(lines) < plan.records else 2.0):
            for record in await consumer.poll(0.5, 10_000):
                lines.append((record.value or b"").decode())
                quiet_since = time.monotonic()
    return lines


async def _create(bootstrap: str) -> None:
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS), NewTopic(OUTPUTS, PARTITIONS)])


async def _send_while(
    broker: RunningBroker, stage: Stage, plan: Plan, dice: random.Random
) -> Counter[str]:
    """Send the records, each key's in order, while the faults happen; returns them by key."""
    faulting = asyncio.create_task(asyncio.to_thread(_fault, broker, stage, plan, dice))
    sent: Counter[str] = Counter()
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers, delivery_timeout_ms=120_000
    ) as producer:
        for number in range(plan.records):
            key = f"k{number % plan.keys}"
            await producer.send(TOPIC, b"%d" % sent[key], key=key.encode())
            sent[key] += 1
            if number % 20 == 0:
                await asyncio.sleep(plan.send_seconds * 20 / plan.records)
    await faulting
    return sent


def _fault(broker: RunningBroker, stage: Stage, plan: Plan, dice: random.Random) -> None:
    faults = (
        ["kill"] * plan.kills
        + ["freeze"] * plan.freezes
        + ["replace"] * plan.replacements
        + ["broker"] * plan.broker_kills
    )
    dice.shuffle(faults)
    for fault in faults:
        time.sleep(plan.send_seconds / len(faults) * dice.uniform(0.5, 1.0))
        index = dice.randrange(len(stage.workers))
        match fault:
            case "kill":
                stage.kill(index)
            case "freeze":
                stage.freeze(index)
            case "replace":
                stage.replace(index)
            case _:
                broker.kill()
                broker.start()


def _finished(folder: Path) -> set[tuple[str, int]]:
    return {
        (entry.key, entry.number)
        for path in folder.glob("*.journal")
        for entry in entries(path)
        if entry.kind is Kind.FINISHED
    }
