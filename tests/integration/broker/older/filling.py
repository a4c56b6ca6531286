"""Fills a broker's data directory with one of everything, for a test of a later version.

    git worktree add OLD COMMIT
    PYTHONPATH=OLD/src python -m sharegroup serve --data DIR/data --port 19092
    python -m tests.integration.broker.older.filling 127.0.0.1:19092
    kill the broker, with SIGTERM or SIGKILL
    tar --create --xz --file NAME.tar.xz --exclude .lock --directory DIR data

NAME is the date, the commit and how the broker ended.  A directory is added when a format changes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from sharegroup.client import (
    AcknowledgeType,
    AdminClient,
    AlterConfig,
    ConfigResource,
    Consumer,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
)
from sharegroup.client.records import TopicPartition

PLAIN, COMPACTED, MOVED = "plain", "compacted", "moved"
GROUP, SHARE_GROUP, WRITER = "readers", "workers", "writer"
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
VALUES = [f"{codec}-{number}".encode() for codec in CODECS for number in range(3)]
ACCEPTED, REJECTED, COMMITTED = 4, 1, 7
"""Of `PLAIN`: records that the share group has settled, and the offset of the consumer group."""
IN_TRANSACTIONS = [b"yes-%d" % number for number in range(3)]
"""The committed records of `MOVED`; others were aborted."""


async def fill(bootstrap: str) -> None:
    """Write topics of three kinds, settings, offsets, share state and transactions."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics(
            [
                NewTopic(PLAIN, num_partitions=1, configs={"retention.ms": "-1"}),
                NewTopic(COMPACTED, num_partitions=1, configs={"cleanup.policy": "compact"}),
                NewTopic(MOVED, num_partitions=2, configs={"retention.ms": "-1"}),
            ]
        )
        group = ConfigResource(ResourceType.GROUP, SHARE_GROUP)
        await admin.incremental_alter_configs(
            {
                group: [
                    AlterConfig("share.auto.offset.reset", "earliest"),
                    AlterConfig("share.record.lock.duration.ms", "15000"),
                ]
            }
        )
    for codec in CODECS:
        async with Producer(bootstrap_servers=bootstrap, compression=codec) as producer:
            of_codec = str(codec).encode()
            await _send(producer, PLAIN, [value for value in VALUES if of_codec in value])
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for value in (b"old", b"new"):
            await (await producer.send(COMPACTED, value, key=b"k", headers=[("h", b"1")]))
    await _groups(bootstrap)
    await _transactions(bootstrap)  # Last: the oldest versions refuse them.


async def _send(producer: Producer, topic: str, values: Sequence[bytes]) -> None:
    for value in values:
        await (await producer.send(topic, value))


async def _transactions(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, transactional_id=WRITER) as producer:
        for number, value in enumerate(IN_TRANSACTIONS):
            async with producer.transaction():
                await producer.send(MOVED, value, partition=number % 2)
            async with producer.transaction() as transaction:
                await producer.send(MOVED, b"no", partition=number % 2)
                await transaction.abort()


async def _groups(bootstrap: str) -> None:
    place = TopicPartition(PLAIN, 0)
    async with Consumer(bootstrap_servers=bootstrap, group_id=GROUP) as consumer:
        consumer.assign([place])
        consumer.seek(place, COMMITTED)
        await consumer.commit()
    options = {"bootstrap_servers": bootstrap, "group_id": SHARE_GROUP, "max_poll_records": 1}
    async with ShareConsumer(PLAIN, share_acknowledgement_mode="explicit", **options) as consumer:
        taken = 0
        while taken < ACCEPTED + REJECTED:
            for record in await consumer.poll(1000):
                accept = taken < ACCEPTED
                consumer.acknowledge(
                    record, AcknowledgeType.ACCEPT if accept else AcknowledgeType.REJECT
                )
                taken += 1
            await consumer.commit()


if __name__ == "__main__":
    asyncio.run(fill(sys.argv[1]))
