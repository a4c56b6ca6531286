"""A broker's jobs fail alone, say so, and begin again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sharegroup.broker.load import jobs
from sharegroup.testing import ManualClock


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("in_group", [False, True])
def test_failed_job_is_restarted_and_the_others_continue(
    caplog: pytest.LogCaptureFixture, in_group: bool
) -> None:
    """Also one that fails in a ``TaskGroup``, as the cleaning of logs has it."""

    async def main() -> None:
        clock, begun, other_ended = ManualClock(), [0], False

        async def failing() -> None:
            raise ZeroDivisionError("as if by mistake")

        async def stumbling() -> None:
            begun[0] += 1
            if in_group:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(failing())
                    await asyncio.Event().wait()
            await failing()

        async def steady() -> None:
            nonlocal other_ended
            try:
                await asyncio.Event().wait()
            finally:
                other_ended = True

        running = asyncio.create_task(jobs.run({"stumbling": stumbling, "steady": steady}, clock))
        with caplog.at_level(logging.ERROR):
            await settle()
        assert (begun[0], other_ended, running.done()) == (1, False, False)
        [record] = caplog.records
        assert "job=stumbling" in record.getMessage()
        assert record.exc_info is not None
        assert record.exc_info[0] is (ExceptionGroup if in_group else ZeroDivisionError)

        clock.advance(jobs.RESTART_MS / 1000 - 0.001)
        await settle()
        assert begun[0] == 1
        clock.advance(0.001)
        await settle()
        assert begun[0] == 2

        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert other_ended

    asyncio.run(main())


def test_job_that_ends_is_not_begun_again() -> None:
    async def main() -> None:
        begun = [0]

        async def short() -> None:
            begun[0] += 1

        await jobs.run({"short": short}, ManualClock())
        assert begun[0] == 1

    asyncio.run(main())


def test_job_that_fails_while_it_is_cancelled_is_not_restarted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise a broker with a failed disk would wait for the restart before it stops."""

    async def scene() -> None:
        async def untidy() -> None:
            try:
                await asyncio.Future()
            finally:
                raise OSError(5, "Input/output error")

        running = asyncio.create_task(jobs.run({"untidy": untidy}, ManualClock()))
        await settle()
        running.cancel()
        await settle()
        assert running.cancelled()

    asyncio.run(scene())
    assert "event=job_end_failed job=untidy" in caplog.text
