"""After a large answer the broker reads what its member will ask for next."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
)
from sharegroup.testing import broker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import Broker, ShareMember
from tests.support.limits import HANGING_SECONDS

LARGE, SMALL = 200_000, 100_000


@pytest.mark.parametrize(("record_bytes", "is_due"), [(LARGE, True), (SMALL, False)])
def test_records_after_a_large_response_are_scheduled_for_read_ahead(
    tmp_path: Path, record_bytes: int, is_due: bool
) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
        assert await member.heartbeat(broker) == 0
        assert await member.fetch(broker, records_max=1) == ([], {})
        for _ in range(2):
            await broker.produce(
                "orders", 0, encode_batch([SimpleRecord(None, bytes(record_bytes), 1)])
            )
        taken, _ = await member.fetch(broker, records_max=1)
        assert len(taken) == 1
        assert broker.running.parts.topics.read_ahead.is_due == is_due
        await broker.stop()

    asyncio.run(main())


def test_read_ahead_happens_after_the_response_is_sent() -> None:
    async def main() -> None:
        async with broker() as b, AdminClient(bootstrap_servers=b.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("orders", num_partitions=1)])
            earliest = AlterConfig("share.auto.offset.reset", "earliest")
            group = ConfigResource(ResourceType.GROUP, "g")
            await admin.incremental_alter_configs({group: [earliest]})
            async with Producer(bootstrap_servers=b.bootstrap_servers) as producer:
                for letter in (b"a", b"b"):
                    await producer.send_and_wait("orders", letter * LARGE)
            async with ShareConsumer(
                "orders", bootstrap_servers=b.bootstrap_servers, group_id="g", max_poll_records=1
            ) as consumer:
                first = await consumer.poll(timeout=HANGING_SECONDS)
                second = await consumer.poll(timeout=HANGING_SECONDS)
            assert [r.value[:1] for r in (*first, *second)] == [b"a", b"b"]
            assert not b.running.parts.topics.read_ahead.is_due

    asyncio.run(main())
