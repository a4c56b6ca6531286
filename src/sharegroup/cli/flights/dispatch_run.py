"""The demo's first half: six workers, a producer and a broker, two of which are killed.

    broker up -> workers up -> producing ----------------------------> all settled -> audit
                                   half settled: a worker is killed
                                   a little later: the broker is killed, and started again

This process only starts, watches and kills; what it knows of the records it reads from the
ledgers of the others, and what the broker knows it asks as any client would.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from sharegroup.cli.flights.accounts import Accounts
from sharegroup.cli.flights.checks import Evidence
from sharegroup.cli.flights.departures import Kind
from sharegroup.cli.flights.ledger import LedgerReader
from sharegroup.cli.flights.names import DISPATCH, WORKERS
from sharegroup.cli.flights.screen import Screen
from sharegroup.cli.flights.stage import BROKER, Stage
from sharegroup.cli.flights.summary import Course
from sharegroup.cli.flights.waiting import LOOK_SECONDS, Stalled, wait_for

PRODUCER = "producer"
RECORDS_PER_SECOND_MAX = 12_000
PRODUCE_SECONDS_MIN = 5.0
"""So that the crashes fall into the middle even when there are few rows."""
WORKER_DIES_AT, BROKER_DIES_AT = 0.50, 0.55
"""Of all records settled."""
CATCH_SECONDS = 0.05
WEIGH_SECONDS = 1.0
STALL_SECONDS_MAX = 60.0
"""Longer than a lock lives: what a lost lock holds up goes on before that."""


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


class DispatchRun:
    """One run; `run` does it, the rest says what came of it."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self.accounts = Accounts()
        self._stage = stage
        self._plan = stage.plan
        self._children = stage.children
        self._screen = screen
        self._workers = [f"worker-{number}" for number in range(1, WORKERS + 1)]
        self._ledgers = {name: LedgerReader(self._plan.ledger(name)) for name in self._workers}
        self._production = LedgerReader(self._plan.ledger(PRODUCER))
        self._produced = 0
        self._kinds: dict[Kind, int] = {}
        self._moments = _Moments()

    async def run(self) -> Evidence:
        """Do it all; returns when the workers are gone again."""
        await self._start_workers()
        await self._work()
        self._children.stop(*self._workers)
        self._look()
        return await self._gather()

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

    async def _start_workers(self) -> None:
        module = "sharegroup.cli.flights.dispatch"
        for name in self._workers:
            ledger = str(self._plan.ledger(name))
            self._children.start(name, "-m", module, self._stage.broker.bootstrap, ledger)

        def all_started() -> bool:
            self._look()
            return len(self.accounts.started) == WORKERS

        await wait_for(all_started, f"{WORKERS} workers to start")

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
        self.accounts.worker_killed(name, time.monotonic_ns() // 1_000)
        self._screen.event(f"{name} killed with kill -9, {held} records in its hands")

    async def _restart_broker(self) -> None:
        self._children.kill9(BROKER)
        self._moments.broker_killed = time.monotonic()
        await self._stage.broker.start()
        self._moments.broker_back = time.monotonic()
        killed, back = self._moments.broker_killed, self._moments.broker_back
        self.accounts.broker_killed(round(killed * 1e6), round(back * 1e6))
        self._screen.event(
            f"broker killed with kill -9 and started again: "
            f"back after {self.course.broker_down_seconds:.2f} s"
        )

    # The work.

    async def _work(self) -> None:
        """Produce and process everything, with both crashes on the way."""
        rows = self._plan.rows
        rate = min(RECORDS_PER_SECOND_MAX, rows / PRODUCE_SECONDS_MIN)
        module = "sharegroup.cli.flights.produce"
        ledger = str(self._plan.ledger(PRODUCER))
        arguments = (self._stage.broker.bootstrap, str(rows), str(rate), ledger)
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
            elif not producing and await self._is_finished():
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
        self._children.weigh_now_and_then()
        # A worker may tell of a record before the producer does; settled, it was produced.
        settled = self.accounts.settled
        reached = Reached(max(self._produced, settled), settled)
        self._screen.progress(reached.produced, reached.settled)
        return reached

    def _read(self, worker: str) -> None:
        for line in self._ledgers[worker].new_lines():
            self.accounts.feed(worker, line)

    async def _is_finished(self) -> bool:
        """Whether the broker says that the group has finished every flight, and each has an end.

        A flight that waits in a retry topic is finished where the broker looks, and has none.
        """
        if self.accounts.settled < self._plan.rows:
            return False
        lags = (await self._stage.view.lag(DISPATCH)).values()
        return all(lag == 0 for lag in lags)

    async def _gather(self) -> Evidence:
        view = self._stage.view
        dead_letters = (await view.dead_letters()).get(DISPATCH, {})
        self._children.weigh()
        return Evidence(
            rows=self._plan.rows,
            kinds=self._kinds,
            confirmed=self._produced,
            end_offsets=await view.flights_end_offsets(),
            dead_letters=dead_letters,
            lag=await view.lag(DISPATCH),
            peak_pss_bytes=self._children.peak_pss_bytes,
        )
