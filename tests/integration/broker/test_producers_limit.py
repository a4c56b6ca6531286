"""The setting ``sharegroup.producers.max`` holds while a broker runs and when it starts again."""

from __future__ import annotations

import asyncio

from sharegroup.ids import TopicName
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import Broker

SETTINGS = {"sharegroup_producers_max": "1000"}


def opened(broker: Broker) -> list[PartitionLog]:
    topics = broker.running.parts.topics
    topic = topics.catalog.topic(TopicName("orders"))
    return [topics.log_of(topic, partition) for partition in range(2)]


def test_producers_of_all_partitions_stay_within_the_limit_over_restarts() -> None:
    async def scenario() -> None:
        disk = PowerLossDisk(1)
        broker = await Broker.start(disk, **SETTINGS)
        await broker.create_topic("orders", 2)
        logs = opened(broker)
        for producer_id in range(3_000):
            batch = encode_batch(
                [SimpleRecord(None, b"1", 1)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
            )
            ticket = logs[producer_id % 2].append(batch, now_ms=1)
        await ticket
        remembered = [len(log.producers) for log in logs]
        assert 800 <= sum(remembered) <= 1_000
        disk.cut_power()
        await broker.crash()
        again = await Broker.start(disk, **SETTINGS)
        assert 800 <= sum(len(log.producers) for log in opened(again)) <= 1_000, "scanned"
        await again.stop()
        again = await Broker.start(disk, **SETTINGS)
        assert 800 <= sum(len(log.producers) for log in opened(again)) <= 1_000, "from snapshots"
        await again.stop()

    asyncio.run(scenario())
