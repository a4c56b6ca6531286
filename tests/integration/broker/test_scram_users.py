"""AlterUserScramCredentials and DescribeUserScramCredentials, with the checks of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i32

from sharegroup.testing import TestBroker, run_broker
from tests.faults.raw_connection import RawConnection
from tests.integration.broker.sasl_scene import OPEN, port_of, settings

SHA_256, SHA_512 = 1, 2

NONE = ErrorCode.none
DUPLICATE = ErrorCode.duplicate_resource
MISSING = ErrorCode.resource_not_found
UNACCEPTABLE = ErrorCode.unacceptable_credential
UNSUPPORTED = ErrorCode.unsupported_sasl_mechanism
POLICY = ErrorCode.policy_violation


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[RawConnection]:
    values = {**settings(tmp_path), "sharegroup.scram.credentials.max": "3"}
    with run_broker(values) as running, RawConnection(port_of(running, OPEN)) as opened:
        yield opened


def upsertion(
    user: str,
    mechanism: int = SHA_256,
    *,
    iterations: int = 4096,
    salt: bytes = b"salt",
    salted: bytes = b"salted",
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user,
        mechanism=i8(mechanism),
        iterations=i32(iterations),
        salt=salt,
        salted_password=salted,
    )


def deletion(user: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=user, mechanism=i8(mechanism))


def alter(
    connection: RawConnection, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, ErrorCode]:
    """Change credentials; return the error code of each user."""
    answer = connection.ask(
        AlterUserScramCredentialsRequest(
            deletions=tuple(c for c in changes if isinstance(c, ScramCredentialDeletion)),
            upsertions=tuple(c for c in changes if isinstance(c, ScramCredentialUpsertion)),
        )
    )
    codes = {result.user: result.error_code for result in answer.results}
    assert len(codes) == len(answer.results)
    return codes


def describe(connection: RawConnection, *users: str) -> dict[str, Any]:
    """Return the error code of each user, or its mechanisms and iterations."""
    named = tuple(UserName(name=user) for user in users) or None
    answer = connection.ask(DescribeUserScramCredentialsRequest(users=named))
    assert answer.error_code == NONE
    return {
        result.user: result.error_code
        or [(info.mechanism, info.iterations) for info in result.credential_infos]
        for result in answer.results
    }


def test_credentials_are_set_described_and_removed(connection: RawConnection) -> None:
    assert describe(connection) == {}
    assert alter(connection, upsertion("alice"), upsertion("bob", SHA_512, iterations=16384)) == {
        "alice": NONE,
        "bob": NONE,
    }
    assert alter(connection, upsertion("alice", SHA_512, iterations=8192)) == {"alice": NONE}
    alice, bob = [(1, 4096), (2, 8192)], [(2, 16384)]
    assert describe(connection) == {"alice": alice, "bob": bob}
    assert describe(connection, "bob", "carol", "alice", "alice") == {
        "bob": bob,
        "carol": MISSING,
        "alice": DUPLICATE,
    }
    assert alter(connection, deletion("alice"), deletion("bob", SHA_512)) == {
        "alice": NONE,
        "bob": NONE,
    }
    assert describe(connection) == {"alice": [(2, 8192)]}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), UNACCEPTABLE),
        (upsertion("a", iterations=4095), UNACCEPTABLE),
        (upsertion("a", iterations=16385), UNACCEPTABLE),
        (upsertion("a", iterations=-1), UNACCEPTABLE),
        (upsertion("a", 0), UNSUPPORTED),
        (upsertion("a", 3), UNSUPPORTED),
        (upsertion("a", -1), UNSUPPORTED),
        (upsertion("a", salt=b""), UNACCEPTABLE),
        (upsertion("a", salted=b""), UNACCEPTABLE),
        (upsertion("a", salt=bytes(1025)), UNACCEPTABLE),
        (upsertion("a" * 1025), UNACCEPTABLE),
        (upsertion("a\0b"), UNACCEPTABLE),
        (deletion(""), UNACCEPTABLE),
        (deletion("a", 3), UNSUPPORTED),
        (deletion("a"), MISSING),
    ],
)
def test_changes_are_checked_and_others_happen(
    connection: RawConnection,
    change: ScramCredentialUpsertion | ScramCredentialDeletion,
    code: ErrorCode,
) -> None:
    assert alter(connection, change, upsertion("good")) == {change.name: code, "good": NONE}
    assert list(describe(connection)) == ["good"]


def test_a_user_is_altered_once_in_a_request(connection: RawConnection) -> None:
    alter(connection, upsertion("alice"), upsertion("bob"))
    assert alter(connection, deletion("alice"), deletion("alice", SHA_512), upsertion("alice")) == {
        "alice": DUPLICATE
    }
    assert alter(connection, upsertion("bob", SHA_512), upsertion("bob", SHA_512)) == {
        "bob": DUPLICATE
    }
    assert describe(connection) == {"alice": [(1, 4096)], "bob": [(1, 4096)]}


def test_the_number_of_credentials_is_limited(connection: RawConnection) -> None:
    assert alter(connection, *map(upsertion, "abcd")) == {
        **dict.fromkeys("abc", NONE),
        "d": POLICY,
    }
    assert alter(connection, upsertion("a", iterations=5000)) == {"a": NONE}  # It replaces one.
    assert alter(connection, upsertion("a", SHA_512)) == {"a": POLICY}
    assert alter(connection, deletion("b")) == {"b": NONE}
    assert alter(connection, upsertion("d")) == {"d": NONE}


def test_a_request_without_changes(connection: RawConnection) -> None:
    assert alter(connection) == {}


def test_credentials_survive_rewritten_journals(tmp_path: Path) -> None:
    def run(running: TestBroker) -> None:
        with RawConnection(port_of(running, OPEN)) as opened:
            for _ in range(20):
                alter(opened, upsertion("alice"))
                alter(opened, deletion("alice"))
            alter(opened, upsertion("bob"))

    with run_broker(settings(tmp_path), data=str(tmp_path / "data")) as running:
        run(running)
        running.stop()
        running.start()
        with RawConnection(port_of(running, OPEN)) as opened:
            assert describe(opened) == {"bob": [(1, 4096)]}


@pytest.mark.parametrize("mechanisms", ["SCRAM-SHA-256,SCRAM-SHA-512", "SCRAM-SHA-512,PLAIN"])
def test_start_without_a_user_says_how_the_first_is_added(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mechanisms: str
) -> None:
    """A listener with PLAIN has users, in the settings."""
    data = str(tmp_path / "data")
    warning = "event=listener_without_users listener=CLIENTS"
    changed = {"sasl_enabled_mechanisms": mechanisms}
    with run_broker(settings(tmp_path, **changed), data=data) as running:
        assert (warning in caplog.text) == ("PLAIN" not in mechanisms)
        assert (f"sharegroup users add NAME --data {data}" in caplog.text) == (
            "PLAIN" not in mechanisms
        )
        with RawConnection(port_of(running, OPEN)) as opened:
            alter(opened, upsertion("alice"))
        running.stop()
        caplog.clear()
        running.start()
        assert warning not in caplog.text
