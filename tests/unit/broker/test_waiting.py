"""Long polls: woken by their keys, tried once per turn, answered at their deadline."""

from __future__ import annotations

import asyncio
from functools import partial
from uuid import UUID

import pytest

from sharegroup.broker.load.waiting import SLICE_SECONDS, WaitingRoom
from sharegroup.core.sessions.session_partitions import SessionPartitions, Watches
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicId, TopicIdPartition
from sharegroup.testing.virtual_time import ManualClock

PARTITION = TopicIdPartition(TopicId(UUID(int=1)), 0)
QUEUE = SharePartitionKey(GroupId("g"), *PARTITION)


async def turn() -> None:
    """Let what is due in this turn of the loop happen."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def room() -> tuple[ManualClock, WaitingRoom]:
    clock = ManualClock()
    return clock, WaitingRoom(clock)


async def woken_request_is_answered() -> None:
    clock, waiting = room()
    there: list[str] = []
    answer = waiting.park(
        lambda _: there[0] if there else None, keys=["topic"], deadline_ms=clock.now_ms() + 500
    )
    waiting.wake("other")
    waiting.wake("topic")
    await turn()
    assert not answer.done()
    there.append("record")
    waiting.wake("topic")
    await turn()
    assert answer.result() == "record"
    assert len(waiting) == 0


def test_woken_request_is_answered_if_its_attempt_succeeds() -> None:
    asyncio.run(woken_request_is_answered())


async def deadline() -> None:
    clock, waiting = room()
    answer = waiting.park(
        lambda last: "nothing" if last else None, keys=["topic"], deadline_ms=clock.now_ms() + 500
    )
    clock.advance(0.499)
    assert not answer.done()
    clock.advance(0.001)
    assert answer.result() == "nothing"


def test_request_is_answered_at_its_deadline() -> None:
    asyncio.run(deadline())


async def several_wakes_one_try() -> None:
    clock, waiting = room()
    tries: list[str] = []

    def attempt(name: str) -> None:
        tries.append(name)

    for name in ("first", "second"):
        waiting.park(
            lambda last, name=name: "end" if last else attempt(name),
            keys=["a", "b"],
            deadline_ms=clock.now_ms() + 500,
        )
    waiting.wake("b")
    waiting.wake("a")
    waiting.wake("a")
    await turn()
    assert tries == ["first", "second"]


def test_wakes_of_one_turn_are_one_try_in_order_of_arrival() -> None:
    asyncio.run(several_wakes_one_try())


async def failure() -> None:
    clock, waiting = room()

    def attempt(last: bool) -> str:
        raise ValueError("the disk")

    answer = waiting.park(attempt, keys=["topic"], deadline_ms=clock.now_ms() + 500)
    waiting.wake("topic")
    await turn()
    with pytest.raises(ValueError, match="the disk"):
        await answer


def test_failing_attempt_fails_its_own_request() -> None:
    asyncio.run(failure())


async def cancelled() -> None:
    clock, waiting = room()
    answer = waiting.park(lambda last: last or None, keys=["t"], deadline_ms=clock.now_ms() + 500)
    answer.cancel()
    await turn()
    assert len(waiting) == 0
    waiting.wake("t")
    clock.advance(1)
    assert answer.cancelled()


def test_requests_of_a_key_are_given_up() -> None:
    async def run() -> None:
        clock, waiting = room()
        deadline_ms = clock.now_ms() + 500
        gone = waiting.park(lambda last: last or None, keys=["a", "t"], deadline_ms=deadline_ms)
        stays = waiting.park(lambda last: last or None, keys=["b", "t"], deadline_ms=deadline_ms)
        waiting.give_up("a")
        await turn()
        assert (gone.cancelled(), stays.done(), len(waiting)) == (True, False, 1)

    asyncio.run(run())


def test_cancelled_request_is_forgotten() -> None:
    asyncio.run(cancelled())


def test_woken_requests_are_served_before_new_ones() -> None:
    """A request served early is not tried again in its turn, and other keys do not affect it."""

    async def run() -> None:
        clock, waiting = room()
        there: list[str] = []
        tries: list[int] = []

        def attempt(last: bool) -> str | None:
            tries.append(len(there))
            return there.pop() if there else None

        answer = waiting.park(attempt, keys=["t"], deadline_ms=clock.now_ms() + 500)
        waiting.serve_woken(["t"])
        assert tries == []
        there.append("record")
        waiting.wake("t")
        waiting.serve_woken(["other"])
        assert not answer.done()
        waiting.serve_woken(iter(["other", "t"]))
        assert answer.result() == "record"
        await turn()
        assert (tries, there) == ([1], [])

    asyncio.run(run())


class Slow:
    """Requests that take a millisecond for each try, by a clock that only they move."""

    def __init__(self, count: int) -> None:
        self.clock, self.waiting = room()
        self.now = 0.0
        self.waiting.seconds = lambda: self.now
        self.tried: list[int] = []
        self.answers = [
            self.waiting.park(
                partial(self.attempt, number), keys=["t"], deadline_ms=self.clock.now_ms() + 500
            )
            for number in range(count)
        ]

    def attempt(self, number: int, last: bool) -> str | None:
        self.now += 0.001
        self.tried.append(number)
        return "end" if last else None


def test_many_woken_requests_are_tried_in_slices_and_in_order() -> None:
    async def run() -> None:
        slow = Slow(20)
        slow.waiting.wake("t")
        await asyncio.sleep(0)
        assert 4 <= len(slow.tried) <= 6
        slow.waiting.wake("t")  # Those that were tried come again, the older ones first.
        for _ in range(20):
            await asyncio.sleep(0)
        assert set(slow.tried) == set(range(20))
        assert slow.tried[-1] == 19

    asyncio.run(run())


def test_serve_woken_reports_that_woken_requests_are_left() -> None:
    async def run() -> None:
        slow = Slow(20)
        slow.waiting.wake("t")
        assert not slow.waiting.serve_woken(["t"])
        assert len(slow.tried) < 20
        while not slow.waiting.serve_woken(["t"]):
            pass
        assert slow.tried == list(range(20))

    asyncio.run(run())


def test_requests_with_one_deadline_are_answered_in_slices() -> None:
    async def run() -> None:
        slow = Slow(20)
        slow.clock.advance(0.5)
        assert all(answer.done() for answer in slow.answers)  # Its timers are due at once.
        assert slow.tried == list(range(20))

    asyncio.run(run())


def test_request_gets_the_keys_for_which_it_was_woken() -> None:
    async def run() -> None:
        clock, waiting = room()
        told: list[object] = []
        waiting.park(
            lambda last: last or None,
            keys=["a", "b", "c"],
            deadline_ms=clock.now_ms() + 500,
            woken=told.append,
        )
        waiting.wake("b")
        waiting.wake("b")
        waiting.wake("other")
        await turn()
        assert told == ["b"]

    asyncio.run(run())


def test_request_parked_after_a_wake_is_not_tried_for_it() -> None:
    async def run() -> None:
        slow = Slow(1)
        slow.waiting.wake("t")
        slow.waiting.park(
            partial(slow.attempt, 7), keys=["t"], deadline_ms=slow.clock.now_ms() + 500
        )
        await turn()
        assert slow.tried == [0]

    asyncio.run(run())


class Members:
    """Members of one group whose fetches wait for one share partition, which has ``records``."""

    def __init__(self) -> None:
        self.clock, self.waiting = room()
        self.watches, self.records, self.tried = Watches(), 0, list[str]()
        self.sessions: dict[str, SessionPartitions] = {}
        self.waiting.use_queues(self.watches, lambda _: self.records > 0)

    def parked(self, name: str) -> asyncio.Future[str]:
        """A fetch that takes one record."""
        session = self.sessions.get(name)
        if session is None:
            session = SessionPartitions((QUEUE.group_id, MemberId(name)), self.watches)
            self.sessions[name] = session
            session.add([PARTITION])
            session.make_ready(PARTITION)
            session.take_turn()

        def attempt(last: bool) -> str | None:
            self.tried.append(name)
            if not session.ready_count and not last:
                return None
            session.take_turn()
            if not self.records:
                return "nothing" if last else None
            self.records -= 1
            session.make_ready(PARTITION)
            return name

        deadline_ms = self.clock.now_ms() + 500
        return self.waiting.park(attempt, keys=[session.owner], deadline_ms=deadline_ms)

    async def event(self, records: int) -> list[str]:
        """Return the members whose fetches were tried."""
        self.records += records
        self.tried = []
        self.waiting.wake(PARTITION)
        await turn()
        return self.tried


def test_next_of_a_queue_is_tried_only_while_records_remain() -> None:
    async def scenario() -> None:
        members = Members()
        answers = [members.parked(name) for name in "abcd"]
        assert await members.event(1) == ["a"]
        assert await members.event(2) == ["b", "c"]
        assert [answer.done() for answer in answers] == [True, True, True, False]
        assert await members.event(0) == ["d"]
        assert await members.event(1) == ["d"]

    asyncio.run(scenario())


def test_longest_waiter_is_first_whenever_it_began_to_watch() -> None:
    async def scenario() -> None:
        members = Members()
        first = members.parked("a")
        members.parked("b")
        members.parked("c")
        first.cancel()
        await turn()
        members.parked("a")
        assert await members.event(1) == ["b"]
        assert await members.event(2) == ["c", "a"]

    asyncio.run(scenario())


def test_member_whose_fetch_does_not_wait_finds_the_records_later() -> None:
    """Its session is told, although nobody of the queue left it a record to be tried for."""

    async def scenario() -> None:
        members = Members()
        for name in "abc":
            members.parked(name)
        answer = members.parked("d")
        answer.cancel()
        await turn()
        assert await members.event(1) == ["a"]
        assert [members.sessions[name].ready_count for name in "bcd"] == [0, 0, 1]

    asyncio.run(scenario())


def test_member_that_was_answered_and_waits_again_keeps_its_place_in_the_queue() -> None:
    """Otherwise it would wait for an event, although records remain and it watches nothing."""

    async def scenario() -> None:
        members = Members()
        answers = [members.parked(name) for name in "abc"]
        again: list[asyncio.Future[str]] = []

        def other_records_come(_: object) -> None:
            answers[1].set_result("of another partition")
            again.append(members.parked("b"))

        members.waiting.park(other_records_come, keys=[PARTITION], deadline_ms=10_000)
        assert await members.event(3) == ["a", "b", "c"]
        assert [answer.result() for answer in again] == ["b"]

    asyncio.run(scenario())


def test_queue_of_thousands_is_tried_in_slices_and_new_requests_go_behind_it() -> None:
    async def scenario() -> None:
        members = Members()
        seconds = 0.0

        def slow(_: object) -> bool:
            nonlocal seconds
            seconds += SLICE_SECONDS
            return members.records > 0

        members.waiting.seconds = lambda: seconds
        members.waiting.use_queues(members.watches, slow)
        for name in "abc":
            members.parked(name)
        members.records = 3
        members.waiting.wake(PARTITION)
        assert not members.waiting.serve_woken([PARTITION])
        assert members.tried == ["a"]
        assert not members.waiting.serve_woken([PARTITION])
        assert members.waiting.serve_woken([PARTITION])
        assert members.tried == ["a", "b", "c"]

    asyncio.run(scenario())
