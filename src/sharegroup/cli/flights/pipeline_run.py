"""The demo's second half: a Spark query over the same flights, killed in the middle of a batch.

    query up -> batch, batch, batch -----------------------------> group empty -> comparison
                       half way: everything of it is killed,
                       and started again on its checkpoint

It is killed at the worst moment: the batch is in the tables, and Spark has not committed it.

As in the first half this process only watches and kills; what it knows it reads from the
query's ledgers and asks the broker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from sharegroup.cli.flights.departures import Kind, write_table
from sharegroup.cli.flights.ledger import LedgerReader
from sharegroup.cli.flights.names import DISPATCH, PIPELINE
from sharegroup.cli.flights.pipeline_checks import PipelineEvidence
from sharegroup.cli.flights.query_account import QueryAccount
from sharegroup.cli.flights.screen import Screen
from sharegroup.cli.flights.stage import BROKER, Stage
from sharegroup.cli.flights.waiting import LOOK_SECONDS, Stalled

QUERY = "query"
BATCHES = 12
"""About so many it takes; the query is killed in one of the middle."""
DIES_AT = 0.40
"""Of all records written."""
STALL_SECONDS_MAX = 180.0
"""Longer than a session takes to start, and the last comparison, on a machine with other work."""


@dataclass(slots=True)
class PipelineCourse:
    """What happened to the query, by the machine's monotonic clock."""

    begin: float = 0.0
    end: float = 0.0
    first: float = 0.0
    """When it had its first records."""
    last: float = 0.0
    """When it had written the last ones."""
    killed: float = 0.0
    back: float = 0.0
    """When the batch that was interrupted was written after all."""
    killed_in: Mapping[int, int] = field(default_factory=dict)
    """The records that were written and not committed, by the batch's number."""


class PipelineRun:
    """One run; `run` does it, the rest says what came of it."""

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
        """Do it all; returns when the query has ended."""
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
        arguments = (self._stage.broker.bootstrap, batch_records, self._folder, ledger)
        self._children.start(QUERY, "-m", "sharegroup.cli.flights.query", *map(str, arguments))

    async def _work(self) -> None:
        """See the query through, with the kill on the way."""
        moved = time.monotonic()
        while not self._children.finished(QUERY):
            if self._look():
                moved = time.monotonic()
            if time.monotonic() - moved > STALL_SECONDS_MAX:
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
        """Read what the ledgers say now; whether they say anything new."""
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

        It is stopped first and looked at again: a batch that is not done then can't be
        committed any more.
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
