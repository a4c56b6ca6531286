"""Settings from environment variables, named as for Kafka's container images."""

from __future__ import annotations

from sharegroup.cli.broker.kafka_environment import settings_from, variables_in


def test_names_become_keys() -> None:
    environment = {
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_LISTENER_NAME_A__B_SSL_KEYSTORE_LOCATION": "/keys",
        "KAFKA_A___B": "c",
        "PATH": "/bin",
    }
    assert settings_from(environment) == {
        "num.partitions": "3",
        "listener.name.a_b.ssl.keystore.location": "/keys",
        "a-b": "c",
    }


def test_variables_of_scripts_are_no_keys() -> None:
    assert settings_from({"KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_VERSION": "4.4.0"}) == {}


def test_listeners_follow_the_advertised_ones() -> None:
    advertised = "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092"
    assert settings_from({"KAFKA_ADVERTISED_LISTENERS": advertised}) == {
        "advertised.listeners": advertised,
        "listeners": "PLAINTEXT_HOST://0.0.0.0:9092,PLAINTEXT://0.0.0.0:19092",
    }


def test_given_listeners_stay() -> None:
    environment = {
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:9092",
    }
    assert settings_from(environment)["listeners"] == "PLAINTEXT://127.0.0.1:9092"


def test_services_of_kubernetes_are_no_settings() -> None:
    """What a pod gets for the Services ``kafka``, ``kafka-headless`` and ``kafka-ui``."""
    of_service = {
        "SERVICE_HOST": "10.0.0.7",
        "SERVICE_PORT": "9092",
        "SERVICE_PORT_TCP_CLIENT": "9092",
        "PORT": "tcp://10.0.0.7:9092",
        "PORT_9092_TCP": "tcp://10.0.0.7:9092",
        "PORT_9092_TCP_PROTO": "tcp",
        "PORT_9092_TCP_PORT": "9092",
        "PORT_9092_TCP_ADDR": "10.0.0.7",
        "PORT_53_UDP_ADDR": "10.0.0.7",
    }
    environment = {
        f"{service}_{name}": value
        for service in ("KAFKA", "KAFKA_HEADLESS", "KAFKA_UI_2", "KAFKA_CFG")
        for name, value in of_service.items()
    }
    assert settings_from({**environment, "KAFKA_SHAREGROUP_METRICS_PORT": "9404"}) == {
        "sharegroup.metrics.port": "9404"
    }


def test_bitnami_has_another_prefix() -> None:
    environment = {
        "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
        "KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
        "KAFKA_KRAFT_CLUSTER_ID": "abc",
    }
    assert settings_from(environment) == {
        "process.roles": "controller,broker",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
        "listeners": "PLAINTEXT://0.0.0.0:9092",
    }
    assert variables_in(environment)["process.roles"] == "KAFKA_CFG_PROCESS_ROLES"
