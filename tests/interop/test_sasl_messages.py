"""Logins message by message: our broker and Apache Kafka give the same answers.

Each scene is played on a bare connection, and its outcome is the list of the answers' error codes;
``closed`` is the end of the connection.  Where the two differ, docs/differences.md has a row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.describe_user_scram_credentials.v0.request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v0.request import SaslHandshakeRequest as BareHandshakeRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.static.primitive import i8, i32

from sharegroup.testing import run_broker
from tests.faults.raw_connection import RawConnection
from tests.integration.broker.sasl_scene import plain, versions
from tests.interop.secure_listeners import (
    LOGIN_MS,
    PASSWORD,
    USER,
    Certificates,
    SecureKafka,
    why_no_certificates,
)
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.kafka_peer import why_missing

missing = why_missing() or why_no_certificates()
CLOSED = "closed"
METADATA = MetadataRequest(topics=(), include_topic_authorized_operations=False)


class Ports(NamedTuple):
    open: int
    """The listener without logins."""
    sasl: int


@pytest.fixture(
    scope="module",
    params=[
        "sharegroup",
        pytest.param(
            "kafka",
            marks=[
                LONG_WITH_A_JVM,
                pytest.mark.kafka,
                pytest.mark.skipif(missing is not None, reason=missing or ""),
            ],
        ),
    ],
)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Ports]]:
    if request.param == "kafka":
        certificates = Certificates(tmp_path_factory.mktemp("certificates"))
        with SecureKafka(tmp_path_factory.mktemp("kafka"), certificates) as kafka:
            yield "kafka", Ports(int(kafka.bootstrap_servers.rpartition(":")[2]), kafka.sasl_port)
        return
    values = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{USER}="{PASSWORD}";'
        ),
        "connections.max.reauth.ms": str(LOGIN_MS),
    }
    with run_broker(values) as running:
        addresses = running.running.listeners.split(",")
        yield "sharegroup", Ports(*(int(part.rpartition(":")[2]) for part in addresses))


def played(port: int, *messages: Any) -> list[Any]:
    """Send messages one after the other; return the error codes of the answers."""
    outcome: list[Any] = []
    with RawConnection(port) as connection:
        for message in messages:
            try:
                outcome.append(_answer(connection, message))
            except ConnectionResetError:
                outcome.append(CLOSED)
                break
        else:
            if outcome and outcome[-1] not in (0, b""):
                outcome.append(CLOSED if connection.answer() is None else "more")
    return outcome


def _answer(connection: RawConnection, message: Any) -> Any:
    if message == "versions":
        return int(versions(connection).error_code)
    if isinstance(message, bytes):
        connection.send_frame(message)
        answer = connection.answer()
        if answer is None:
            raise ConnectionResetError
        return answer
    answer = connection.ask(message)
    return int(getattr(answer, "error_code", 0))


def handshake(mechanism: str = "PLAIN") -> SaslHandshakeRequest:
    return SaslHandshakeRequest(mechanism=mechanism)


def authenticate(message: bytes) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=message)


RIGHT = plain(USER, PASSWORD)
UNSUPPORTED, ILLEGAL, FAILED = 33, 34, 58
LOGIN = (handshake(), authenticate(RIGHT))
UNKNOWN_API = struct.pack(">hhih", 999, 0, 1, -1)
FUTURE_HANDSHAKE = struct.pack(">hhih", 17, 9, 1, -1) + b"\0\5PLAIN"

SCENES: dict[str, tuple[tuple[Any, ...], list[Any]]] = {
    "a login": (("versions", *LOGIN, METADATA), [0, 0, 0, 0]),
    "a login without ApiVersions": ((*LOGIN, METADATA), [0, 0, 0]),
    "ApiVersions twice": (("versions", "versions"), [0, CLOSED]),
    "ApiVersions after the handshake": ((handshake(), "versions"), [0, CLOSED]),
    "no login": ((METADATA,), [CLOSED]),
    "no handshake": ((authenticate(RIGHT),), [CLOSED]),
    "an unknown mechanism": ((handshake("GSSAPI"),), [UNSUPPORTED, CLOSED]),
    "a mechanism in lower case": ((handshake("plain"),), [UNSUPPORTED, CLOSED]),
    "a wrong password": ((handshake(), authenticate(plain(USER, "x"))), [0, FAILED, CLOSED]),
    "an unknown user": ((handshake(), authenticate(plain("x", "x"))), [0, FAILED, CLOSED]),
    "an empty message": ((handshake(), authenticate(b"")), [0, FAILED, CLOSED]),
    "another authorization id": (
        (handshake(), authenticate(b"admin" + RIGHT)),
        [0, FAILED, CLOSED],
    ),
    "SCRAM with channel binding": (
        (handshake("SCRAM-SHA-256"), authenticate(b"p=tls-unique,,n=x,r=y")),
        [0, FAILED, CLOSED],
    ),
    "PLAIN after a handshake of SCRAM": (
        (handshake("SCRAM-SHA-512"), authenticate(RIGHT)),
        [0, FAILED, CLOSED],
    ),
    "bare messages": ((BareHandshakeRequest(mechanism="PLAIN"), RIGHT, METADATA), [0, b"", 0]),
    "a wrong bare message": (
        (BareHandshakeRequest(mechanism="PLAIN"), plain(USER, "x")),
        [0, CLOSED],
    ),
    "a handshake of the future": ((FUTURE_HANDSHAKE,), [CLOSED]),
    "an unknown request": ((UNKNOWN_API,), [CLOSED]),
    "a second login": ((*LOGIN, *LOGIN, METADATA), [0, 0, 0, 0, 0]),
    "a third login within a second": ((*LOGIN, *LOGIN, handshake()), [0, 0, 0, 0, ILLEGAL]),
    "authentication among requests": ((*LOGIN, authenticate(RIGHT)), [0, 0, ILLEGAL]),
    "a request in a second login": ((*LOGIN, handshake(), METADATA), [0, 0, 0, CLOSED]),
    "a second login with a wrong password": (
        (*LOGIN, handshake(), authenticate(plain(USER, "x"))),
        [0, 0, 0, FAILED, CLOSED],
    ),
    "a second login with an unknown mechanism": (
        (*LOGIN, handshake("GSSAPI")),
        [0, 0, UNSUPPORTED, CLOSED],
    ),
}
KAFKAS: dict[str, list[Any]] = {
    "ApiVersions after the handshake": [0, ILLEGAL, CLOSED],
    "a request in a second login": [0, 0, 0, 0],  # An answer in which this error has no place.
    "a second login with an unknown mechanism": [0, 0, CLOSED],
}
"""The outcomes of Apache Kafka that are others on purpose."""

OPEN_AFTER_ERROR = ("a third login within a second", "authentication among requests")
"""Scenes whose last answer is an error after which the connection stays open."""


@pytest.mark.parametrize("name", SCENES)
def test_scene(broker: tuple[str, Ports], name: str) -> None:
    messages, expected = SCENES[name]
    kind, ports = broker
    if kind == "kafka":
        expected = KAFKAS.get(name, expected)
    if name in OPEN_AFTER_ERROR:
        messages, expected = (*messages, METADATA), [*expected, 0]
    assert played(ports.sasl, *messages) == expected


def test_a_listener_without_logins(broker: tuple[str, Ports]) -> None:
    _, ports = broker
    assert played(ports.open, handshake(), METADATA) == [ILLEGAL, 0]
    assert played(ports.open, authenticate(RIGHT), METADATA) == [ILLEGAL, 0]


# Credentials.


def upsertion(user: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user,
        mechanism=i8(mechanism),
        iterations=i32(iterations),
        salt=b"salt",
        salted_password=b"salted",
    )


def deletion(user: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=user, mechanism=i8(mechanism))


Changes = tuple[ScramCredentialUpsertion | ScramCredentialDeletion, ...]

ALTERATIONS: tuple[tuple[Changes, dict[str, int]], ...] = (
    ((upsertion("a"), upsertion("b", 2, 16384)), {"a": 0, "b": 0}),
    ((upsertion("a", 2),), {"a": 0}),
    ((upsertion(""), upsertion("c")), {"": 93, "c": 0}),
    ((upsertion("d", 1, 4095), upsertion("e", 1, 16385)), {"d": 93, "e": 93}),
    ((upsertion("d", 0), upsertion("e", 3)), {"d": 33, "e": 33}),
    ((deletion("a"), deletion("a", 2)), {"a": 92}),
    ((deletion("a"), upsertion("a")), {"a": 92}),
    ((upsertion("d"), upsertion("d", 2)), {"d": 92}),
    ((deletion("nobody"), deletion("b", 1), deletion("c")), {"nobody": 91, "b": 91, "c": 0}),
    ((deletion("a"), deletion("b", 2)), {"a": 0, "b": 0}),
    ((deletion("a", 2),), {"a": 0}),
    ((), {}),
)


def test_credentials_have_the_same_codes(broker: tuple[str, Ports]) -> None:
    _, ports = broker
    with RawConnection(ports.open) as connection:
        for changes, expected in ALTERATIONS:
            assert altered(connection, changes) == expected
        altered(connection, (upsertion("a"),))
        assert described(connection, "a", "a", "x") == {"a": 92, "x": 91}
        assert described(connection) == {"a": 0}
        altered(connection, (deletion("a"),))
        assert described(connection) == {}


def altered(connection: RawConnection, changes: Changes) -> dict[str, int]:
    answer = connection.ask(
        AlterUserScramCredentialsRequest(
            deletions=tuple(c for c in changes if isinstance(c, ScramCredentialDeletion)),
            upsertions=tuple(c for c in changes if isinstance(c, ScramCredentialUpsertion)),
        )
    )
    return {result.user: int(result.error_code) for result in answer.results}


def described(connection: RawConnection, *users: str) -> dict[str, int]:
    named = tuple(UserName(name=user) for user in users) or None
    answer = connection.ask(DescribeUserScramCredentialsRequest(users=named))
    return {result.user: int(result.error_code) for result in answer.results}
