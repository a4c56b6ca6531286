"""The tasks of a group's circuit breakers: they park its records, and try again after a time.

A member of a share group fetches ahead, and what it has fetched is locked.  So while a breaker is
open, the members of its topics take nothing, and what they have is parked, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sharegroup.worker.ports import DeliveredRecord
from sharegroup.worker.running.breaker import Breaker
from sharegroup.worker.running.group_parts import GroupParts
from sharegroup.worker.running.intake import Intake
from sharegroup.worker.running.route_runner import RouteRunner

FETCH_SECONDS = 2.0
"""Maximum time for which the records of a fetch under way are waited for."""
PARK_SECONDS = 1.0
"""The interval at which an open breaker looks for records that have become ready since."""


class Breakers:
    """Runs the circuit breakers of one group."""

    __slots__ = ("_add", "_intakes", "_parts", "_runners")

    def __init__(
        self,
        runners: Sequence[RouteRunner],
        intakes: Sequence[Intake],
        parts: GroupParts,
        add: Callable[[Intake, Sequence[DeliveredRecord]], None],
    ) -> None:
        """``add`` gives delivered records to their routes."""
        self._runners = runners
        self._intakes = intakes
        self._parts = parts
        self._add = add

    def __bool__(self) -> bool:
        return any(runner.breaker is not None for runner in self._runners)

    async def run(self) -> None:
        """Run all breakers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for runner in self._runners:
                if runner.breaker is not None:
                    tasks.create_task(self._run(runner, runner.breaker))

    async def _run(self, runner: RouteRunner, breaker: Breaker) -> None:
        clock = self._parts.clock
        while True:
            await breaker.opened.wait()
            breaker.opened.clear()
            intakes = self._intakes_of(runner) if breaker.is_parking else []
            if breaker.is_parking:
                breaker.park_all(self._parts.held.take_of(runner.route))
                self._pause(intakes)
                await self._parts.members.fetches_ended(FETCH_SECONDS)
                self._pause(intakes)  # What the fetches have brought.
            while (now := clock.now()) < breaker.tries_at:
                await clock.sleep_until(min(breaker.tries_at, now + PARK_SECONDS))
                if breaker.is_parking:
                    # Such as those whose key was being determined.
                    breaker.park_all(self._parts.held.take_of(runner.route))
            breaker.half_open()
            for intake in intakes:
                intake.end_pause()
            self._parts.room.notify()

    def _pause(self, intakes: Sequence[Intake]) -> None:
        for intake in intakes:
            if deliveries := intake.pause():
                self._add(intake, deliveries)

    def _intakes_of(self, runner: RouteRunner) -> list[Intake]:
        """The intakes of only this route; the own topic is that of all routes of the group."""
        is_only = len(self._runners) == 1
        topics = runner.route.topics
        return [
            intake
            for intake in self._intakes
            if intake.source.topic in topics or (intake.is_own and is_only)
        ]
