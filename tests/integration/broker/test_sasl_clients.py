"""Logins of our client on our broker: mechanisms, users that change, tokens and sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharegroup.broker.access.token_keys import UNKNOWN_KEY_PAUSE_MS
from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.errors import InvalidConfig, SaslAuthenticationFailed, UnsupportedSaslMechanism
from sharegroup.protocol_enums import ScramMechanism
from sharegroup.testing import ManualClock, TestBroker, run_broker
from tests.integration.broker.sasl_scene import (
    CLOSED,
    PASSWORD,
    USER,
    add_user,
    client_options,
    counts,
    settings,
)
from tests.support.token_issuer import claims_of, key_of, key_set, signed, unsigned

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    folder = tmp_path_factory.mktemp("sasl")
    with run_broker(settings(folder, connection_failed_authentication_delay_ms="0")) as running:
        add_user(running, SHA_256)
        add_user(running, SHA_512)
        yield running


def topics(options: dict[str, Any]) -> list[str]:
    """Log in and ask for something; return the names of topics."""

    async def ask() -> list[str]:
        async with AdminClient(**options) as admin:
            return list(await admin.list_topics())

    return asyncio.run(ask())


def token_options(running: TestBroker, token: str) -> dict[str, Any]:
    options = client_options(running, "OAUTHBEARER", sasl_oauth_token_provider=lambda: token)
    return {name: value for name, value in options.items() if "_plain_" not in name}


def valid_token(key_id: str = "first", **changed: Any) -> str:
    return signed({**claims_of("carol", time.time()), **changed}, key_of(key_id))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_logs_in_with_a_password(served: TestBroker, mechanism: str) -> None:
    before = counts(served, "succeeded").get(mechanism, 0)
    assert topics(client_options(served, mechanism)) == []
    assert counts(served, "succeeded")[mechanism] > before


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    "wrong", [{"sasl_plain_password": "wrong"}, {"sasl_plain_username": "nobody"}]
)
def test_wrong_password_and_unknown_user_are_refused_alike(
    served: TestBroker, mechanism: str, wrong: dict[str, str]
) -> None:
    texts = {
        "PLAIN": "Invalid username or password",
        "SCRAM-SHA-256": "invalid credentials with SASL mechanism SCRAM-SHA-256",
        "SCRAM-SHA-512": "invalid credentials with SASL mechanism SCRAM-SHA-512",
    }
    with pytest.raises(SaslAuthenticationFailed, match=texts[mechanism]):
        topics(client_options(served, mechanism, **wrong))


def test_a_user_logs_in_with_a_token(served: TestBroker) -> None:
    assert topics(token_options(served, valid_token())) == []


@pytest.mark.parametrize(
    "token",
    [
        valid_token(iss="https://other.example"),
        valid_token(aud="other"),
        valid_token(exp=time.time() - 60),
        valid_token("unknown"),
        unsigned(claims_of("carol", time.time()), kid="first"),
    ],
    ids=["issuer", "audience", "expired", "key", "none"],
)
def test_other_tokens_are_refused(served: TestBroker, token: str) -> None:
    with pytest.raises(SaslAuthenticationFailed, match="invalid_token"):
        topics(token_options(served, token))


def test_a_new_key_is_read_when_a_token_needs_it(tmp_path: Path) -> None:
    clock = ManualClock()
    with run_broker(settings(tmp_path), clock=clock) as running:
        running.advance(UNKNOWN_KEY_PAUSE_MS / 1000)
        (tmp_path / "keys.json").write_bytes(key_set(key_of("second")))
        assert topics(token_options(running, valid_token("second"))) == []
        (keys,) = running.running.parts.logins.token_keys
        assert (keys.read_count, keys.key_count) == (2, 1)


def test_mechanisms_that_are_not_enabled_are_refused(tmp_path: Path) -> None:
    values = settings(tmp_path, sasl_enabled_mechanisms="SCRAM-SHA-512")
    with run_broker(values) as running:
        add_user(running, SHA_512)
        assert topics(client_options(running, "SCRAM-SHA-512")) == []
        with pytest.raises(UnsupportedSaslMechanism, match="the broker offers SCRAM-SHA-512"):
            topics(client_options(running, "PLAIN"))


def test_credentials_survive_a_restart_and_removed_ones_are_refused(tmp_path: Path) -> None:
    values = settings(tmp_path, connection_failed_authentication_delay_ms="0")
    with run_broker(values, data=str(tmp_path / "data")) as running:
        add_user(running, SHA_256)
        running.kill()
        running.start()
        options = client_options(running, "SCRAM-SHA-256")
        assert topics(options) == []
        add_user(running, SHA_256, password="another")
        with pytest.raises(SaslAuthenticationFailed):
            topics(options)
        assert topics({**options, "sasl_plain_password": "another"}) == []


def test_a_client_logs_in_again_before_its_session_ends(tmp_path: Path) -> None:
    """Records are written for three seconds, while each session lasts one and a half."""
    values = settings(tmp_path, connections_max_reauth_ms="1500")

    async def write(options: dict[str, Any]) -> int:
        async with AdminClient(**options) as admin:
            await admin.create_topics([NewTopic("orders", 1)])
        sent = 0
        async with Producer(**options) as producer:
            while counts(running, "renewed").get("SCRAM-SHA-256", 0) < 2:
                await producer.send_and_wait("orders", b"apple")
                sent += 1
        return sent

    with run_broker(values) as running:
        add_user(running, SHA_256)
        sent = asyncio.run(asyncio.wait_for(write(client_options(running, "SCRAM-SHA-256")), 20))
        assert running.running.parts.logins.expired_count == 0
        assert sent > 0


PREFIX = f"listener.name.{CLOSED.lower()}"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "does not have 'GSSAPI'"),
        ({"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-1"}, "does not have 'SCRAM-SHA-1'"),
        ({f"{PREFIX}.plain.sasl.jaas.config": ""}, r"plain\.sasl\.jaas\.config is not set"),
        ({f"{PREFIX}.plain.sasl.jaas.config": "x.PlainLoginModule required;"}, "login module"),
        ({f"{PREFIX}.sasl.oauthbearer.expected.issuer": ""}, r"expected\.issuer"),
        ({f"{PREFIX}.sasl.oauthbearer.expected.audience": ""}, r"expected\.audience"),
        ({f"{PREFIX}.sasl.oauthbearer.jwks.endpoint.url": ""}, r"jwks\.endpoint\.url"),
        ({f"{PREFIX}.sasl.oauthbearer.jwks.endpoint.url": "file:///none"}, "not readable"),
        ({"sasl.server.callback.handler.class": "com.example.Mine"}, "Java class"),
    ],
)
def test_settings_that_cannot_work_end_the_start(
    tmp_path: Path, changed: dict[str, str], reason: str
) -> None:
    with (
        pytest.raises(InvalidConfig, match=reason) as error,
        run_broker({**settings(tmp_path), **changed}),
    ):
        pass
    assert PASSWORD not in str(error.value)
    assert USER not in str(error.value)
