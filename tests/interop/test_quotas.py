"""Clients of other projects slow down to their quotas, on our broker and on Apache Kafka.

A client may use the limit of ten seconds at once, and that of another one in the first second.  A
producer that goes on is throttled the longer the more it is above its quota; a consumer gets
nothing more until its first bytes are eleven seconds ago.  Without throttling, each test would take
a tenth of a second.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer

from sharegroup.client import QuotaEntity
from sharegroup.client.sync import AdminClient
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.confluent_calls import WAIT_SECONDS_MAX, create_topic, produce
from tests.support.kafka_tools import run_tool
from tests.support.limits import HANGING_SECONDS

RATE = 500_000.0
VALUE = bytes(25_000)
COUNT = 230
"""The limit of 11.5 seconds."""

BATCH_BYTES = 60_000
"""Two records; a fetch returns a whole batch, also if the client has less left."""

PRODUCER_SECONDS = (1.5, 14.0)
CONSUMER_SECONDS = (8.0, 16.0)


@contextmanager
def quota(bootstrap: str, client_id: str, **limits: float) -> Iterator[None]:
    entity = QuotaEntity(client_id=client_id)
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        assert admin.alter_client_quotas({entity: limits}) == {entity: None}
        limit = time.monotonic() + WAIT_SECONDS_MAX
        while admin.describe_client_quotas(client_id=client_id) != {entity: limits}:
            assert time.monotonic() < limit, f"no quota of {client_id}"
        yield
        assert admin.alter_client_quotas({entity: dict.fromkeys(limits)}) == {entity: None}


@pytest.mark.slow
def test_confluent_producer_slows_down_to_its_quota(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": f"{topic}-producer",
            "batch.size": BATCH_BYTES,
            "linger.ms": 5,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    with quota(bootstrap, f"{topic}-producer", producer_byte_rate=RATE):
        began = time.monotonic()
        for _ in range(COUNT):
            producer.produce(topic, VALUE)
        assert producer.flush(HANGING_SECONDS) == 0
        seconds = time.monotonic() - began
    producer.poll(0)
    assert PRODUCER_SECONDS[0] < seconds < PRODUCER_SECONDS[1]
    assert throttled


@LONG_WITH_A_JVM
def test_confluent_consumer_slows_down_to_its_quota(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    for _ in range(COUNT // 2):
        produce(bootstrap, topic, [VALUE] * 2)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": f"{topic}-consumer",
            "group.id": f"{topic}-group",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": BATCH_BYTES,
        }
    )
    with quota(bootstrap, f"{topic}-consumer", consumer_byte_rate=RATE):
        consumer.subscribe([topic])
        count, began, limit = 0, 0.0, time.monotonic() + HANGING_SECONDS
        while count < COUNT:
            assert time.monotonic() < limit, f"{count} of {COUNT} records"
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                began = began or time.monotonic()
                count += 1
        seconds = time.monotonic() - began
        consumer.close()
    assert CONSUMER_SECONDS[0] < seconds < CONSUMER_SECONDS[1]


@LONG_WITH_A_JVM
@pytest.mark.kafka
def test_java_producer_slows_down_to_its_quota_and_measures_it(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    client_id = f"{topic}-producer"
    options = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "batch.size": BATCH_BYTES,
        "linger.ms": 5,
    }
    with quota(bootstrap, client_id, producer_byte_rate=RATE):
        began = time.monotonic()
        printed = run_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(COUNT), "--record-size", str(len(VALUE))),
            *("--throughput", "-1", "--print-metrics"),
            *("--command-property", *(f"{key}={value}" for key, value in options.items())),
        )
        assert time.monotonic() - began > PRODUCER_SECONDS[0]
    assert f"{COUNT} records sent" in printed
    throttle_ms = re.search(r"produce-throttle-time-max:\{[^}]*\}\s*:\s*([0-9.]+)", printed)
    assert throttle_ms is not None
    assert float(throttle_ms[1]) > 100
