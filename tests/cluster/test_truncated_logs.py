"""Plain consumers after an unclean election: the leader's log lacks records that they have read.

    offset      0         100         200          250
    broker A    | early    | doomed    |                       killed, was alone in sync
    broker B    | early    | late                  |           elected
    consumers                          ^ their positions, which are inside the new log

Only the leader epoch of the last record that was read tells that the records below the position are
others now.  Our consumer names it in each Fetch, and the leader answers where the logs diverge;
Kafka's consumers ask with OffsetForLeaderEpoch and come to the same result (KIP-320).
"""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer as ConfluentConsumer,
    KafkaException,
    TopicPartition as ConfluentPartition,
)

from sharegroup.client import (
    Consumer,
    LogTruncation,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from tests.cluster.clients import LIMIT_SECONDS, POLL_SECONDS, broken
from tests.cluster.conftest import all_of_it
from tests.cluster.unclean import create_on_two, until_led
from tests.support.kafka_cluster import KafkaCluster

pytestmark = all_of_it

EARLY, DOOMED, LATE = 100, 100, 150
NODES = (1, 2)


def named(kind: str, count: int) -> list[str]:
    return [f"{kind} {number}" for number in range(count)]


async def send(producer: Producer, topic: str, texts: list[str]) -> list[int]:
    async with asyncio.timeout(LIMIT_SECONDS):
        futures = [await producer.send(topic, text.encode()) for text in texts]
        return [(await future).offset for future in futures]


async def read(consumer: Consumer, count: int) -> list[str]:
    """The next records, in their order."""
    found: list[str] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        while len(found) < count:
            found += [record.value.decode() for record in await consumer.poll(POLL_SECONDS)]
    return found


async def read_until_truncated(consumer: Consumer) -> LogTruncation:
    """The error of a poll; no record may come before it."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            try:
                records = await consumer.poll(POLL_SECONDS)
            except LogTruncation as error:
                return error
            assert not records, records[0]


def confluent_read(consumer: ConfluentConsumer, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(LIMIT_SECONDS)
        assert message is not None, f"{len(found)} of {count} records"
        if (error := message.error()) is not None:
            raise KafkaException(error)
        value = message.value()
        assert value is not None
        found.append(value.decode())
    return found


class Consumers:
    """Consumers that have read everything before the election, and one group that has committed."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self._options = {"bootstrap_servers": cluster.bootstrap_servers}
        self._topic = topic
        self.where = TopicPartition(topic, 0)
        self.strict = Consumer(**self._options, auto_offset_reset="none")
        self.lenient = Consumer(**self._options, auto_offset_reset="latest")
        self.theirs = ConfluentConsumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": f"{topic}.theirs",
                "auto.offset.reset": "error",
            }
        )

    async def begin(self, expected: list[str]) -> None:
        for consumer in (self.strict, self.lenient):
            consumer.assign([self.where])
            consumer.seek(self.where, 0)
            assert await read(consumer, len(expected)) == expected
        self.theirs.assign([ConfluentPartition(self._topic, 0, OFFSET_BEGINNING)])
        assert await broken(confluent_read, self.theirs, len(expected)) == expected
        async with self.of_group() as member:
            assert await read(member, len(expected)) == expected
            await member.commit()

    def of_group(self, auto_offset_reset: str = "earliest") -> Consumer:
        """A member of the group that has committed the end of the log."""
        return Consumer(
            self._topic,
            **self._options,
            group_id=f"{self._topic}.group",
            auto_offset_reset=auto_offset_reset,
            enable_auto_commit=False,
        )


def test_truncation_below_the_position_is_noticed(cluster: KafkaCluster, topic: str) -> None:
    """Each policy does what it does in Kafka's consumer.

    Without a policy `poll` raises the offset where the logs diverge; with one, also ``latest``,
    reading goes on there.  So it does from an offset that was committed before the election.
    """
    early, doomed, late = named("early", EARLY), named("doomed", DOOMED), named("late", LATE)

    async def run() -> None:
        await create_on_two(cluster, topic, NODES)
        alone = await broken(cluster.leader_of, topic, 0)
        lagging = sum(NODES) - alone
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert await send(producer, topic, early) == list(range(EARLY))
            await broken(cluster.kill, lagging)
            await until_led(cluster, topic, alone, {alone})
            assert await send(producer, topic, doomed) == list(range(EARLY, EARLY + DOOMED))
            consumers = Consumers(cluster, topic)
            async with consumers.strict as strict, consumers.lenient as lenient:
                await consumers.begin([*early, *doomed])
                await broken(cluster.kill, alone)
                await broken(cluster.start, lagging)
                await until_led(cluster, topic, lagging, {lagging})
                assert await send(producer, topic, late) == list(range(EARLY, EARLY + LATE))

                error = await read_until_truncated(strict)
                assert error.partition == consumers.where
                assert error.diverging.offset == EARLY
                strict.seek(consumers.where, error.diverging)
                assert await read(strict, LATE) == late
                assert await read(lenient, LATE) == late
                async with consumers.of_group() as member:
                    assert await read(member, LATE) == late
                async with consumers.of_group("none") as member:
                    assert (await read_until_truncated(member)).diverging == OffsetAndMetadata(
                        EARLY, leader_epoch=error.diverging.leader_epoch
                    )
                with pytest.raises(KafkaException) as raised:
                    await broken(confluent_read, consumers.theirs, 1)
                text = raised.value.args[0].str()
                assert f"log truncation detected at offset {EARLY + DOOMED}" in text
                assert f"broker end offset is {EARLY}" in text
                await broken(consumers.theirs.close)

    asyncio.run(run())
