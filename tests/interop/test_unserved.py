"""Clients that ask for a feature that our broker does not serve get an error soon.

All limits are far above the time that an error takes, so a client that waits for its own time-out
fails the test.
"""

from __future__ import annotations

import asyncio
import subprocess

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import TransactionalIdAuthorizationFailed
from kafka.errors import TransactionalIdAuthorizationFailedError

from tests.interop.foreign_clients import LEAVES_SOCKETS
from tests.support import kafka_peer
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.confluent_calls import create_topic
from tests.support.java_shell import NO_COMPILER, java_command, javac

pytestmark = [
    pytest.mark.skipif(chosen() == KAFKA, reason="Apache Kafka serves these features"),
    LEAVES_SOCKETS,
]

WHY_NO_JAVA = kafka_peer.why_missing() or (None if javac() else NO_COMPILER)
WAIT_SECONDS_MAX = 20.0
JAVA_SECONDS_MAX = 120.0
TEXT = (
    "this broker does not support transactions; "
    "remove transactional.id from the producer's settings"
)


def test_confluent_ends_init_transactions_with_the_brokers_text(bootstrap: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "confluent"}
    )
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.init_transactions(WAIT_SECONDS_MAX)
    error = caught.value.args[0]
    assert error.fatal()
    assert error.code() == confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert TEXT in error.str()


def test_kafka_python_ends_init_transactions(bootstrap: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id="kafka-python",
        max_block_ms=WAIT_SECONDS_MAX * 1000,
    )
    try:
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
    finally:
        producer.close(timeout=1)


def test_aiokafka_ends_its_start_with_a_transactional_id(bootstrap: str) -> None:
    async def steps() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id="aiokafka"
        )
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                with pytest.raises(TransactionalIdAuthorizationFailed):
                    await producer.start()
        finally:
            await producer.stop()

    asyncio.run(steps())


def test_confluent_ends_the_consumer_protocol_with_a_fatal_error(
    bootstrap: str, topic: str, group: str
) -> None:
    create_topic(bootstrap, topic)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"}
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(WAIT_SECONDS_MAX)
        assert message is not None
        assert message.error().code() == confluent_kafka.KafkaError._FATAL
        assert "ConsumerGroupHeartbeat fatal error" in message.error().str()
    finally:
        consumer.close()


@pytest.mark.kafka
@pytest.mark.skipif(WHY_NO_JAVA is not None, reason=str(WHY_NO_JAVA))
def test_java_ends_both(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    libs = kafka_peer.kafka_libs()
    done = subprocess.run(
        java_command(libs, "Unserved", bootstrap, topic),
        stdout=subprocess.PIPE,
        text=True,
        timeout=JAVA_SECONDS_MAX,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith(("trans", "consumer p"))]
    transactions, consumer_protocol = told
    assert transactions == "transactions: TransactionalIdAuthorizationException"
    assert consumer_protocol == (
        "consumer protocol: The cluster does not support the new CONSUMER group protocol. Set "
        "group.protocol=classic on the consumer configs to revert to the CLASSIC protocol until "
        "the cluster is upgraded."
    )
