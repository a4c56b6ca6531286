"""Nothing is settled before its write is acknowledged, whatever happens to the write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from sharegroup.errors import InvalidRecord, KafkaError, MessageTooLarge, NotLeaderOrFollower
from sharegroup.testing import virtual_time
from sharegroup.worker.running.pending_writes import PendingWrite, PendingWrites, TopicGate
from sharegroup.worker.running.taken_record import TakenRecord
from tests.unit.worker.running.hand import in_hand
from tests.unit.worker.running.loop_clock import LoopClock

Told = list[tuple[float, str, bool]]


class World:
    """A topic that fails until a moment, and who is told of it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.told: Told = []
        self.gate = TopicGate("orders.dead", self._tell)
        self.other_gate = TopicGate("orders.retry.1h", self._tell)
        self.gate_now = lambda: self.gate
        self.writing = PendingWrites()
        self.attempts: list[tuple[float, int, bool]] = []
        self.settled: list[tuple[float, int]] = []
        self.works_from = 0.0
        self.error: KafkaError = NotLeaderOrFollower("no leader")

    def begin(
        self,
        record: TakenRecord,
        write: Callable[[bool], Awaitable[None]] | None = None,
        give_back: Callable[[], None] | None = None,
    ) -> None:
        async def attempt(*, shrunk: bool) -> None:
            self.attempts.append((round(self.loop.time(), 6), record.delivery.offset, shrunk))
            if write is not None:
                await write(shrunk)
            elif self.loop.time() < self.works_from:
                raise self.error

        async def settle(pending: PendingWrite) -> None:
            if await pending.acknowledged():
                self.settled.append((round(self.loop.time(), 6), record.delivery.offset))

        pending = PendingWrite(
            record, lambda: self.gate_now(), attempt, LoopClock(), give_back=give_back
        )
        self.writing.begin(pending, settle(pending))

    def _tell(self, name: str, error: KafkaError | None, record: TakenRecord) -> None:
        self.told.append((round(self.loop.time(), 6), name, error is None))


def run(test: Callable[[World], Awaitable[None]]) -> None:
    async def runs() -> None:
        await test(World())

    virtual_time.run(runs())


def test_a_write_that_is_acknowledged_settles() -> None:
    async def test(world: World) -> None:
        world.begin(in_hand(1))
        await world.writing.finish()
        assert (world.settled, world.told, len(world.writing)) == ([(0.0, 1)], [], 0)

    run(test)


def test_one_write_is_retried_with_backoff_while_the_others_wait() -> None:
    async def test(world: World) -> None:
        world.works_from = 5.0
        for offset in range(100):
            world.begin(in_hand(offset))
        await asyncio.sleep(1)
        assert world.writing.blocked == 100
        await world.writing.finish()
        at_once = [attempt for attempt in world.attempts if attempt[0] == 0.0]
        retried = [attempt for attempt in world.attempts if 0.0 < attempt[0] < 6.3]
        assert len(at_once) <= 100
        assert [time for time, _, _ in retried] == [0.1, 0.3, 0.7, 1.5, 3.1]
        assert {time for time, _ in world.settled} == {6.3}
        assert sorted(offset for _, offset in world.settled) == list(range(100))
        assert world.told == [(0.0, "orders.dead", False), (6.3, "orders.dead", True)]

    run(test)


def test_the_pause_between_attempts_is_thirty_seconds_at_most() -> None:
    async def test(world: World) -> None:
        world.works_from = 600.0
        world.begin(in_hand(1))
        await world.writing.finish()
        times = [time for time, _, _ in world.attempts]
        assert round(max(after - before for before, after in pairwise(times)), 3) == 30.0

    run(test)


def test_a_record_that_is_too_large_is_tried_without_its_history() -> None:
    async def test(world: World) -> None:
        async def write(shrunk: bool) -> None:
            if not shrunk:
                raise MessageTooLarge("1 MiB")

        world.begin(in_hand(1), write)
        await world.writing.finish()
        assert world.attempts == [(0.0, 1, False), (0.0, 1, True)]
        assert (world.settled, world.told) == ([(0.0, 1)], [])

    run(test)


def test_a_record_that_can_never_be_written_is_held_and_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(world: World) -> None:
        async def write(shrunk: bool) -> None:
            raise MessageTooLarge("1 MiB")

        world.begin(in_hand(1), write)
        await asyncio.sleep(1)
        world.begin(in_hand(2))
        await asyncio.sleep(100)
        assert world.settled == [(1.0, 2)]
        assert len(world.writing) == 1
        await world.writing.cancel()

    run(test)
    assert "topic=orders partition=2 offset=1" in caplog.text


@pytest.mark.parametrize("may_give_back", [True, False])
def test_a_record_that_a_fault_of_ours_keeps_from_being_written_is_given_back_or_held(
    may_give_back: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(world: World) -> None:
        async def write(shrunk: bool) -> None:
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

        record, given_back = in_hand(1), []

        def give_back() -> None:
            record.is_done = True
            given_back.append(record)

        world.begin(record, write, give_back if may_give_back else None)
        world.begin(in_hand(2))
        await asyncio.sleep(100)
        assert given_back == [record] * may_give_back
        assert world.settled == [(0.0, 2)], "the other one, and never this one"
        assert len([it for it in world.attempts if it[1] == 1]) == (1 if may_give_back else 4)
        assert world.told == [], "the topic takes the others"
        await world.writing.cancel()

    run(test)
    outcome = "released" if may_give_back else "held"
    assert f"action='the record is {outcome}; report this bug of sharegroup'" in caplog.text


def test_a_record_whose_settlement_fails_is_given_back(caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: World) -> None:
        given_back: list[bool] = []

        async def attempt(*, shrunk: bool) -> None:
            pass

        async def settle() -> None:
            await pending.acknowledged()
            raise LookupError("no such counter")

        pending = PendingWrite(
            in_hand(1), lambda: world.gate, attempt, LoopClock(),
            give_back=lambda: given_back.append(True),
        )  # fmt: skip
        world.writing.begin(pending, settle())
        await world.writing.finish()
        await asyncio.sleep(0)
        assert given_back == [True]

    run(test)
    assert "no such counter" in caplog.text


@pytest.mark.parametrize("error", [MessageTooLarge("1 MiB"), InvalidRecord("no"), TypeError("bug")])
def test_a_record_that_can_never_be_written_does_not_keep_a_closed_gate(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the turn to try, and its error says nothing of the topic."""

    async def test(world: World) -> None:
        async def write(shrunk: bool) -> None:
            if world.loop.time() < world.works_from:
                raise world.error
            raise error

        world.works_from = 5.0
        world.begin(in_hand(1))
        world.begin(in_hand(2), write)
        for offset in range(3, 100):
            world.begin(in_hand(offset))
        await asyncio.sleep(10)
        assert {time for time, _ in world.settled} == {6.3}
        assert [record.delivery.offset for record in world.writing.records()] == [2]
        await world.writing.cancel()

    run(test)
    assert ("report this bug" in caplog.text) == isinstance(error, TypeError)


@pytest.mark.parametrize("is_lost", [True, False])
def test_the_turn_is_passed_on_to_one_record_at_a_time(is_lost: bool) -> None:
    async def test(world: World) -> None:
        world.works_from = 1_000.0
        records = [in_hand(offset) for offset in range(1_000)]
        for record in records:
            world.begin(record)
        await asyncio.sleep(1)
        tasks = {write.record.delivery.offset: task for task, write in world.writing._tasks.items()}
        for record in records[:-1]:
            attempts = len(world.attempts)
            if is_lost:
                record.is_done = True
                world.writing.look(world.loop.time())
            else:
                tasks[record.delivery.offset].cancel()
            await asyncio.sleep(0.001)
            assert len(world.attempts) - attempts <= 1
        await world.writing.finish()
        assert [offset for _, offset in world.settled] == [999]

    run(test)


def test_a_record_goes_to_the_gate_of_the_topic_that_is_next_now() -> None:
    """A missing topic holds the records that go there, and only as long as they go there."""

    async def test(world: World) -> None:
        async def write(shrunk: bool) -> None:
            if world.gate_now() is world.other_gate:
                raise world.error

        world.gate_now = lambda: world.other_gate
        for offset in range(1, 50):
            world.begin(in_hand(offset), write)
        await asyncio.sleep(5)
        assert world.settled == []
        assert (world.gate.is_open, world.other_gate.is_open) == (True, False)
        world.gate_now = lambda: world.gate
        world.begin(in_hand(50), write)
        await asyncio.sleep(0.001)
        assert world.settled == [(5.0, 50)]
        await world.writing.finish()
        # As soon as the one that tries finds its way free, all behind it do.
        assert {time for time, _ in world.settled[1:]} == {6.3}

    run(test)


def test_write_of_a_record_with_a_lost_lock_is_not_retried() -> None:
    async def test(world: World) -> None:
        world.works_from = 1.0
        first, second = in_hand(1), in_hand(2)
        world.begin(first)
        world.begin(second)
        await asyncio.sleep(0.25)
        first.is_done = True
        await world.writing.finish()
        assert [offset for _, offset in world.settled] == [2]

    run(test)


def test_hanging_write_counts_as_blocked() -> None:
    async def test(world: World) -> None:
        async def write(shrunk: bool) -> None:
            await asyncio.sleep(20)

        world.begin(in_hand(1), write)
        await asyncio.sleep(6)
        world.writing.look(6.0)
        world.writing.look(6.5)
        assert world.told == [(6.0, "orders.dead", False)]
        assert world.writing.blocked == 1
        await world.writing.finish()
        assert world.told[1:] == [(20.0, "orders.dead", True)]

    run(test)


def test_record_with_a_lost_lock_does_not_wait_for_a_failing_topic() -> None:
    """Otherwise each redelivery of the record would add another waiting write."""

    async def test(world: World) -> None:
        world.works_from = 1_000.0
        tries, waits, pauses = (in_hand(offset) for offset in range(3))
        for task in (tries, waits):
            world.begin(task)
        await asyncio.sleep(0.05)
        waits.is_done = True
        world.writing.look(0.05)
        await asyncio.sleep(0.001)
        assert (world.writing.records(), world.writing.blocked) == ([tries], 1)
        tries.is_done = True
        world.writing.look(0.06)
        world.begin(pauses)
        await asyncio.sleep(0.01)
        assert world.writing.records() == [pauses]
        assert world.attempts[-1][1] == 2  # This record is the next to try.
        await world.writing.cancel()

    run(test)


def test_so_many_records_may_be_on_their_way() -> None:
    async def test(world: World) -> None:
        world.works_from = 1.0
        for offset in range(9_999):
            world.begin(in_hand(offset))
        assert not world.writing.is_full
        world.begin(in_hand(9_999))
        assert world.writing.is_full
        await world.writing.finish()
        assert not world.writing.is_full

    run(test)
