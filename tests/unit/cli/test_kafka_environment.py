"""Settings from environment variables, named as for Kafka's container images."""

from __future__ import annotations

from sharegroup.cli.kafka_environment import settings_from


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
