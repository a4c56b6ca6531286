"""One trial: load, kills, the drain, the verdict.  The same seed gives the same kills.

The same kills are not the same history: when a process is hit depends on the machine as well.
A seed that failed is therefore worth several tries.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from sharegroup.client import AdminClient, SharePartitionOffset
from sharegroup.errors import KafkaError
from tests.integration.spark.kills.application import TASK_FAILED, Application, Victim, killed
from tests.integration.spark.kills.load import PARTITIONS, Load
from tests.integration.spark.kills.query import GROUP, QUERY_FAILED, TOPIC
from tests.integration.spark.kills.sink import Sink, problems
from tests.support.confluent_calls import admin, create_topic, set_group

PROGRESS_SECONDS_MAX = 180.0
DRAIN_SECONDS_MAX = 120.0
ROWS_BETWEEN_KILLS = range(300, 3_000)
PAUSE_SECONDS_MAX = 0.5
"""So that a kill does not always come just after a batch was written."""
LOOK_SECONDS = 0.05

SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.session.timeout.ms": "1500",
}
"""Of the broker: what a member that was killed leaves behind is over soon."""
GROUP_SETTINGS = {
    "auto_offset_reset": "earliest",
    "record_lock_duration_ms": "5000",
    "session_timeout_ms": "3000",
}


class Broker(NamedTuple):
    """What a trial does with a broker."""

    bootstrap_servers: str
    kill: Callable[[], None]
    start: Callable[[], None]


@dataclass
class Report:
    """How a trial went."""

    seed: int
    kills: Counter[Victim]
    produced: int
    in_the_sink: int
    batches_again: int
    tasks_failed: int
    queries_failed: int
    starts: int
    seconds: float
    problems: list[str]

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {victim}" for victim, count in sorted(self.kills.items()))
        return (
            f"seed {self.seed}: {self.kills.total()} kills ({kills}) in {self.seconds:.0f} s; "
            f"{self.produced} records produced, {self.in_the_sink} rows in the sink; "
            f"{self.starts} starts of the application, {self.queries_failed} queries failed, "
            f"{self.tasks_failed} tasks failed, {self.batches_again} batches written again; "
            f"{len(self.problems)} problems"
        )


def victims(kills: int, chance: random.Random) -> list[Victim]:
    """Whom to kill, in order; each kind as often as any other, as far as that goes."""
    deck = chance.sample([*Victim], len(Victim)) * (kills // len(Victim) + 1)
    return chance.sample(deck[:kills], kills)


class Trial:
    """Runs one trial: load, kills, drain and verdict."""

    def __init__(
        self,
        broker: Broker,
        folder: Path,
        *,
        seed: int,
        rows_between_kills: range = ROWS_BETWEEN_KILLS,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._broker = broker
        self._seed = seed
        self._rows_between_kills = rows_between_kills
        self._chance = random.Random(seed)
        self._say = say
        self._application = Application(broker.bootstrap_servers, folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._sink = Sink(folder / "sink.sqlite")
        self._count = 0

    def run(self, kills: list[Victim]) -> Report:
        began = time.monotonic()
        create_topic(self._broker.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        set_group(self._broker.bootstrap_servers, GROUP, **GROUP_SETTINGS)
        admin.cache_clear()  # It would tell of every death of the broker.
        try:
            with Load(self._broker.bootstrap_servers, TOPIC, lambda: self._count) as load:
                for number, victim in enumerate(kills, 1):
                    self._progress()
                    self._kill(victim)
                    self._say(f"kill {number}: {victim} after {self._count} rows")
                load.finish()
            self._wait(self._is_drained, DRAIN_SECONDS_MAX, "the group is not done")
            self._application.stop()
        finally:
            self._application.kill_all()
        log = self._application.log
        return Report(
            seed=self._seed,
            kills=Counter(kills),
            produced=len(load.produced),
            in_the_sink=self._sink.count(),
            batches_again=self._sink.batches_written_again(),
            tasks_failed=log.count(TASK_FAILED),
            queries_failed=log.count(QUERY_FAILED),
            starts=self._application.starts,
            seconds=time.monotonic() - began,
            problems=list(problems(load.produced, self._sink.delivered())),
        )

    def _progress(self) -> None:
        """Let the query work for a while."""
        enough = self._sink.count() + self._chance.choice(self._rows_between_kills)
        self._wait(lambda: self._count >= enough, PROGRESS_SECONDS_MAX, "no progress")
        moment = time.monotonic() + self._chance.uniform(0, PAUSE_SECONDS_MAX)
        self._wait(lambda: time.monotonic() >= moment, PAUSE_SECONDS_MAX + 1, "no time passes")

    def _kill(self, victim: Victim) -> None:
        if victim is Victim.BROKER:
            self._broker.kill()
            self._broker.start()
            return
        family: list[psutil.Process] = []

        def is_killed() -> bool:
            process = self._application.find(victim, self._chance)
            if process is None:
                return False
            family[:] = self._application.family()
            return killed(process)

        self._wait(is_killed, PROGRESS_SECONDS_MAX, f"there is no {victim} to kill")
        if victim in (Victim.DRIVER, Victim.JVM):
            self._application.wait_until_ended(family)

    def _is_drained(self) -> bool:
        """Whether the broker has nothing left for the group."""
        try:
            return asyncio.run(_lag(self._broker.bootstrap_servers)) == 0
        except KafkaError:
            return False  # It was started just now.

    def _wait(self, reached: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait, counting what arrives, and start the application when it does not run."""
        limit = time.monotonic() + seconds
        while True:
            if not self._application.running:
                self._application.start()
            self._count = self._sink.count()
            if reached():
                return
            log = self._application.log_tail
            assert time.monotonic() < limit, f"{what} in {seconds} s, {self._count} rows: {log}"
            threading.Event().wait(LOOK_SECONDS)


async def _lag(bootstrap: str) -> int | None:
    """Of all partitions together; None while one of them is not known."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        listed = (await admin.list_share_group_offsets({GROUP: None}))[GROUP]
    if isinstance(listed, KafkaError):
        raise listed
    lags = [
        lag_.lag
        for lag_ in listed.values()
        if isinstance(lag_, SharePartitionOffset) and lag_.lag is not None
    ]
    return sum(lags) if len(lags) == PARTITIONS else None
