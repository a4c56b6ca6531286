"""Slices: small work is done at once, large work in turns, and nothing keeps the loop for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from sharegroup.broker.load.slices import RESTS, SLICE_MS, WORKING_MAX, Slices
from sharegroup.steps import ATTEMPT_STEPS, Steps
from sharegroup.testing import virtual_time
from sharegroup.testing.virtual_time import ManualClock

LARGE = 10 * ATTEMPT_STEPS
TURNS_MAX = 10_000


class Scene:
    """Work of which each step takes one millisecond; notes the steps of each turn of the loop."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.slices = Slices(self.clock)
        self.steps_in_turn = [0]
        self.under_way: set[str] = set()
        self.under_way_max = 0

    def work(self, name: str, steps: int) -> Callable[[], Steps[str]]:
        def make() -> Steps[str]:
            self.under_way.add(name)
            try:
                for _ in range(steps):
                    self.under_way_max = max(self.under_way_max, len(self.under_way))
                    self.clock.advance(0.001)
                    self.steps_in_turn[-1] += 1
                    yield
                return name
            finally:
                self.under_way.discard(name)

        return make

    async def until_idle(self) -> None:
        for _ in range(TURNS_MAX):
            self.steps_in_turn.append(0)
            await asyncio.sleep(0)
            if not len(self.slices):
                return
        raise AssertionError("the work never ended")


def run(scenario: Callable[[Scene], Awaitable[None]]) -> Scene:
    async def main() -> Scene:
        scene = Scene()
        await scenario(scene)
        return scene

    return virtual_time.run(main())


def test_small_work_is_done_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        assert scene.slices.run(scene.work("small", 3), owner=1) == "small"
        assert len(scene.slices) == 0

    run(scenario)


def test_large_work_of_many_takes_turns_of_the_slice() -> None:
    async def scenario(scene: Scene) -> None:
        answers = [scene.slices.run(scene.work(f"{n}", LARGE), owner=n) for n in range(20)]
        assert all(isinstance(answer, asyncio.Future) for answer in answers)
        await scene.until_idle()
        for number, answer in enumerate(answers):
            assert isinstance(answer, asyncio.Future)
            assert answer.result() == f"{number}"

    scene = run(scenario)
    # An attempt that has begun is finished: the only way past the end of a slice.
    assert max(scene.steps_in_turn) <= SLICE_MS + ATTEMPT_STEPS
    assert scene.under_way_max <= WORKING_MAX + 1  # One more may be attempted.


def test_small_work_overtakes_large_work() -> None:
    async def scenario(scene: Scene) -> None:
        large = [scene.slices.later(scene.work(f"{n}", 1_000), owner=n) for n in range(50)]
        await asyncio.sleep(0)
        small = scene.slices.run(scene.work("small", 1), owner=99)
        for _ in range(3):
            await asyncio.sleep(0)
        assert small == "small" or small.result() == "small"  # type: ignore[union-attr]
        assert not any(answer.done() for answer in large)
        for number in range(50):
            scene.slices.drop(number)

    run(scenario)


def test_work_is_dropped_with_its_owner() -> None:
    async def scenario(scene: Scene) -> None:
        kept = scene.slices.later(scene.work("kept", LARGE), owner=1)
        dropped = scene.slices.later(scene.work("dropped", LARGE), owner=2)
        await asyncio.sleep(0)
        scene.slices.drop(2)
        await scene.until_idle()
        assert kept.result() == "kept"
        assert dropped.cancelled()

    scene = run(scenario)
    assert not scene.under_way


def test_exception_in_sliced_work_is_raised_to_the_waiting_caller() -> None:
    async def scenario(scene: Scene) -> None:
        def failing() -> Steps[None]:
            yield from scene.work("first", LARGE)()
            raise ValueError("in the middle")

        answer = scene.slices.later(failing, owner=1)
        await scene.until_idle()
        with pytest.raises(ValueError, match="in the middle"):
            await answer

    run(scenario)


def test_tasks_share_the_slice() -> None:
    async def scenario(scene: Scene) -> None:
        async def task(name: str) -> None:
            await scene.slices.finish(scene.work(name, LARGE)())

        tasks = [asyncio.create_task(task(f"{n}")) for n in range(5)]
        scene.slices.later(scene.work("large", LARGE), owner=1)
        for _ in range(TURNS_MAX):
            scene.steps_in_turn.append(0)
            await asyncio.sleep(0)
            if all(task.done() for task in tasks):
                break
        assert all(task.done() for task in tasks)

    scene = run(scenario)
    assert max(scene.steps_in_turn) <= 2 * SLICE_MS


def test_steps_that_are_made_later_are_counted_by_slice() -> None:
    async def scenario(scene: Scene) -> None:
        counted: dict[str, list[float]] = {"large": [], "small": []}
        large = scene.slices.run(scene.work("large", LARGE), "large", counted["large"].append)
        small = scene.slices.run(scene.work("small", 3), "small", counted["small"].append)
        await scene.until_idle()
        assert isinstance(large, asyncio.Future)
        assert isinstance(small, asyncio.Future)
        assert sum(counted["large"]) == pytest.approx(LARGE / 1000)
        assert max(counted["large"]) == SLICE_MS / 1000
        assert counted["small"] == [0.003]

    run(scenario)


def test_large_work_pauses_while_other_requests_are_answered() -> None:
    async def scenario(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        for others, rests_ms in ((count().__next__, RESTS * 4 * LARGE), (int, 0)):
            scene.slices, began = Slices(scene.clock, others), loop.time()
            work = [scene.slices.later(scene.work(f"{n}", LARGE), owner=n) for n in range(4)]
            await asyncio.gather(*work)
            assert round(1000 * (loop.time() - began)) == rests_ms

    run(scenario)


def test_small_work_is_done_immediately_while_large_work_pauses() -> None:
    async def scenario(scene: Scene) -> None:
        scene.slices = Slices(scene.clock, count().__next__)
        work = scene.slices.later(scene.work("large", LARGE), owner=1)
        task = asyncio.ensure_future(scene.slices.finish(scene.work("changes", LARGE)()))
        await asyncio.sleep(0.001)
        assert not work.done()
        done = sum(scene.steps_in_turn)
        assert scene.slices.run(scene.work("small", 1), owner=2) == "small"
        await asyncio.sleep(0.001)
        assert sum(scene.steps_in_turn) == done + 1
        assert await asyncio.gather(work, task) == ["large", "changes"]

    run(scenario)
