"""A broker with a listener for SASL, and bare connections that log in message by message."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.static.primitive import i8, i32

from sharegroup.core.security.scram import salted_password
from sharegroup.protocol_enums import ScramMechanism
from sharegroup.testing import TestBroker
from tests.faults.raw_connection import RawConnection
from tests.support.limits import HANGING_SECONDS
from tests.support.token_issuer import AUDIENCE, ISSUER, key_of, key_set

OPEN = "PLAINTEXT"
"""The listener without logins, by which a test administers the broker."""
CLOSED = "CLIENTS"
"""The listener with SASL."""

USER, PASSWORD = "alice", "correct, horse=staple"

WAIT_SECONDS_MAX = HANGING_SECONDS

ALL_MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"


def settings(folder: Path, **changed: str) -> dict[str, str]:
    """Return the settings of a broker with both listeners and every mechanism.

    An underscore in the name of a changed setting stands for a dot.
    """
    keys = folder / "keys.json"
    keys.write_bytes(key_set(key_of("first")))
    prefix = f"listener.name.{CLOSED.lower()}"
    return {
        "listeners": f"{OPEN}://127.0.0.1:0,{CLOSED}://127.0.0.1:0",
        "listener.security.protocol.map": f"{OPEN}:PLAINTEXT,{CLOSED}:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ALL_MECHANISMS,
        f"{prefix}.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{USER}="{PASSWORD}" user_bob="hunter2";'
        ),
        f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        f"{prefix}.sasl.oauthbearer.expected.issuer": ISSUER,
        f"{prefix}.sasl.oauthbearer.expected.audience": AUDIENCE,
        **{name.replace("_", "."): value for name, value in changed.items()},
    }


def port_of(running: TestBroker, listener: str = CLOSED) -> int:
    """Return the port of a listener."""
    addresses = dict(part.split("://") for part in running.running.listeners.split(","))
    return int(addresses[listener].rpartition(":")[2])


def address_of(running: TestBroker, listener: str = CLOSED) -> str:
    """Return the address of a listener, for the option ``bootstrap_servers``."""
    return f"127.0.0.1:{port_of(running, listener)}"


def client_options(running: TestBroker, mechanism: str, **changed: Any) -> dict[str, Any]:
    """Return the options of a client of ours that logs in with a password."""
    return {
        "bootstrap_servers": address_of(running),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        **changed,
    }


def add_user(
    running: TestBroker, mechanism: ScramMechanism, user: str = USER, password: str = PASSWORD
) -> None:
    """Give a user a SCRAM credential, by the listener without logins."""
    salt = b"0123456789"
    upsertion = ScramCredentialUpsertion(
        name=user,
        mechanism=i8(mechanism),
        iterations=i32(4096),
        salt=salt,
        salted_password=salted_password(mechanism, password, salt=salt, iterations=4096),
    )
    with RawConnection(port_of(running, OPEN)) as connection:
        answer = connection.ask(
            AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,))
        )
    assert [result.error_code for result in answer.results] == [0]


def versions(connection: RawConnection) -> Any:
    """Ask for the versions, as clients do first."""
    return connection.ask(
        ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    )


def handshake(connection: RawConnection, mechanism: str = "PLAIN") -> Any:
    return connection.ask(SaslHandshakeRequest(mechanism=mechanism))


def authenticate(connection: RawConnection, message: bytes) -> Any:
    return connection.ask(SaslAuthenticateRequest(auth_bytes=message))


def plain(user: str = USER, password: str = PASSWORD) -> bytes:
    """Return the message of PLAIN."""
    return f"\0{user}\0{password}".encode()


def log_in(connection: RawConnection, *, user: str = USER, password: str = PASSWORD) -> Any:
    """Log in with PLAIN; return the last answer."""
    versions(connection)
    assert handshake(connection).error_code == 0
    return authenticate(connection, plain(user, password))


def counts(running: TestBroker, name: str) -> Mapping[str, int]:
    """Return a counter of logins by mechanism, for the listener with SASL."""
    counted = getattr(running.running.parts.logins, name)
    return {
        mechanism: number for (listener, mechanism), number in counted.items() if listener == CLOSED
    }


def wait_until(condition: Callable[[], bool], *, waiting_for: str) -> None:
    """Wait for a condition in the broker, which runs in another thread."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < end, f"{waiting_for}: not within {WAIT_SECONDS_MAX} s"
        time.sleep(0.002)
