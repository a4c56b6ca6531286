"""Client telemetry (KIP-714): metrics of other projects' clients on our metrics endpoint.

Apache Kafka serves telemetry only with a plugin in Java, so these tests are for our broker alone.
"""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from sharegroup.client import AlterConfig, ConfigResource, ResourceType
from sharegroup.client.sync import AdminClient, Consumer, Producer, ShareConsumer
from sharegroup.errors import UnsupportedVersion
from sharegroup.testing import TestBroker, run_broker
from tests.support import kafka_tools
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.kafka_peer import free_ports
from tests.support.kafka_tools import SCRIPTS, run_tool
from tests.support.limits import HANGING_SECONDS

pytestmark = pytest.mark.skipif(chosen() == KAFKA, reason="Apache Kafka needs a plugin for this")

WHY_NO_TOOLS = kafka_tools.why_missing()


@pytest.fixture
def scraped() -> Iterator[tuple[TestBroker, Callable[[], str]]]:
    """A broker, and a function that returns its page of metrics."""
    (port,) = free_ports(1)
    with run_broker({"sharegroup.metrics.port": port}) as broker:

        def page() -> str:
            url = f"http://127.0.0.1:{port}/metrics"
            with urllib.request.urlopen(url, timeout=HANGING_SECONDS) as answer:
                return str(answer.read().decode())

        yield broker, page


def wait_for(page: Callable[[], str], pattern: str) -> None:
    """Wait until a line of the page matches."""
    limit = time.monotonic() + HANGING_SECONDS
    while not re.search(pattern, page(), re.MULTILINE):
        assert time.monotonic() < limit, f"no line matches {pattern!r}: {page()}"
        time.sleep(0.05)


def ask_for_all(broker: TestBroker, interval_ms: int) -> None:
    """Create a resource that asks every client for all of its metrics."""
    resource = ConfigResource(ResourceType.CLIENT_METRICS, "all")
    changes = [AlterConfig("metrics", "*"), AlterConfig("interval.ms", str(interval_ms))]
    with AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.incremental_alter_configs({resource: changes}) == {resource: None}


def test_metrics_of_librdkafka_are_on_the_endpoint(
    scraped: tuple[TestBroker, Callable[[], str]],
) -> None:
    broker, page = scraped
    ask_for_all(broker, 200)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "client.id": "orders-app"}
    )
    producer.produce("orders", b"an apple")
    assert producer.flush(HANGING_SECONDS) == 0
    wait_for(page, r'^kafka_client_producer_connection_creation_total\{.*client_id="orders-app"')
    wait_for(page, r'^sharegroup_client_info\{.*client_software_name="confluent-kafka-python"')


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.skipif(WHY_NO_TOOLS is not None, reason=str(WHY_NO_TOOLS))
def test_metrics_of_a_java_consumer_are_on_the_endpoint(
    scraped: tuple[TestBroker, Callable[[], str]],
) -> None:
    broker, page = scraped
    server = ("--bootstrap-server", broker.bootstrap_servers)
    run_tool(
        SCRIPTS["kafka-client-metrics"],
        *server,
        *("--alter", "--name", "java", "--metrics", "*", "--interval", "500"),
        *("--match", "client_software_name=apache-kafka-java"),
    )
    broker.produce("orders", "an apple")
    command = (
        *server,
        *("--topic", "orders", "--from-beginning", "--group", "audit"),
        *("--command-property", "client.id=java-app", "--timeout-ms", "15000"),
    )
    with kafka_tools.tool_in_background(SCRIPTS["kafka-console-consumer"], *command) as consumer:
        assert consumer.line() == b"an apple"
        wait_for(page, r'^kafka_client_consumer_.*client_id="java-app"')
        wait_for(page, r'^sharegroup_client_info\{.*client_id="java-app".*group_id="audit"')
        consumer.end()


def test_metrics_of_our_own_clients_are_on_the_endpoint(
    scraped: tuple[TestBroker, Callable[[], str]],
) -> None:
    broker, page = scraped
    ask_for_all(broker, 200)
    options = {"bootstrap_servers": broker.bootstrap_servers}
    with (
        Producer(client_id="our-producer", **options) as producer,
        ShareConsumer(
            "orders", group_id="billing", client_id="our-consumer", **options
        ) as consumer,
        Consumer("orders", group_id="audit", client_id="our-plain-consumer", **options) as plain,
    ):
        producer.register_metric_for_subscription("shop", "carts", lambda: 17)
        producer.send_and_wait("orders", b"an apple")
        consumer.poll(timeout=1)
        plain.poll(timeout=1)
        instance_id = producer.client_instance_id()
        wait_for(
            page, r'^kafka_client_producer_record_send_total\{.*client_id="our-producer".*\} 1'
        )
        wait_for(page, r'^kafka_client_shop_carts\{.*client_id="our-producer".*\} 17')
        wait_for(page, r'^kafka_client_consumer_share_coordinator_.*client_id="our-consumer"')
        wait_for(page, r'^kafka_client_consumer_.*client_id="our-plain-consumer"')
        assert instance_id == producer.client_instance_id()
        with AdminClient(**options) as admin:
            assert admin.client_instance_id() not in (instance_id, consumer.client_instance_id())


def test_a_cluster_without_telemetry_has_no_instance_ids(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer, pytest.raises(UnsupportedVersion):
        producer.client_instance_id()
