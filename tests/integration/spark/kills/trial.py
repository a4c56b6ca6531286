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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from sharegroup.client import AdminClient, SharePartitionOffset, TopicPartition
from sharegroup.errors import KafkaError
from tests.integration.spark.kills.application import (
    EXECUTOR_LOST,
    TASK_FAILED,
    Application,
    killed,
    wait_until_gone,
    with_children,
)
from tests.integration.spark.kills.brokers import Broker
from tests.integration.spark.kills.load import PARTITIONS, Load
from tests.integration.spark.kills.pipeline import COPY, TOPIC, Pipeline, Victim
from tests.integration.spark.kills.query import QUERY_FAILED
from tests.integration.spark.kills.sink import Copied, Sink, copy_problems, problems
from tests.support.confluent_calls import (
    admin,
    create_topic,
    end_offset,
    read_partition,
    set_group,
)

PROGRESS_SECONDS_MAX = 180.0
DRAIN_SECONDS_MAX = 120.0
ROWS_BETWEEN_KILLS = range(300, 3_000)
PAUSE_SECONDS_MAX = 0.5
"""So that a kill does not always come just after a batch was written."""
LOOK_SECONDS = 0.05

MEMBER_IDLE = "event=member.idle"
"""Begins what the source logs if no broker gives it records for a while."""
GROUP_SETTINGS = {
    "auto_offset_reset": "earliest",
    "record_lock_duration_ms": "5000",
    "session_timeout_ms": "3000",
}


@dataclass
class Report:
    """How a trial went."""

    seed: int
    kills: Counter[Victim]
    produced: int
    in_the_sink: int
    batches_again: int
    tasks_failed: int
    executors_lost: int
    queries_failed: int
    starts: int
    seconds: float
    idle_members: int
    problems: list[str]
    copied: Copied = field(default_factory=dict)
    """What the streaming sink has written, if there is one."""

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {victim}" for victim, count in sorted(self.kills.items()))
        again = sum(self.copied.values()) - len(self.copied)
        copy = f"{len(self.copied)} values copied, {again} of them again; " if self.copied else ""
        return (
            f"seed {self.seed}: {self.kills.total()} kills ({kills}) in {self.seconds:.0f} s; "
            f"{self.produced} records produced, {self.in_the_sink} rows in the sink; "
            f"{copy}{self.starts} starts of the application, {self.queries_failed} queries failed, "
            f"{self.tasks_failed} tasks failed, {self.executors_lost} executors lost, "
            f"{self.batches_again} batches written again, {self.idle_members} times idle; "
            f"{len(self.problems)} problems"
        )


def victims(kills: int, among: Sequence[Victim], chance: random.Random) -> list[Victim]:
    """Whom to kill, in order; each kind as often as any other, as far as that goes."""
    deck = chance.sample(among, len(among)) * (kills // len(among) + 1)
    return chance.sample(deck[:kills], kills)


class Trial:
    """Runs one trial: load, kills, drain and verdict."""

    def __init__(
        self,
        broker: Broker,
        folder: Path,
        pipeline: Pipeline,
        *,
        seed: int,
        rows_between_kills: range = ROWS_BETWEEN_KILLS,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._broker = broker
        self._pipeline = pipeline
        self._seed = seed
        self._rows_between_kills = rows_between_kills
        self._chance = random.Random(seed)
        self._say = say
        self._application = Application(broker.bootstrap_servers, folder, pipeline)
        folder.mkdir(parents=True, exist_ok=True)
        self._sink = Sink(folder / "sink.sqlite")
        self._count = 0

    def run(self, kills: list[Victim]) -> Report:
        began = time.monotonic()
        self._prepare()
        try:
            with Load(self._broker.bootstrap_servers, TOPIC, lambda: self._count) as load:
                for number, victim in enumerate(kills, 1):
                    self._progress()
                    self._kill(victim)
                    self._say(f"kill {number}: {victim} after {self._count} rows")
                load.finish()
            self._wait(self._is_drained, DRAIN_SECONDS_MAX, "the group is not done")
            self._application.stop()
            copied = self._copied()
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
            executors_lost=log.count(EXECUTOR_LOST),
            queries_failed=log.count(QUERY_FAILED),
            starts=self._application.starts,
            seconds=time.monotonic() - began,
            idle_members=log.count(MEMBER_IDLE),
            problems=[*problems(load.produced, self._sink.delivered()), *self._wrong(load, copied)],
            copied=copied,
        )

    def _prepare(self) -> None:
        bootstrap, replicas = self._broker.bootstrap_servers, self._broker.replicas
        for topic in self._pipeline.topics:
            create_topic(bootstrap, topic, partitions=PARTITIONS, replicas=replicas)
        for group in self._pipeline.groups:
            set_group(bootstrap, group, **GROUP_SETTINGS)
        admin.cache_clear()  # It would tell of every death of the broker.

    def _wrong(self, load: Load, copied: Copied) -> Iterable[str]:
        return copy_problems(load.produced.values(), copied) if self._pipeline.is_copied else ()

    def _copied(self) -> Copied:
        """What the streaming sink has written."""
        bootstrap = self._broker.bootstrap_servers
        values: Counter[bytes] = Counter()
        if self._pipeline.is_copied:
            for partition in range(PARTITIONS):
                count = end_offset(bootstrap, COPY, partition)
                found = read_partition(bootstrap, COPY, count=count, partition=partition)
                values.update(message.value() or b"" for message in found)
            admin.cache_clear()
        return values

    def _progress(self) -> None:
        """Let the query work for a while."""
        enough = self._sink.count() + self._chance.choice(self._rows_between_kills)
        self._wait(lambda: self._count >= enough, PROGRESS_SECONDS_MAX, "no progress")
        moment = time.monotonic() + self._chance.uniform(0, PAUSE_SECONDS_MAX)
        self._wait(lambda: time.monotonic() >= moment, PAUSE_SECONDS_MAX + 1, "no time passes")

    def _kill(self, victim: Victim) -> None:
        if victim is Victim.BROKER:
            self._broker.kill()
            if self._broker.replicas > 1:
                self._progress()  # Others lead and coordinate now.
            self._broker.start()
            return
        family: list[psutil.Process] = []

        def is_killed() -> bool:
            process = self._application.find(victim, self._chance)
            if process is None:
                return False
            if victim in (Victim.DRIVER, Victim.JVM):
                family[:] = self._application.family()
            elif victim is Victim.EXECUTOR:
                family[:] = with_children(process)
            return killed(process)

        self._wait(is_killed, PROGRESS_SECONDS_MAX, f"there is no {victim} to kill")
        if victim in (Victim.DRIVER, Victim.JVM):
            self._application.wait_until_ended(family)
        else:
            wait_until_gone(family)

    def _is_drained(self) -> bool:
        """Whether the broker has nothing left for the groups."""
        try:
            lags = asyncio.run(_lags(self._broker.bootstrap_servers, self._pipeline.groups))
            return lags == [0] * len(lags)
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


async def _lags(bootstrap: str, groups: Sequence[str]) -> list[int | None]:
    """Of each group, of all partitions together; None while one of them is not known."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        listed = await admin.list_share_group_offsets(dict.fromkeys(groups))
    return [_lag(listed[group]) for group in groups]


def _lag(
    listed: Mapping[TopicPartition, SharePartitionOffset | KafkaError] | KafkaError,
) -> int | None:
    if isinstance(listed, KafkaError):
        raise listed
    lags = [
        lag_.lag
        for lag_ in listed.values()
        if isinstance(lag_, SharePartitionOffset) and lag_.lag is not None
    ]
    return sum(lags) if len(lags) == PARTITIONS else None
