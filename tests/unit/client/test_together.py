"""Coroutines that run at the same time: none goes on when one has failed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.share.ranges.share_ranges import ShareRanges
from sharegroup.client.together import together


class Waiting:
    """Waits for ever, and notes how it ended."""

    def __init__(self) -> None:
        self.began = self.was_cancelled = False

    async def wait(self, *_: Any) -> Any:
        self.began = True
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


async def failing(*_: Any) -> Any:
    await asyncio.sleep(0)
    raise OSError("no room")


async def number(value: int, turns: int) -> int:
    for _ in range(turns):
        await asyncio.sleep(0)
    return value


def test_results_have_the_order_of_the_coroutines() -> None:
    async def run() -> None:
        assert await together(number(value, 5 - value) for value in range(5)) == [0, 1, 2, 3, 4]
        assert await together(()) == []

    asyncio.run(run())


def test_the_first_error_cancels_the_others_and_is_raised_itself() -> None:
    async def run() -> None:
        waiting = Waiting()
        with pytest.raises(OSError, match="no room"):
            await together((waiting.wait(), failing()))
        assert waiting.was_cancelled

    asyncio.run(run())


def test_a_cancelled_caller_cancels_all() -> None:
    async def run() -> None:
        waiting = [Waiting(), Waiting()]
        calling = asyncio.create_task(together(each.wait() for each in waiting))
        while not all(each.began for each in waiting):
            await asyncio.sleep(0)
        calling.cancel()
        await asyncio.wait([calling])
        assert calling.cancelled()
        assert all(each.was_cancelled for each in waiting)

    asyncio.run(run())


@pytest.mark.parametrize("call", ["acknowledge", "renew"])
def test_no_broker_of_a_driver_goes_on_when_another_has_failed(call: str) -> None:
    async def run() -> None:
        ranges = ShareRanges(ClientConfig(), group_id="g", topics=["t"])
        waiting = Waiting()
        nodes: Any = {
            1: SimpleNamespace(**{call: waiting.wait}, held=True),
            2: SimpleNamespace(**{call: failing}, held=True),
        }
        ranges._nodes = nodes
        with pytest.raises(OSError, match="no room"):
            await (ranges.acknowledge({}) if call == "acknowledge" else ranges.renew())
        assert waiting.was_cancelled

    asyncio.run(run())
