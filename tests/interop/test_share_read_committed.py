"""Share consumers on a log with transactions: ours and confluent-kafka's, unmodified.

The transactions are written into the log itself, so that their offsets are known.
Offsets 0 to 1 and 4 are aborted, 3 is committed; 5 and 6 are the markers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from sharegroup.client import AdminClient, ShareConsumer
from sharegroup.testing import TestBroker, broker
from tests.interop.test_read_committed import TOPIC, A, B, fill, marker, plain, written
from tests.support.confluent_calls import set_group, share_consumer, take_shared

GROUP = "workers"
LOG = [
    written(A, b"a0", b"a1"),
    plain(b"p2"),
    written(B, b"b3"),
    written(A, b"a4", sequence=2),
    marker(B, is_commit=True),
    marker(A, is_commit=False),
    plain(b"p7"),
]
EXPECTED = {
    "read_committed": [(2, b"p2"), (3, b"b3"), (7, b"p7")],
    "read_uncommitted": [
        *((0, b"a0"), (1, b"a1"), (2, b"p2"), (3, b"b3"), (4, b"a4")),
        (7, b"p7"),
    ],
}

Consumed = list[tuple[int, bytes | None]]


async def with_ours(running: TestBroker, count: int) -> Consumed:
    found: Consumed = []
    async with ShareConsumer(
        TOPIC, bootstrap_servers=running.bootstrap_servers, group_id=GROUP
    ) as consumer:
        while len(found) < count:
            found += [(record.offset, record.value) for record in await consumer.poll(5)]
        await consumer.commit()
    return found


async def with_confluent(running: TestBroker, count: int) -> Consumed:
    def consume() -> Consumed:
        with share_consumer(running.bootstrap_servers, GROUP, TOPIC) as consumer:
            found = [(record.offset(), record.value()) for record in take_shared(consumer, count)]
            consumer.commit_sync()
            return found

    return await asyncio.to_thread(consume)


@pytest.mark.parametrize("consume", [with_ours, with_confluent])
@pytest.mark.parametrize("level", EXPECTED)
def test_share_consumer_follows_the_isolation_level_and_leaves_no_lag(
    tmp_path: Path, level: str, consume: Callable[..., asyncio.Future[Consumed]]
) -> None:
    async def main() -> None:
        async with broker(data=str(tmp_path)) as running:
            log = await fill(running, *LOG)
            await asyncio.to_thread(
                set_group,
                running.bootstrap_servers,
                GROUP,
                isolation_level=level,
                auto_offset_reset="earliest",
            )
            assert await consume(running, len(EXPECTED[level])) == EXPECTED[level]
            async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
                listed = (await admin.list_share_group_offsets({GROUP: None}))[GROUP]
            assert not isinstance(listed, Exception)
            [found] = listed.values()
            assert (found.start_offset, found.lag) == (log.high_watermark, 0)

    asyncio.run(main())
