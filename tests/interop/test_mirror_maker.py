"""MirrorMaker copies a topic and the offsets of its group from one broker to another.

It runs on Kafka Connect, writes exactly once, and creates the copy with the partitions and settings
of the original.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import ResourceType

from tests.support import confluent_calls
from tests.support.chosen_broker import LONG_WITH_A_JVM, chosen, running
from tests.support.confluent_calls import (
    admin,
    configs,
    create_topic,
    end_offset,
    produce,
    take,
)
from tests.support.kafka_applications import Application, mirror_command, why_missing
from tests.support.limits import HANGING_SECONDS

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(why_missing() is not None, reason=str(why_missing())),
    LONG_WITH_A_JVM,
]
TOPIC, COPY, GROUP = "orders", "here.orders", "billing"
RECORDS, READ = 100, 60
RETENTION_MS = "7200000"
COPIED_SECONDS_MAX = 120.0
INTERNAL = (
    *("replication.factor", "checkpoints.topic.replication.factor"),
    *("heartbeats.topic.replication.factor", "offset-syncs.topic.replication.factor"),
    *("offset.storage.replication.factor", "status.storage.replication.factor"),
    "config.storage.replication.factor",
)


def settings(here: str, there: str) -> str:
    """The settings of MirrorMaker; it synchronises in seconds instead of minutes."""
    lines = {
        "clusters": "here,there",
        "here.bootstrap.servers": here,
        "there.bootstrap.servers": there,
        "here->there.enabled": "true",
        "here->there.topics": TOPIC,
        "here->there.groups": GROUP,
        "there->here.enabled": "false",
        "there.exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://127.0.0.1:0",
        "plugin.discovery": "service_load",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "refresh.topics.interval.seconds": "2",
        "refresh.groups.interval.seconds": "2",
        "offset.lag.max": "0",
        **dict.fromkeys(INTERNAL, "1"),
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def wait_until(mirror: Application, is_so: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + COPIED_SECONDS_MAX
    while not is_so():
        assert mirror.running, mirror.log_tail()
        assert time.monotonic() < limit, f"no {what}: {mirror.log_tail()}"
        time.sleep(0.2)


def has_topic(bootstrap: str, topic: str) -> bool:
    return topic in admin(bootstrap).list_topics(timeout=HANGING_SECONDS).topics


def has_offset(bootstrap: str) -> bool:
    """Whether the group has an offset in the copy."""
    asked = ConsumerGroupTopicPartitions(GROUP)
    found = admin(bootstrap).list_consumer_group_offsets([asked])[GROUP].result(HANGING_SECONDS)
    return any(place.topic == COPY and place.offset > 0 for place in found.topic_partitions)


def read_some(bootstrap: str) -> None:
    """A part of the topic is read and committed by the group."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    taken = take(lambda: consumer.consume(READ, 0.2), READ)
    assert len(taken) >= READ
    consumer.commit(asynchronous=False)
    consumer.close()


def test_topic_and_group_are_copied_to_another_broker(tmp_path: Path) -> None:
    with (
        running(chosen(), tmp_path / "here", {}) as here,
        running(chosen(), tmp_path / "there", {}) as there,
    ):
        create_topic(
            here.bootstrap_servers, TOPIC, partitions=2, config={"retention.ms": RETENTION_MS}
        )
        produce(here.bootstrap_servers, TOPIC, [b"order"] * RECORDS)
        read_some(here.bootstrap_servers)
        file = tmp_path / "mirror.properties"
        file.write_text(settings(here.bootstrap_servers, there.bootstrap_servers))
        copy = there.bootstrap_servers
        with Application(mirror_command(file), tmp_path / "mirror.log") as mirror:
            wait_until(mirror, lambda: has_topic(copy, COPY), "copy of the topic")
            wait_until(mirror, lambda: end_offset(copy, COPY) > RECORDS, "copy of the records")
            wait_until(mirror, lambda: has_offset(copy), "offset of the group")
            mirror.stop()
        # It asks for access control lists, and takes SECURITY_DISABLED for an answer.
        assert "UnsupportedVersionException" not in mirror.log_tail()
        partitions = admin(copy).list_topics(timeout=HANGING_SECONDS).topics[COPY].partitions
        assert len(partitions) == 2
        assert configs(copy, ResourceType.TOPIC, COPY)["retention.ms"] == RETENTION_MS
        consumer = Consumer(
            {"bootstrap.servers": copy, "group.id": "all", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([COPY])
        values = [
            message.value() for message in take(lambda: consumer.consume(RECORDS, 0.2), RECORDS)
        ]
        assert values == [b"order"] * RECORDS
        assert consumer.poll(1) is None, "each record once"
        consumer.close()
        confluent_calls.admin.cache_clear()
