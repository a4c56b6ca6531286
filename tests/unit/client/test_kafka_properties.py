"""Kafka's own properties become our options; what protects a connection is never passed over."""

from __future__ import annotations

from dataclasses import fields

import pytest

from sharegroup.client.settings.client_config import ClientConfig, ProducerConfig
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.settings.kafka_properties import OBJECTS, TokenFile, client_options
from sharegroup.errors import InvalidConfig


def test_names_of_kafka_and_of_librdkafka_are_understood():
    properties = {
        "bootstrap.servers": "a:1",
        "request.timeout.ms": "500",
        "socket.connection.setup.timeout.ms": "700",
        "sasl.username": "alice",
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert client_options(properties, ClientConfig) == {
        "bootstrap_servers": "a:1",
        "request_timeout_ms": 500,
        "connect_timeout_ms": 700,
        "sasl_plain_username": "alice",
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
    }


@pytest.mark.parametrize(("text", "acks"), [("all", "all"), ("-1", -1), ("0", 0)])
def test_acks_is_all_or_a_number(text, acks):
    assert client_options({"acks": text}, ProducerConfig) == {"acks": acks}


def test_token_file_is_read_for_each_token(tmp_path):
    path = tmp_path / "token"
    url = f"file://{path}"
    options = client_options({"sasl.oauthbearer.token.endpoint.url": url}, ClientConfig)
    provider = options["sasl_oauth_token_provider"]
    assert provider == TokenFile(str(path))
    path.write_text("first\n")
    assert provider() == "first"
    path.write_text("second\n")
    assert provider() == "second"


@pytest.mark.parametrize("kind", [ClientConfig, ProducerConfig, ShareConsumerConfig])
def test_every_option_is_of_a_type_that_a_text_can_give(kind):
    """A new option of another type must be added to `OBJECTS`, or be read from its text."""
    texts = {"int": 7, "int | None": 7, "bool": True}
    for field in fields(kind):
        if field.name in OBJECTS:
            continue
        assert "Callable" not in str(field.type), field.name
        expected = texts.get(str(field.type), "7")
        found = client_options({field.name.replace("_", "."): str(expected).lower()}, kind)
        if field.name != "acks":
            assert found == {field.name: expected}, field.name


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("ssl.context", "x", "ssl.context is not a property of this client"),
        ("ssl.protocols", "x", "ssl.protocols is not a property of this client"),
        ("acks", "1", "acks is not a property of this client"),
        ("retry.backoff", "1", "did you mean retry.backoff.ms?"),
        ("ssl.keystore.location", "/x.jks", "is a Java key store; export it as PEM"),
        ("sasl.jaas.config", "Plain required;", "names no username and no password"),
        ("sasl.oauthbearer.token.endpoint.url", "https://x", "expected file:///path"),
        ("request.timeout.ms", "soon", "request.timeout.ms=soon: expected a whole number"),
        ("ssl.check.hostname", "1", "ssl.check.hostname=1: expected true or false"),
    ],
)
def test_invalid_property_is_refused(name, text, message):
    with pytest.raises(InvalidConfig) as caught:
        client_options({name: text}, ClientConfig)
    assert message in str(caught.value)
