"""Transactions whose ends cannot be written for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sharegroup.broker.transactions.transaction_coordinator import RETRY_MS
from sharegroup.ids import TopicName
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.testing.power_loss import PowerLossDisk
from tests.faults.in_process import Broker
from tests.faults.transactional_producer import TransactionalProducer

TOPIC = "orders"
TURNS = 10_000


def log_of(broker: Broker, topic: str, partition: int) -> PartitionLog:
    return broker.running.parts.topics.named(TopicName(topic), partition)[1]


async def until(condition: Callable[[], bool], broker: Broker, *, step_ms: int = 0) -> None:
    """Wait for a condition while time passes in steps."""
    for _ in range(TURNS):
        if condition():
            return
        broker.clock.advance(step_ms / 1000)
        await asyncio.sleep(0)
    raise AssertionError("the condition was not met")


def test_decided_transaction_is_completed_after_the_disk_refused_everything_for_a_while() -> None:
    """The disk is full when the markers are due, and again when they are tried again.

    In between, another producer's transaction begins, of which only the batch gets to the disk. So
    the coordinator has to write a record before it goes on, and cannot.
    """

    async def main() -> None:
        disk = PowerLossDisk(1)
        broker = await Broker.start(disk, transaction_state_log_num_partitions="1")
        await broker.create_topic(TOPIC, 3)
        first = await TransactionalProducer.of(broker, TOPIC, "first")
        second = await TransactionalProducer.of(broker, TOPIC, "second")
        await first.init()
        await second.init()
        await first.write([0, 1, 2])
        states, stable = log_of(broker, "__transaction_state", 0), log_of(broker, TOPIC, 0)

        before = states.end_offset
        committing = asyncio.create_task(first.commit())
        await until(lambda: states.end_offset > before, broker)
        disk.fill_up()
        await committing

        disk.make_room()
        disk.fail_next_sync()
        assert await second.try_to_write([2]) != [0]
        disk.fill_up()
        for _ in range(5):
            broker.clock.advance(RETRY_MS / 1000)
            for _ in range(20):
                await asyncio.sleep(0)
        assert stable.last_stable_offset == 0

        disk.make_room()
        await until(lambda: stable.last_stable_offset == 2, broker, step_ms=100)
        await broker.stop()

    asyncio.run(main())
