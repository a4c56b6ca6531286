"""What ``--command-config`` means to our clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from sharegroup.cli.common.client_properties import client_options
from sharegroup.cli.common.cluster_access import Access
from sharegroup.client.settings.client_config import ClientConfig, ProducerConfig
from sharegroup.client.settings.consumer_config import ShareConsumerConfig


def options(
    properties: dict[str, str], kind: type[ClientConfig] = ClientConfig
) -> tuple[dict[str, Any], list[str]]:
    warned: list[str] = []
    return client_options(properties, kind, warn=warned.append), warned


def test_plain_properties_become_options_of_their_types() -> None:
    assert options({"client.id": "me", "request.timeout.ms": "5000"}) == (
        {"client_id": "me", "request_timeout_ms": 5000},
        [],
    )


def test_password_of_kafkas_login_line_is_found() -> None:
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="se\\"cret;=";'
    )
    found, _ = options(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": jaas,
            "ssl.truststore.location": "/ca.pem",
            "ssl.truststore.type": "PEM",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert found == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": 'se"cret;=',
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
    }


def test_names_of_librdkafka_mean_the_same() -> None:
    found, _ = options(
        {"sasl.username": "alice", "sasl.password": "s", "ssl.ca.location": "/ca.pem"}
    )
    assert found == {
        "sasl_plain_username": "alice",
        "sasl_plain_password": "s",
        "ssl_cafile": "/ca.pem",
    }


def test_token_file_is_read_for_each_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    found, _ = options({"sasl.oauthbearer.token.endpoint.url": f"file://{file}"})
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        assert found["sasl_oauth_token_provider"]() == token


def test_producer_properties_have_kafkas_names() -> None:
    properties = {
        "acks": "1",
        "enable.idempotence": "false",
        "compression.type": "none",
        "linger.ms": "20",
        "batch.size": "1000",
    }
    assert options(properties, ProducerConfig)[0] == {
        "acks": 1,
        "idempotent": False,
        "compression": None,
        "linger_ms": 20,
        "batch_bytes": 1000,
    }
    assert options({"acks": "all"}, ProducerConfig)[0] == {"acks": "all"}


def test_property_of_another_client_is_named_and_not_used() -> None:
    properties = {"group.id": "g", "key.deserializer": "StringDeserializer"}
    assert options(properties) == (
        {},
        [
            "--command-config: group.id is ignored",
            "--command-config: key.deserializer is ignored",
        ],
    )


def test_consumer_properties_are_taken_and_javas_classes_are_not() -> None:
    properties = {
        "in.flight.max": "50",
        "share.acknowledgement.mode": "explicit",
        "client.rack": "r1",
        "value.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
    }
    assert options(properties, ShareConsumerConfig) == (
        {"in_flight_max": 50, "share_acknowledgement_mode": "explicit", "client_rack": "r1"},
        ["--command-config: value.deserializer is ignored"],
    )


def test_group_config_among_consumer_properties_is_left_to_the_client_to_refuse() -> None:
    found, warned = options({"auto.offset.reset": "earliest"}, ShareConsumerConfig)
    assert (found, warned) == ({"auto_offset_reset": "earliest"}, [])


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"ssl.truststore.location": "/a.jks"}, "ssl.truststore.location is a Java key store"),
        ({"ssl.keystore.location": "/a", "ssl.keystore.type": "PKCS12"}, "set ssl.keystore.type="),
        (
            {"sasl.kerberos.service.name": "kafka"},
            "sasl.kerberos.service.name is not supported by this client",
        ),
        ({"sasl.jaas.config": "PlainLoginModule required;"}, "names no username and no password"),
        ({"request.timeout.ms": "soon"}, "request.timeout.ms=soon: expected a whole number"),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://login"},
            "expected file:///path of a file with the token",
        ),
    ],
)
def test_property_that_would_have_no_effect_is_refused(
    properties: dict[str, str], says: str
) -> None:
    with pytest.raises(click.UsageError, match=says):
        options(properties)


def test_passwords_are_in_no_representation() -> None:
    access = Access("127.0.0.1:9092", 1_000, {"sasl.password": "secret"})
    assert "secret" not in repr(access)


def test_boolean_is_true_or_false() -> None:
    with pytest.raises(click.UsageError, match=r"enable\.idempotence=yes: expected true or false"):
        options({"enable.idempotence": "yes"}, ProducerConfig)
