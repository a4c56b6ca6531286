"""Apache Kafka's own tools for settings and features, unmodified, against either broker.

Each call is a virtual machine of its own, so one test is one walk through a tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from sharegroup.testing import run_broker
from tests.support.kafka_peer import KafkaPeerError
from tests.support.kafka_tools import run_tool, why_missing

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(why_missing() is not None, reason=str(why_missing())),
]
CONFIGS = "kafka.admin.ConfigCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture
def own_broker() -> Iterator[str]:
    """A broker for this test alone: a level of a feature holds for the whole of it."""
    with run_broker() as broker:
        yield broker.bootstrap_servers


def test_kafka_features_lowers_and_switches_off(own_broker: str) -> None:
    said = features(own_broker, "downgrade", "--feature", "share.version=1")
    assert said == "share.version was downgraded to 1.\n"
    with pytest.raises(KafkaPeerError, match="this broker supports 0 to 2"):
        features(own_broker, "upgrade", "--feature", "share.version=3")
    said = features(own_broker, "disable", "--feature", "share.version")
    assert said == "share.version was disabled.\n"
    found = re.search(
        r"Feature: share\.version\s+SupportedMinVersion: (\d)\s+SupportedMaxVersion: (\d)\s+"
        r"FinalizedVersionLevel: (\d)",
        features(own_broker, "describe"),
    )
    assert found is not None
    assert found.groups() == ("0", "2", "0")


def test_kafka_configs_describes_and_alters_group_settings(bootstrap: str, group: str) -> None:
    entity = ["--entity-type", "groups", "--entity-name", group]
    added = "share.isolation.level=read_committed,share.delivery.count.limit=7"
    configs(bootstrap, "--alter", *entity, "--add-config", added)
    listed = configs(bootstrap, "--describe", "--entity-type", "groups")
    [own] = [line for line in listed.splitlines() if "share.delivery.count.limit=7" in line]
    assert own.strip() == (
        "share.delivery.count.limit=7 sensitive=false synonyms={"
        "DYNAMIC_GROUP_CONFIG:share.delivery.count.limit=7, "
        "DEFAULT_CONFIG:group.share.delivery.count.limit=5}"
    )


def test_kafka_configs_sets_the_default_of_all_brokers(own_broker: str) -> None:
    default = ["--entity-type", "brokers", "--entity-default"]
    name = "group.share.assignment.interval.ms"
    configs(own_broker, "--alter", *default, "--add-config", f"{name}=500")
    printed = configs(own_broker, "--describe", *default)
    assert f"{name}=500 sensitive=false" in printed


def test_kafka_configs_sets_keys_of_one_broker_and_of_all(own_broker: str) -> None:
    """One key has no effect here, one has; both are dynamic in Kafka."""
    this_broker = ["--entity-type", "brokers", "--entity-name", "1"]
    default = ["--entity-type", "brokers", "--entity-default"]
    configs(own_broker, "--alter", *default, "--add-config", "log.cleaner.threads=2")
    configs(own_broker, "--alter", *this_broker, "--add-config", "max.connections.per.ip=500")
    printed = configs(own_broker, "--describe", "--all", *this_broker)
    lines = [line.strip() for line in printed.splitlines()]
    assert (
        "log.cleaner.threads=2 sensitive=false synonyms={"
        "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=2, "
        "DEFAULT_CONFIG:log.cleaner.threads=1}"
    ) in lines
    assert any(line.startswith("max.connections.per.ip=500 sensitive=false") for line in lines)
    configs(own_broker, "--alter", *default, "--delete-config", "log.cleaner.threads")
    assert "log.cleaner.threads" not in configs(own_broker, "--describe", *default)


def test_kafka_configs_sets_the_compression_of_a_topic(own_broker: str) -> None:
    topic = "packed"
    created = ["--create", "--topic", topic, "--config", "compression.type=zstd"]
    run_tool(TOPICS, "--bootstrap-server", own_broker, *created)
    entity = ["--entity-type", "topics", "--entity-name", topic]
    added = "compression.type=gzip,compression.gzip.level=9,min.insync.replicas=2"
    configs(own_broker, "--alter", *entity, "--add-config", added)
    printed = configs(own_broker, "--describe", *entity)
    for pair in added.split(","):
        assert f"{pair} sensitive=false" in printed


def features(bootstrap: str, *arguments: str) -> str:
    return run_tool(FEATURES, "--bootstrap-server", bootstrap, *arguments)


def configs(bootstrap: str, *arguments: str) -> str:
    return run_tool(CONFIGS, "--bootstrap-server", bootstrap, *arguments)
