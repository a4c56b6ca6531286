"""The course of a trial: everything is started, faults come, all is drained and stopped.

    producing   |---------------------------------------------|
    faults      |  f  f   f  f  f  f   f |                    |
                                          mended | calm       | drained | stopped

In the calm every member must be given records again: producers go on until its end.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    ResourceType,
    SharePartitionOffset,
)
from sharegroup.errors import KafkaError
from tests.cluster_chaos.faults import Done, Faults
from tests.cluster_chaos.names import (
    CONFLUENT,
    CONSUMERS,
    GROUPS,
    OURS,
    SPARK,
    TOPICS,
    WORKERS,
    journal,
)
from tests.cluster_chaos.plan import Fault
from tests.faults.worker_chaos.records import CRUNCH, JOBS
from tests.faults.worker_chaos.stage import BROKER, OWN, Death, share_lag, tier_lag
from tests.integration.spark.kills.application import Application
from tests.integration.spark.kills.pipeline import Pipeline
from tests.integration.spark.kills.sink import Sink
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_peer import KafkaPeerError

CALM_SECONDS = 75.0
DRAIN_SECONDS_MAX = 240.0
START_SECONDS_MAX = 300.0
STOP_SECONDS_MAX = 60.0
FLUSH_SECONDS_MAX = 200.0
LOOK_SECONDS = 0.2
LAG_SECONDS = 1.0
ANSWER_SECONDS_MAX = 30.0
SPARK_STARTS_MAX = 20
COPIES = 3


@dataclass
class Moments:
    """Of the monotonic clock."""

    began: float = 0.0
    faults_over: float = 0.0
    """The last fault was undone."""
    whole: float = 0.0
    """Every replica was in sync again."""
    producers_stopped: float = 0.0
    drained: float = 0.0
    """0: nothing is left for nobody did not come true in time."""


@dataclass
class Stage:
    """Starts all processes of a trial, injects the faults, drains the topics, stops all again."""

    folder: Path
    cluster: KafkaCluster
    plan: tuple[Fault, ...]
    say: Callable[[str], None]
    moments: Moments = field(default_factory=Moments)
    deaths: list[Death] = field(default_factory=list)
    """Of processes with consumers or a worker."""
    faults: list[Done] = field(default_factory=list)
    ended_nodes: list[tuple[int, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    pids: dict[str, list[int]] = field(default_factory=dict)
    """All process ids of each component, over its starts."""
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def play(self) -> None:
        """Everything; no process of ours runs when it returns."""
        self.spark = Application(self.cluster.bootstrap_servers, self.folder / SPARK, Pipeline())
        (self.folder / SPARK).mkdir(parents=True)
        (self.folder / "journals" / "worker").mkdir(parents=True)
        self._sink = Sink(self.folder / SPARK / "sink.sqlite")
        self._rows = journal(self.folder, SPARK)
        self._counted = 0
        try:
            self._set_up()
            self._play()
        finally:
            self.spark.kill_all()
            for process in self._running.values():
                process.kill()
                process.wait()

    def _play(self) -> None:
        self.moments.began = time.monotonic()
        faults = Faults(
            self.cluster,
            [*TOPICS, JOBS, CRUNCH, OWN],
            kill_client=self._kill_client,
            say=self.say,
        )
        ended = threading.Event()
        thread = threading.Thread(target=faults.run, args=(self.plan, ended), name="faults")
        thread.start()
        try:
            while thread.is_alive():
                self._look()
        finally:
            ended.set()
            thread.join()
        self.faults, self.ended_nodes = faults.done, faults.ended
        if len(self.faults) < len(self.plan):
            self.problems.append(f"only {len(self.faults)} of {len(self.plan)} faults came")
        self.moments.faults_over = time.monotonic()
        mending = threading.Thread(target=self._mend, name="mending")
        mending.start()
        self._wait(self.moments.faults_over + CALM_SECONDS, lambda: False)
        for name in (OURS, CONFLUENT):
            self._running[name].terminate()
        limit = time.monotonic() + FLUSH_SECONDS_MAX
        self._wait(limit, lambda: all(self._has_ended(name) for name in (OURS, CONFLUENT)))
        mending.join()
        self.moments.producers_stopped = time.monotonic()
        self._wait(time.monotonic() + DRAIN_SECONDS_MAX, self._is_drained, LAG_SECONDS)
        if self._is_drained():
            self.moments.drained = time.monotonic()
        self._stop()

    def _mend(self) -> None:
        try:
            self.cluster.mend()
        except (KafkaPeerError, AssertionError, OSError) as error:  # The judge needs the rest.
            self.problems.append(f"the cluster did not become whole: {error!r}"[:500])
            return
        self.moments.whole = time.monotonic()
        self.say(f"whole {self.moments.whole - self.moments.faults_over:.1f} s after the faults")

    # What it starts with.

    def _set_up(self) -> None:
        asyncio.run(self._create())
        for name in WORKERS:
            self._start(name)
        for name in CONSUMERS:
            self._start(name)
        self.spark.start()
        self._wait_for(lambda: asyncio.run(self._prepared()), "the worker's topics")
        for name in (OURS, CONFLUENT):
            self._start(name)
        for component in [name for names in CONSUMERS.values() for name in names]:
            folder = self.folder / "journals" / component
            self._wait_for(lambda folder=folder: _has_text(folder), f"records for {component}")
        self._wait_for(lambda: _has_text(self.folder / "journals" / "worker"), "handlers")
        self._wait_for(lambda: self._sink.count() > 0, "rows of the Spark query")

    async def _create(self) -> None:
        async with AdminClient(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            topics = [
                NewTopic(name, count, replication_factor=COPIES) for name, count in TOPICS.items()
            ]
            failed = [error for error in (await admin.create_topics(topics)).values() if error]
            assert not failed, failed
            earliest = AlterConfig("share.auto.offset.reset", "earliest")
            resources = {ConfigResource(ResourceType.GROUP, group): [earliest] for group in GROUPS}
            changed = await admin.incremental_alter_configs(resources)
            assert not any(changed.values()), changed

    async def _prepared(self) -> bool:
        async with AdminClient(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            return {JOBS, CRUNCH, OWN} <= set(await admin.list_topics())

    # Processes.

    def _start(self, name: str) -> None:
        bootstrap = self.cluster.bootstrap_servers
        if name in WORKERS:
            module = ["sharegroup", "worker", "tests.cluster_chaos.worker:app"]
        elif name in CONSUMERS:
            module = ["tests.cluster_chaos.consuming", name, bootstrap, str(self.folder)]
        else:
            module = ["tests.cluster_chaos.producing", name, bootstrap, str(self.folder)]
        environment = {
            **os.environ,
            "CHAOS_BOOTSTRAP": bootstrap,
            "CHAOS_JOURNALS": str(self.folder / "journals" / "worker"),
        }
        with open(self.folder / f"{name}.log", "ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", *module],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.pids.setdefault(name, []).append(self._running[name].pid)

    def _kill_client(self, chance: random.Random) -> str:
        """In the thread of the faults."""
        name = chance.choice([*WORKERS, *CONSUMERS])
        with self._lock:
            process = self._running[name]
            family = [process.pid, *_children(process.pid)]
            at = time.monotonic()
            process.kill()
            process.wait()
            self._start(name)
            now = time.monotonic()
            self.deaths += [Death(pid, at, now, now) for pid in family]
        return name

    def _look(self) -> None:
        """Count the rows of the sink, and start what has ended; once in a while."""
        with self._lock:
            for name, process in tuple(self._running.items()):
                if name not in (OURS, CONFLUENT) and process.poll() is not None:
                    self.problems.append(f"{name} ended by itself with {process.returncode}")
                    now = time.monotonic()
                    self.deaths.append(Death(process.pid, now - 1, now, now))
                    self._start(name)
        if not self.spark.running:
            assert self.spark.starts < SPARK_STARTS_MAX, self.spark.log_tail
            self.problems.append("the Spark application ended by itself")
            self.spark.start()
        count = self._sink.count()
        if count > self._counted:
            self._rows.write("rows", count)
            self._counted = count
        time.sleep(LOOK_SECONDS)

    def _has_ended(self, name: str) -> bool:
        return self._running[name].poll() is not None

    def _stop(self) -> None:
        """SIGTERM, and wait."""
        left = {name: self._running[name] for name in self._running if not self._has_ended(name)}
        for process in left.values():
            process.terminate()
        for name, process in left.items():
            try:
                code = process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                code = None
            if code != 0:
                self.problems.append(f"{name} ended with {code}")
        try:
            self.spark.stop()
        except (AssertionError, subprocess.TimeoutExpired) as error:
            self.problems.append(f"the Spark application did not end well: {error!r}"[:500])

    # Waiting.

    def _wait(
        self, limit: float, reached: Callable[[], bool], pause_seconds: float = LOOK_SECONDS
    ) -> None:
        while time.monotonic() < limit and not reached():
            self._look()
            time.sleep(max(0.0, pause_seconds - LOOK_SECONDS))

    def _wait_for(self, reached: Callable[[], bool], name: str) -> None:
        limit = time.monotonic() + START_SECONDS_MAX
        while not reached():
            assert time.monotonic() < limit, f"{name} did not come in {START_SECONDS_MAX} s"
            self._look()

    def _is_drained(self) -> bool:
        try:
            lags = asyncio.run(asyncio.wait_for(self._lags(), ANSWER_SECONDS_MAX))
        except (KafkaError, OSError, TimeoutError):
            return False
        return not any(lags.values())

    async def _lags(self) -> dict[str, int]:
        """Records that are left, by group; unknown is not zero."""
        async with AdminClient(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            lags = {"chaos": await share_lag(admin), "tiers": await tier_lag(admin)}
            for group, partitions in zip(GROUPS, TOPICS.values(), strict=True):
                listed = (await admin.list_share_group_offsets({group: None}))[group]
                if isinstance(listed, KafkaError):
                    raise listed
                known = [
                    offset.lag
                    for offset in listed.values()
                    if isinstance(offset, SharePartitionOffset) and offset.lag is not None
                ]
                lags[group] = sum(known) if len(known) == partitions else 1
        return lags

    def last_lags(self) -> dict[str, int]:
        """What is left in the end."""
        try:
            return asyncio.run(asyncio.wait_for(self._lags(), ANSWER_SECONDS_MAX))
        except (KafkaError, OSError, TimeoutError) as error:
            return {repr(error)[:200]: -1}


def fault_windows(faults: list[Done], aftermath_seconds: float) -> list[Death]:
    """Faults as deaths of the broker, for the verdict about the worker."""
    return [
        Death(BROKER, done.begun, done.undone + aftermath_seconds, done.undone + aftermath_seconds)
        for done in faults
    ]


def _has_text(folder: Path) -> bool:
    return any(path.stat().st_size for path in folder.glob("*.journal"))


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
