"""Turns of connections with many requests: a few milliseconds for all, then the event loop."""

from __future__ import annotations

import asyncio

from sharegroup.broker.server.turns import Turns


class Busy:
    """A connection that always has more requests; each of its turns takes a millisecond."""

    def __init__(self, name: int, world: World) -> None:
        self.name = name
        self.world = world

    def take_turn(self) -> None:
        self.world.now += 0.001
        self.world.served.append(self.name)
        self.world.turns.add(self)


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.served: list[int] = []
        self.turns = Turns(lambda: self.now)


def test_connections_share_five_milliseconds_per_turn_of_the_loop() -> None:
    async def run() -> None:
        world = World()
        for number in range(50):
            world.turns.add(Busy(number, world))
        for _ in range(10):
            before = world.now
            await asyncio.sleep(0)
            assert world.now - before <= 0.0061
        assert world.served == list(range(50))

    asyncio.run(run())


def test_a_turn_is_shorter_while_others_wait() -> None:
    async def run() -> None:
        world = World()
        assert world.turns.turn_seconds == 0.005
        first, second = Busy(1, world), Busy(2, world)
        world.turns.add(first)
        world.turns.add(second)
        assert world.turns.turn_seconds == 0.001
        world.turns.remove(first)
        world.turns.remove(second)
        await asyncio.sleep(0)
        assert world.turns.turn_seconds == 0.005
        assert world.served == []

    asyncio.run(run())
