"""Settings in the styles that people publish: each starts a broker, or is refused with its place.

The same for files of clients: they become options, or the command names what it cannot use.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import pytest

from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.listeners import parse_listeners
from sharegroup.cli.broker.serve import _named_origin, _settings
from sharegroup.cli.common.cluster_access import Access
from sharegroup.client.settings.client_config import ClientConfig

STRIMZI = """\
##############################
# The broker's configuration, made by the operator
##############################
node.id=0
process.roles=broker,controller
controller.listener.names=CONTROLPLANE-9090
listener.security.protocol.map=CONTROLPLANE-9090:PLAINTEXT,PLAIN-9092:PLAINTEXT
listeners=CONTROLPLANE-9090://0.0.0.0:9090,PLAIN-9092://0.0.0.0:9092
advertised.listeners=PLAIN-9092://mixed-0.brokers.queue.svc:9092
inter.broker.listener.name=PLAIN-9092
controller.quorum.voters=0@mixed-0.brokers.queue.svc.cluster.local:9090
log.dirs=/var/lib/data-0/log0
min.insync.replicas=1
offsets.topic.replication.factor=1
metric.reporters=
"""
CONFLUENT = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
confluent.license.topic.replication.factor=1
confluent.metadata.topic.replication.factor=1
confluent.security.event.logger.exporter.kafka.topic.replicas=1
confluent.telemetry.enabled=false
log.dirs=/tmp/kraft-combined-logs
zookeeper.connection.timeout.ms=18000
group.share.enable=true
"""
ZOOKEEPER = """\
broker.id=0
listeners=PLAINTEXT://:9092
log.dirs=/tmp/kafka-logs
num.network.threads=3
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
"""
FILES = {
    "strimzi": (STRIMZI, None),
    "strimzi-with-secrets": (
        STRIMZI + "config.providers=strimzienv\nconfig.providers.strimzienv.class=org.Env\n",
        r"config\.providers='strimzienv' is refused.*properties, line 16\)",
    ),
    "strimzi-broker-pool": (
        STRIMZI.replace("broker,controller", "broker"),
        r"process\.roles='broker' is refused.*properties, line 5\)",
    ),
    "confluent-kraft": (CONFLUENT, None),
    "windows-notepad": ("\ufeff" + CONFLUENT.replace("\n", "\r\n"), None),
    "zookeeper": (ZOOKEEPER, r"zookeeper\.connect='localhost:2181' is refused.*, line 5\)"),
    "replicated": (
        CONFLUENT + "default.replication.factor=3\n",
        r"default\.replication\.factor='3' is refused.*, line 15\)",
    ),
    "tiered": (
        CONFLUENT + "remote.log.storage.system.enable=true\nrsm.config.bucket=b\n",
        r"remote\.log\.storage.*, line 15\)",
    ),
    "mistyped": (CONFLUENT + "log.retention.hour=1\n", r"did you mean log\.retention\.hours.*15\)"),
    "redpanda-yaml": (
        "redpanda:\n  data_directory: /var/lib\n",
        r"'redpanda': neither.*, line 1\)",
    ),
}

APACHE = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka:9093",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
}
BITNAMI = {
    "KAFKA_CFG_NODE_ID": "0",
    "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
    "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "0@kafka:9093",
    "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093,EXTERNAL://:9094",
    "KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092,EXTERNAL://localhost:9094",
    "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": (
        "CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    ),
    "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_KRAFT_CLUSTER_ID": "abcdefghijklmnopqrstuv",
    "ALLOW_PLAINTEXT_LISTENER": "yes",
}
KUBERNETES = {
    "KAFKA_SERVICE_HOST": "10.43.0.9",
    "KAFKA_SERVICE_PORT_TCP_CLIENT": "9092",
    "KAFKA_PORT": "tcp://10.43.0.9:9092",
    "KAFKA_PORT_9092_TCP_ADDR": "10.43.0.9",
    "KAFKA_BROKER_HEADLESS_SERVICE_HOST": "None",
}
ENVIRONMENTS = {
    "apache-image": (APACHE, None),
    "apache-image-in-kubernetes": (APACHE | KUBERNETES, None),
    "confluent-image": (
        APACHE
        | {
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_CONFLUENT_BALANCER_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_JMX_PORT": "9101",
            "KAFKA_JMX_HOSTNAME": "localhost",
            "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
        },
        None,
    ),
    "bitnami-chart": (BITNAMI | KUBERNETES, None),
    "bitnami-with-users": (
        BITNAMI | {"KAFKA_CLIENT_USERS": "alice"},
        r"'client\.users'.*\(variable KAFKA_CLIENT_USERS\)",
    ),
    "debezium": (
        {
            "CLUSTER_ID": "5Yr1SIgYQz-b-dgRabWx4g",
            "NODE_ID": "1",
            "NODE_ROLE": "combined",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka:9093",
            "KAFKA_LISTENERS": "PLAINTEXT://kafka:9092,CONTROLLER://kafka:9093",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "true",
        },
        None,
    ),
    "zookeeper-compose": (
        APACHE | {"KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181"},
        r"zookeeper\.connect='zookeeper:2181' is refused.*\(variable KAFKA_ZOOKEEPER_CONNECT\)",
    ),
    "wurstmeister": (
        {"KAFKA_ADVERTISED_HOST_NAME": "localhost", "KAFKA_CREATE_TOPICS": "a:1:1"},
        r"advertised\.host\.name='localhost' is refused.*variable KAFKA_ADVERTISED_HOST_NAME\)",
    ),
}


def started(file: Path | None, environment: Mapping[str, str]) -> Config:
    """What `sharegroup serve --insecure` does before it opens anything."""
    values, origins = _settings(file, environment)
    with _named_origin(origins):
        config = Config.parse(values)
        assert parse_listeners(config, insecure=True)
    return config


@pytest.mark.parametrize("style", FILES)
def test_file_starts_a_broker_or_is_refused_with_its_line(style: str, tmp_path: Path) -> None:
    text, refusal = FILES[style]
    file = tmp_path / "server.properties"
    file.write_bytes(text.encode())
    if refusal is None:
        assert started(file, {}).given
        return
    with pytest.raises(click.UsageError, match=refusal):
        started(file, {})


@pytest.mark.parametrize("style", ENVIRONMENTS)
def test_environment_starts_a_broker_or_is_refused_with_its_variable(style: str) -> None:
    environment, refusal = ENVIRONMENTS[style]
    if refusal is None:
        assert started(None, environment).given
        return
    with pytest.raises(click.UsageError, match=refusal):
        started(None, environment)


LIBRDKAFKA_CLOUD = """\
# For confluent-kafka, from the page of a cluster
bootstrap.servers=pkc-1.cloud.example:9092
security.protocol=SASL_SSL
sasl.mechanisms=PLAIN
sasl.username=KEY
sasl.password=SECRET
session.timeout.ms=45000
"""
JAVA_CLOUD = """\
bootstrap.servers = pkc-1.cloud.example:9092
security.protocol = SASL_SSL
sasl.mechanism = PLAIN
sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="KEY" \\
    password="SECRET";
client.dns.lookup = use_all_dns_ips
key.serializer = org.apache.kafka.common.serialization.StringSerializer
"""
CLIENT_FILES = {
    "confluent-librdkafka": LIBRDKAFKA_CLOUD,
    "confluent-java": JAVA_CLOUD,
    "kcat": LIBRDKAFKA_CLOUD.replace("bootstrap.servers", "metadata.broker.list"),
    "byte-order-mark": "\ufeff" + LIBRDKAFKA_CLOUD,
}


@pytest.mark.parametrize("style", CLIENT_FILES)
def test_file_of_a_client_names_servers_and_login(style: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(CLIENT_FILES[style].encode())
    access = Access.of(None, file, 1_000)
    assert access.bootstrap_servers == "pkc-1.cloud.example:9092"
    options = access.client_options(ClientConfig)
    assert options["security_protocol"] == "SASL_SSL"
    assert options["sasl_mechanism"] == "PLAIN"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("KEY", "SECRET")


OTHER_PROGRAMS = {
    "spring": ("spring.kafka.bootstrap-servers=kafka:9092\n", "spring.kafka.bootstrap-servers"),
    "mirror-maker": ("clusters=a, b\na.bootstrap.servers=kafka:9092\n", "a.bootstrap.servers"),
    "debezium": (
        "schema.history.internal.kafka.bootstrap.servers=kafka:9092\n",
        "schema.history.internal.kafka.bootstrap.servers",
    ),
    "variables": ("KAFKA_BOOTSTRAP_SERVERS=kafka:9092\n", "KAFKA_BOOTSTRAP_SERVERS"),
}


@pytest.mark.parametrize("style", OTHER_PROGRAMS)
def test_file_of_another_program_does_not_lead_to_the_default_address(
    style: str, tmp_path: Path
) -> None:
    text, name = OTHER_PROGRAMS[style]
    file = tmp_path / "application.properties"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(click.UsageError, match=f"the file has {name}, .*no bootstrap.servers"):
        Access.of(None, file, 1_000)
    assert Access.of("kafka:9092", file, 1_000).bootstrap_servers == "kafka:9092"
