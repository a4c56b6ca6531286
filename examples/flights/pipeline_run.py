"""The demo's second half: a Spark query over the same flights, killed in the middle of a batch.

    query up -> batch, batch, batch -----------------------------> group empty -> comparison
                       half way: all its processes are killed,
                       and it is started again on its checkpoint

It is killed at the worst moment: the batch is in the tables, and Spark has not committed it.

As in the first half, this process only watches and kills the query. It reads the query's
ledgers and asks the broker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from examples.flights.departures import Kind, write_table
from examples.flights.ledger import LedgerReader
from examples.flights.names import DISPATCH, PIPELINE
from examples.flights.pipeline_checks import PipelineEvidence
from examples.flights.query_account import QueryAccount
from examples.flights.screen import Screen
from examples.flights.stage import BROKER, Stage
from examples.flights.waiting import LOOK_SECONDS, Stalled

QUERY = "query"
BATCHES = 12
"""The approximate number of batches; the query is killed in one of the middle."""
DIES_AT = 0.40
"""The fraction of records that are written when the query is killed."""
STALL_SECONDS_MAX = 180.0
"""The longest time without progress.

It is longer than the start of a session, and than the last comparison, on a busy machine.
"""


@dataclass(slots=True)
class PipelineCourse:
    """Times of the query's events, in seconds of the machine's monotonic clock."""

    begin: float = 0.0
    end: float = 0.0
    first: float = 0.0
    """The time of its first records."""
    last: float = 0.0
    """The time when all records were written."""
    killed: float = 0.0
    back: float = 0.0
    """The time when the interrupted batch was run again."""
    killed_in: Mapping[int, int] = field(default_factory=dict)
    """The number of records written but not committed at the kill, by the batch's number."""


class PipelineRun:
    """One run of the second half; `run` executes it, the other members have its results."""

    def __init__(self, stage: Stage, kinds: Mapping[Kind, int], screen: Screen) -> None:
        self.account = QueryAccount()
        self.course = PipelineCourse()
        self._stage = stage
        self._plan = stage.plan
        self._folder = stage.plan.folder.resolve()
        self._children = stage.children
        self._kinds = kinds
        self._screen = screen
        self._ledgers: list[LedgerReader] = []

    async def run(self) -> PipelineEvidence:
        """Run the query until its end, and return the evidence."""
        self._children.forget_peak()
        self.course.begin = time.monotonic()
        write_table(self._folder / "flights.csv", self._plan.rows)
        self._start()
        await self._work()
        self.course.end = time.monotonic()
        return await self._gather()

    def _start(self) -> None:
        ledger = self._plan.ledger(f"{QUERY}-{len(self._ledgers) + 1}").resolve()
        self._ledgers.append(LedgerReader(ledger))
        batch_records = self._plan.rows // BATCHES
        arguments = (self._stage.broker.bootstrap_servers, batch_records, self._folder, ledger)
        self._children.start(QUERY, "-m", "examples.flights.query", *map(str, arguments))

    async def _work(self) -> None:
        """Watch the query until its end, and kill it in a batch meanwhile."""
        last_progress = time.monotonic()
        while not self._children.finished(QUERY):
            if self._look():
                last_progress = time.monotonic()
            if time.monotonic() - last_progress > STALL_SECONDS_MAX:
                raise Stalled(
                    f"no progress of the query for {STALL_SECONDS_MAX} s: {self.account.written} "
                    f"of {self._plan.rows} records are written; {self._children.log_tail(QUERY)}"
                )
            self._children.check(BROKER)
            if not self.course.killed and self.account.written >= DIES_AT * self._plan.rows:
                self._kill_in_a_batch()
            self._children.weigh_now_and_then()
            await asyncio.sleep(LOOK_SECONDS)
        self._look()

    def _look(self) -> bool:
        """Read the new lines of the ledgers; return whether there were any."""
        added = False
        for start, ledger in enumerate(self._ledgers, start=1):
            for line in ledger.new_lines():
                added = True
                self.account.feed(start, line)
        if added:
            self._note_moments(time.monotonic())
        self._screen.progress(self.account.written)
        return added

    def _note_moments(self, now: float) -> None:
        course, account = self.course, self.account
        course.first = course.first or (now if account.handed else 0.0)
        course.last = course.last or (now if account.written == self._plan.rows else 0.0)
        if course.killed and not course.back and course.killed_in.keys() <= account.run_again:
            course.back = now
            self._screen.event(
                f"query started again on its checkpoint: the same batch in hand after "
                f"{course.back - course.killed:.1f} s"
            )

    def _kill_in_a_batch(self) -> None:
        """Kill the query if it has written a batch and not committed it, and start it again.

        The query is suspended first and its ledger read again: a batch that is not done then
        cannot be committed any more.
        """
        if not self.account.written_only:
            return
        self._children.pause(QUERY)
        self._look()
        if not self.account.written_only:
            self._children.resume(QUERY)
            return
        self._children.kill9(QUERY)
        self.course.killed = time.monotonic()
        self.course.killed_in = self.account.written_only
        ((batch, records),) = self.course.killed_in.items()
        self._screen.event(
            f"query killed with kill -9, driver, JVM and readers: the {records:,} records of "
            f"batch {batch} are written, not committed"
        )
        self._start()

    async def _gather(self) -> PipelineEvidence:
        view = self._stage.view
        dead_letters = frozenset((await view.dead_letters()).get(PIPELINE, {}))
        return PipelineEvidence(
            rows=self._plan.rows,
            kinds=self._kinds,
            end_offsets=await view.flights_end_offsets(),
            dead_letters=dead_letters,
            killed_in=self.course.killed_in,
            lag=await view.lag(PIPELINE),
            dispatch_lag=await view.lag(DISPATCH),
            peak_pss_bytes=self._children.peak_pss_bytes,
        )
