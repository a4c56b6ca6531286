"""What several tests ask of confluent-kafka, in a call each.  The library is unmodified."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from confluent_kafka import Consumer, Message, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

WAIT_SECONDS_MAX = 20.0  # Apache Kafka takes 5 s until a new share group has its partitions.


def dotted(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings by confluent's names: dots for underscores, but in the names of callbacks."""
    return {
        name if callable(value) else name.replace("_", "."): value
        for name, value in settings.items()
    }


@cache
def admin(bootstrap: str) -> AdminClient:
    """The one admin client of a broker; kept, for its futures end with it."""
    return AdminClient({"bootstrap.servers": bootstrap})


def create_topic(
    bootstrap: str,
    topic: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    config: dict[str, str] | None = None,
) -> None:
    """A topic that is there: Kafka's broker hears of it a moment after it was answered for."""
    new = NewTopic(
        topic, num_partitions=partitions, replication_factor=replicas, config=config or {}
    )
    client = admin(bootstrap)
    client.create_topics([new])[topic].result(WAIT_SECONDS_MAX)
    limit = time.monotonic() + WAIT_SECONDS_MAX
    while topic not in client.list_topics(timeout=WAIT_SECONDS_MAX).topics:
        assert time.monotonic() < limit, f"topic {topic!r} is not listed"


def delete_topic(bootstrap: str, topic: str) -> None:
    admin(bootstrap).delete_topics([topic])[topic].result(WAIT_SECONDS_MAX)


def set_config(bootstrap: str, kind: ResourceType, name: str, values: dict[str, str]) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in values.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    changed = admin(bootstrap).incremental_alter_configs([resource])
    changed[resource].result(WAIT_SECONDS_MAX)


def configs(bootstrap: str, kind: ResourceType, name: str) -> dict[str, str]:
    """Every config of a topic, group or broker, with its value."""
    resource = ConfigResource(kind, name)
    described = admin(bootstrap).describe_configs([resource])[resource].result(WAIT_SECONDS_MAX)
    return {key: entry.value for key, entry in described.items()}


def set_group(bootstrap: str, group: str, **values: str) -> None:
    """Share-group configs; ``auto_offset_reset`` stands for ``share.auto.offset.reset``."""
    named = {"share." + key.replace("_", "."): value for key, value in values.items()}
    set_config(bootstrap, ResourceType.GROUP, group, named)


def produce(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes],
    *,
    partition: int = 0,
    timestamp_ms: int = 0,
    **config: object,
) -> None:
    """Produce each value and fail unless each was confirmed.  Timestamp 0 means: now."""
    errors: list[object] = []
    settings = dotted(config)
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for value in values:
        producer.produce(
            topic,
            value=value,
            partition=partition,
            timestamp=timestamp_ms,
            on_delivery=lambda error, _message: errors.append(error),
        )
    assert producer.flush(WAIT_SECONDS_MAX) == 0, "records are still queued"
    assert errors == [None] * len(values)


def read_partition(bootstrap: str, topic: str, *, count: int, partition: int = 0) -> list[Message]:
    """The first records of a partition by a plain consumer, which has no group to join."""
    consumer = plain_consumer(bootstrap, topic, partition=partition)
    try:
        return take(lambda: consumer.consume(count, 0.2), count)
    finally:
        consumer.close()


def offset(bootstrap: str, topic: str, spec: OffsetSpec, partition: int = 0) -> int:
    """The offset of a partition that a specification names."""
    where = TopicPartition(topic, partition)
    listed = admin(bootstrap).list_offsets({where: spec}, request_timeout=WAIT_SECONDS_MAX)
    found: int = listed[where].result(WAIT_SECONDS_MAX).offset
    return found


def end_offset(bootstrap: str, topic: str, partition: int = 0) -> int:
    return offset(bootstrap, topic, OffsetSpec.latest(), partition)


def plain_consumer(
    bootstrap: str, topic: str, *, partition: int = 0, offset: int = 0, **config: object
) -> Consumer:
    settings = dotted(config)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "not-joined",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, partition, offset)])
    return consumer


def share_consumer(
    bootstrap: str, group: str, topic: str, *, explicit: bool = False, **config: object
) -> ShareConsumer:
    settings = dotted(config)
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit" if explicit else "implicit",
            **settings,
        }
    )
    consumer.subscribe([topic])
    return consumer


def take(poll: Callable[[], Sequence[Message]], count: int) -> list[Message]:
    """Poll until ``count`` records came; an error message or a time-out fails."""
    limit = time.monotonic() + WAIT_SECONDS_MAX
    taken: list[Message] = []
    while len(taken) < count:
        assert time.monotonic() < limit, f"{len(taken)} of {count} records in {WAIT_SECONDS_MAX} s"
        for message in poll():
            assert message.error() is None, message.error()
            taken.append(message)
    return taken


def take_shared(consumer: ShareConsumer, count: int) -> list[Message]:
    """`take` for a share consumer in implicit mode, or for the first poll in explicit mode."""
    return take(lambda: consumer.poll(0.2), count)
