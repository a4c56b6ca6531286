"""Handlers in processes: none of them outlives its worker."""

from __future__ import annotations

import asyncio
import multiprocessing

from sharegroup.worker.declared.handler import shape_of
from sharegroup.worker.running.processes import HandlerProcesses


def double(number: int) -> int:
    return 2 * number


def test_a_process_that_began_while_the_worker_stopped_is_ended() -> None:
    async def test() -> None:
        processes = HandlerProcesses(shape_of(double), 1)
        starting = asyncio.ensure_future(processes.start())
        while not multiprocessing.active_children():
            await asyncio.sleep(0.001)  # Its thread is about to begin it.
        await processes.close()
        await starting

    asyncio.run(test())
    assert multiprocessing.active_children() == []


def test_processes_answer_until_they_are_closed() -> None:
    async def test() -> None:
        processes = HandlerProcesses(shape_of(double), 2)
        await processes.start()
        answers = await asyncio.gather(*(processes.call(number) for number in range(4)))
        assert answers == [0, 2, 4, 6]
        await processes.close()

    asyncio.run(test())
    assert multiprocessing.active_children() == []
