"""Dead letters on both brokers: what Apache Kafka 4.4 writes is what ours writes.

Where they differ on purpose (docs/differences.md) a test says what each of them does, so that
the difference stays the one that is written down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer
from confluent_kafka.admin import ResourceType

from sharegroup.client import AdminClient, TopicPartition
from sharegroup.wire.batches.batches import LETTER_PRODUCER_ID
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.attacks.target import produce_request, produced
from tests.faults.raw_connection import RawConnection
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.confluent_calls import (
    WAIT_SECONDS_MAX,
    configs,
    create_topic,
    end_offset,
    produce,
    read_partition,
    set_config,
    set_group,
    share_consumer,
    take_shared,
)

IS_KAFKA = chosen() == KAFKA
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
PREFIX = "__dlq.errors."
INVALID_RECORD = 87


class Queue(NamedTuple):
    """A group that works on a topic, and the name of its dead-letter topic."""

    bootstrap_servers: str
    topic: str
    group: str
    dead: str

    def set_up(self, *, partitions: int = 1, copies: bool = True, **group: str) -> None:
        create_topic(self.bootstrap_servers, self.topic, partitions=partitions)
        set_group(self.bootstrap_servers, self.group, auto_offset_reset="earliest", **group)
        values = {
            "errors.deadletterqueue.topic.name": self.dead,
            "errors.deadletterqueue.copy.record.enable": str(copies).lower(),
        }
        set_config(self.bootstrap_servers, ResourceType.GROUP, self.group, values)

    def make(self, partitions: int = 1) -> None:
        create_topic(self.bootstrap_servers, self.dead, partitions=partitions, config=ENABLED)

    def settle(self, count: int, how: Callable[[Message], AcknowledgeType]) -> None:
        """One member takes records until ``count`` deliveries were settled."""
        with share_consumer(
            self.bootstrap_servers, self.group, self.topic, explicit=True
        ) as consumer:
            while count > 0:
                taken = take_shared(consumer, 1)
                for message in taken:
                    consumer.acknowledge(message, how(message))
                committed = consumer.commit_sync(WAIT_SECONDS_MAX)
                assert set(committed.values()) == {None}
                count -= len(taken)

    def letters(self, count: int, partition: int = 0) -> list[Message]:
        return read_partition(self.bootstrap_servers, self.dead, count=count, partition=partition)

    def lag(self) -> int | None:
        """What partition 0 has for the group that is not settled."""

        async def ask() -> int | None:
            async with AdminClient(bootstrap_servers=self.bootstrap_servers) as admin:
                listed = await admin.list_share_group_offsets({self.group: None})
                return listed[self.group][TopicPartition(self.topic, 0)].lag

        return asyncio.run(ask())

    def settles(self) -> None:
        limit = time.monotonic() + WAIT_SECONDS_MAX
        while (lag := self.lag()) != 0:
            assert time.monotonic() < limit, f"lag is {lag}"
            time.sleep(0.1)


@pytest.fixture
def queue(bootstrap: str, topic: str, group: str) -> Queue:
    return Queue(bootstrap, topic, group, f"dlq.{topic}")


def reject(_message: Message) -> AcknowledgeType:
    return AcknowledgeType.REJECT


def about(letter: Message) -> list[tuple[str, bytes]]:
    """The headers that the broker adds, in their order."""
    return [header for header in letter.headers() or [] if header[0].startswith(PREFIX)]


def test_letter_has_key_value_origin_and_reason(queue: Queue) -> None:
    queue.set_up(delivery_count_limit="2")
    queue.make()
    producer = Producer({"bootstrap.servers": queue.bootstrap_servers, "linger.ms": 200})
    for number in range(3):
        headers = [("trace", b"t%d" % number)]
        producer.produce(queue.topic, b"value %d" % number, b"key %d" % number, headers=headers)
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    fates = [AcknowledgeType.REJECT, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE]
    before_ms = time.time() * 1000
    queue.settle(4, lambda message: fates[message.offset()])
    rejected, exhausted = queue.letters(2)
    if rejected.value() != b"value 0":
        rejected, exhausted = exhausted, rejected
    assert (rejected.key(), rejected.value()) == (b"key 0", b"value 0")
    assert (exhausted.key(), exhausted.value()) == (b"key 2", b"value 2")
    assert about(rejected) == [
        ("__dlq.errors.topic", queue.topic.encode()),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"0"),
        ("__dlq.errors.group", queue.group.encode()),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    ]
    assert about(exhausted)[2] == ("__dlq.errors.offset", b"2")
    assert about(exhausted)[4:] == [
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
    ]
    # Ours copies the record's own headers, too: docs/differences.md.
    own = [("trace", b"t0")]
    assert rejected.headers() == ([] if IS_KAFKA else own) + about(rejected)
    assert before_ms - 1_000 < rejected.timestamp()[1] < before_ms + 1_000 * WAIT_SECONDS_MAX
    queue.settles()


def test_letter_has_no_record_unless_the_group_has_records_copied(queue: Queue) -> None:
    queue.set_up(copies=False)
    queue.make()
    produce(queue.bootstrap_servers, queue.topic, [b"first", b"second"])
    queue.settle(2, reject)
    letters = queue.letters(2)
    assert [(letter.key(), letter.value()) for letter in letters] == [(None, None)] * 2
    assert [dict(about(letter))["__dlq.errors.offset"] for letter in letters] == [b"0", b"1"]
    assert all(len(letter.headers() or []) == 6 for letter in letters)


def test_letter_partition_is_the_partition_of_its_record_modulo_the_count(queue: Queue) -> None:
    queue.set_up(partitions=3)
    queue.make(partitions=2)
    for partition in range(3):
        produce(queue.bootstrap_servers, queue.topic, [b"%d" % partition], partition=partition)
    queue.settle(3, reject)
    assert sorted(letter.value() for letter in queue.letters(2)) == [b"0", b"2"]
    assert [letter.value() for letter in queue.letters(1, partition=1)] == [b"1"]


def test_dead_letter_topic_is_made_where_that_is_allowed(queue: Queue) -> None:
    queue.set_up()
    produce(queue.bootstrap_servers, queue.topic, [b"bad"])
    set_config(queue.bootstrap_servers, ResourceType.BROKER, "1", {AUTO_CREATE: "true"})
    try:
        queue.settle(1, reject)
        queue.settles()
    finally:
        set_config(queue.bootstrap_servers, ResourceType.BROKER, "1", {AUTO_CREATE: "false"})
    [letter] = queue.letters(1)
    assert letter.value() == b"bad"
    made = configs(queue.bootstrap_servers, ResourceType.TOPIC, queue.dead)
    assert made["errors.deadletterqueue.group.enable"] == "true"
    assert made["message.timestamp.type"] == "CreateTime"


def test_thousand_letters_are_written_in_order(queue: Queue) -> None:
    queue.set_up()
    queue.make()
    values = [b"%d" % number for number in range(1_000)]
    produce(queue.bootstrap_servers, queue.topic, values)
    queue.settle(1_000, reject)
    assert [letter.value() for letter in queue.letters(1_000)] == values
    queue.settles()


def test_letters_refused_by_the_topic_wait_in_ours_and_are_lost_in_kafka(
    queue: Queue,
) -> None:
    queue.set_up()
    create_topic(queue.bootstrap_servers, queue.dead)
    produce(queue.bootstrap_servers, queue.topic, [b"bad"])
    queue.settle(1, reject)
    if IS_KAFKA:
        queue.settles()
        assert end_offset(queue.bootstrap_servers, queue.dead) == 0
        return
    assert queue.lag() == 1
    set_config(queue.bootstrap_servers, ResourceType.TOPIC, queue.dead, ENABLED)
    [letter] = queue.letters(1)
    assert letter.value() == b"bad"
    queue.settles()


@pytest.mark.parametrize(("producer_id", "sequence"), [(LETTER_PRODUCER_ID, -1), (7, -1)])
def test_no_client_can_write_the_mark_of_our_brokers_letters(
    queue: Queue, producer_id: int, sequence: int
) -> None:
    """Readers believe the mark on every broker, so Apache Kafka must refuse it, too (ADR 0036)."""
    queue.make()
    batch = encode_batch(
        [SimpleRecord(None, b"forged", 1)],
        producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
    )  # fmt: skip
    port = int(queue.bootstrap_servers.rpartition(":")[2])
    with RawConnection(port) as connection:
        assert produced(connection.ask(produce_request(queue.dead, bytes(batch)))) == INVALID_RECORD
    assert end_offset(queue.bootstrap_servers, queue.dead) == 0
