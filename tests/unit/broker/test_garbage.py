"""Which objects the garbage collector of a serving process looks at, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from sharegroup.broker.load.garbage import GROWTH_BLOCKS, LOOK_SECONDS, GarbagePolicy
from sharegroup.testing.virtual_time import VirtualTimeLoop


class FakeCollector:
    """Objects are numbers: those that collections look at, and those that are frozen."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Literal["start", "stop"], dict[str, int]], object]] = []
        self.thawed = 1_000_000
        self.frozen = 0
        self.looked_at: list[int] = []

    def collect(self, generation: int = 2) -> int:
        for callback in self.callbacks:
            callback("start", {"generation": generation})
        self.looked_at.append(self.thawed)
        for callback in self.callbacks:
            callback("stop", {"generation": generation, "collected": 0, "uncollectable": 0})
        return 0

    def freeze(self) -> None:
        self.frozen, self.thawed = self.frozen + self.thawed, 0

    def unfreeze(self) -> None:
        self.thawed, self.frozen = self.thawed + self.frozen, 0

    def set_threshold(self, young: int, middle: int, oldest: int, /) -> None:
        pass


def test_garbage_collection_examines_only_new_objects() -> None:
    collector = FakeCollector()
    GarbagePolicy(collector, lambda: 0).start()
    for _ in range(3):
        collector.thawed += 100
        collector.collect()
    assert collector.looked_at == [100, 100, 100]


def test_the_survivors_of_younger_generations_are_not_frozen() -> None:
    collector = FakeCollector()
    GarbagePolicy(collector, lambda: 0).start()
    collector.thawed += 100
    collector.collect(generation=1)
    assert collector.thawed == 100


def test_all_objects_are_reviewed_when_a_quarter_more_memory_is_in_use() -> None:
    collector = FakeCollector()
    blocks = 4_000_000
    policy = GarbagePolicy(collector, lambda: blocks)
    policy.start()
    blocks = 5_000_000 + GROWTH_BLOCKS
    policy.look()
    assert collector.looked_at == []
    blocks += 1
    policy.look()
    policy.look()
    assert collector.looked_at == [1_000_000, 0]
    assert collector.frozen == 1_000_000


def test_the_blocks_are_counted_again_and_again() -> None:
    counts = 0

    def blocks() -> int:
        nonlocal counts
        counts += 1
        return 0

    async def look() -> None:
        looking = asyncio.create_task(GarbagePolicy(FakeCollector(), blocks).run())
        await asyncio.sleep(3.5 * LOOK_SECONDS)
        looking.cancel()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(look())
    assert counts == 3
