"""Clients that ask for a feature that our broker does not serve get an error soon.

Here that is the protocol of KIP-848, which a setting switches off.

All limits are far above the time that an error takes, so a client that waits for its own time-out
fails the test.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import confluent_kafka
import pytest

from tests.interop.foreign_clients import LEAVES_SOCKETS
from tests.support import kafka_peer
from tests.support.confluent_calls import admin, create_topic
from tests.support.java_shell import NO_COMPILER, java_command, javac
from tests.support.limits import HANGING_SECONDS
from tests.support.processes import ServeProcess

pytestmark = [
    LEAVES_SOCKETS,
]

WHY_NO_JAVA = kafka_peer.why_missing() or (None if javac() else NO_COMPILER)
JAVA_SECONDS_MAX = 120.0


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"group.coordinator.rebalance.protocols": "classic"}
    with ServeProcess(tmp_path_factory.mktemp("unserved"), settings=settings) as broker:
        yield broker.bootstrap_servers
    admin.cache_clear()


def test_confluent_ends_the_consumer_protocol_with_a_fatal_error(
    bootstrap: str, topic: str, group: str
) -> None:
    create_topic(bootstrap, topic)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"}
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(HANGING_SECONDS)
        assert message is not None
        assert message.error().code() == confluent_kafka.KafkaError._FATAL
        assert "ConsumerGroupHeartbeat fatal error" in message.error().str()
    finally:
        consumer.close()


@pytest.mark.kafka
@pytest.mark.skipif(WHY_NO_JAVA is not None, reason=str(WHY_NO_JAVA))
def test_java_ends_the_consumer_protocol(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    libs = kafka_peer.kafka_libs()
    done = subprocess.run(
        java_command(libs, "Unserved", bootstrap, topic),
        stdout=subprocess.PIPE,
        text=True,
        timeout=JAVA_SECONDS_MAX,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("consumer p")]
    (consumer_protocol,) = told
    assert consumer_protocol == (
        "consumer protocol: The cluster does not support the new CONSUMER group protocol. Set "
        "group.protocol=classic on the consumer configs to revert to the CLASSIC protocol until "
        "the cluster is upgraded."
    )
