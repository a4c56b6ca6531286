"""The demo's first half: six workers, a producer and a broker, two of which are killed.

    broker up -> workers up -> producing ----------------------------> all settled -> audit
                                   half settled: a worker is killed
                                   a little later: the broker is killed, and started again

This process only starts, watches and kills the others. It reads their ledgers for the state of
the records, and asks the broker through an ordinary client.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from examples.flights.accounts import Accounts
from examples.flights.checks import Evidence
from examples.flights.departures import Kind
from examples.flights.ledger import LedgerReader
from examples.flights.names import DISPATCH, WORKERS
from examples.flights.screen import Screen
from examples.flights.stage import BROKER, Stage
from examples.flights.summary import Course
from examples.flights.timeline import Rates, Timeline
from examples.flights.waiting import LOOK_SECONDS, Stalled, wait_for

PRODUCER = "producer"
RECORDS_PER_SECOND_MAX = 12_000
PRODUCE_SECONDS_MIN = 5.0
"""The shortest time of producing, so that the crashes occur half way even with few rows."""
WORKER_DIES_AT, BROKER_DIES_AT = 0.50, 0.55
"""The fractions of records that are settled when the worker and the broker are killed."""
CATCH_SECONDS = 0.05
WEIGH_SECONDS = 1.0
STALL_SECONDS_MAX = 60.0
"""The longest time without progress.

It is longer than the lock duration: records under the lock of a killed worker become available
again before.
"""


@dataclass(frozen=True, slots=True)
class Reached:
    """The progress of the work, in records."""

    produced: int
    settled: int


@dataclass(slots=True)
class _Moments:
    """Times of events in seconds of the monotonic clock, and the killed worker's records."""

    first: float = 0.0
    last: float = 0.0
    worker_killed: float = 0.0
    worker_held: int = 0
    broker_killed: float = 0.0
    broker_back: float = 0.0


class DispatchRun:
    """One run of the first half; `run` executes it, the other members have its results."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self.accounts = Accounts()
        self._timeline = Timeline()
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
        """Start the workers, process all flights, and stop the workers; return the evidence."""
        await self._start_workers()
        await self._work()
        self._children.stop(*self._workers)
        self._look()
        return await self._gather()

    @property
    def course(self) -> Course:
        """The times of the kills, relative to the first record, and of the whole run."""
        moments = self._moments
        return Course(
            seconds=moments.last - moments.first,
            worker_killed_at=moments.worker_killed - moments.first,
            worker_held=moments.worker_held,
            broker_killed_at=moments.broker_killed - moments.first,
            broker_down_seconds=moments.broker_back - moments.broker_killed,
        )

    @property
    def rates(self) -> Rates:
        """The events per second from the first record produced to the last one settled."""
        return self._timeline.rates(self._moments.first, self._moments.last)

    # Processes.

    async def _start_workers(self) -> None:
        module = "examples.flights.dispatch"
        for name in self._workers:
            ledger = str(self._plan.ledger(name))
            self._children.start(name, "-m", module, self._stage.broker.bootstrap_servers, ledger)

        def all_started() -> bool:
            self._look()
            return len(self.accounts.started) == WORKERS

        await wait_for(all_started, f"{WORKERS} workers to start")

    def _kill_worker(self) -> None:
        """Kill a worker that holds records, if one is found within `CATCH_SECONDS`.

        A worker holds a batch for only a few milliseconds. So the worker is suspended when its
        ledger says that it holds records, and killed if the ledger still says so then.
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
        killed_at, back_at = self._moments.broker_killed, self._moments.broker_back
        self.accounts.broker_killed(round(killed_at * 1e6), round(back_at * 1e6))
        self._screen.event(
            f"broker killed with kill -9 and started again: "
            f"back after {self.course.broker_down_seconds:.2f} s"
        )

    # The work.

    async def _work(self) -> None:
        """Produce and process all flights, and kill a worker and the broker meanwhile."""
        rows = self._plan.rows
        rate = min(RECORDS_PER_SECOND_MAX, rows / PRODUCE_SECONDS_MIN)
        module = "examples.flights.produce"
        ledger = str(self._plan.ledger(PRODUCER))
        arguments = (self._stage.broker.bootstrap_servers, str(rows), str(rate), ledger)
        self._children.start(PRODUCER, "-m", module, *arguments)
        self._moments.first = last_progress = time.monotonic()
        last_reached = Reached(-1, -1)
        producing = True
        while True:
            reached = self._look()
            if reached != last_reached:
                last_reached, last_progress = reached, time.monotonic()
            if time.monotonic() - last_progress > STALL_SECONDS_MAX:
                raise Stalled(
                    f"no progress for {STALL_SECONDS_MAX} s: of {rows} records "
                    f"{reached.produced} were produced, {reached.settled} settled; the broker's "
                    f"log ends with: "
                    f"{self._children.log_tail(BROKER)}"
                )
            self._children.check(BROKER, *self._workers)
            producing = producing and not self._children.finished(PRODUCER)
            if not self._moments.worker_killed:
                if reached.settled >= WORKER_DIES_AT * rows:
                    self._kill_worker()
            elif not self._moments.broker_killed:
                if reached.settled >= BROKER_DIES_AT * rows:
                    await self._restart_broker()
            elif not producing and await self._is_finished():
                break
            await asyncio.sleep(LOOK_SECONDS)
        self._moments.last = time.monotonic()

    def _look(self) -> Reached:
        """Read the new lines of the ledgers and return the progress."""
        for name in self._ledgers:
            self._read(name)
        for line in self._production.new_lines():
            self._timeline.produced(line)
            self._produced = line["produced"]
            self._kinds = {Kind(kind): count for kind, count in line.get("kinds", {}).items()}
        self._children.weigh_now_and_then()
        # A worker's ledger may be ahead of the producer's; a settled record was produced.
        settled = self.accounts.settled
        reached = Reached(max(self._produced, settled), settled)
        self._screen.progress(reached.produced, reached.settled)
        return reached

    def _read(self, worker: str) -> None:
        for line in self._ledgers[worker].new_lines():
            self.accounts.feed(worker, line)
            self._timeline.handled(line)

    async def _is_finished(self) -> bool:
        """Return whether the group's lag is 0 and every flight has an end in the ledgers.

        The lag alone is not enough, because it does not count flights in a retry topic.
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
