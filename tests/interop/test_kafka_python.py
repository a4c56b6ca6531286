"""kafka-python, unmodified, as producer, plain consumer and admin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewPartitions, NewTopic
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import TopicAlreadyExistsError

from tests.interop.foreign_clients import LEAVES_SOCKETS
from tests.support.chosen_broker import when_heard
from tests.support.limits import HANGING_SECONDS

pytestmark = LEAVES_SOCKETS

VALUES = [b"%d:" % number + bytes(range(256)) for number in range(100)]


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.mark.parametrize("codec", [None, "gzip"])  # For the others it needs more packages.
def test_consumed_records_have_the_produced_bytes(
    bootstrap: str, topic: str, codec: str | None
) -> None:
    produce(bootstrap, topic, compression_type=codec, linger_ms=20)
    read = read_partition(bootstrap, topic, count=100)
    assert [record.value for record in read] == VALUES
    assert [record.offset for record in read] == list(range(100))


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_confirmation_works(bootstrap: str, topic: str, acks: int | str) -> None:
    produce(bootstrap, topic, acks=acks, enable_idempotence=False)
    read = read_partition(bootstrap, topic, count=100)
    assert [record.value for record in read] == VALUES


def test_idempotent_producer_writes_each_record_once(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, enable_idempotence=True, batch_size=1_000)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        place = TopicPartition(topic, 0)
        assert consumer.end_offsets([place]) == {place: 100}
        assert consumer.beginning_offsets([place]) == {place: 0}
    finally:
        consumer.close()


def test_key_headers_and_timestamp_survive(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    try:
        sent = producer.send(
            topic, value=None, key=b"k", headers=[("h", b"\x00")], timestamp_ms=1_234_567
        )
        assert sent.get(HANGING_SECONDS).offset == 0
    finally:
        producer.close()
    (record,) = read_partition(bootstrap, topic, count=1)
    assert (record.key, record.value, record.timestamp) == (b"k", None, 1_234_567)
    assert [tuple(header) for header in record.headers] == [("h", b"\x00")]


def test_topics_are_created_grown_listed_and_deleted(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    admin.create_partitions({topic: NewPartitions(3)})
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert [entry["partition_index"] for entry in described["partitions"]] == [0, 1, 2]
    admin.delete_topics([topic])
    assert topic not in when_heard(admin.list_topics, lambda names: topic not in names)


def test_creating_a_topic_twice_is_refused(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])


def produce(bootstrap: str, topic: str, **config: object) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, **config)
    try:
        sent = [producer.send(topic, value=value, partition=0) for value in VALUES]
        producer.flush(HANGING_SECONDS)
        for future in sent:
            future.get(HANGING_SECONDS)
    finally:
        producer.close()


def read_partition(bootstrap: str, topic: str, *, count: int) -> list[ConsumerRecord]:
    """The first records of partition 0; fewer when they don't come in time."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(HANGING_SECONDS * 1000),
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        return [record for _, record in zip(range(count), consumer, strict=False)]
    finally:
        consumer.close()
