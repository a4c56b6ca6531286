"""Checks the handling time and the lock of all taken records, several times per lock duration.

A timer for each record would cost more than many handlers do.  So one task checks regularly how
long each handler has run and which locks have ended.

    runs longer than max_handling     interrupted: the run has failed
    lock ended                        interrupted or, if waiting, dropped: it is delivered again
    interrupted, but does not end     given up: its record is settled, its slot stays occupied

The task sleeps while there are no taken records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from sharegroup.worker.records.outcomes import HandlingTimeout, LockLost
from sharegroup.worker.running.group_parts import GroupParts
from sharegroup.worker.running.handler_slot import HandlerSlot
from sharegroup.worker.running.record_routing import RecordRouting
from sharegroup.worker.running.route_runner import RouteRunner
from sharegroup.worker.running.taken_record import TakenRecord

log = logging.getLogger(__name__)

TICK_SECONDS_MIN = 0.02
TICK_SECONDS_MAX = 1.0
TICKS_IN_A_LIMIT = 20
TICKS_IN_A_LOCK = 12

STUCK_SECONDS = 5.0
"""Time after its interruption at which a handler that has not ended is given up."""


class Watch:
    """Interrupts handlers of one group that take too long or whose record's lock has ended."""

    __slots__ = ("_needed", "_parts", "_routing")

    def __init__(self, routing: RecordRouting, parts: GroupParts) -> None:
        self._routing = routing
        self._parts = parts
        self._needed = asyncio.Event()

    def begin(self) -> None:
        """Start checking, because records were taken."""
        self._needed.set()

    async def run(self) -> None:
        """Check all taken records regularly until cancelled."""
        clock = self._parts.clock
        while True:
            if not self._has_work():
                self._needed.clear()
                await self._needed.wait()
            await clock.sleep_until(clock.now() + self._tick())
            self._look(clock.now())

    def _has_work(self) -> bool:
        parts = self._parts
        return bool(len(parts.held) or len(parts.writes) or parts.alone.run_now) or any(
            runner.running or runner.queue.waiting for runner in self._routing.runners
        )

    def _tick(self) -> float:
        limits = [runner.route.max_handling_seconds for runner in self._routing.runners]
        ticks = [limit / TICKS_IN_A_LIMIT for limit in limits if limit is not None]
        if (lock_seconds := self._parts.members.lock_seconds) is not None:
            ticks.append(lock_seconds / TICKS_IN_A_LOCK)
        return min(max(min(ticks, default=TICK_SECONDS_MAX), TICK_SECONDS_MIN), TICK_SECONDS_MAX)

    def _look(self, now: float) -> None:
        parts, runners = self._parts, self._routing.runners
        parts.wall_time.measure()
        # Before the locks: this ends the writes of records that the last look has dropped.
        parts.writes.look(now)
        for runner in runners:
            for slot in runner.slots:
                if records := slot.records:
                    self._look_at(runner, slot, records, now)
        waiting = [record for runner in runners for record in runner.queue]
        waiting += parts.in_custody()
        lost = [record for record in waiting if not record.is_done and record.is_lost(now)]
        for record in lost:
            self._routing.runner_of(record).settlement.lost(record)
        if lost:
            text = "event=locks_lost group=%s waiting=%d action='the records are delivered again'"
            log.info(text, parts.group, len(lost))
        # A busy route fetches nothing, and its acknowledgements would wait for a fetch to carry
        # them.
        parts.members.flush()
        parts.room.notify()

    def _look_at(
        self, runner: RouteRunner, slot: HandlerSlot, records: Sequence[TakenRecord], now: float
    ) -> None:
        limit = runner.route.max_handling_seconds
        if slot.verdict is not None:
            if now - slot.interrupted_at >= STUCK_SECONDS:
                runner.give_up(slot, now)
        # A batch goes on while one of its records is locked; the others are dropped at its end.
        elif all(record.is_lost(now) for record in records):
            slot.interrupt(LockLost("the record's lock ended while its handler ran"), now)
        elif limit is not None and now - slot.begun_at >= limit:
            text = f"the handler ran for {now - slot.begun_at:.3g} s; max_handling is {limit:g} s"
            slot.interrupt(HandlingTimeout(text), now)
