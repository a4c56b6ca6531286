"""The demo from start to end: six workers, a producer and a broker, two of which are killed.

    broker up -> workers up -> producing ----------------------------> all settled -> audit
                                   half settled: a worker is killed
                                   a little later: the broker is killed, and started again

This process only starts, watches and kills; what it knows of the records it reads from the
ledgers of the others, and what the broker knows it asks as any client would.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sharegroup.cli.flights.accounts import Accounts, Where
from sharegroup.cli.flights.checks import Evidence
from sharegroup.cli.flights.children import Children
from sharegroup.cli.flights.departures import Kind
from sharegroup.cli.flights.ledger import LedgerReader
from sharegroup.cli.flights.names import (
    AUDIT,
    DEAD,
    DELIVERY_LIMIT,
    DISPATCH,
    FLIGHTS,
    FLIGHTS_PARTITIONS,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    WORKERS,
)
from sharegroup.cli.flights.summary import Course
from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    ListedOffset,
    NewTopic,
    OffsetSpec,
    Record,
    ResourceType,
    ShareConsumer,
    SharePartitionOffset,
    TopicPartition,
)
from sharegroup.errors import KafkaError

BROKER, PRODUCER = "broker", "producer"
RECORDS_PER_SECOND_MAX = 12_000
PRODUCE_SECONDS_MIN = 5.0
"""So that the crashes fall into the middle even when there are few rows."""
WORKER_DIES_AT, BROKER_DIES_AT = 0.50, 0.55
"""Of all records settled."""
LOOK_SECONDS = 0.05
CATCH_SECONDS = 0.05
WEIGH_SECONDS = 1.0
START_SECONDS_MAX = 30.0
AUDIT_SECONDS_MAX = 30.0
STALL_SECONDS_MAX = 60.0
"""Longer than a lock lives: what a lost lock holds up goes on before that."""


class Stalled(Exception):
    """Something that was waited for did not come."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user asked for."""

    rows: int
    port: int
    folder: Path
    """Of this run: data, ledgers, logs."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the work is, in records."""

    produced: int
    settled: int


@dataclass(slots=True)
class _Moments:
    """When things happened, by the machine's monotonic clock."""

    first: float = 0.0
    last: float = 0.0
    worker_killed: float = 0.0
    worker_held: int = 0
    broker_killed: float = 0.0
    broker_back: float = 0.0


class Demo:
    """One run; `run` does it, the rest says what came of it."""

    def __init__(
        self,
        plan: Plan,
        *,
        progress: Callable[[Reached], None],
        event: Callable[[str], None],
    ) -> None:
        self.accounts = Accounts(delivery_limit=DELIVERY_LIMIT)
        self._plan = plan
        self._show_progress = progress
        self._tell = event
        self._workers = [f"worker-{number}" for number in range(1, WORKERS + 1)]
        self._ledgers = {name: LedgerReader(self._ledger(name)) for name in self._workers}
        self._production = LedgerReader(self._ledger(PRODUCER))
        self._produced = 0
        self._kinds: dict[Kind, int] = {}
        self._port = plan.port
        self._bootstrap = ""
        self._moments = _Moments()
        self._weighed = 0.0
        self._children = Children(plan.folder)

    async def run(self) -> Evidence:
        """Do it all; whatever happens, no process is left behind."""
        try:
            await self._start_broker()
            async with AdminClient(bootstrap_servers=self._bootstrap) as admin:
                await self._prepare(admin)
                await self._start_workers()
                await self._work(admin)
                self._stop_workers()
                evidence = await self._gather(admin)
            self._children.stop(BROKER)
        finally:
            self._children.kill_all()
        return evidence

    @property
    def course(self) -> Course:
        """What happened to the processes."""
        moments = self._moments
        return Course(
            seconds=moments.last - moments.first,
            worker_killed_at=moments.worker_killed - moments.first,
            worker_held=moments.worker_held,
            broker_killed_at=moments.broker_killed - moments.first,
            broker_down_seconds=moments.broker_back - moments.broker_killed,
        )

    # Processes.

    async def _start_broker(self) -> None:
        data = str(self._plan.folder / "data")
        serve = ("-m", "sharegroup", "serve", "--data", data, "--port", str(self._port))
        self._children.start(BROKER, *serve)
        ready: list[str] = []

        def is_ready() -> bool:
            bootstrap = self._children.ready_bootstrap(BROKER)
            ready.extend([bootstrap] if bootstrap else [])
            return bool(ready)

        await _wait_for(is_ready, "the broker to accept connections")
        self._bootstrap = ready[0]
        self._port = int(self._bootstrap.rpartition(":")[2])

    async def _prepare(self, admin: AdminClient) -> None:
        topics = [NewTopic(FLIGHTS, FLIGHTS_PARTITIONS), NewTopic(DEAD, 1)]
        _raise_first(await admin.create_topics(topics))
        earliest = [
            AlterConfig("share.auto.offset.reset", "earliest"),
            AlterConfig("share.delivery.count.limit", str(DELIVERY_LIMIT)),
        ]
        groups = [ConfigResource(ResourceType.GROUP, name) for name in (DISPATCH, AUDIT)]
        _raise_first(await admin.incremental_alter_configs(dict.fromkeys(groups, earliest)))

    async def _start_workers(self) -> None:
        module = "sharegroup.cli.flights.worker"
        for name in self._workers:
            ledger = str(self._ledger(name))
            self._children.start(name, "-m", module, self._bootstrap, ledger)

        def all_started() -> bool:
            self._look()
            return len(self.accounts.started) == WORKERS

        await _wait_for(all_started, f"{WORKERS} workers to start")

    def _stop_workers(self) -> None:
        self._children.stop(*self._workers)
        self._look()

    def _kill_worker(self) -> None:
        """Kill a worker that has records in its hands, if one can be caught with any now.

        A worker holds a batch for a few milliseconds.  So its ledger is watched closely, it is
        stopped when the ledger says that it holds something, and looked at again.
        """
        deadline = time.monotonic() + CATCH_SECONDS
        while time.monotonic() < deadline:
            for name in self._workers:
                if not self._holds(name):
                    continue
                self._children.pause(name)
                if held := self._holds(name):
                    self._end_worker(name, held)
                    return
                self._children.resume(name)

    def _holds(self, name: str) -> int:
        self._read(name)
        return self.accounts.held_by(name)

    def _end_worker(self, name: str, held: int) -> None:
        self._children.kill9(name)
        self._read(name)
        self._workers.remove(name)
        self._moments.worker_killed = time.monotonic()
        self._moments.worker_held = held
        self.accounts.killed(name, time.monotonic_ns() // 1_000)
        self._tell(f"{name} killed with kill -9, {held} records in its hands")

    async def _restart_broker(self) -> None:
        self._children.kill9(BROKER)
        self._moments.broker_killed = time.monotonic()
        await self._start_broker()
        self._moments.broker_back = time.monotonic()
        self._tell(
            f"broker killed with kill -9 and started again: "
            f"back after {self.course.broker_down_seconds:.2f} s"
        )

    # The work.

    async def _work(self, admin: AdminClient) -> None:
        """Produce and process everything, with both crashes on the way."""
        rows = self._plan.rows
        rate = min(RECORDS_PER_SECOND_MAX, rows / PRODUCE_SECONDS_MIN)
        module = "sharegroup.cli.flights.produce"
        arguments = (self._bootstrap, str(rows), str(rate), str(self._ledger(PRODUCER)))
        self._children.start(PRODUCER, "-m", module, *arguments)
        self._moments.first = moved = time.monotonic()
        before = Reached(-1, -1)
        producing = True
        while True:
            now = self._look()
            if now != before:
                before, moved = now, time.monotonic()
            if time.monotonic() - moved > STALL_SECONDS_MAX:
                raise Stalled(
                    f"no progress for {STALL_SECONDS_MAX} s: of {rows} records {now.produced} were "
                    f"produced, {now.settled} settled; the broker's log ends with: "
                    f"{self._children.log_tail(BROKER)}"
                )
            self._children.check(BROKER, *self._workers)
            producing = producing and not self._children.finished(PRODUCER)
            if not self._moments.worker_killed:
                if now.settled >= WORKER_DIES_AT * rows:
                    self._kill_worker()
            elif not self._moments.broker_killed:
                if now.settled >= BROKER_DIES_AT * rows:
                    await self._restart_broker()
            elif not producing and not any(await self._missing(admin)):
                break
            await asyncio.sleep(LOOK_SECONDS)
        self._moments.last = time.monotonic()

    def _look(self) -> Reached:
        """Read what the ledgers say now."""
        for name in self._ledgers:
            self._read(name)
        for line in self._production.new_lines():
            self._produced = line["produced"]
            self._kinds = {Kind(kind): count for kind, count in line.get("kinds", {}).items()}
        if time.monotonic() - self._weighed > WEIGH_SECONDS:
            self._children.weigh()
            self._weighed = time.monotonic()
        # A worker may tell of a record before the producer does; settled, it was produced.
        settled = self.accounts.settled
        reached = Reached(max(self._produced, settled), settled)
        self._show_progress(reached)
        return reached

    def _read(self, worker: str) -> None:
        for line in self._ledgers[worker].new_lines():
            self.accounts.feed(worker, line)

    async def _missing(self, admin: AdminClient) -> list[bool]:
        """For each partition, whether the broker says that the group has not finished it."""
        lag = await self._lag(admin, DISPATCH, FLIGHTS, FLIGHTS_PARTITIONS)
        return [lag.get(partition) != 0 for partition in range(FLIGHTS_PARTITIONS)]

    # What came of it.

    async def _gather(self, admin: AdminClient) -> Evidence:
        dead_letters = await self._read_dead_letters(admin)
        self._children.weigh()
        return Evidence(
            rows=self._plan.rows,
            kinds=self._kinds,
            confirmed=self._produced,
            end_offsets=await self._end_offsets(admin, FLIGHTS, FLIGHTS_PARTITIONS),
            dead_letters=dead_letters,
            lag=await self._lag(admin, DISPATCH, FLIGHTS, FLIGHTS_PARTITIONS),
            peak_pss_bytes=self._children.peak_pss_bytes,
        )

    async def _read_dead_letters(self, admin: AdminClient) -> frozenset[Where]:
        """Where the dead letters came from, read back through a share group of their own."""
        (end,) = (await self._end_offsets(admin, DEAD, 1)).values()
        origins: dict[int, Where] = {}
        deadline = time.monotonic() + AUDIT_SECONDS_MAX
        async with ShareConsumer(
            DEAD, bootstrap_servers=self._bootstrap, group_id=AUDIT
        ) as consumer:
            while len(origins) < end:
                for record in await consumer.poll(timeout=1.0):
                    origins[record.offset] = _origin(record)
                if time.monotonic() > deadline:
                    raise Stalled(
                        f"group {AUDIT!r} was given {len(origins)} of the {end} records of topic "
                        f"{DEAD!r} in {AUDIT_SECONDS_MAX} s"
                    )
        return frozenset(origins.values())

    async def _end_offsets(self, admin: AdminClient, topic: str, partitions: int) -> dict[int, int]:
        where = [TopicPartition(topic, partition) for partition in range(partitions)]
        listed = await admin.list_offsets(dict.fromkeys(where, OffsetSpec.LATEST))
        _raise_first(listed)
        return {
            one.partition: found.offset
            for one, found in listed.items()
            if isinstance(found, ListedOffset)
        }

    async def _lag(
        self, admin: AdminClient, group: str, topic: str, partitions: int
    ) -> dict[int, int | None]:
        where = [TopicPartition(topic, partition) for partition in range(partitions)]
        stands = (await admin.list_share_group_offsets({group: where}))[group]
        if isinstance(stands, KafkaError):
            raise stands
        _raise_first(stands)
        return {
            one.partition: found.lag
            for one, found in stands.items()
            if isinstance(found, SharePartitionOffset)
        }

    def _ledger(self, name: str) -> Path:
        return self._plan.folder / f"{name}.ledger"


def _origin(record: Record) -> Where:
    """Which flight a dead letter is a copy of."""
    headers = dict(record.headers)
    partition, offset = headers[ORIGIN_PARTITION], headers[ORIGIN_OFFSET]
    assert partition is not None, f"{record} has no origin"
    assert offset is not None, f"{record} has no origin"
    return int(partition), int(offset)


def _raise_first(results: object) -> None:
    """Raise the first error among results by item."""
    assert isinstance(results, dict)
    for result in results.values():
        if isinstance(result, KafkaError):
            raise result


async def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise Stalled(f"waited {START_SECONDS_MAX} s for {what}")
        await asyncio.sleep(LOOK_SECONDS)
