"""Commands for schedules, workers and waiting records, given while processes die.

Each is written down with its answer.  In the end there are last commands, which must be answered,
and which leave a state that is looked at: the first schedule paused and the others not, each
process running, no record waiting.

    done        the effect is there, from the answer on
    not done    the answer says that nobody has carried it out, or names another end
    failed      the command ended with an error, because the broker was away: either may be true
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from sharegroup.client import Producer
from sharegroup.errors import KafkaError
from sharegroup.fleet.commands import Intent, Target, TargetKind
from sharegroup.fleet.fleet import Fleet, Outcome as FleetOutcome, SeenWorker
from sharegroup.schedules import Schedules
from sharegroup.waiting.control_records import Intent as WaitingIntent
from sharegroup.waiting.waiting_records import WaitingRecords
from tests.faults.worker_chaos.names import APP, LATER, STEERED_SCHEDULES

DONE, FAILED = "done", "failed"
BY = "chaos"
PAUSES = (1.0, 4.0)
"""Seconds between two commands of a kind."""
ANSWER_SECONDS = 8.0
LAST_TRIES = 12


class Given(NamedTuple):
    """A command and its answer, on the monotonic clock."""

    what: str
    of: str
    """The name of the schedule, the number of the record, or the process id."""
    asked: float
    answered: float
    outcome: str


@dataclass(slots=True)
class Commander:
    """Gives commands until it is told to bring everything into its last state."""

    bootstrap: str
    seed: int
    pids: Callable[[], set[int]]
    """Of the processes that run."""
    given: list[Given] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    """The records of `LATER` that are confirmed."""
    problems: list[str] = field(default_factory=list)
    _numbers: int = 0

    async def play(self, seconds: float) -> None:
        """Give commands of the three kinds, beside one another, for so long."""
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for number, kind in enumerate((self._schedules, self._workers, self._waiting)):
                group.create_task(self._repeat(kind, random.Random(self.seed * 3 + number), until))

    async def _repeat(
        self, give: Callable[[random.Random], Awaitable[None]], dice: random.Random, until: float
    ) -> None:
        while time.monotonic() < until:
            await asyncio.sleep(dice.uniform(*PAUSES))
            try:
                await give(dice)
            except KafkaError:
                continue  # The broker is away.  A command that was under way is noted as failed.

    @asynccontextmanager
    async def _answered(self, what: str, of: str) -> AsyncIterator[list[str]]:
        """Write the command down with the last of these outcomes, also if it fails."""
        asked, outcomes = time.monotonic(), [FAILED]
        try:
            yield outcomes
        finally:
            self.given.append(Given(what, of, asked, time.monotonic(), outcomes[-1]))

    async def end(self) -> None:
        """Give the last commands, and look at what they leave."""
        for number in range(STEERED_SCHEDULES):
            what = "resume" if number else "pause"
            name = f"s{number}"
            await self._insist(f"{what} {name}", lambda w=what, n=name: self._schedule(w, n))
        await self._insist("resume all workers", lambda: self._all_run(self.pids()))
        await self._insist("no waiting record", self._none_waits)

    async def _insist(self, what: str, give: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(LAST_TRIES):
            try:
                if await give():
                    return
            except KafkaError:
                pass
            await asyncio.sleep(1.0)
        self.problems.append(f"{what}: not in force after {LAST_TRIES} last commands")

    async def judge_schedules(self) -> None:
        """Look at what the last commands for schedules have left; at the end of the trial."""
        async with Schedules(APP, bootstrap_servers=self.bootstrap) as schedules:
            for schedule in (await schedules.list()).schedules:
                if (schedule.next_due_ms is None) != (schedule.name == "s0"):
                    self.problems.append(
                        f"{schedule.name} has a next run, or is paused: {schedule}"
                    )

    # Schedules.

    async def _schedules(self, dice: random.Random) -> None:
        what = dice.choice(("pause", "resume", "resume", "run"))
        await self._schedule(what, f"s{dice.randrange(STEERED_SCHEDULES)}")

    async def _schedule(self, what: str, name: str) -> bool:
        async with (
            Schedules(APP, bootstrap_servers=self.bootstrap) as schedules,
            self._answered(what, name) as outcomes,
        ):
            result = await getattr(schedules, what)(name)
            outcomes.append(DONE if result.is_done else "not done")
        return result.is_done

    # Workers.

    async def _workers(self, dice: random.Random) -> None:
        async with Fleet(APP, bootstrap_servers=self.bootstrap) as fleet:
            running, workers = self.pids(), (await fleet.workers()).listed()
            heard = [seen for seen in workers if seen.identity.pid in running]
            if not heard:
                return  # All of them have just been started.
            seen = dice.choice(heard)
            if dice.random() < 1 / 3:
                await self._steer(fleet, Intent.STOP, seen)
            else:
                await self._steer(fleet, Intent.QUIET, seen)
                await asyncio.sleep(dice.uniform(*PAUSES))
                await self._steer(fleet, Intent.RESUME, seen)

    async def _steer(self, fleet: Fleet, intent: Intent, seen: SeenWorker) -> None:
        target = Target(TargetKind.WORKER, seen.identity.worker_id)
        async with self._answered(intent.value, str(seen.identity.pid)) as outcomes:
            steered = await fleet.steer(intent, target, by=BY, wait_seconds=ANSWER_SECONDS)
            outcomes.append(steered[0].outcome if steered else FleetOutcome.STOPPED)

    async def _all_run(self, pids: set[int]) -> bool:
        async with Fleet(APP, bootstrap_servers=self.bootstrap) as fleet:
            await fleet.steer(Intent.RESUME, by=BY, wait_seconds=ANSWER_SECONDS)
            phases = {
                seen.identity.pid: seen.beat.phase for seen in (await fleet.workers()).listed()
            }
        return all(phases.get(pid) == "running" for pid in pids)

    # Waiting records.

    async def _waiting(self, dice: random.Random) -> None:
        async with Producer(bootstrap_servers=self.bootstrap) as producer:
            for _ in range(2):
                self._numbers += 1
                number = b"%d" % self._numbers
                await producer.send_and_wait(LATER, number, key=number)
                self.sent.append(self._numbers)
        what = dice.choice(tuple(WaitingIntent))
        async with WaitingRecords(LATER, bootstrap_servers=self.bootstrap) as waiting:
            found = await self._found(waiting)
            if found:
                chosen = dice.sample(sorted(found), min(2, len(found)))
                await self._move(waiting, what, {number: found[number] for number in chosen})

    async def _found(self, waiting: WaitingRecords) -> dict[str, str]:
        """The ids of the records that wait, by number."""
        return {
            (record.key or b"").decode(): record.id
            async for record in waiting.records()
            if record.id is not None
        }

    async def _move(
        self, waiting: WaitingRecords, what: WaitingIntent, ids: Mapping[str, str]
    ) -> None:
        asked, outcomes = time.monotonic(), dict.fromkeys(ids.values(), FAILED)
        try:
            steered = await waiting.steer(what, ids.values(), by=BY)
            outcomes = {record_id: answer.outcome for record_id, answer in steered.items()}
        finally:
            self.given += [
                Given(what, number, asked, time.monotonic(), outcomes[record_id])
                for number, record_id in ids.items()
            ]

    async def _none_waits(self) -> bool:
        async with WaitingRecords(LATER, bootstrap_servers=self.bootstrap) as waiting:
            found = await self._found(waiting)
            if found:
                await self._move(waiting, WaitingIntent.RUN, found)
            return not found
