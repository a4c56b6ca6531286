"""Records that wait for their rate: all of a batch at once, in sight, and back in their order."""

from __future__ import annotations

import asyncio
from typing import Any

from sharegroup.dead_letters.story import NEW
from sharegroup.worker import App, RateLimit
from sharegroup.worker.declarations.route import Batching
from sharegroup.worker.running.alone import (
    BEGIN_SECONDS,
    LOOKED_SECONDS_MAX,
    Alone,
    AloneRun,
)
from sharegroup.worker.running.route_runner import RouteRunner
from sharegroup.worker.running.taken_record import OrderByFailure, TakenRecord
from tests.unit.worker.deliveries import FakeDelivery
from tests.unit.worker.running.hand import group_parts, in_hand, offsets


class SteppedClock:
    """Goes on to whatever somebody waits for, when it is let."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.goes_on = asyncio.Event()

    def now(self) -> float:
        return self.seconds

    def wall_ms(self) -> int:
        return round(self.seconds * 1000)

    async def sleep_until(self, when: float) -> None:
        await self.goes_on.wait()
        self.seconds = when


def limited(clock: SteppedClock) -> RouteRunner:
    app = App("turns")

    async def bill(orders: list[bytes]) -> None: ...

    limit = RateLimit(records=1, seconds=1, burst=2)
    app.share_group("billing", topics="orders", handler=bill, batch=4, rate_limit=limit)
    return RouteRunner(app.route_list[0], group_parts(clock))


def test_batch_waits_for_the_tokens_of_all_its_records_and_stays_listed() -> None:
    async def test() -> None:
        clock = SteppedClock()
        runner = limited(clock)
        some = [in_hand(n) for n in range(4)]
        turn = asyncio.ensure_future(runner._wait_rate(some))
        await asyncio.sleep(0)
        assert offsets(runner.queue) == [0, 1, 2, 3]
        some[1].is_done = True  # Its lock is lost during the wait.
        clock.goes_on.set()
        assert offsets(await turn) == [0, 2, 3]
        assert (clock.seconds, runner.queue.waiting) == (2.0, 0)

    asyncio.run(test())


def test_batch_that_may_not_begin_is_ready_again_and_returns_its_tokens() -> None:
    async def test() -> None:
        clock = SteppedClock()
        runner = limited(clock)
        turn = asyncio.ensure_future(runner._wait_rate([in_hand(n) for n in range(4)]))
        await asyncio.sleep(0)
        runner.stop_beginning()
        clock.goes_on.set()
        assert await turn == []
        assert offsets(runner.queue.ready) == [0, 1, 2, 3]
        runner.begin_again()
        runner.queue.ready.clear()
        assert len(await runner._wait_rate([in_hand(4), in_hand(5)])) == 2
        assert clock.seconds == 2.0

    asyncio.run(test())


def test_record_that_runs_alone_begins_before_a_held_retry_that_is_due() -> None:
    """Otherwise no handler of the process would begin again."""

    async def test() -> None:
        clock = SteppedClock()
        runner = limited(clock)
        alone, queue = Alone(clock), runner.queue
        run = AloneRun(in_hand(1), queue, lambda record: None)
        assert alone.ask(run)
        run.is_granted = True
        queue.ready.append(run.record)
        queue.add_due(in_hand(2))
        assert offsets(queue.ready) == [2, 1]
        assert alone.admits(queue.ready)
        assert offsets(queue.ready) == [1, 2]

    asyncio.run(test())


def test_held_retry_whose_lock_was_lost_takes_no_key() -> None:
    async def test() -> None:
        queue = limited(SteppedClock()).queue
        lost = in_hand(1)
        lost.is_done = True
        lost.payload = OrderByFailure(ValueError())  # Its key would be found now.
        queue.add_due(lost)
        assert not queue.ready

    asyncio.run(test())


def test_held_retries_run_in_the_order_in_which_they_were_due() -> None:
    async def test() -> None:
        queue = limited(SteppedClock()).queue
        queue.ready.append(in_hand(1))
        for number in (2, 3, 4):
            held = in_hand(number)
            held.handler_record = object()
            queue.add_due(held)
        assert offsets(queue.ready) == [2, 3, 4, 1]

    asyncio.run(test())


def test_place_of_a_held_retry_among_thousands_that_are_due_is_found_by_halves() -> None:
    looked = 0

    class Looked(TakenRecord):
        @property
        def handler_record(self) -> object:
            nonlocal looked
            looked += 1
            return self

        @handler_record.setter
        def handler_record(self, value: object) -> None: ...

    async def test() -> None:
        queue = limited(SteppedClock()).queue
        route: Any = None
        due = [Looked(route, FakeDelivery(offset=n), NEW, 0.0) for n in range(1_000)]
        for record in due:
            queue.add_due(record)
        assert list(queue.ready) == due
        assert looked <= 10 * len(due)

    asyncio.run(test())


class Busy:
    """A group whose handlers have ended; it counts how often it may begin some again."""

    def __init__(self, runner: RouteRunner) -> None:
        self.room = runner.queue.room
        self.is_busy = False
        self.wakes = 0

    def runs_now(self, record: object) -> bool:
        return False

    def make_alone(self) -> None: ...

    def wake(self) -> None:
        self.wakes += 1

    async def acknowledged(self, within_seconds: float) -> None: ...

    async def fetches_ended(self, within_seconds: float) -> None: ...


def test_record_that_does_not_begin_alone_does_not_hold_up_the_process() -> None:
    """Nobody takes it from the queue, as with a rate limit of one an hour."""

    async def test() -> None:
        clock = SteppedClock()
        runner = limited(clock)
        alone = Alone(clock)
        group = Busy(runner)
        alone.join(group)
        put_aside = []
        record = in_hand(7)
        turns = asyncio.ensure_future(alone.run())
        assert alone.ask(AloneRun(record, runner.queue, put_aside.append))
        clock.goes_on.set()
        for _ in range(20):
            await asyncio.sleep(0)
        turns.cancel()
        assert put_aside == [record]
        assert alone.run_now is None
        assert group.wakes == 1
        assert not runner.queue.ready
        assert clock.seconds == BEGIN_SECONDS

    asyncio.run(test())


def test_records_wait_for_the_look_at_suspects_for_a_limited_time() -> None:
    async def test() -> None:
        clock = SteppedClock()
        alone = Alone(clock)
        alone.join(Busy(limited(clock)))  # It is paused, and does not look.
        clock.goes_on.set()
        await alone.wait_until_looked()
        assert clock.seconds == LOOKED_SECONDS_MAX

    asyncio.run(test())


def test_records_that_waited_for_their_rate_do_not_begin_beside_one_that_runs_alone() -> None:
    async def test() -> None:
        clock = SteppedClock()
        runner = limited(clock)
        turn = asyncio.ensure_future(runner._wait_rate([in_hand(n) for n in range(4)]))
        await asyncio.sleep(0)
        suspect = in_hand(9)
        assert runner._alone.ask(AloneRun(suspect, runner.queue, lambda _: None))
        clock.goes_on.set()
        assert await turn == []
        assert offsets(runner.queue.ready) == [0, 1, 2, 3]
        # The suspect waits for no token, but those after it do.
        assert await runner._wait_rate([suspect]) == [suspect]
        runner._alone.run_now = None
        assert await runner._wait_rate([in_hand(4)]) != []
        assert clock.seconds == 2.0

    asyncio.run(test())


def test_suspect_that_waits_for_its_rate_is_put_aside_and_does_not_begin_too() -> None:
    async def test() -> None:
        clock = SteppedClock()
        runner = limited(clock)
        some = [in_hand(n, delivery_count=4 if n == 2 else 1) for n in range(4)]
        turn = asyncio.ensure_future(runner._wait_rate(some))
        await asyncio.sleep(0)
        assert offsets(runner.queue.take_ready(alone_from=4)) == [2]
        assert offsets(runner.queue) == [0, 1, 3]
        clock.goes_on.set()
        assert offsets(await turn) == [0, 1, 3]

    asyncio.run(test())


def test_batch_that_is_gathered_has_no_others_beside_a_record_that_runs_alone() -> None:
    async def test() -> None:
        clock = SteppedClock()
        runner = limited(clock)
        runner.queue.ready.append(in_hand(0))
        batching = Batching(size=4, wait_seconds=1.0)
        gathering = asyncio.ensure_future(runner._gather(batching))
        await asyncio.sleep(0)
        suspect = in_hand(9)
        run = AloneRun(suspect, runner.queue, lambda _: None)
        assert runner._alone.ask(run)
        run.is_granted = True
        runner.queue.ready.appendleft(suspect)
        clock.goes_on.set()
        assert await gathering == []
        assert offsets(runner.queue.ready) == [9, 0]

    asyncio.run(test())
