"""What becomes of keys in a configuration that was made for Apache Kafka."""

from __future__ import annotations

import pytest

from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.config_values import entries
from sharegroup.broker.configuration.kafka_keys import kafka_keys, replacements
from sharegroup.broker.configuration.live_config import LiveConfig, check_dynamic
from sharegroup.broker.configuration.setting_changes import SettingChange, changed_broker
from sharegroup.broker.configuration.settings import describe_broker
from sharegroup.errors import InvalidConfig
from sharegroup.protocol_enums import ConfigOperation, ConfigSource


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.io.threads", "8"),
        ("process.roles", "broker, controller"),
        ("controller.quorum.voters", "1@localhost:9093"),
        ("controller.quorum.bootstrap.servers", "localhost:9093"),
        ("default.replication.factor", "1"),
        ("min.insync.replicas", "2"),
        ("offsets.topic.replication.factor", "3"),
        ("remote.log.storage.system.enable", "false"),
        ("ssl.provider", "SunJSSE"),
        ("config.providers", ""),
        ("listener.name.external.ssl.keystore.location", "/etc/kafka/keys.jks"),
        ("listener.name.external.ssl.provider", "SunJSSE"),
        ("listener.name.external.plain.sasl.jaas.config", "none"),
        ("confluent.license.topic.replication.factor", "1"),
        ("rsm.config.bucket", "records"),
        ("inter.broker.protocol.version", "3.9"),
        ("group.share.enable", "true"),
        ("group.share.max.groups", "1000"),
        ("share.fetch.max.fetch.records", "2147483647"),
        ("group.coordinator.new.enable", "true"),
        ("eligible.leader.replicas.enable", "true"),
        ("zookeeper.ssl.client.enable", "true"),
        ("zookeeper.ssl.keystore.password", "secret"),
        ("password.encoder.iterations", "4096"),
        ("leader.imbalance.per.broker.percentage", "10"),
        ("controlled.shutdown.max.retries", "3"),
        ("unstable.metadata.versions.enable", "true"),
    ],
)
def test_key_of_kafka_without_an_effect_is_accepted_and_reported(name: str, value: str) -> None:
    assert Config.parse({name: value}).without_effect == [name]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("process.roles", "broker", "own controller.*Set it to broker,controller"),
        ("process.roles", "controller", "own controller"),
        ("controller.quorum.voters", "2@other:9093", r"node\.id=1, is its own and only controller"),
        ("controller.quorum.voters", "1@a:9093,2@b:9093", "only controller"),
        ("controller.quorum.bootstrap.servers", "a:9093,b:9093", "only controller"),
        ("default.replication.factor", "3", "one replica.*Set it to 1"),
        ("remote.log.storage.system.enable", "true", "Remote storage.*Set it to false"),
        ("create.topic.policy.class.name", "org.example.Policy", "Java class"),
        ("ssl.engine.factory.class", "org.example.Engine", "Java class"),
        ("config.providers", "file", "not resolved"),
        ("cordoned.log.dirs", "/data", "one data directory"),
        ("zookeeper.connect", "zoo:2181", "no ZooKeeper"),
        ("advertised.host.name", "kafka", "Kafka 3.0 replaced.*advertised.listeners"),
        ("port", "9092", "Kafka 3.0 replaced.*listeners"),
        ("num.io.threads", "many", "whole number"),
        ("num.io.threads", "0", "at least 1"),
        ("ssl.client.auth", "maybe", "one of required, requested, none"),
        ("auto.leader.rebalance.enable", "yes", "true or false"),
    ],
)
def test_value_that_cannot_be_kept_is_refused_with_the_reason(
    name: str, value: str, message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message) as refused:
        Config.parse({name: value})
    assert name in str(refused.value)


def test_voter_with_the_id_of_this_node_is_this_broker() -> None:
    values = {"node.id": "7", "controller.quorum.voters": "7@broker:29093"}
    assert Config.parse(values).server.node_id == 7


@pytest.mark.parametrize(
    ("name", "meant"),
    [("num.partition", "num.partitions"), ("advertised.listener", "advertised.listeners")],
)
def test_unknown_key_is_refused_with_the_most_similar_name(name: str, meant: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"'{name}'.*did you mean {meant}\?"):
        Config.parse({name: "1"})


def test_key_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(InvalidConfig) as refused:
        Config.parse({"zzz": "1"})
    assert "did you mean" not in str(refused.value)
    assert "docs/config.md" in str(refused.value)


def test_older_names_of_id_and_data_directory_count() -> None:
    server = Config.parse({"broker.id": "5", "log.dir": "/data"}).server
    assert (server.node_id, server.log_dirs) == (5, "/data")


def test_newer_names_of_id_and_data_directory_win() -> None:
    values = {"broker.id": "-1", "node.id": "2", "log.dir": "/old", "log.dirs": "/new"}
    server = Config.parse(values).server
    assert (server.node_id, server.log_dirs) == (2, "/new")


def test_replaced_key_names_its_replacement() -> None:
    given = ["group.share.enable", "num.io.threads", "share.fetch.max.fetch.records"]
    assert [name for name, reason in replacements(given) if "replaced this key" in reason] == [
        "group.share.enable",
        "share.fetch.max.fetch.records",
    ]


def test_two_ids_of_a_node_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"node\.id=2 and broker\.id=3 must be equal"):
        Config.parse({"broker.id": "3", "node.id": "2"})


def test_served_keys_are_not_reported() -> None:
    values = {"num.partitions": "3", "share.coordinator.threads": "4"}
    assert Config.parse(values).without_effect == ["share.coordinator.threads"]


def test_defaults_of_the_table_are_valid() -> None:
    for name, found in kafka_keys().items():
        if found.entry.default is not None:
            assert Config.parse({name: _text(found.entry.default)}), name


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def test_describing_lists_given_values_of_keys_without_an_effect() -> None:
    live = LiveConfig(Config.parse({"num.io.threads": " 4 ", "ssl.key.password": "secret"}))
    found = {setting.name: setting for setting in describe_broker(live)}
    threads = found["num.io.threads"]
    assert (threads.value, threads.source) == ("4", ConfigSource.STATIC_BROKER)
    assert threads.synonyms == (
        ("num.io.threads", "4", ConfigSource.STATIC_BROKER),
        ("num.io.threads", "8", ConfigSource.DEFAULT),
    )
    assert not threads.read_only
    assert found["ssl.key.password"].is_sensitive
    assert found["controller.quorum.fetch.timeout.ms"].read_only
    assert "unstable.api.versions.enable" not in found


def test_given_default_is_a_value_of_the_file() -> None:
    live = LiveConfig(Config.parse({"num.partitions": "1"}))
    [found] = [setting for setting in describe_broker(live) if setting.name == "num.partitions"]
    assert found.source is ConfigSource.STATIC_BROKER


def test_keys_without_an_effect_change_as_in_kafka() -> None:
    check_dynamic(["num.io.threads"], of_all_brokers=True)
    check_dynamic(["ssl.provider"])
    with pytest.raises(InvalidConfig, match=r"ssl\.provider can only be set for a single"):
        check_dynamic(["ssl.provider"], of_all_brokers=True)
    with pytest.raises(InvalidConfig, match=r"process\.roles cannot be changed"):
        check_dynamic(["process.roles"])
    with pytest.raises(InvalidConfig, match=r"no key of Apache Kafka"):
        check_dynamic(["no.such.key"])


def test_changed_value_of_a_key_without_an_effect_is_checked() -> None:
    live = LiveConfig(Config())
    change = SettingChange("num.io.threads", ConfigOperation.SET, "0")
    outcome = changed_broker(live, {}, (change,))
    with pytest.raises(InvalidConfig, match="at least 1"):
        live.check(outcome, {})


def test_list_without_an_effect_begins_with_its_default() -> None:
    live = LiveConfig(Config())
    change = SettingChange("sasl.enabled.mechanisms", ConfigOperation.APPEND, "PLAIN")
    assert changed_broker(live, {}, (change,)) == {"sasl.enabled.mechanisms": "GSSAPI,PLAIN"}


def test_each_key_of_the_table_is_there_once() -> None:
    served = {entry.metadata["name"] for part in Config().parts for entry in entries(part)}
    assert sorted(served & set(kafka_keys())) == [], "delete these rows from kafka_key_table"
