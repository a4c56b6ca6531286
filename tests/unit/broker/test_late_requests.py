"""Requests behind one that is decoded in slices: order, throttle times, and closed clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sharegroup.broker.load.late_requests import (
    TURN_REQUESTS,
    Decoding,
    LateRequests,
    Reply,
)
from sharegroup.testing.virtual_time import ManualClock

CONNECTION = 7


class Scene:
    """The late requests of one connection; the first is being decoded."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.late = LateRequests(self.clock)
        self.decoded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.taken: list[str] = []
        self.is_decided = False
        self.throttled_until_ms = 0
        first = Decoding(self.decoded, lambda _: self._take("first"))
        self.replies = [self.late.begin(CONNECTION, first)]

    def _take(self, name: str) -> Reply:
        self.taken.append(name)
        if name == "unreadable":
            raise ValueError(name)
        return [name.encode()]

    def arrives(self, name: str) -> None:
        until = lambda: self.throttled_until_ms  # noqa: E731
        self.replies.append(self.late.wait(CONNECTION, lambda: self._take(name), until))

    def closes(self) -> None:
        self.late.finish(CONNECTION, self._decided)

    def _decided(self) -> None:
        self.is_decided = True


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Scene())

    asyncio.run(main())


def test_requests_of_a_closed_connection_are_decided_in_their_order() -> None:
    async def scenario(scene: Scene) -> None:
        scene.arrives("second")
        scene.closes()
        await settle()
        assert (scene.taken, scene.is_decided) == ([], False)
        scene.decoded.set_result(None)
        await settle()
        assert (scene.taken, scene.is_decided) == (["first", "second"], True)
        assert not scene.late.waiting

    run(scenario)


@pytest.mark.parametrize("closes_first", [False, True])
def test_a_throttle_time_holds_back_a_client_but_not_what_one_left_that_has_gone(
    closes_first: bool,
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.throttled_until_ms = scene.clock.now_ms() + 5_000
        scene.arrives("second")
        if closes_first:
            scene.closes()
        scene.decoded.set_result(None)
        await settle()
        if not closes_first:
            assert scene.taken == ["first"]
            scene.clock.advance(4.9)
            await settle()
            assert scene.taken == ["first"]
            scene.closes()
            await settle()
        assert (scene.taken, scene.is_decided) == (["first", "second"], True)

    run(scenario)


def test_a_throttle_time_that_grows_is_waited_for() -> None:
    async def scenario(scene: Scene) -> None:
        scene.throttled_until_ms = scene.clock.now_ms() + 1_000
        scene.arrives("second")
        scene.decoded.set_result(None)
        await settle()
        scene.throttled_until_ms += 1_000
        scene.clock.advance(1.5)
        await settle()
        assert scene.taken == ["first"]
        scene.clock.advance(0.5)
        await settle()
        assert scene.taken == ["first", "second"]
        assert not scene.is_decided, "the connection is open"

    run(scenario)


def test_nothing_is_decided_behind_a_request_that_ends_the_connection() -> None:
    async def scenario(scene: Scene) -> None:
        for name in ("unreadable", "third"):
            scene.arrives(name)
        scene.closes()
        scene.decoded.set_result(None)
        await settle()
        assert (scene.taken, scene.is_decided) == (["first", "unreadable"], True)
        assert isinstance(scene.replies[1].exception(), ValueError)
        assert scene.replies[2].cancelled()

    run(scenario)


def test_dropped_requests_are_not_decided() -> None:
    async def scenario(scene: Scene) -> None:
        scene.arrives("second")
        scene.closes()
        await settle()
        scene.late.drop(CONNECTION)
        await settle()
        assert (scene.taken, scene.is_decided) == ([], True)
        assert all(reply.cancelled() for reply in scene.replies)
        scene.late.drop(CONNECTION)  # Again: nothing is there.

    run(scenario)


def test_a_client_that_sends_ahead_does_not_stay_late() -> None:
    """Its requests went the long way for as long as one came in each turn: half the throughput."""

    async def scenario(scene: Scene) -> None:
        for number in range(10):
            scene.arrives(f"{number}")
        scene.decoded.set_result(None)
        turns = 0
        while CONNECTION in scene.late.waiting:
            scene.arrives(f"later {turns}")
            await asyncio.sleep(0)
            turns += 1
            assert turns < 5
        assert len(scene.taken) == 11 + turns

    run(scenario)


def test_a_long_queue_leaves_the_loop_to_others() -> None:
    async def scenario(scene: Scene) -> None:
        for number in range(3 * TURN_REQUESTS):
            scene.arrives(f"{number}")
        scene.decoded.set_result(None)
        most = before = 0
        while len(scene.taken) < 3 * TURN_REQUESTS + 1:
            await asyncio.sleep(0)
            most, before = max(most, len(scene.taken) - before), len(scene.taken)
        assert most == TURN_REQUESTS

    run(scenario)


def test_requests_that_take_long_are_decided_one_in_a_turn() -> None:
    async def scenario(scene: Scene) -> None:
        for number in range(5):
            scene.arrives(f"{number}")
        take = scene._take

        def slow(name: str) -> Reply:
            scene.clock.advance(0.01)
            return take(name)

        scene._take = slow  # type: ignore[method-assign]
        scene.decoded.set_result(None)
        before = 0
        while len(scene.taken) < 6:
            await asyncio.sleep(0)
            assert len(scene.taken) - before <= 1
            before = len(scene.taken)

    run(scenario)
