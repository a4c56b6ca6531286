"""What is held is let go when it is due, the soonest first, and counted meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sharegroup.testing import virtual_time
from sharegroup.worker.running.held_retries import HeldRetries
from tests.unit.worker.running.hand import in_hand, offsets
from tests.unit.worker.running.loop_clock import LoopClock


def run(test: Callable[[HeldRetries, list[tuple[float, int]]], Awaitable[None]]) -> None:
    async def runs() -> None:
        held, due = HeldRetries(LoopClock()), []
        running = asyncio.create_task(note_due(held, due))
        await test(held, due)
        running.cancel()

    virtual_time.run(runs())


async def note_due(held: HeldRetries, due: list[tuple[float, int]]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        record = await held.next_due()
        due.append((round(loop.time(), 6), record.delivery.offset))


def test_earliest_retry_is_first_even_if_added_later() -> None:
    async def test(held: HeldRetries, due: list[tuple[float, int]]) -> None:
        held.add(in_hand(1), 5.0)
        await asyncio.sleep(1)
        held.add(in_hand(2), 2.0)
        held.add(in_hand(3), 7.0)
        await asyncio.sleep(10)
        assert due == [(2.0, 2), (5.0, 1), (7.0, 3)]
        assert len(held) == 0

    run(test)


def test_retry_that_is_already_due_runs_immediately() -> None:
    async def test(held: HeldRetries, due: list[tuple[float, int]]) -> None:
        await asyncio.sleep(3)
        held.add(in_hand(1), 1.0)
        await asyncio.sleep(0.1)
        assert due == [(3.0, 1)]

    run(test)


def test_held_retries_count_records_bytes_and_partitions() -> None:
    async def test(held: HeldRetries, due: list[tuple[float, int]]) -> None:
        held.add(in_hand(1, value=b"12345", key=b"k"), 1.0)
        held.add(in_hand(2, value=None, partition=3), 2.0)
        assert (len(held), held.bytes) == (2, 6)
        assert [held.of_partition("orders", n) for n in (2, 3, 4)] == [1, 1, 0]
        await asyncio.sleep(1.5)
        assert (len(held), held.bytes, held.of_partition("orders", 2)) == (1, 0, 0)

    run(test)


def test_the_oldest_of_a_partition_make_way_and_the_others_stay() -> None:
    async def test(held: HeldRetries, due: list[tuple[float, int]]) -> None:
        for offset in (5, 1, 9):
            held.add(in_hand(offset), 10.0 - offset)
        held.add(in_hand(2, partition=3), 1.0)
        oldest = held.take_oldest(("orders", 2), 6)
        assert sorted((due, record.delivery.offset) for due, record in oldest) == [(5, 5), (9, 1)]
        await asyncio.sleep(20)
        assert sorted(due) == [(1.0, 2), (1.0, 9)]

    run(test)


def test_all_can_be_taken() -> None:
    async def test(held: HeldRetries, due: list[tuple[float, int]]) -> None:
        for offset in (5, 1, 9):
            held.add(in_hand(offset), float(offset))
        assert offsets(record for _, record in held.take_all()) == [1, 5, 9]
        await asyncio.sleep(20)
        assert (due, len(held), held.bytes) == ([], 0, 0)

    run(test)
