"""How many records a handler's route has a use for: what it begins now, and what it does soon."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sharegroup.testing import virtual_time
from sharegroup.worker import App
from sharegroup.worker.events import Events
from sharegroup.worker.running.alone import Alone, AloneRun
from sharegroup.worker.running.partition_changes import PartitionChanges
from sharegroup.worker.running.room_signal import RoomSignal
from sharegroup.worker.running.route_runner import RouteRunner
from sharegroup.worker.running.taken_record import TakenRecord
from tests.support.limits import HANGING_SECONDS
from tests.unit.worker.running.hand import group_parts, in_hand
from tests.unit.worker.running.loop_clock import LoopClock

LOCK_SECONDS = 30.0


class StandingClock:
    """At zero."""

    def now(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 0

    async def sleep_until(self, when: float) -> None:
        raise AssertionError("nothing waits here")


def runner(**options: Any) -> RouteRunner:
    app = App("room")

    async def bill(order: bytes) -> None: ...

    app.share_group("billing", topics="orders", handler=bill, **options)
    return RouteRunner(app.route_list[0], group_parts(StandingClock()))


def test_initial_room_is_the_concurrency() -> None:
    route_runner = runner(concurrency=4)
    assert route_runner.room(0.0, LOCK_SECONDS) == 4
    route_runner.counts.running = 3
    assert route_runner.room(1.0, LOCK_SECONDS) == 1


@pytest.mark.parametrize(
    ("done", "lock_seconds", "expected"),
    [
        (1_000, 30.0, 4 + 250),  # A quarter of a second's worth.
        (1_000, 1.0, 4 + 125),  # An eighth of a lock's.
        (2, 30.0, 4),  # Slow handlers hold nothing that others could work on.
        (1_000_000, 30.0, 4 + 10_000),
    ],
    ids=["quick", "short locks", "slow", "bounded"],
)
def test_room_includes_records_that_will_be_done_soon(
    done: int, lock_seconds: float, expected: int
) -> None:
    route_runner = runner(concurrency=4)
    route_runner.runs.done = done
    assert route_runner.room(1.0, lock_seconds) == expected


def test_waiting_records_reduce_the_room() -> None:
    route_runner = runner(concurrency=4)
    route_runner.queue.ready.extend([cast("Any", object())] * 3)
    assert route_runner.room(0.0, LOCK_SECONDS) == 1


def test_room_follows_a_falling_rate_slowly_and_a_rising_one_immediately() -> None:
    route_runner = runner(concurrency=4)
    route_runner.runs.done = 1_000
    assert route_runner.room(1.0, LOCK_SECONDS) == 4 + 250
    assert route_runner.room(2.0, LOCK_SECONDS) == 4 + 175  # Nothing was done in this second.
    route_runner.runs.done = 5_000
    assert route_runner.room(3.0, LOCK_SECONDS) == 4 + 1_000


def test_room_with_a_rate_limit_is_the_records_that_may_begin_soon() -> None:
    async def test() -> int:
        return runner(concurrency=100, rate_limit="8/s").room(0.0, LOCK_SECONDS)

    assert asyncio.run(test()) == 8 + 2


def test_task_that_waits_for_room_is_woken_by_the_next_end_after_many() -> None:
    """Ended runs set the signal once; a wait makes the next one set it again, also for `also`."""

    async def scenario() -> None:
        signal = RoomSignal()
        signal.also = asyncio.Event()
        signal.notify()
        assert signal.is_set, "further ends skip the call"
        signal.also.clear()
        waiting = asyncio.ensure_future(signal.wait())
        await asyncio.sleep(0)
        assert (signal.is_set, waiting.done()) == (False, False)
        signal.notify()
        async with asyncio.timeout(HANGING_SECONDS):
            await waiting
        assert signal.is_set
        assert signal.also.is_set()

    asyncio.run(scenario())


class BusyGroup:
    """A group with a handler that runs, beside a record that is to run alone."""

    is_busy = True

    def __init__(self) -> None:
        self.room = RoomSignal()

    def runs_now(self, record: TakenRecord) -> bool:
        return False

    def make_alone(self) -> None: ...

    def wake(self) -> None: ...

    async def acknowledged(self, within_seconds: float) -> None: ...


class EndlessClock(StandingClock):
    async def sleep_until(self, when: float) -> None:
        await asyncio.Event().wait()


def test_record_that_is_to_run_alone_sees_the_end_of_a_handler_after_many_others() -> None:
    async def scenario() -> None:
        alone, group, queue = Alone(EndlessClock()), BusyGroup(), runner().queue
        alone.join(group)
        group.room.notify()
        run = AloneRun(in_hand(0), queue, lambda record, *, by_stop=False: None)
        alone.ask(run)
        running = asyncio.ensure_future(alone.run())
        for _ in range(5):
            await asyncio.sleep(0)
        group.is_busy = False
        assert not group.room.is_set, "so the hot path calls `notify`"
        group.room.notify()
        for _ in range(10):
            await asyncio.sleep(0)
        assert run.is_granted
        running.cancel()

    asyncio.run(scenario())


def test_revocation_sees_the_end_of_a_handler_before_another_task_begins_to_wait() -> None:
    """All three happen in one iteration of the event loop: it waits, a handler ends, and so on."""

    async def scenario() -> float:
        clock, loop = LoopClock(), asyncio.get_running_loop()
        parts, changes = group_parts(clock), PartitionChanges("billing", Events())
        record = in_hand(0)
        slot = SimpleNamespace(records=[record])
        routing: Any = SimpleNamespace(runners=[SimpleNamespace(slots=[slot], queue=())])
        changes.join(parts, routing, lambda held: None)

        def end_handler() -> None:
            slot.records = []
            parts.room.notify()

        began = clock.now()
        place = record.topic_partition
        revocation = loop.create_task(changes.revoke(place[0], [place[1]], within_seconds=30))
        loop.call_soon(end_handler)
        taking = loop.create_task(parts.room.wait())
        await revocation
        taking.cancel()
        return clock.now() - began

    assert virtual_time.run(scenario()) == 0
