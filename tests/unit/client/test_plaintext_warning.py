"""A warning for passwords and tokens that go over the network unencrypted."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from sharegroup.client.net.cluster import Cluster
from sharegroup.client.net.connection import Connection
from sharegroup.client.net.connections import Address
from sharegroup.client.net.sasl import warn_of_plaintext
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import KafkaError, NetworkException

PASSWORD = "hunter2"


def config(
    protocol: str = "SASL_PLAINTEXT", mechanism: str = "PLAIN", **more: object
) -> ClientConfig:
    credentials: dict[str, object] = {
        "sasl_plain_username": "ann", "sasl_plain_password": PASSWORD,
    }  # fmt: skip
    if mechanism == "OAUTHBEARER":
        credentials = {"sasl_oauth_token_provider": lambda: "token"}
    return ClientConfig(
        security_protocol=protocol,
        sasl_mechanism=mechanism,
        **credentials,
        **more,  # type: ignore[arg-type]
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if text.startswith("event=credentials_unencrypted")]


@pytest.mark.parametrize(
    ("protocol", "mechanism", "host", "warned"),
    [
        ("SASL_PLAINTEXT", "PLAIN", "broker.example", True),
        ("SASL_PLAINTEXT", "PLAIN", "192.0.2.1", True),
        ("SASL_PLAINTEXT", "PLAIN", "2001:db8::1", True),
        ("SASL_PLAINTEXT", "PLAIN", "localhost.example", True),
        ("SASL_PLAINTEXT", "OAUTHBEARER", "broker.example", True),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256", "broker.example", False),
        ("SASL_SSL", "PLAIN", "broker.example", False),
        ("SASL_PLAINTEXT", "PLAIN", "localhost", False),
        ("SASL_PLAINTEXT", "PLAIN", "LOCALHOST.", False),
        ("SASL_PLAINTEXT", "PLAIN", "127.0.0.1", False),
        ("SASL_PLAINTEXT", "PLAIN", "127.9.9.9", False),
        ("SASL_PLAINTEXT", "PLAIN", "::1", False),
        ("SASL_PLAINTEXT", "PLAIN", "::ffff:127.0.0.1", False),
    ],
)
def test_warning_is_for_secrets_that_leave_this_machine(
    protocol: str, mechanism: str, host: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert warn_of_plaintext(config(protocol, mechanism), (host, 9092)) is warned
    assert len(warnings(caplog)) == int(warned)
    for text in warnings(caplog):
        assert "security_protocol=SASL_SSL" in text
        assert host in text
        assert PASSWORD not in text


def test_a_client_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often it tries to connect, and to whichever broker."""
    caplog.set_level(logging.WARNING)
    attempts: list[Address] = []

    async def fail(address: Address, *_: Any, **__: Any) -> Connection:
        attempts.append(address)
        raise NetworkException("nobody listens")

    async def connect_twice() -> None:
        servers = {"bootstrap_servers": "192.0.2.1:9,192.0.2.2:9", "retry_backoff_ms": 1}
        cluster = Cluster(config(**servers), connect=fail)
        try:
            for _ in range(2):
                with pytest.raises(KafkaError):
                    await cluster.any_connection()
        finally:
            cluster.close()

    asyncio.run(connect_twice())
    assert len(attempts) == 4
    assert len(warnings(caplog)) == 1
