"""Files and environments made for Apache Kafka start our broker; it advertises their addresses."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.metadata.v13.request import MetadataRequest

from sharegroup.broker import app
from sharegroup.broker.configuration.config import Config
from sharegroup.client import AdminClient, ConfigResource, ResourceType
from sharegroup.testing import broker
from tests.faults.raw_connection import RawConnection
from tests.support.limits import HANGING_SECONDS

STOCK = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:0,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:0,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={data}
num.partitions=2
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
group.initial.rebalance.delay.ms=0
confluent.license.topic.replication.factor=1
confluent.balancer.enable=true
"""
"""The settings of Kafka's own file, and two of a vendor's; only the port and the folder differ."""

COMPOSE = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT"
    ),
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:0,PLAINTEXT://127.0.0.1:0",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
    "KAFKA_LISTENERS": "CONTROLLER://:29093,PLAINTEXT_HOST://:0,PLAINTEXT://:0",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "7",
    "KAFKA_HEAP_OPTS": "-Xmx1g",
}
"""The environment of a container in a compose file for Kafka's image."""


def serve(
    *options: str, environment: Mapping[str, str] | None = None
) -> tuple[dict[str, str | None], str]:
    """Start a broker, ask for its settings and stop it; return these and its log."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sharegroup", "serve", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = re.match(r"ready bootstrap=(\S+) ", line)
        assert ready is not None, process.communicate(timeout=HANGING_SECONDS)[1]
        found = asyncio.run(settings_of(ready[1]))
    finally:
        process.terminate()
        _, logged = process.communicate(timeout=HANGING_SECONDS)
    assert process.returncode == 0
    return found, logged


async def settings_of(bootstrap: str) -> dict[str, str | None]:
    this_broker = ConfigResource(ResourceType.BROKER, "1")
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        described: Any = (await admin.describe_configs([this_broker]))[this_broker]
        return {name: entry.value for name, entry in described.items()}


def test_stock_file_of_kafka_starts_a_broker(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(STOCK.format(data=tmp_path / "data"))
    found, logged = serve("--config", str(file))
    assert (tmp_path / "data").is_dir()
    assert found["num.partitions"] == "2"
    assert found["num.io.threads"] == "8"
    assert found["group.initial.rebalance.delay.ms"] == "0"
    assert found["advertised.listeners"] is not None
    [line] = re.findall(r"WARNING .* event=settings_without_effect .*", logged)
    assert "num.io.threads" in line
    assert "confluent.balancer.enable" in line
    assert "num.partitions" not in line
    assert len(re.findall("WARNING .* event=listener_narrowed", logged)) == 1


def test_environment_of_kafkas_containers_starts_a_broker(tmp_path: Path) -> None:
    found, _ = serve(
        "--kafka-env", "--data", str(tmp_path / "data"), "--insecure", environment=COMPOSE
    )
    assert found["group.initial.rebalance.delay.ms"] == "7"
    assert found["controller.quorum.voters"] == "1@broker:29093"


def test_clients_get_the_address_of_the_listener_that_they_use(tmp_path: Path) -> None:
    async def run() -> None:
        config = Config.parse(
            {
                "listeners": "OUTER://127.0.0.1:0,INNER://127.0.0.1:0",
                "advertised.listeners": "INNER://inner.local:19092,OUTER://outer.local:0",
                "listener.security.protocol.map": "OUTER:PLAINTEXT,INNER:PLAINTEXT",
                "broker.rack": "r1",
                "log.dirs": str(tmp_path / "data"),
            }
        )
        running = await app.start(config)
        try:
            bound = dict(part.split("://") for part in running.listeners.split(","))
            outer_port = int(bound["OUTER"].split(":")[1])
            assert running.bootstrap_servers == f"outer.local:{outer_port}"
            expected = {"OUTER": ("outer.local", outer_port), "INNER": ("inner.local", 19092)}
            for name, address in expected.items():
                port = int(bound[name].split(":")[1])
                found = await asyncio.to_thread(addresses, port)
                assert found == {(*address, "r1"), address}
        finally:
            await running.stop()

    asyncio.run(run())


def addresses(port: int) -> set[tuple[object, ...]]:
    """The addresses of the broker in Metadata, DescribeCluster and FindCoordinator."""
    with RawConnection(port) as connection:
        metadata = connection.ask(
            MetadataRequest(
                topics=(),
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
        )
        cluster = connection.ask(
            DescribeClusterRequest(
                include_cluster_authorized_operations=False,
                endpoint_type=1,
                include_fenced_brokers=False,
            )
        )
        found = connection.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=("group",)))
    [broker_], [described] = metadata.brokers, cluster.brokers
    [coordinator] = found.coordinators
    return {
        (broker_.host, broker_.port, broker_.rack),
        (described.host, described.port, described.rack),
        (coordinator.host, coordinator.port),
    }


def test_embedded_broker_starts_again_on_the_port_behind_an_advertised_address() -> None:
    async def run() -> None:
        settings = {"advertised.listeners": "PLAINTEXT://localhost:0"}
        async with broker(settings) as running:
            address = running.bootstrap_servers
            assert address.startswith("localhost:")
            await running.stop()
            await running.start()
            assert running.bootstrap_servers == address
            await running.create_topic("orders")

    asyncio.run(run())


def test_one_warning_lists_the_keys_without_an_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        keys = {
            "num.io.threads": "8",
            "num.partitions": "2",
            "log.preallocate": "true",
            "group.share.max.groups": "10",
        }
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
        running = await app.start(Config.parse({**settings, **keys}))
        await running.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    first, second = [record.getMessage() for record in caplog.records]
    assert first == (
        "event=settings_without_effect count=3 "
        "keys=group.share.max.groups,log.preallocate,num.io.threads reason='see docs/config.md'"
    )
    assert second == (
        "event=setting_replaced key=group.share.max.groups reason="
        "'`sharegroup.share.groups.bytes.max` limits all share groups together, not their number.'"
    )
