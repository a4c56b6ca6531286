"""Runs the handler of one route in this process: takes ready records, and settles them afterwards.

    RecordQueue --> slot --> HandlerSlot.run --> HandlerRuns.ended --> decide --> Settlement
         ^                                                                            |
         '--- held retries that are due (`GroupRunner`) <--- accepted, released, held, written

Each slot has a task that takes a ready record, runs the handler, and passes its end on.  A batch
handler's slots gather batches: one slot at a time takes the ready records, up to the batch size,
and waits for more until the route's wait time has passed since the first of them was taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Unpack

from sharegroup.worker.decisions.decide import Redeliver
from sharegroup.worker.declarations.route import Batching, Route
from sharegroup.worker.executors.process_sends import Sending
from sharegroup.worker.ports import Outbox, SendOptions, WrittenRecord
from sharegroup.worker.records.outcomes import GivenUp
from sharegroup.worker.records.record import (
    CURRENT,
    CURRENT_GROUP,
    CURRENT_OUTBOX,
    CURRENT_SLOT,
    LOOP,
    Record,
)
from sharegroup.worker.running.admission import Admission
from sharegroup.worker.running.breaker import Breaker
from sharegroup.worker.running.group_parts import GroupParts
from sharegroup.worker.running.handler_runs import HandlerRuns
from sharegroup.worker.running.handler_slot import HandlerSlot
from sharegroup.worker.running.level import LEVEL_START, Level
from sharegroup.worker.running.record_queue import RecordQueue
from sharegroup.worker.running.returned import NOTHING_AROUND, Around
from sharegroup.worker.running.route_handler import RouteHandler
from sharegroup.worker.running.settlement import Settlement
from sharegroup.worker.running.taken_record import TakenRecord
from sharegroup.worker.telemetry.state import HandlerCounts

# Computes the number of handlers of a route that may run, and of records to take in advance.
#
# The rate at which handlers end is measured while records are taken. With ``concurrency="auto"``
# the same measurements adapt the number of concurrent handlers (`level`).


AHEAD_SECONDS = 0.25
"""Records may wait here up to the number handled in this time; a fetch takes a small part of it."""
AHEAD_OF_LOCK = 1 / 8
"""As `AHEAD_SECONDS`, as a part of the lock duration; the smaller one applies."""
AHEAD_MAX = 10_000
RATE_SECONDS_MIN = 0.05
"""The minimum interval at which the rate is measured."""


class RouteCapacity:
    """The number of concurrent handlers of a route, and the measured rate of their ends."""

    __slots__ = (
        "_auto", "_batch_size", "_measured_at", "_measured_done", "_measured_seconds", "_rate",
        "records", "slots",
    )  # fmt: skip

    def __init__(self, route: Route, now: float, *, batch_size: int) -> None:
        # With processes their number is the limit, whatever the time of a handler says.
        self._auto = Level() if route.concurrency == "auto" and not route.processes else None
        self._batch_size = batch_size
        self.slots = _slots_of(route)
        """The number of handlers that may run concurrently."""
        self.records = self.slots * batch_size
        """The number of records in these handlers."""
        self._rate = 0.0
        self._measured_at = now
        self._measured_done = 0
        self._measured_seconds = 0.0

    def ahead(self, lock_seconds: float) -> int:
        """The number of records to have ready, because handlers begin them shortly."""
        seconds = min(AHEAD_SECONDS, lock_seconds * AHEAD_OF_LOCK)
        return int(min(self._rate * seconds, AHEAD_MAX))

    def measure(self, now: float, *, done: int, handling_seconds: float, running: int) -> None:
        """Measure the rate, and adapt the number of handlers to how long they take.

        ``done`` and ``handling_seconds`` are the number and the total duration of all ended runs;
        ``running`` is the number of records in handlers.
        """
        elapsed = now - self._measured_at
        if elapsed < RATE_SECONDS_MIN:
            return
        runs = done - self._measured_done
        rate = runs / elapsed
        # The rate rises at once and falls slowly, so that a pause in the stream does not reset it.
        self._rate = rate if rate > self._rate else 0.7 * self._rate + 0.3 * rate
        if self._auto is not None:
            seconds = handling_seconds - self._measured_seconds
            self._auto.window(runs=runs, seconds=seconds, running=running // self._batch_size)
            self.slots = self._auto.now
            self.records = self.slots * self._batch_size
        self._measured_at, self._measured_done = now, done
        self._measured_seconds = handling_seconds


def _slots_of(route: Route) -> int:
    """Return the number of handlers that initially may run concurrently."""
    if route.processes:
        return route.processes  # More would wait for a process while their handling time runs.
    return LEVEL_START if route.concurrency == "auto" else route.concurrency


BEHIND_KEYS_MAX = 1_000
"""If this many records wait behind others of their key, no more are taken."""


class RouteRunner:
    """Runs the handler of one route in slots, from its start to its close."""

    __slots__ = (
        "_alone", "_capacity", "_clock", "_handler", "_pace", "_tasks", "admission", "breaker",
        "counts", "queue", "route", "runs", "settlement", "slots",
    )  # fmt: skip

    def __init__(self, route: Route, parts: GroupParts, around: Around = NOTHING_AROUND) -> None:
        batching = _batching_of(route)
        batch_size = 1 if batching is None else batching.size
        clock = parts.clock
        self.route = route
        self.counts = HandlerCounts(route.group, route.shape.name)
        if around.returned is not None:
            around.returned.counts = self.counts
        self.queue = RecordQueue(route, clock, parts.room, batch_size=batch_size)
        self.settlement = Settlement(route, self.queue, self.counts, parts, around.returned)
        declared = route.breaker
        self.breaker = (
            None
            if declared is None
            else Breaker(declared, self.queue, self.settlement, self.counts, parts)
        )
        self.admission = (
            Admission(self.queue, self.settlement, self.counts, parts, breaker=self.breaker)
            if route.is_selective
            else None
        )
        """Skips records that are not to run; None if the handler takes all."""
        self.runs = HandlerRuns(
            route,
            self.settlement,
            self.counts,
            parts,
            admission=self.admission,
            breaker=self.breaker,
        )
        self.slots: list[HandlerSlot] = []
        self._alone = parts.alone
        self._clock = clock
        self._handler = RouteHandler(route, around.middlewares, Sending(parts.outbox, clock))
        self._capacity = RouteCapacity(route, clock.now(), batch_size=batch_size)
        self._pace = LoopPace()
        self._tasks: asyncio.TaskGroup | None = None

    # Life.

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start the slots, and the processes if the handler runs in processes."""
        await self._handler.start()
        self._tasks = tasks
        self.queue.start(tasks)
        self._add_slots()

    async def close(self) -> None:
        """Stop the slots, and end the threads and processes of the handler."""
        # First, so a slot that wakes meanwhile ends and does not call a closed handler.
        self.queue.is_closed = True
        await self._handler.close()

    def stop_beginning(self) -> None:
        """Begin no more handlers; running handlers continue."""
        self.queue.is_open = False

    def begin_again(self) -> None:
        """Begin handlers again."""
        self.queue.is_open = True
        self.queue.wake_one()

    def release_waiting(self, *, alone_from: int) -> list[TakenRecord]:
        """Release records not begun that need not run alone; returns them.

        The others are put aside, because a release costs a delivery.  So are those that failed
        here, because only this process knows of that.
        """
        released = []
        for record in self.queue.take_back(alone_from=alone_from):
            if record.has_unsaved_failures and not self.route.blocks:
                self.settlement.put_aside(record, by_stop=True)
            else:
                self.settlement.carry_out(record, Redeliver())
                released.append(record)
        for record in self.queue.take_ready(alone_from=alone_from):
            self.settlement.put_aside(record, by_stop=True)
        return released

    def run_suspect(self, record: TakenRecord) -> None:
        """Let a suspect that was just added wait to run alone, without waiting for a slot.

        Meanwhile a handler that ends the process would count for it.
        """
        ready = self.queue.ready
        if ready and ready[-1] is record:  # Neither behind its key nor is the key read.
            ready.pop()
            self.runs.may_run_again(record)

    def add_due(self, record: TakenRecord) -> None:
        """Make a held record ready that is due."""
        (self.queue if self.admission is None else self.admission).add_due(record)

    def put_aside_waiting(self, *, alone_from: int, but: Sequence[TakenRecord]) -> None:
        """Put aside records not begun that must run alone, except ``but``."""
        # Those that stay in their place keep their keys, so none behind them may be moved.
        taken = self.queue.take_ready(
            alone_from=alone_from, but=but, behind_keys=not self.route.blocks
        )
        for record in taken:
            self.settlement.put_aside(record)

    def give_up(self, slot: HandlerSlot, now: float) -> None:
        """Settle the records of a handler that does not end after its interruption."""
        assert slot.verdict is not None, "it was interrupted"
        for record in slot.drop():
            self.runs.give_up(record, slot.verdict, now - slot.begun_at, now)

    # State.

    @property
    def running(self) -> int:
        """The number of records in handlers."""
        return self.counts.running

    @property
    def is_busy(self) -> bool:
        """Whether a handler runs that was not given up."""
        return self.running > self.runs.given_up

    def room(self, now: float, lock_seconds: float) -> int:
        """The number of further records to take: those that slots begin now or shortly."""
        queue = self.queue
        if queue.behind_keys >= BEHIND_KEYS_MAX:
            return 0
        self._measure(now)
        free = self._capacity.records - self.running
        if queue.limiter is not None:
            # At least one record, so that it is here when the rate limit lets it begin.
            free = min(free, max(1, queue.limiter.tokens.room(now, AHEAD_SECONDS)))
        room = max(0, free + self._capacity.ahead(lock_seconds) - queue.before_rate)
        return room if self.breaker is None else self.breaker.room(room, running=self._busy)

    def _measure(self, now: float) -> None:
        capacity = self._capacity
        slots_before = capacity.slots
        capacity.measure(
            now,
            done=self.runs.done,
            handling_seconds=self.counts.handling.total,
            running=self.running,
        )
        if capacity.slots > slots_before:
            self._add_slots()

    def _may_begin(self) -> bool:
        return (
            self.queue.is_open
            and self.counts.running < self._capacity.records
            and (self.breaker is None or self._breaker_admits(self.breaker))
            and (self._alone.run_now is None or self._alone.admits(self.queue.ready))
        )

    @property
    def _busy(self) -> int:
        """The number of records in handlers that were not given up."""
        return self.counts.running - self.runs.given_up

    def _breaker_admits(self, breaker: Breaker) -> bool:
        # One whose turn it is to run alone may: all other handlers of the process wait for it.
        return self._alone.run_now is not None or breaker.may_begin(self._busy)

    # Slots.

    def _add_slots(self) -> None:
        assert self._tasks is not None, "slots are added only while the runner runs"
        batching = _batching_of(self.route)
        for _ in range(len(self.slots), self._capacity.slots):
            slot = HandlerSlot(self._handler, self._clock)
            self.slots.append(slot)
            work = (
                self._run_records(slot) if batching is None else self._run_batches(slot, batching)
            )
            slot.task = self._tasks.create_task(work, name=f"slot-{self.route.shape.name}")

    async def _run_records(self, slot: HandlerSlot) -> None:
        """Take ready records and run the handler for them until the runner is closed."""
        # The hot path: runs once for each record.
        queue, runs, pace, clock = self.queue, self.runs, self._pace, self._clock
        ready, idle = queue.ready, queue.idle
        is_fresh = False  # Whether the slot was idle and has taken no record since.
        self._set_context(slot)
        while not queue.is_closed:
            if not ready or not self._may_begin():
                await idle.wait()
                is_fresh = True
                continue
            if pace.runs >= RUNS_MAX:
                # One slot waits for the next iteration of the loop.  It then wakes two others, and
                # each of these wakes two more, if handlers wait and more records are ready.
                if pace.is_waiting:
                    await idle.wait()
                    is_fresh = True
                else:
                    await pace.wait()
                continue
            record = ready.popleft()
            if record.is_done:
                continue
            if ready and idle.waiters and (is_fresh or not idle.waking):
                idle.wake(2, len(ready))
            is_fresh = False
            if queue.limiter is not None and not await self._wait_rate((record,)):
                continue
            pace.latest = slot
            begun_at = clock.now()
            if runs.begin(record, begun_at):
                error = await slot.run(record, begun_at)
                seconds = slot.ended_at - begun_at
                if seconds > LONG_SECONDS and pace.latest is slot:
                    pace.count(LONG_RUNS)
                runs.ended(record, error, seconds, slot.ended_at)
            if pace.latest is slot:  # No other slot began a handler meanwhile.
                if pace.runs:
                    pace.runs += 1
                else:
                    pace.count(1)

    async def _run_batches(self, slot: HandlerSlot, batching: Batching) -> None:
        """Gather batches and run the handler for them until the runner is closed."""
        queue = self.queue
        self._set_context(slot)
        while not queue.is_closed:
            if not queue.ready or queue.idle.is_gathering or not self._may_begin():
                await queue.idle.wait()
                continue
            if self._alone.run_now is None:
                batch: Sequence[TakenRecord] = await self._gather(batching)
            else:
                batch = [queue.ready.popleft()]  # The record whose turn it is to run alone.
            if queue.limiter is not None and batch:
                batch = await self._wait_rate(batch)
            queue.wake_one()
            if batch:
                await self._run_batch(slot, batch)
                # A batch handler that never waits lets other tasks run here; `LoopPace` is for
                # single records.
                await asyncio.sleep(0)

    def _set_context(self, slot: HandlerSlot) -> None:
        CURRENT_SLOT.set(slot)
        CURRENT_GROUP.set(self.route.group)
        if self.route.exactly_once:
            CURRENT_OUTBOX.set(HandlerOutbox())
        LOOP.set(asyncio.get_running_loop())

    async def _gather(self, batching: Batching) -> list[TakenRecord]:
        queue, ready, clock = self.queue, self.queue.ready, self._clock
        queue.idle.is_gathering = True
        try:
            deadline = ready[0].taken_at + batching.wait_seconds
            while len(ready) < batching.size and clock.now() < deadline:
                await queue.idle.wait_for_batch(clock, deadline)
                # The worker stops, and the ready records are released; or one of them runs alone.
                if not ready or not self._may_begin() or self._alone.run_now is not None:
                    return []
        finally:
            queue.idle.is_gathering = False
        records = [ready.popleft() for _ in range(min(batching.size, len(ready)))]
        return [record for record in records if not record.is_done]

    async def _wait_rate(self, records: Sequence[TakenRecord]) -> Sequence[TakenRecord]:
        """Wait for the rate limit; returns the records that may begin now."""
        queue, alone = self.queue, self._alone
        if alone.run_now is not None:
            # Its turn to run alone is now: all other handlers wait for it, and not for long.
            assert queue.limiter is not None
            queue.limiter.tokens.spend(len(records))
            return records
        # Meanwhile a record may have got the turn to run alone: then these must not run beside it.
        # The same if the circuit breaker has opened, or another record is its probe.
        breaker = self.breaker
        return await queue.wait_rate(
            records,
            lambda: (
                queue.is_open
                and alone.run_now is None
                and (breaker is None or breaker.may_begin(self._busy))
            ),
        )

    async def _run_batch(self, slot: HandlerSlot, batch: Sequence[TakenRecord]) -> None:
        runs, clock = self.runs, self._clock
        begun_at = clock.now()
        begun = [record for record in batch if runs.begin(record, begun_at)]
        for record in begun:
            record.handler_record = Record(record.delivery, record.story, clock)
        if not begun:
            return

        def unreadable(record: TakenRecord, error: BaseException) -> None:
            runs.ended(record, error, 0.0, begun_at)

        ends = await slot.run_batch(begun, begun_at, unreadable)
        ended_at = slot.ended_at
        for record, end in zip(begun, ends, strict=True):
            if type(end) is not GivenUp and record.is_lost(ended_at):
                runs.lost(record)
            else:
                runs.ended(record, end, ended_at - begun_at, ended_at)


class HandlerOutbox:
    """Buffers what a handler sends, until its record is finished; a `ports.Outbox`."""

    __slots__ = ()

    def send(
        self, topic: str, value: bytes | None, **options: Unpack[SendOptions]
    ) -> Awaitable[WrittenRecord]:
        """Add a record to the transaction of the record that the current task handles."""
        record = CURRENT.get()
        runs = CURRENT_SLOT.get().records
        if not any(taken.handler_record is record for taken in runs):
            raise RuntimeError(
                f"{record!r}: its handler has returned, and its transaction may be over; with "
                "exactly_once, await all sends in the handler"
            )
        outbox: Outbox = record.delivery
        return outbox.send(topic, value, **options)


def _batching_of(route: Route) -> Batching | None:
    """Return how batches are gathered; None if the handler takes single records."""
    if not route.shape.is_batch:
        return None
    return route.batching if route.batching is not None else Batching()


RUNS_MAX = 64
"""Maximum number of handlers without waits in one iteration of the event loop, in all slots of
a route.  Then other tasks of the loop run first.  A handler that waits yields to them itself."""
LONG_SECONDS = 0.001
LONG_RUNS = 16
"""A handler that blocked the loop for more than `LONG_SECONDS` counts as this many more."""


class LoopPace:
    """The handlers of a route that ran in this iteration of the event loop without waiting.

    It keeps handlers that never wait from occupying the event loop.
    """

    __slots__ = ("is_waiting", "latest", "runs")

    def __init__(self) -> None:
        self.runs = 0
        """The number of these handlers; one that took long counts more than once."""
        self.is_waiting = False
        """Whether a slot waits for the next iteration of the event loop."""
        self.latest: object = None
        """The slot that began a handler last.  If it is another one at the end, this one waited."""

    def count(self, runs: int) -> None:
        """Count handlers that ran in this iteration of the event loop."""
        if not self.runs:
            asyncio.get_running_loop().call_soon(self._new_iteration)
        self.runs += runs

    async def wait(self) -> None:
        """Wait for the next iteration; only one slot does, and the others become idle."""
        self.is_waiting = True
        try:
            await asyncio.sleep(0)
        finally:
            self.is_waiting = False

    def _new_iteration(self) -> None:
        self.runs = 0
