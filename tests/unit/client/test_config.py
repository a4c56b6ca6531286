"""Options: checked once, and a wrong one is named with what was meant."""

import ssl
from dataclasses import fields
from enum import StrEnum
from typing import Any, get_type_hints

import pytest

from sharegroup.client import (
    AcknowledgementMode,
    AcquireMode,
    AdminClient,
    Compression,
    OnDeserializationError,
    Producer,
    SecurityProtocol,
    ShareConsumer,
)
from sharegroup.client.settings.client_config import (
    ClientConfig,
    ClientOptions,
    ProducerConfig,
    ProducerOptions,
    addresses_of,
    config_from,
)
from sharegroup.client.settings.consumer_config import (
    GROUP_CONFIGS,
    ShareConsumerConfig,
    ShareConsumerOptions,
)
from sharegroup.errors import InvalidConfig

TLS = ssl.create_default_context()
PLAIN = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "billing",
    "sasl_plain_password": "correct horse",
}


@pytest.mark.parametrize(
    ("options", "config"),
    [
        (ClientOptions, ClientConfig),
        (ProducerOptions, ProducerConfig),
        (ShareConsumerOptions, ShareConsumerConfig),
    ],
    ids=["client", "producer", "share_consumer"],
)
def test_options_and_configuration_classes_have_the_same_fields(
    options: type[Any], config: type[Any]
) -> None:
    assert set(get_type_hints(options)) == {field.name for field in fields(config)}


@pytest.mark.parametrize("name", sorted(GROUP_CONFIGS))
def test_broker_setting_is_refused_with_a_hint(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{name} is not an option of this client; use"):
        config_from(ShareConsumerConfig, {"group_id": "g", name: 1})


def test_the_hint_names_the_group_config() -> None:
    with pytest.raises(InvalidConfig, match=r"share\.auto\.offset\.reset"):
        ShareConsumer("t", group_id="g", auto_offset_reset="earliest")  # type: ignore[call-arg]


def test_a_misspelt_option_gets_the_nearest() -> None:
    with pytest.raises(InvalidConfig, match="did you mean linger_ms"):
        Producer(lingerms=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (ClientConfig, {"security_protocol": "TLS"}, "expected PLAINTEXT, SSL, SASL_PLAIN"),
        (ProducerConfig, {"buffer_bytes": 1000}, "is below request_bytes_max=1048576"),
        (ClientConfig, {"ssl_cafile": "ca.pem"}, "ssl_cafile with security_protocol='PLAINTEXT'"),
        (ClientConfig, {"security_protocol": "SSL", "ssl_keyfile": "k"}, "need ssl_certfile"),
        (
            ClientConfig,
            {"security_protocol": "SSL", "ssl_context": TLS, "ssl_cafile": "ca.pem"},
            "ssl_context excludes ssl_cafile",
        ),
        (
            ClientConfig,
            {"security_protocol": "SSL", "ssl_context": TLS, "ssl_check_hostname": False},
            "ssl_context excludes ssl_check_hostname",
        ),
        (ClientConfig, {"security_protocol": "SASL_SSL"}, "sasl_mechanism=None; expected PLAIN"),
        (
            ClientConfig,
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"},
            "'PLAIN' needs sasl_plain_password and sasl_plain_username",
        ),
        (
            ClientConfig,
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            "'OAUTHBEARER' needs sasl_oauth_token_provider",
        ),
        (ClientConfig, {**PLAIN, "sasl_oauth_token_provider": str}, "'PLAIN' excludes sasl_oauth"),
        (ClientConfig, {**PLAIN, "sasl_plain_password": ""}, "must not be empty"),
        (ClientConfig, {**PLAIN, "sasl_plain_username": "a\0b"}, "must not contain NUL"),
        (
            ClientConfig,
            {**PLAIN, "security_protocol": "SSL"},
            "sasl_plain_username with security_protocol='SSL'; expected SASL_SSL",
        ),
        (ClientConfig, {"bootstrap_servers": " , "}, "bootstrap_servers is empty"),
        (ClientConfig, {"bootstrap_servers": "host"}, "expected host:port"),
        (ClientConfig, {"bootstrap_servers": "host:99999"}, "expected host:port"),
        (ClientConfig, {"bootstrap_servers": "[::1"}, "expected host:port"),
        (ClientConfig, {"bootstrap_servers": ":9092"}, "expected host:port"),
        (ClientConfig, {"bootstrap_servers": "two words:9092"}, "expected host:port"),
        (ClientConfig, {"bootstrap_servers": "http://a:1/b"}, "expected host:port"),
        (
            ClientConfig,
            {"bootstrap_servers": "a:1,SSL://b:2"},
            "expected b:2 without SSL://; security_protocol chooses the protocol, and it is PLAIN",
        ),
        (
            ClientConfig,
            {"bootstrap_servers": ["kafka://[::1]:9092"]},
            "expected ::1:9092 without kafka://",
        ),
        (ClientConfig, {"request_timeout_ms": 0}, "request_timeout_ms=0; expected 1 or more"),
        (ClientConfig, {"retry_backoff_max_ms": 5}, "is below retry_backoff_ms=100"),
        (ClientConfig, {"reconnect_backoff_max_ms": 5}, "is below reconnect_backoff_ms=50"),
        (ClientConfig, {"connections_max_idle_ms": 0}, "idle_ms=0; expected 1 or more, or -1"),
        (ClientConfig, {"send_buffer_bytes": -2}, "send_buffer_bytes=-2; expected 1 or more"),
        (ClientConfig, {"client_dns_lookup": "default"}, "expected use_all_dns_ips or resolve_can"),
        (ClientConfig, {"metadata_recovery_strategy": "no"}, "expected rebootstrap or none"),
        (ProducerConfig, {"transactional_id": ""}, "expected a name that is not empty"),
        (ProducerConfig, {"transactional_id": "x", "idempotent": False}, "and idempotent=True"),
        (ClientConfig, {"request_timeout_ms": "500"}, "='500'; expected a whole number"),
        (ClientConfig, {"request_timeout_ms": 0.5}, "=0.5; expected a whole number"),
        (ProducerConfig, {"idempotent": "false"}, "='false'; expected True or False"),
        (ShareConsumerConfig, {"in_flight_max": "5"}, "='5'; expected a whole number, or None"),
        (ProducerConfig, {"acks": 2}, "expected 'all', 1 or 0"),
        (ProducerConfig, {"acks": 1}, "needs idempotent=False"),
        (ProducerConfig, {"compression": "brotli"}, "expected None, gzip, snappy, lz4 or zstd"),
        (ProducerConfig, {"in_flight_max": 6}, "expected 1 to 5"),
        (ShareConsumerConfig, {}, "group_id is missing"),
        (
            ShareConsumerConfig,
            {"group_id": "g", "share_acknowledgement_mode": "manual"},
            "expected implicit or explicit",
        ),
        (
            ShareConsumerConfig,
            {"group_id": "g", "share_acquire_mode": "strict"},
            "expected batch_optimized or record_limit",
        ),
        (
            ShareConsumerConfig,
            {"group_id": "g", "value_deserializer": "json"},
            "value_deserializer='json'; expected a function of bytes, or None",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_values_out_of_range_are_refused(
    kind: type[ClientConfig], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        config_from(kind, options)


def test_bootstrap_servers_may_be_a_string_or_a_list() -> None:
    expected = (("a", 1), ("b", 2))
    assert addresses_of("a:1, b:2") == expected
    assert addresses_of(["a:1", "b:2"]) == expected
    assert addresses_of("[::1]:9092") == (("::1", 9092),)


def test_bootstrap_server_may_name_the_protocol_of_the_connection() -> None:
    assert addresses_of("PLAINTEXT://a:1, plaintext://b:2") == (("a", 1), ("b", 2))
    ClientConfig(bootstrap_servers="PLAINTEXT://a:1,b:2")
    ClientConfig(bootstrap_servers="SSL://a:1", security_protocol=SecurityProtocol.SSL)


def test_clients_are_made_without_a_network() -> None:
    AdminClient(bootstrap_servers="nowhere.invalid:1")
    Producer(bootstrap_servers="nowhere.invalid:1")
    ShareConsumer("t", bootstrap_servers="nowhere.invalid:1", group_id="g")


def test_secrets_are_not_shown() -> None:
    config = config_from(ClientConfig, PLAIN)
    with_key = {"security_protocol": "SSL", "ssl_certfile": "c.pem", "ssl_password": "battery"}
    assert "billing" in repr(config)
    assert "correct horse" not in repr(config)
    assert "battery" not in repr(config_from(ClientConfig, with_key))


@pytest.mark.parametrize(
    ("kind", "name", "given", "member"),
    [
        (ClientConfig, "security_protocol", "PLAINTEXT", SecurityProtocol.PLAINTEXT),
        (ProducerConfig, "compression", "zstd", Compression.ZSTD),
        (
            ShareConsumerConfig,
            "share_acknowledgement_mode",
            "explicit",
            AcknowledgementMode.EXPLICIT,
        ),
        (ShareConsumerConfig, "share_acquire_mode", "record_limit", AcquireMode.RECORD_LIMIT),
        (ShareConsumerConfig, "on_deserialization_error", "reject", OnDeserializationError.REJECT),
    ],
    ids=lambda value: str(value)[:30],
)
def test_enum_option_accepts_a_member_or_a_string(
    kind: type[ClientConfig], name: str, given: str, member: StrEnum
) -> None:
    others = {"group_id": "g"} if kind is ShareConsumerConfig else {}
    for value in (given, member):
        assert getattr(config_from(kind, {name: value, **others}), name) is member
    assert member == given
    assert str(member) == given
    assert {given: 1}[member] == 1


@pytest.mark.parametrize("topic", ["", " ", ["orders"], b"orders", None])
def test_subscription_to_an_invalid_topic_name_is_refused(topic: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="expected the name of a topic"):
        ShareConsumer(topic, group_id="g")
