"""Secrets among new settings: the output of a change goes to logs of pipelines."""

from __future__ import annotations

import pytest

from sharegroup.cli.topics.configs import HIDDEN, shown


@pytest.mark.parametrize(
    "name",
    [
        *("ssl.keystore.password", "ssl.key.password", "ssl.truststore.password"),
        *("listener.name.internal.ssl.keystore.password", "ssl.keystore.key"),
        *("sasl.jaas.config", "listener.name.a.plain.sasl.jaas.config"),
        "delegation.token.secret.key",
    ],
)
def test_secret_is_hidden(name: str) -> None:
    assert shown({name: "hunter2"}) == {name: HIDDEN}


def test_other_settings_are_shown() -> None:
    values = {"retention.ms": "5", "ssl.keystore.location": "/k", "cleanup.policy": "delete"}
    assert shown(values) == values
