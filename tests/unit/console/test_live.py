"""Streams of live parts."""

from __future__ import annotations

import asyncio

from sharegroup.console.web.live import Streams


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
