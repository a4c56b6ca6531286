"""Runs one record while no other handler of the process runs, because it may end the process.

Delivery counts do not say which record was at fault: a crash raises the counts of all records that
the process had taken.  So before the delivery at which a record is suspected, and from then on, its
handler runs alone.  Then a crash raises its own count only.

    asked --> other handlers end; none begins --> granted --> runs --> settled --> others begin
        |---- another record is asked for, or a stop: put aside (`GroupRunner`)
        '---- the wait is too long: a suspect runs beside the others; other records are put aside

A record that is put aside moves to the group's own topic as a suspect.  There it has a delivery
count of 1 again.  In a group that handles records in their order it stays in its place, and asks
again (`decide.stay`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from sharegroup.worker.parts import ShareGroupLimits
from sharegroup.worker.ports import DeliveredRecord, WorkerClock
from sharegroup.worker.running.room_signal import RoomSignal
from sharegroup.worker.running.taken_record import TakenRecord

# Limits how many records are taken together when some of them were delivered before.
#
# A broker counts every delivery, also of records that no handler began. If a record ends its
# process each time, all records taken with it are delivered again, and their delivery counts grow
# with its own. So the more often a record was delivered, the fewer records are taken with it
# (docs/adr/0035):
#
#     start, or a lock was lost     one, and more with each take that has only first deliveries
#     second delivery               64, and more with each take
#     third delivery                8, and more with each take, up to 64
#     fourth delivery, or suspects  one; its handler runs alone in the process
#
# These are the numbers for groups whose records are suspected at the fifth delivery. First
# deliveries are taken without a limit.


GROWTH_FIRST = 4
"""Each take of first deliveries alone may be this many times as large as the one before."""
GROWTH_AGAIN = 2
FEW = 8
MANY = 64
UNLIMITED_FROM = 512


class Caution:
    """The number of records of one topic that this process may take together."""

    __slots__ = ("_records_max", "suspects")

    def __init__(self) -> None:
        self._records_max: int | None = 1
        self.suspects: list[TakenRecord] | None = []
        """Taken records with an earlier delivery, or put aside before, that are not settled.

        None without a limit.
        """

    def room(self, room: int, held: Iterable[TakenRecord]) -> int:
        """Return how many of ``room`` records to take now; ``held`` records count as settled."""
        if self._records_max is None or self.suspects is None:
            return room
        if self.suspects:
            waiting = set(map(id, held))
            self.suspects = [
                record
                for record in self.suspects
                if not record.is_done and id(record) not in waiting
            ]
        return max(0, min(room, self._records_max - len(self.suspects)))

    def took(self, deliveries: Sequence[DeliveredRecord], limits: ShareGroupLimits) -> None:
        """Adapt the limit to the delivery counts of a take; called if there is a limit."""
        records_max = self._records_max
        assert records_max is not None, "without a limit, no delivery counts are looked at"
        count = max(delivery.delivery_count for delivery in deliveries)
        alone_from = limits.alone_from
        suspects = self.suspects or ()
        if count >= alone_from or any(record.story.suspicions for record in suspects):
            records_max = 1
        elif count == 1:
            records_max *= GROWTH_FIRST
        elif count == alone_from - 1:
            records_max = min(max(FEW, records_max * GROWTH_AGAIN), MANY)
        else:
            records_max = max(MANY, records_max * GROWTH_AGAIN)
        if records_max >= UNLIMITED_FROM:
            self._records_max = self.suspects = None
        else:
            self._records_max = records_max

    def saw(self, record: TakenRecord, limits: ShareGroupLimits) -> None:
        """Set a limit if a record that is about to run must run alone, or at its next delivery."""
        if self._records_max is not None:
            return
        if record.runs_alone(limits.alone_from):
            self._records_max, self.suspects = 1, []
        # `> 1`: if so few deliveries are allowed that the second one runs alone, the one before is
        # the first delivery, which has no limit.
        elif record.delivery.delivery_count >= limits.alone_from - 1 > 1:
            self._records_max, self.suspects = FEW, []

    def start_again(self) -> None:
        """Take one record next, as at the start, because locks were lost."""
        self._records_max = 1
        self.suspects = self.suspects or []


WAIT_SECONDS = 2.0
"""Maximum time for which a record waits until the other handlers end, and they wait for it.

It is short, because a crash of one of them in this time would count for the waiting record.
"""
BEGIN_SECONDS = 2.0
"""Maximum time between the grant and the begin, while no other handler begins.

A rate limit or a closed gate may hold the record up, and with it the whole process.
"""
LOOKED_SECONDS_MAX = 5.0
"""Maximum time for which records wait until the groups have looked for suspects; a group that is
paused does not look."""
ACKNOWLEDGED_SECONDS = 5.0
"""Maximum time, before and after a run alone, in which the broker answers acknowledgements.

It is long, because a crash before the answer counts for records that were done: with half a second
a broker that needed two seconds for its answers made dead letters of honest records.
"""
SETTLED_SECONDS = 10.0
"""Maximum time for which the others wait after a run alone until its record is settled.

A crash of one of them would undo it, and would count for a suspect whose run had ended.
"""


class ReadyRecords(Protocol):
    """The ready records of a route: a `RecordQueue`."""

    ready: deque[TakenRecord]
    room: RoomSignal

    def wake_one(self) -> None:
        """Wake an idle slot if records are ready."""


class RunningGroup(Protocol):
    """A share group whose handlers run in this process: a `GroupRunner`."""

    @property
    def room(self) -> RoomSignal: ...

    @property
    def is_busy(self) -> bool:
        """Whether a handler runs that was not given up, or a record is being written."""

    def runs_now(self, record: TakenRecord) -> bool:
        """Whether a handler runs for this record."""

    async def acknowledged(self, within_seconds: float) -> None:
        """Send pending acknowledgements, and wait for their responses at most this long."""

    def make_alone(self) -> None:
        """Put aside the waiting records that a crash would judge."""

    def wake(self) -> None:
        """Begin handlers, and take records, again."""


class AloneRun:
    """A record that runs alone, or waits for that."""

    __slots__ = ("has_begun", "is_granted", "put_aside", "queue", "record", "stays")

    def __init__(
        self,
        record: TakenRecord,
        queue: ReadyRecords,
        put_aside: Callable[..., None],
        *,
        stays: bool = False,
    ) -> None:
        """``stays``: it is put aside in its place, so it may wait for its turn again and again."""
        self.stays = stays
        self.record = record
        self.queue = queue
        self.put_aside = put_aside
        self.is_granted = False
        self.has_begun = False


class Alone:
    """The record of a process that runs alone; shared by all routes of all groups."""

    __slots__ = (
        "_asked", "_beside", "_changed", "_clock", "_groups", "_looking", "have_looked", "run_now",
    )  # fmt: skip

    def __init__(self, clock: WorkerClock) -> None:
        self._clock = clock
        self._asked = asyncio.Event()
        self._changed = asyncio.Event()
        self._groups: list[RunningGroup] = []
        self._beside: list[TakenRecord] = []
        """Suspects that have waited too long, and may begin while other handlers run."""
        self._looking = 0
        self.have_looked = asyncio.Event()
        """Set when each group has looked for suspects in its own topic since the start."""
        self.run_now: AloneRun | None = None
        """None if handlers may begin as usual."""

    def join(self, group: RunningGroup) -> None:
        """Add a group of this process."""
        self._groups.append(group)
        self._looking += 1
        self.have_looked.clear()
        group.room.also = self._changed

    def looked(self) -> None:
        """Note that another group has looked for suspects."""
        self._looking -= 1
        if self._looking == 0:
            self.have_looked.set()

    async def wait_until_looked(self) -> None:
        """Wait until each group has looked for suspects, for a limited time."""
        await self._first_of(self.have_looked, self._clock.now() + LOOKED_SECONDS_MAX)

    def ask(self, run: AloneRun) -> bool:
        """Let a record run alone soon; False if another one already waits or runs."""
        if self.run_now is not None:
            return False
        self.run_now = run
        self._asked.set()
        return True

    def admits(self, ready: deque[TakenRecord]) -> bool:
        """Whether the first ready record of a route may begin while a record runs alone."""
        run = self.run_now
        if run is None:
            return True
        if not run.is_granted or run.has_begun or ready is not run.queue.ready:
            return False
        if ready[0] is not run.record and run.record in ready:
            # A held retry became due in between, and is in front of it.
            ready.remove(run.record)
            ready.appendleft(run.record)
        return ready[0] is run.record

    @property
    def spared(self) -> list[TakenRecord]:
        """The records that wait and are not put aside for the one that runs alone."""
        run = self.run_now
        return self._beside if run is None else [run.record, *self._beside]

    def begins(self, record: TakenRecord) -> bool:
        """Whether this is the record whose turn it is; it has begun then."""
        if self._beside:
            may_begin = record in self._beside
            self._beside = [
                other for other in self._beside if other is not record and not other.is_done
            ]
            if may_begin:
                return True
        run = self.run_now
        if run is None or run.record is not record or not run.is_granted:
            return False
        run.has_begun = True
        return True

    def waiting(self, room: RoomSignal) -> Iterator[TakenRecord]:
        """The record that waits for its turn, if it is of the group with this signal."""
        run = self.run_now
        if run is not None and not run.has_begun and run.queue.room is room:
            yield run.record

    def withdraw(self, room: RoomSignal) -> None:
        """Put the waiting record aside, because its group begins no more handlers."""
        for record in self.waiting(room):
            run = self.run_now
            assert run is not None, "its record waits"
            if record in run.queue.ready:
                run.queue.ready.remove(record)
            self._end(run)
            run.put_aside(record, by_stop=True)

    async def run(self) -> None:
        """Let records run alone, one after the other, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            if (run := self.run_now) is not None:
                await self._run(run)

    async def _run(self, run: AloneRun) -> None:
        deadline = self._clock.now() + WAIT_SECONDS
        while self.run_now is run and self._has_others():
            if self._clock.now() >= deadline:
                self._wait_no_longer(run)
                return
            await self._change(deadline)
        # docs/adr/0035: a crash during the run must not double a record that was put aside.
        await self._acknowledged()
        # A stop may have withdrawn the record meanwhile.
        if self.run_now is not run:
            return
        await self._grant(run)
        if run.has_begun:
            deadline = self._clock.now() + SETTLED_SECONDS
            while not run.record.is_done and self._clock.now() < deadline:
                await self._change(deadline)
            await self._acknowledged()
        if self.run_now is run:
            self._end(run)

    async def _grant(self, run: AloneRun) -> None:
        """Let the record run, until its handler has ended or it waits no longer for that."""
        run.is_granted = True
        run.queue.ready.appendleft(run.record)
        run.queue.wake_one()
        deadline = self._clock.now() + BEGIN_SECONDS
        while self.run_now is run and self._is_under_way(run):
            if run.has_begun:
                # Without a limit: alone, a handler may run as long as beside others.
                await self._change(None)
            elif self._clock.now() < deadline:
                await self._change(deadline)
            else:
                if run.record in run.queue.ready:
                    run.queue.ready.remove(run.record)
                self._wait_no_longer(run)

    async def _acknowledged(self) -> None:
        """Let the broker know what was done; a crash would have these records delivered again."""
        await asyncio.gather(*(group.acknowledged(ACKNOWLEDGED_SECONDS) for group in self._groups))

    def _wait_no_longer(self, run: AloneRun) -> None:
        """Let a suspect begin beside the others, because it must not go round for ever."""
        if (run.record.story.suspicions or run.stays) and not run.record.is_done:
            self._beside.append(run.record)
            run.queue.ready.appendleft(run.record)
        else:
            run.put_aside(run.record)
        self._end(run)

    def _has_others(self) -> bool:
        """Whether a crash now would count for records that are about to be judged, or written."""
        for group in self._groups:
            group.make_alone()
        return any(group.is_busy for group in self._groups)

    def _is_under_way(self, run: AloneRun) -> bool:
        if run.record.is_done:
            return False
        return not run.has_begun or any(group.runs_now(run.record) for group in self._groups)

    async def _change(self, until: float | None) -> None:
        """Wait until a handler has ended somewhere, or the time is over."""
        # Cleared before the wait: the caller has looked in this iteration, so no change is missed.
        self._changed.clear()
        for group in self._groups:
            group.room.is_set = False
        await self._first_of(self._changed, until)

    async def _first_of(self, event: asyncio.Event, until: float | None) -> None:
        changes: list[asyncio.Future[Any]] = [asyncio.ensure_future(event.wait())]
        if until is not None:
            changes.append(asyncio.ensure_future(self._clock.sleep_until(until)))
        try:
            await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for change in changes:
                change.cancel()

    def _end(self, run: AloneRun) -> None:
        assert self.run_now is run, "only one record runs alone"
        self.run_now = None
        self._changed.set()
        for group in self._groups:
            group.wake()
