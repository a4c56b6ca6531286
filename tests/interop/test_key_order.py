"""Two unmodified share consumers of confluent in a group that is ordered by key (ADR 0062)."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import ResourceType

from tests.interop.test_confluent_share import committed
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.confluent_calls import (
    WAIT_SECONDS_MAX,
    create_topic,
    set_config,
    set_group,
    share_consumer,
)

pytestmark = pytest.mark.skipif(chosen() == KAFKA, reason="Kafka has no such setting")
KEYS = [b"a", b"b", b"c", b"d", None]
RECORDS = 100


def test_of_one_key_one_record_is_out_at_a_time_and_they_come_in_order(
    bootstrap: str, topic: str, group: str
) -> None:
    """Some are released, and come again before the next of their key."""
    create_topic(bootstrap, topic)
    set_group(bootstrap, group, auto_offset_reset="earliest")
    set_config(bootstrap, ResourceType.GROUP, group, {"sharegroup.order.by": "key"})
    chance, offsets = random.Random(33), fill(bootstrap, topic)
    settled: dict[bytes | None, list[int]] = defaultdict(list)
    limit = time.monotonic() + 2 * WAIT_SECONDS_MAX
    with (
        share_consumer(bootstrap, group, topic, explicit=True) as first,
        share_consumer(bootstrap, group, topic, explicit=True) as second,
    ):
        held: dict[ShareConsumer, list[Message]] = {first: [], second: []}
        while sum(map(len, settled.values())) < RECORDS:
            assert time.monotonic() < limit, f"settled until now: {dict(settled)}"
            for consumer in (first, second):
                held[consumer] = consumer.poll(0.05)
            out = Counter(message.key() for taken in held.values() for message in taken)
            assert all(count == 1 for key, count in out.items() if key is not None), out
            for consumer, taken in held.items():
                for message in taken:
                    assert message.error() is None, message.error()
                    key, again = (
                        message.key(),
                        chance.random() < 0.2 and message.delivery_count() < 4,
                    )
                    if key is not None:
                        assert message.offset() == offsets[key][len(settled[key])]
                    if not again:
                        settled[key].append(message.offset())
                    consumer.acknowledge(
                        message, AcknowledgeType.RELEASE if again else AcknowledgeType.ACCEPT
                    )
                if taken:
                    assert set(committed(consumer).values()) == {None}
    assert {key: sorted(some) for key, some in settled.items()} == offsets


def fill(bootstrap: str, topic: str) -> dict[bytes | None, list[int]]:
    """Produce records with a few keys in turn; their offsets by key."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    offsets: dict[bytes | None, list[int]] = defaultdict(list)
    for offset in range(RECORDS):
        key = KEYS[offset * 7 % 11 % len(KEYS)]
        offsets[key].append(offset)
        producer.produce(topic, value=b"%d" % offset, key=key, partition=0)
    assert producer.flush(WAIT_SECONDS_MAX) == 0, "records are still queued"
    return dict(offsets)
