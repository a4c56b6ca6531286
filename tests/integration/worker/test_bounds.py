"""What a worker has in hand at most, on either broker (`conftest`)."""

from __future__ import annotations

import asyncio

from tests.integration.worker.test_running import Together, app_of, run, send, until


@run
async def test_worker_takes_at_most_its_byte_limit_and_others_get_the_rest(
    bootstrap: str, group: str, topic: str
) -> None:
    full, _ = app_of(bootstrap)
    other, _ = app_of(bootstrap)
    go_on, others = asyncio.Event(), list[bytes]()

    async def hang(value: bytes) -> None:
        await go_on.wait()

    async def work(value: bytes) -> None:
        others.append(value)

    full.share_group(group, topics=topic, concurrency=32, in_flight_bytes=30_000, handler=hang)
    other.share_group(group, topics=topic, name="hang", handler=work)
    async with full:
        worker = full.worker
        assert worker is not None
        for _ in range(20):  # A log batch for each.
            await send(bootstrap, topic, b"x" * 10_000)
        await until(lambda: worker.counts[0].running >= 3)
        async with other:
            await until(lambda: len(others) >= 16)
            go_on.set()
            await until(lambda: len(others) + worker.counts[0].succeeded == 20)


@run
async def test_concurrency_grows_while_handlers_do_not_become_slower(
    bootstrap: str, group: str, topic: str
) -> None:
    app, _ = app_of(bootstrap)
    together = Together()

    async def work(value: bytes) -> None:
        with together:
            await asyncio.sleep(0.02)

    app.share_group(group, topics=topic, concurrency="auto", handler=work)
    async with app:
        await send(bootstrap, topic, *[b"x"] * 1_500)
        await until(lambda: together.done == 1_500)
    assert together.most >= 12  # It begins with 8.
