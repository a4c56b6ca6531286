"""Looks after the time of everything that is in hand, a few times in each lock.

A timer for each record would cost more than many handlers do.  So nothing is timed by itself:
whoever looks sees how long each handler has run, and whose lock has ended.

    runs longer than max_handling     interrupted: it has failed
    lock ended                        interrupted, or dropped where it waits: it is delivered again
    interrupted and doesn't end       given up: its record is settled, its slot stays taken

It sleeps while nothing is in hand.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from sharegroup.worker.ports import Clock
from sharegroup.worker.running.in_hand import InHand
from sharegroup.worker.running.lane import HandlingTimeout, Lane, LockLost
from sharegroup.worker.running.route_runner import RouteRunner
from sharegroup.worker.running.settling import Settling

log = logging.getLogger(__name__)

TICK_SECONDS_MIN = 0.02
TICK_SECONDS_MAX = 1.0
TICKS_IN_A_LIMIT = 20
TICKS_IN_A_LOCK = 12

STUCK_SECONDS = 5.0
"""A handler that has not ended so long after it was interrupted is given up."""


class Watch:
    """See the module's text; of one group."""

    def __init__(self, clock: Clock, settling: Settling, runners: Sequence[RouteRunner]) -> None:
        self._clock = clock
        self._settling = settling
        self._runners = runners
        self._needed = asyncio.Event()

    def begin(self) -> None:
        """There is something in hand."""
        self._needed.set()

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            if not self._has_work():
                self._needed.clear()
                await self._needed.wait()
            await self._clock.sleep_until(self._clock.now() + self._tick())
            self._look(self._clock.now())

    def _has_work(self) -> bool:
        settling = self._settling
        return bool(len(settling.held) or len(settling.writing)) or any(
            one.running or one.waiting for one in self._runners
        )

    def _tick(self) -> float:
        limits = [one.route.max_handling_seconds for one in self._runners]
        ticks = [limit / TICKS_IN_A_LIMIT for limit in limits if limit is not None]
        if (lock_seconds := self._settling.lock_seconds) is not None:
            ticks.append(lock_seconds / TICKS_IN_A_LOCK)
        return min(max(min(ticks, default=TICK_SECONDS_MAX), TICK_SECONDS_MIN), TICK_SECONDS_MAX)

    def _look(self, now: float) -> None:
        settling = self._settling
        settling.set_clock()
        settling.writing.look(now)
        for runner in self._runners:
            for lane in runner.lanes:
                if hand := lane.hand:
                    self._look_at(runner, lane, hand, now)
        waiting = [one for runner in self._runners for one in runner.all_waiting()]
        waiting += settling.in_custody()
        lost = [one for one in waiting if not one.is_done and one.is_lost(now)]
        for one in lost:
            settling.lost(one.runner, one)
        if lost:
            text = "event=locks_lost group=%s waiting=%d (they are delivered again)"
            log.info(text, settling.group, len(lost))
        settling.flush()
        if settling.hungry:
            settling.room_again.set()

    def _look_at(self, runner: RouteRunner, lane: Lane, hand: Sequence[InHand], now: float) -> None:
        limit = runner.route.max_handling_seconds
        if lane.verdict is not None:
            if now - lane.interrupted_at >= STUCK_SECONDS:
                runner.give_up(lane, now)
        elif all(one.is_lost(now) for one in hand):
            lane.interrupt(LockLost("the record's lock ended while its handler ran"), now)
        elif limit is not None and now - lane.begun_at >= limit:
            text = f"the handler ran for {now - lane.begun_at:.3g} s; max_handling is {limit:g} s"
            lane.interrupt(HandlingTimeout(text), now)
