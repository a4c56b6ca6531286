"""A limit of time, and which of two TimeoutErrors its caller sees."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.worker.time_limit import time_limit


class Late(Exception):
    """The limit of these tests has passed."""


def test_block_that_takes_too_long_is_cancelled() -> None:
    async def wait() -> None:
        async with time_limit(0.0, Late):
            await asyncio.Event().wait()

    with pytest.raises(Late) as raised:
        asyncio.run(wait())
    assert isinstance(raised.value.__cause__, TimeoutError)


@pytest.mark.parametrize("limit_seconds", [None, 60.0])
def test_error_of_the_block_stays(limit_seconds: float | None) -> None:
    async def fail() -> None:
        async with time_limit(limit_seconds, Late):
            raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        asyncio.run(fail())
