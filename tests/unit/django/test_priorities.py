"""Priorities of tasks: levels, and whose turn it is in a process."""

from __future__ import annotations

import asyncio

from sharegroup.django.priorities import FAIR_EVERY, Level, PriorityGate, level_of


def test_levels_of_priorities() -> None:
    assert [level_of(priority) for priority in (-100, -1, 0, 1, 100)] == [
        Level.LOW, Level.LOW, Level.NORMAL, Level.HIGH, Level.HIGH,
    ]  # fmt: skip


async def order_of(priorities: list[int]) -> list[int]:
    """The order in which tasks run that all wait for one slot."""
    gate = PriorityGate(1)
    order: list[int] = []

    async def task(priority: int) -> None:
        async with gate.turn(priority):
            order.append(priority)

    async with asyncio.TaskGroup() as group, gate.turn(0):
        for priority in priorities:
            group.create_task(task(priority))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return order


def test_highest_priority_has_the_next_turn() -> None:
    assert asyncio.run(order_of([-5, 7, 0, 7])) == [7, 7, 0, -5]


def test_no_task_waits_for_ever() -> None:
    order = asyncio.run(order_of([-100, *[100] * 9]))
    assert order.index(-100) == FAIR_EVERY - 1


def test_slots_are_used_up_and_given_back() -> None:
    async def main() -> None:
        gate = PriorityGate(2)
        running = most = 0

        async def task() -> None:
            nonlocal running, most
            async with gate.turn(0):
                running += 1
                most = max(most, running)
                await asyncio.sleep(0)
                running -= 1

        async with asyncio.TaskGroup() as group:
            for _ in range(9):
                group.create_task(task())
        assert most == 2

    asyncio.run(main())


def test_cancelled_tasks_lose_no_slot() -> None:
    async def main() -> None:
        gate = PriorityGate(1)

        async def task() -> None:
            async with gate.turn(0):
                pass

        async with gate.turn(0):
            waiting = asyncio.create_task(task())
            granted = asyncio.create_task(task())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(0)
        granted.cancel()  # It has its turn, and has not run since.
        await asyncio.gather(waiting, granted, return_exceptions=True)
        async with asyncio.timeout(5), gate.turn(0):
            pass

    asyncio.run(main())


def test_tasks_that_are_cancelled_together_end_as_cancelled() -> None:
    async def main() -> None:
        gate = PriorityGate(1)

        async def task() -> None:
            async with gate.turn(0):
                await asyncio.Event().wait()

        tasks = [asyncio.create_task(task()) for _ in range(3)]
        await asyncio.sleep(0)
        for running_or_waiting in tasks:
            running_or_waiting.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(end) for end in ends] == [asyncio.CancelledError] * 3
        async with asyncio.timeout(5), gate.turn(0):
            pass

    asyncio.run(main())
