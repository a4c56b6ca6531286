"""Records that a handler releases with a delay: who keeps the delay, and what it costs."""

from __future__ import annotations

import asyncio
import time

import pytest

from sharegroup.testing import broker
from sharegroup.worker import App, Record, Release
from tests.integration.worker.test_running import run, send, until
from tests.support.chosen_broker import OURS, chosen
from tests.support.limits import HANGING_SECONDS

DELAYED = b"delayed"
OTHER = b"other"


def test_record_comes_again_after_its_delay_and_has_lost_no_attempt(
    bootstrap: str, group: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On Apache Kafka this process keeps it under its lock meanwhile, and says so once."""
    runs: list[tuple[float, int, int]] = []

    async def test(bootstrap: str, group: str, topic: str) -> None:
        app = App("released", bootstrap_servers=bootstrap)

        # Its lock ends before the delay, unless it is renewed.
        @app.share_group(
            group, topics=topic, retry=None, group_configs={"share.record.lock.duration.ms": "1000"}
        )
        async def wait(value: bytes, record: Record) -> None:
            runs.append((time.monotonic(), record.delivery_attempt, record.attempt))
            if len(runs) == 1:
                record.release(delay="1200ms")

        async with app:
            await send(bootstrap, topic, DELAYED)
            await until(lambda: len(runs) == 2)

    with caplog.at_level("INFO"):
        run(test)(bootstrap, group, topic)
    (first, *counts), (second, *again) = runs
    assert (counts, again) == ([1, 1], [2, 1])
    assert second - first >= 1.2
    assert caplog.text.count("event=release.held") == (chosen() != OURS)


def test_delay_survives_the_worker_and_the_broker() -> None:
    runs: list[tuple[bytes, int]] = []

    def app_at(bootstrap: str) -> App:
        app = App("released", bootstrap_servers=bootstrap)

        @app.share_group("billing", topics="orders", retry=None)
        async def bill(value: bytes, record: Record) -> None:
            runs.append((value, record.delivery_attempt))
            if runs == [(DELAYED, 1)]:
                raise Release("the bank is closed", delay="1h")

        return app

    async def test() -> None:
        async with asyncio.timeout(HANGING_SECONDS), broker() as embedded:
            bootstrap = embedded.bootstrap_servers
            await embedded.create_topic("orders")
            async with app_at(bootstrap):
                await send(bootstrap, "orders", DELAYED)
                await until(lambda: runs == [(DELAYED, 1)])
            await embedded.kill()
            await embedded.start()
            async with app_at(bootstrap):
                await send(bootstrap, "orders", OTHER)
                await until(lambda: len(runs) == 2)
            await embedded.advance(3_600 * 17 / 16)
            async with app_at(bootstrap):
                await until(lambda: len(runs) == 3)

    asyncio.run(test())
    assert runs == [(DELAYED, 1), (OTHER, 1), (DELAYED, 2)]
