"""Streams of live parts, and how often the parts are made."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.console.web.live import Streams, pause_after


def test_stream_ends_with_a_word_to_open_it_again() -> None:
    async def parts() -> dict[str, str]:
        return {"live_groups": "<p>"}

    async def run() -> list[bytes]:
        return [event async for event in Streams(stream_seconds=0.0).events(parts)]

    assert asyncio.run(run()) == [b"retry: 2000\n\n", b"event: end\ndata: null\n\n"]


def test_stream_of_somebody_who_logged_out_ends_without_it() -> None:
    async def parts() -> None:
        return None

    async def run() -> list[bytes]:
        return [event async for event in Streams().events(parts)]

    assert asyncio.run(run()) == [b"retry: 2000\n\n"]


def test_stream_of_a_page_that_costs_much_looks_less_often() -> None:
    looks = 0

    async def parts() -> dict[str, str]:
        nonlocal looks
        looks += 1
        return {"live_states": "<p>"}

    async def run() -> None:
        async for _ in Streams(stream_seconds=0.2).events(parts, pause_seconds=30.0):
            pass

    asyncio.run(run())
    assert looks == 1


@pytest.mark.parametrize(
    ("seconds", "pause"), [(0.0, 1.0), (0.25, 1.0), (0.5, 2.0), (1.0, 4.0), (15.0, 5.0)]
)
def test_page_that_takes_long_is_made_less_often(seconds: float, pause: float) -> None:
    assert pause_after(seconds) == pause


def test_page_that_takes_long_is_not_made_more_often_than_it_says() -> None:
    assert pause_after(2.0, 10.0) == 10.0
