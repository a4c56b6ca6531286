"""confluent-kafka, unmodified, as producer, plain consumer and admin."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic, OffsetSpec, ResourceType

from tests.support.chosen_broker import when_heard
from tests.support.confluent_calls import (
    WAIT_SECONDS_MAX,
    admin,
    configs,
    create_topic,
    end_offset,
    offset,
    plain_consumer,
    produce,
    read_partition,
    set_config,
    set_group,
    take,
)
from tests.support.limits import HANGING_SECONDS

VALUES = [b"%d:" % number + bytes(range(256)) for number in range(300)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_consumed_records_have_the_produced_bytes(
    bootstrap: str, topic: str, acks: str, codec: str
) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, VALUES, acks=acks, compression_type=codec, linger_ms=20)
    read = read_partition(bootstrap, topic, count=len(VALUES))
    assert [message.value() for message in read] == VALUES
    assert [message.offset() for message in read] == list(range(300))


def test_idempotent_producer_writes_each_record_once(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, VALUES, enable_idempotence=True, linger_ms=0, batch_num_messages=7)
    read = read_partition(bootstrap, topic, count=len(VALUES))
    assert [message.value() for message in read] == VALUES
    assert end_offset(bootstrap, topic) == 300


def test_key_headers_timestamp_and_null_survive(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    headers = [("why", b"\x00\xff"), ("empty", b""), ("none", None), ("why", b"again")]
    producer.produce(topic, value=None, key=b"k\x00", headers=headers, timestamp=1_234_567)
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    (message,) = read_partition(bootstrap, topic, count=1)
    assert (message.key(), message.value()) == (b"k\x00", None)
    assert message.headers() == headers
    assert message.timestamp() == (1, 1_234_567)


def test_a_record_above_the_topics_limit_is_refused(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, config={"max.message.bytes": "1000"})
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value=b"x" * 2_000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert end_offset(bootstrap, topic) == 0


def test_new_record_completes_a_waiting_fetch(bootstrap: str, topic: str) -> None:
    """Fetch waits up to 10 s here, so a record within 3 s proves that the wait was cut short."""
    create_topic(bootstrap, topic)
    consumer = plain_consumer(bootstrap, topic, fetch_wait_max_ms=10_000, socket_timeout_ms=20_000)
    try:
        assert consumer.poll(0.5) is None
        produce(bootstrap, topic, [b"late"])
        produced = time.monotonic()
        (message,) = take(lambda: consumer.consume(1, 0.2), 1)
        assert time.monotonic() - produced < 3.0
        assert message.value() == b"late"
    finally:
        consumer.close()


def test_reading_before_the_log_start_is_reset(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, VALUES[:10])
    where = TopicPartition(topic, 0, 4)
    deleted = admin(bootstrap).delete_records([where])[where].result(WAIT_SECONDS_MAX)
    assert deleted.low_watermark == 4
    assert [message.offset() for message in read_partition(bootstrap, topic, count=6)] == [
        *(4, 5, 6, 7, 8, 9)
    ]
    assert offset(bootstrap, topic, OffsetSpec.earliest()) == 4


def test_offsets_are_found_by_time(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    for timestamp_ms in (1_000, 2_000, 3_000):
        produce(bootstrap, topic, [b"x", b"y"], timestamp_ms=timestamp_ms)
    assert offset(bootstrap, topic, OffsetSpec.for_timestamp(1_500)) == 2
    assert offset(bootstrap, topic, OffsetSpec.for_timestamp(3_000)) == 4
    assert offset(bootstrap, topic, OffsetSpec.latest()) == 6
    assert offset(bootstrap, topic, OffsetSpec.max_timestamp()) == 4


def test_topics_are_created_listed_and_deleted(bootstrap: str, topic: str) -> None:
    client = admin(bootstrap)
    create_topic(bootstrap, topic, partitions=3)
    listed = client.list_topics(timeout=WAIT_SECONDS_MAX).topics[topic]
    assert sorted(listed.partitions) == [0, 1, 2]
    client.delete_topics([topic])[topic].result(WAIT_SECONDS_MAX)
    limit = time.monotonic() + WAIT_SECONDS_MAX
    while topic in client.list_topics(timeout=WAIT_SECONDS_MAX).topics:
        assert time.monotonic() < limit, "it is still listed"


def test_creating_a_topic_twice_is_refused(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    with pytest.raises(KafkaException) as caught:
        create_topic(bootstrap, topic)
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 250, "ü"])
def test_a_bad_topic_name_is_refused(bootstrap: str, name: str) -> None:
    with pytest.raises(KafkaException) as caught:
        create_topic(bootstrap, name)
    assert caught.value.args[0].code() == KafkaError.TOPIC_EXCEPTION


def test_validate_only_does_not_create_a_topic(bootstrap: str, topic: str) -> None:
    new = NewTopic(topic, num_partitions=2, replication_factor=1)
    client = admin(bootstrap)
    client.create_topics([new], validate_only=True)[topic].result(WAIT_SECONDS_MAX)
    assert topic not in client.list_topics(timeout=WAIT_SECONDS_MAX).topics


def test_producing_creates_the_topic(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [b"first"])
    assert [message.value() for message in read_partition(bootstrap, topic, count=1)] == [b"first"]


def test_partitions_are_added(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    grown = admin(bootstrap).create_partitions([NewPartitions(topic, 4)])
    grown[topic].result(WAIT_SECONDS_MAX)
    produce(bootstrap, topic, [b"there"], partition=3)
    (message,) = read_partition(bootstrap, topic, count=1, partition=3)
    assert message.value() == b"there"


def test_partitions_are_never_taken_away(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=3)
    with pytest.raises(KafkaException) as caught:
        admin(bootstrap).create_partitions([NewPartitions(topic, 2)])[topic].result(HANGING_SECONDS)
    assert caught.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def test_topic_config_is_altered_and_described(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, config={"retention.ms": "3600000"})
    set_config(bootstrap, ResourceType.TOPIC, topic, {"segment.bytes": "2000000"})
    described = when_heard(
        lambda: configs(bootstrap, ResourceType.TOPIC, topic),
        lambda found: found["segment.bytes"] == "2000000",
    )
    assert described["retention.ms"] == "3600000"
    assert described["segment.bytes"] == "2000000"
    assert described["cleanup.policy"] == "delete"


def test_group_config_is_altered_and_described(bootstrap: str, group: str) -> None:
    before = configs(bootstrap, ResourceType.GROUP, group)
    assert before["share.auto.offset.reset"] == "latest"
    assert before["share.record.lock.duration.ms"] == "30000"
    set_group(bootstrap, group, auto_offset_reset="earliest", record_lock_duration_ms="2000")
    limit = time.monotonic() + WAIT_SECONDS_MAX  # What Kafka's controller knows its broker hears.
    while (described := configs(bootstrap, ResourceType.GROUP, group)) == before:
        assert time.monotonic() < limit, "nothing has changed"
    assert described["share.auto.offset.reset"] == "earliest"
    assert described["share.record.lock.duration.ms"] == "2000"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("share.auto.offset.reset", "somewhere"),
        ("share.auto.offset.reset", "by_duration:1h"),
        ("share.record.lock.duration.ms", "999"),
        ("share.delivery.count.limit", "1"),
        ("share.no.such.config", "1"),
    ],
)
def test_a_bad_group_config_is_refused(bootstrap: str, group: str, key: str, value: str) -> None:
    with pytest.raises(KafkaException) as caught:
        set_config(bootstrap, ResourceType.GROUP, group, {key: value})
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_broker_config_is_described(bootstrap: str) -> None:
    described = configs(bootstrap, ResourceType.BROKER, "1")
    assert described["group.share.min.record.lock.duration.ms"] == "1000"
    assert described["group.share.delivery.count.limit"] == "5"


def test_authorized_operations_on_the_cluster_are_all_of_them(bootstrap: str) -> None:
    """librdkafka asks for them with Metadata, as clients did before DescribeCluster."""
    described = admin(bootstrap).describe_cluster(include_authorized_operations=True)
    operations = described.result(WAIT_SECONDS_MAX).authorized_operations
    assert sorted(operation.value for operation in operations) == [5, 7, 8, 9, 10, 11, 12]


def test_cluster_is_described(bootstrap: str) -> None:
    cluster = admin(bootstrap).describe_cluster().result(WAIT_SECONDS_MAX)
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [
        (1, "127.0.0.1", int(bootstrap.rpartition(":")[2]))
    ]
    assert len(cluster.cluster_id) == 22, "a uuid in base 64 without padding"


def test_an_unknown_topic_is_an_error_and_not_created(bootstrap: str) -> None:
    name = f"absent-{uuid.uuid4()}"
    with pytest.raises(KafkaException):
        offset(bootstrap, name, OffsetSpec.latest())
    assert name not in admin(bootstrap).list_topics(timeout=WAIT_SECONDS_MAX).topics
