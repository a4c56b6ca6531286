"""Long polls: woken by their keys, tried once per turn, answered at their deadline."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from sharegroup.broker.load.waiting import WaitingRoom
from sharegroup.testing.virtual_time import ManualClock


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
