"""One trial, from an empty folder to the verdict."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from tests.faults.worker_chaos.journal import read
from tests.faults.worker_chaos.records import records
from tests.faults.worker_chaos.stage import BROKER, Plan, Stage
from tests.faults.worker_chaos.topics import read_topics
from tests.faults.worker_chaos.verdict import Verdict, verdict
from tests.support.processes import ServeProcess


@dataclass(frozen=True, slots=True)
class Size:
    """How large a trial is."""

    records: int
    workers: int
    worker_kills: int
    broker_kills: int
    exiting: int
    """Records that kill their worker in each delivery."""
    send_seconds: float
    finish_seconds_max: float = 120.0
    punctual: bool = True
    """Late retries are a problem; only where the machine does nothing else."""


SHORT = Size(
    2_000,
    workers=3,
    worker_kills=1,
    broker_kills=1,
    exiting=0,
    send_seconds=8,
    punctual=False,
)
LONG = Size(
    50_000,
    workers=8,
    worker_kills=24,
    broker_kills=2,
    exiting=8,
    send_seconds=150,
    finish_seconds_max=300,
)


SETTINGS = {
    "num.partitions": "4",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.session.timeout.ms": "5000",
    "group.share.session.timeout.ms": "6000",
}
"""A partition may belong to one member alone.  When that is killed, nobody reads the partition
until the member's session is over: 45 s by default, and too long for a trial."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a trial."""

    verdict: Verdict
    worker_deaths: int
    broker_deaths: int


def run(size: Size, seed: int, folder: Path) -> Report:
    """Play it and judge it."""
    plan = Plan(
        records=records(size.records, size.exiting),
        workers=size.workers,
        worker_kills=size.worker_kills,
        broker_kills=size.broker_kills,
        send_seconds=size.send_seconds,
        finish_seconds_max=size.finish_seconds_max,
        seed=seed,
    )
    with ServeProcess(folder / "data", settings=SETTINGS) as broker:
        stage = Stage(folder, plan, broker)
        asyncio.run(stage.play())
        topics = read_topics(broker.bootstrap_servers)
    found = verdict(
        plan.records, read(stage.journals), stage.deaths, topics, punctual=size.punctual
    )
    broker_deaths = sum(death.pid == BROKER for death in stage.deaths)
    return Report(found, len(stage.deaths) - broker_deaths, broker_deaths)
