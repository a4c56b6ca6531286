"""Two consoles with --remember on our broker and on Apache Kafka: one is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sharegroup.client import Producer, ShareConsumer
from sharegroup.client.settings.client_config import ClientOptions
from tests.integration.console.remembering_scene import remembering, seconds_of, take_over, until
from tests.support.limits import HANGING_SECONDS


@pytest.mark.slow
def test_history_of_a_console_that_was_killed_is_there_after_a_restart(
    bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    """The second console goes on where the killed one ended; a third one shows what both saw."""
    options = ClientOptions(bootstrap_servers=bootstrap)

    async def run() -> None:
        async with Producer(**options) as producer:
            await producer.send_and_wait(topic, b"{}")
        async with ShareConsumer(
            topic, **options, group_id=group, start_from="earliest"
        ) as consumer:
            assert await consumer.poll(timeout=HANGING_SECONDS)
            await consumer.commit()
        points = await take_over(bootstrap, group, tmp_path / "log")
        async with remembering(options) as third:
            await until(lambda: seconds_of(third, group)[: len(points)] == points)

    asyncio.run(run())
