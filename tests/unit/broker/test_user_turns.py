"""Turns for the tasks of many users: in rotation by user, in order for one user."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sharegroup.broker.load.record_jobs import UserTurns
from sharegroup.core.security.principal import USER, Principal
from tests.support.limits import HANGING_SECONDS


def user_of(name: str) -> Principal | None:
    """The user of a task such as ``a1``; those of ``-`` have no limits."""
    return None if name[0] == "-" else Principal(USER, name[0])


def order_of(
    names: Sequence[str], *, first: str = "-0", cancelled: Sequence[str] = ()
) -> list[str]:
    """The order in which tasks had their turns that asked for it in this order, after ``first``."""

    async def main() -> list[str]:
        turns, order = UserTurns(), list[str]()
        await turns.acquire(user_of(first))

        async def take(name: str) -> None:
            await turns.acquire(user_of(name))
            order.append(name)
            await asyncio.sleep(0)
            turns.release()

        tasks = {name: asyncio.ensure_future(take(name)) for name in names}
        await asyncio.sleep(0)
        assert len(turns) == len(names)
        for name in cancelled:
            tasks[name].cancel()
        turns.release()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert len(turns) == 0
        await asyncio.wait_for(turns.acquire(None), HANGING_SECONDS)  # Nobody has it.
        return order

    return asyncio.run(main())


def test_user_with_many_tasks_delays_another_one_by_one_task() -> None:
    assert order_of(["a1", "a2", "a3", "a4", "b1", "-1", "b2"]) == [
        "a1", "b1", "-1", "a2", "b2", "a3", "a4",
    ]  # fmt: skip
    assert order_of(["a2", "a3", "b1", "a4"], first="a1") == ["b1", "a2", "a3", "a4"]


def test_cancelled_tasks_have_no_turns() -> None:
    names = ["a1", "a2", "b1", "c1", "a3"]
    assert order_of(names, cancelled=["a1", "b1", "a3"]) == ["c1", "a2"]
    assert order_of(names, cancelled=names) == []


def test_task_that_is_cancelled_with_its_turn_passes_it_on() -> None:
    async def main() -> None:
        turns = UserTurns()
        await turns.acquire(None)
        first, second = (asyncio.ensure_future(turns.acquire(user_of(name))) for name in "ab")
        await asyncio.sleep(0)
        turns.release()
        first.cancel()
        await asyncio.wait_for(second, HANGING_SECONDS)
        assert first.cancelled()

    asyncio.run(main())
