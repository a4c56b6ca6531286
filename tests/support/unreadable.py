"""Batches that nobody can read, whose checksums hold, and their way into a broker's log."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from kio.schema.produce.v13 import request as produce

from sharegroup.client.net.cluster import Cluster, ConnectionPurpose
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.wire.batches.compression import ZSTD
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.attacks.batches import batch

RECORDS = 400
SECONDS_MAX = timedelta(seconds=20)


def cut_off(count: int = RECORDS) -> bytes:
    """A compressed batch of ``count`` sound records whose last bytes are missing."""
    sound = encode_batch([SimpleRecord(None, b"v", 0)] * count, codec=ZSTD)
    return batch(bytes(sound[61:-20]), count=count, codec=ZSTD)


def untrue(count: int = RECORDS) -> bytes:
    """A batch without compression whose bytes are no records."""
    return batch(bytes(7 * count), count=count)


def produce_batches(bootstrap: str, topic: str, *batches: bytes, partition: int = 0) -> None:
    """Send batches as they are, one after the other."""
    asyncio.run(_produce(bootstrap, topic, batches, partition))


async def _produce(bootstrap: str, topic: str, batches: tuple[bytes, ...], partition: int) -> None:
    cluster = Cluster(ClientConfig(bootstrap_servers=bootstrap))
    try:
        known = await cluster.topic(topic)
        connection = await cluster.connection(known.leader_of(partition), ConnectionPurpose.RECORDS)
        for records in batches:
            data = produce.PartitionProduceData(index=partition, records=records)
            named = produce.TopicProduceData(topic_id=known.topic_id, partition_data=(data,))
            answer = await connection.request(
                produce.ProduceRequest(
                    transactional_id=None, acks=-1, timeout=SECONDS_MAX, topic_data=(named,)
                )
            )
            assert answer.responses[0].partition_responses[0].error_code == 0, answer
    finally:
        cluster.close()
