"""One route in this process: what is ready, the lanes that run it, and what becomes of it.

    add --> [behind its key] --> ready --> a lane --> ended --> decide --> accepted, released,
              ^                    ^                                       held, written
              '--- its key is free '--- due again <---- held

A lane that finds more ready than it takes wakes idle ones, and these wake others: so as many lanes
run as there is work for, and a handler that never waits is run by one or two of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from sharegroup.worker.decisions.decide import before_run
from sharegroup.worker.decisions.steps import GiveBack, Hold
from sharegroup.worker.declared.route import Batching, Route
from sharegroup.worker.middleware import Call, Middleware, wrapped
from sharegroup.worker.running.batch_lane import BatchLane
from sharegroup.worker.running.calling import Caller, caller_for
from sharegroup.worker.running.ends import end
from sharegroup.worker.running.in_hand import InHand, Unordered
from sharegroup.worker.running.keys import Keys
from sharegroup.worker.running.lane import Lane
from sharegroup.worker.running.level import LEVEL_START, Level
from sharegroup.worker.running.settling import Settling
from sharegroup.worker.running.token_bucket import TokenBucket
from sharegroup.worker.seeing.counts import HandlerCounts

log = logging.getLogger(__name__)

AHEAD_SECONDS = 0.25
"""What is done in so long may wait here; a fetch takes a small part of it."""
AHEAD_OF_LOCK = 1 / 8
"""And never more than is done in this part of a lock's time."""
AHEAD_MAX = 10_000
BEHIND_KEYS_MAX = 1_000
"""Records that wait behind others of their key; with more, nothing is taken."""
RATE_SECONDS_MIN = 0.05
"""How often the rate is measured anew at most."""


class RouteRunner:
    """See the module's text."""

    def __init__(
        self, route: Route, settling: Settling, middlewares: Sequence[Middleware] = ()
    ) -> None:
        self.route = route
        self.clock = settling.clock
        self.counts = HandlerCounts(route.group, route.shape.name)
        self.ready: deque[InHand] = deque()
        self.lanes: list[Lane] = []
        self.idle: list[Lane] = []
        self.keys = Keys() if route.order_by is not None else None
        self.bucket = TokenBucket(route.rate_limit) if route.rate_limit is not None else None
        self.around = wrapped(self._called, middlewares) if middlewares else None
        """The middleware with the call inside; None: there is none."""
        self.caller: Caller = caller_for(route)
        self.call = self.caller.call
        self.takes_record = route.shape.takes_record
        self.decode = None if route.codec.may_block else route.codec.decode
        """Reads a value; None: it may wait for a server, and belongs into a thread (`read`)."""
        self.done = 0
        """How many runs have ended."""
        self.turning: list[InHand] = []
        """Records that a lane has and may not begin yet, for the rate's sake."""
        self.unread: deque[InHand] = deque()
        """Records whose key is being found in a thread, one after the other."""
        self.is_running = True
        self.given_up = 0
        """Handlers that were given up and have not ended."""
        self._settling = settling
        self.waking = 0
        """How many lanes are about to stop being idle."""
        self.is_paced = False
        """Whether a lane waits for the loop's next turn."""
        self._is_open = True
        self.in_turn = 0
        """How many handlers ran in this turn of the event loop without waiting for anything, those
        that took long counted more."""
        self.latest: Lane | None = None
        """The lane that began a handler last."""
        self.gathering: BatchLane | None = None
        """The lane that gathers a batch."""
        self._batching = _batching_of(route)
        self._auto = Level() if route.concurrency == "auto" and not route.processes else None
        self._level = _level_of(route)
        self._at_a_time = self._batching.size if self._batching is not None else 1
        self._tasks: asyncio.TaskGroup | None = None
        self._rate = 0.0
        self._measured_at = self.clock.now()
        self._measured_done = 0
        self._measured_seconds = 0.0

    # Life.

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start the processes, if the handler runs in some, and the lanes."""
        await self.caller.start()
        self._tasks = tasks
        self._add_lanes()

    async def close(self) -> None:
        """End threads and processes; no lane runs any more."""
        self.is_running = False
        await self.caller.close()

    def stop_beginning(self) -> None:
        """Begin no handler any more; those that run go on."""
        self._is_open = False

    def begin_again(self) -> None:
        """Begin handlers again."""
        self._is_open = True
        self.wake_one()

    # How it stands.

    @property
    def running(self) -> int:
        """How many lanes are in a handler."""
        return self.counts.running

    @property
    def waiting(self) -> int:
        """How many records were taken and not begun."""
        behind = self.keys.waiting if self.keys is not None else 0
        return len(self.ready) + len(self.turning) + len(self.unread) + behind

    def room(self, now: float, lock_seconds: float) -> int:
        """How many records more it has a use for, soon."""
        if self.keys is not None and self.keys.waiting >= BEHIND_KEYS_MAX:
            return 0
        self._measure(now)
        ahead = min(self._rate * min(AHEAD_SECONDS, lock_seconds * AHEAD_OF_LOCK), AHEAD_MAX)
        free = self._level * self._at_a_time - self.running
        if self.bucket is not None:
            # One at least: the next one is to be here when its time has come.
            free = min(free, max(1, self.bucket.room(now, AHEAD_SECONDS)))
        return max(0, free + int(ahead) - len(self.ready) - len(self.turning) - len(self.unread))

    def _measure(self, now: float) -> None:
        elapsed = now - self._measured_at
        if elapsed < RATE_SECONDS_MIN:
            return
        rate = (self.done - self._measured_done) / elapsed
        # Quick up, slow down: a pause in the stream is no reason to begin from nothing.
        self._rate = rate if rate > self._rate else 0.7 * self._rate + 0.3 * rate
        if self._auto is not None:
            self._find_level(self._auto)
        self._measured_at, self._measured_done = now, self.done
        self._measured_seconds = self.counts.handling.total

    def _find_level(self, auto: Level) -> None:
        before = self._level
        auto.window(
            runs=self.done - self._measured_done,
            seconds=self.counts.handling.total - self._measured_seconds,
            running=self.running // self._at_a_time,
        )
        self._level = auto.now
        if self._level > before:
            self._add_lanes()

    def _add_lanes(self) -> None:
        assert self._tasks is not None, "lanes are added when it runs"
        for _ in range(len(self.lanes), self._level):
            lane = Lane(self) if self._batching is None else BatchLane(self, self._batching)
            self.lanes.append(lane)
            lane.task = self._tasks.create_task(lane.run(), name=f"lane-{self.route.shape.name}")

    # What comes.

    def add(self, one: InHand) -> None:
        """A record for this route was delivered; the caller wakes a lane."""
        if self.keys is None:
            self.ready.append(one)
        elif self.decode is None and callable(self.route.order_by):
            self._read_later(one)
        else:
            self._find_key(one)
            self._admit(one, self.keys)

    def _admit(self, one: InHand, keys: Keys) -> None:
        if keys.admit(one):
            self.ready.append(one)

    def _read_later(self, one: InHand) -> None:
        """Its payload may have to wait for a server, and the loop must not."""
        self.unread.append(one)
        if len(self.unread) == 1:
            assert self._tasks is not None, "nothing is taken before it runs"
            self._tasks.create_task(self._find_keys(), name=f"keys-{self.route.shape.name}")

    async def _find_keys(self) -> None:
        keys = self.keys
        assert keys is not None, "who finds keys orders by them"
        while self.unread and self.is_running:
            one = self.unread[0]  # In sight until it is ready.
            if not one.is_done:
                await asyncio.to_thread(self._find_key, one)
            self.unread.popleft()
            if not one.is_done:
                self._admit(one, keys)
                self.wake_one()

    def wake_one(self) -> None:
        """Have an idle lane look, unless one is about to."""
        if self.gathering is not None:
            if len(self.ready) >= self._at_a_time:
                self.gathering.wake()
        elif self.ready and self.idle and not self.waking:
            self.wake(1)

    def wake(self, lanes: int) -> None:
        """Have so many idle lanes look, if there is something for them."""
        for _ in range(min(lanes, len(self.idle), len(self.ready))):
            self.waking += 1
            self.idle.pop().wake()

    def count_in_turn(self, records: int) -> None:
        """So many more ran in this turn of the loop."""
        if not self.in_turn:
            asyncio.get_running_loop().call_soon(self._new_turn)
        self.in_turn += records

    def _new_turn(self) -> None:
        self.in_turn = 0

    def woken(self, lane: Lane) -> None:
        """A lane has stopped being idle."""
        if lane in self.idle:  # It was cancelled while it was.
            self.idle.remove(lane)
        else:
            self.waking -= 1

    async def _called(self, call: Call) -> Any:
        """The innermost of the middleware."""
        payload = call.payload
        if not self.takes_record:
            return await self.call(payload)
        is_batch = self._batching is not None
        return await self.call(payload, list(call.records) if is_batch else call.record)

    def _find_key(self, one: InHand) -> None:
        """What it is ordered by; without one it fails where its handler would run.

        Not here, where the records of others are handed out, too.
        """
        order_by = self.route.order_by
        if not callable(order_by):
            one.key = one.delivery.key
            return
        try:
            one.payload = self.route.codec.decode(one.delivery.value)
            key = order_by(one.payload)
            hash(key)
        except Exception as error:  # noqa: BLE001  The application's function may do anything.
            one.payload = Unordered(error)
        else:
            one.key = key

    def _again(self, one: InHand) -> None:
        """What was held is due: before what is new."""
        if type(one.payload) is Unordered:
            self.add(one)  # Its key may be had by now.
        else:
            self.ready.appendleft(one)
        self.wake_one()

    # A lane's questions.

    def may_begin(self) -> bool:
        """Whether one more handler may run."""
        return self._is_open and self.counts.running < self._level * self._at_a_time

    async def turn_of(self, some: Sequence[InHand]) -> list[InHand]:
        """Keep the rate; those of them that are to be run when it is their turn, all at once."""
        bucket = self.bucket
        assert bucket is not None
        now = self.clock.now()
        when = max([bucket.reserve(now) for _ in some], default=now)
        self.turning += some
        try:
            if when > now:
                await self.clock.sleep_until(when)
        finally:
            for one in some:
                self.turning.remove(one)
        if self._settling.hungry:
            self._settling.room_again.set()
        left = [one for one in some if not one.is_done]
        run = left if self._is_open else []
        for _ in range(len(some) - len(run)):
            bucket.give_back()
        if not self._is_open:
            self.ready.extendleft(reversed(left))
        return run

    def begin(self, one: InHand, now: float) -> bool:
        """Count a run as begun; False: this record is not to be run."""
        delivery, settling = one.delivery, self._settling
        if delivery.is_lost or now >= delivery.deadline:
            settling.lost(self, one)
            return False
        if delivery.delivery_count >= settling.delivery_limit and one.record is None:
            bury = before_run(
                one.story,
                delivery_count=delivery.delivery_count,
                delivery_limit=settling.delivery_limit,
            )
            if bury is not None:
                settling.carry_out(self, one, bury)
                return False
        self.counts.running += 1
        self.counts.queued.observe(
            max(0.0, settling.wall_seconds(now) - delivery.timestamp_ms / 1000)
        )
        if settling.hears_started:
            settling.tell("record.started", self, one)
        return True

    async def read(self, one: InHand) -> Any:
        """The payload of its value."""
        if self.decode is not None:
            return self.decode(one.delivery.value)
        return await asyncio.to_thread(self.route.codec.decode, one.delivery.value)

    # What becomes of it.

    def ended(self, one: InHand, error: BaseException | None, seconds: float, now: float) -> None:
        """A handler has ended: returned, or raised, or was interrupted with a verdict."""
        counts = self.counts
        counts.running -= 1
        counts.handling.observe(seconds)
        self.done += 1
        if error is None and one.record.decision is None:
            counts.succeeded += 1
            self._settling.accept(self, one, seconds)
        else:
            end(self._settling, one, error, now, seconds)
        if self._settling.hungry:
            self._settling.room_again.set()

    def ended_late(self, one: InHand, seconds: float) -> None:
        """A handler has ended that was given up: its record is settled already."""
        self.counts.running -= 1
        self.given_up -= 1
        self.done += 1
        self._settling.say(
            logging.WARNING, "handler.ended_late", self, one, f"seconds={seconds:.1f}"
        )
        self._settling.room_again.set()

    def lost(self, one: InHand) -> None:
        """Its lock ended while the handler of its batch ran."""
        self.counts.running -= 1
        self.done += 1
        self._settling.lost(self, one)

    def give_up(self, lane: Lane, now: float) -> None:
        """Settle a record whose handler doesn't end though it was interrupted."""
        verdict = lane.verdict
        assert verdict is not None, "it was interrupted"
        seconds = now - lane.begun_at
        text = f"seconds={seconds:.1f} (it ignores being cancelled; its slot is taken)"
        given_up = lane.hand
        lane.drop()
        for one in given_up:
            self.given_up += 1
            self._settling.say(logging.ERROR, "handler.stuck", self, one, text)
            end(self._settling, one, verdict, now, seconds, may_hold=False)

    def settled(self, one: InHand) -> None:
        """It is out of our hands: whoever waits behind its key may run."""
        if one.is_done:
            return  # Lost while its write was under way.
        one.is_done = True
        if self.keys is not None and (following := self.keys.done(one)) is not None:
            self.ready.append(following)
            self.wake_one()

    def held_until(self, one: InHand, step: Hold) -> None:
        """It waits here for its next try; `settling` calls this."""
        assert step.story.due_ms is not None
        delay = (step.story.due_ms - self.clock.wall_ms()) / 1000
        one.story = step.story
        self.counts.held += 1
        self._settling.held.add(one, self.clock.now() + max(0.0, delay), self._again)

    def all_waiting(self) -> Iterator[InHand]:
        """All that was not begun."""
        taken = (*self.ready, *self.turning, *self.unread)
        yield from (one for one in taken if not one.is_done)
        if self.keys is not None:
            yield from self.keys

    def give_back_waiting(self, *, delivered_below: int) -> list[InHand]:
        """Release what was not begun and was delivered less often; the rest stays."""
        given, kept = [], []
        if self.keys is not None:
            for one in self.keys.take(delivered_below=delivered_below):
                given.append(one)
                self._settling.carry_out(self, one, GiveBack())
        for one in (*self.turning, *self.unread):
            if one.delivery.delivery_count < delivered_below and not one.is_done:
                given.append(one)
                self._settling.carry_out(self, one, GiveBack())
        while self.ready:
            one = self.ready.popleft()
            if one.delivery.delivery_count >= delivered_below:
                kept.append(one)
            elif not one.is_done:
                given.append(one)
                self._settling.carry_out(self, one, GiveBack())
        self.ready.extend(kept)
        return given


def _level_of(route: Route) -> int:
    """How many handlers run at a time, to begin with."""
    if route.processes:
        return route.processes  # More would only wait for a process, while their time runs.
    return LEVEL_START if route.concurrency == "auto" else route.concurrency


def _batching_of(route: Route) -> Batching | None:
    """How batches are gathered; None: the handler takes one record at a time."""
    if not route.shape.is_batch:
        return None
    return route.batching if route.batching is not None else Batching()
