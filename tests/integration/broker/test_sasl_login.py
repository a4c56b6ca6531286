"""Logins on a listener with SASL, message by message: the order, the limits and the failures."""

from __future__ import annotations

import gc
import logging
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v13.request import MetadataRequest
from kio.schema.sasl_authenticate.v0.request import (
    SaslAuthenticateRequest as SaslAuthenticateRequest0,
)
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v0.request import SaslHandshakeRequest as SaslHandshakeRequest0
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.static.primitive import i8

from sharegroup.broker.server.sasl_login import SaslLogin
from sharegroup.client.net.sasl import ScramExchange
from sharegroup.protocol_enums import ScramMechanism
from sharegroup.testing import ManualClock, TestBroker, run_broker
from sharegroup.wire.codec.encoder import encode_request
from tests.faults.raw_connection import RawConnection
from tests.integration.broker.sasl_scene import (
    ALL_MECHANISMS,
    OPEN,
    PASSWORD,
    USER,
    add_user,
    authenticate,
    counts,
    handshake,
    log_in,
    plain,
    port_of,
    settings,
    versions,
    wait_until,
)
from tests.support.processes import readable
from tests.support.token_issuer import claims_of, key_of, signed

METADATA = MetadataRequest(topics=(), include_topic_authorized_operations=False)

OTHER_MECHANISM = (
    "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of "
    "mechanism 'PLAIN'"
)

FAILED = ErrorCode.sasl_authentication_failed
ILLEGAL = ErrorCode.illegal_sasl_state


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    folder = tmp_path_factory.mktemp("sasl")
    with run_broker(settings(folder, connection_failed_authentication_delay_ms="0")) as running:
        yield running


def test_broken_requests_cause_one_warning_for_an_address_and_second(
    served: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    begin = time.monotonic()
    for _ in range(20):
        with RawConnection(port_of(served, OPEN)) as stranger:
            stranger.send(b"\x16\x03\x01\x02\x00\x01\x00\x01")
            assert is_closed(stranger)
    seconds = time.monotonic() - begin
    lines = [line for line in caplog.messages if line.startswith("event=bad_request")]
    assert 1 <= len(lines) <= 1 + seconds
    assert "TLS handshake; the listener is PLAINTEXT" in lines[0]


@pytest.fixture
def connection(served: TestBroker) -> Iterator[RawConnection]:
    with RawConnection(port_of(served)) as opened:
        yield opened


def is_closed(connection: RawConnection) -> bool:
    return connection.answer() is None


def test_requests_are_served_after_the_login(connection: RawConnection) -> None:
    answer = log_in(connection)
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime.seconds) == (0, b"", 0)
    assert connection.ask(METADATA).brokers
    assert versions(connection).error_code == 0


def test_handshake_may_come_first(connection: RawConnection) -> None:
    answer = handshake(connection)
    assert ",".join(answer.mechanisms) == ALL_MECHANISMS
    assert authenticate(connection, plain()).error_code == 0
    assert connection.ask(METADATA).brokers


def test_version_0_has_bare_messages(connection: RawConnection) -> None:
    assert connection.ask(SaslHandshakeRequest0(mechanism="PLAIN")).error_code == 0
    connection.send_frame(plain())
    assert connection.answer() == b""
    assert connection.ask(METADATA).brokers


def test_a_bare_message_may_be_shorter_than_a_request(connection: RawConnection) -> None:
    connection.ask(SaslHandshakeRequest0(mechanism="PLAIN"))
    connection.send_frame(b"\0a\0b")
    assert is_closed(connection)  # Refused as a login, without an answer.


def test_bare_messages_of_oauthbearer(connection: RawConnection) -> None:
    connection.ask(SaslHandshakeRequest0(mechanism="OAUTHBEARER"))
    token = signed(claims_of("carol", time.time()), key_of("first"))
    connection.send_frame(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    assert connection.answer() == b""
    assert connection.ask(METADATA).brokers


def test_answers_have_the_version_of_the_request(connection: RawConnection) -> None:
    handshake(connection)
    answer = connection.ask(SaslAuthenticateRequest0(auth_bytes=plain()))
    assert answer.error_code == 0
    assert not hasattr(answer, "session_lifetime")


@pytest.mark.parametrize("after_versions", [False, True])
def test_no_other_request_is_served_before_the_login(
    connection: RawConnection, *, after_versions: bool
) -> None:
    if after_versions:
        versions(connection)
    with pytest.raises(ConnectionResetError):
        connection.ask(METADATA)


def test_no_other_request_is_served_in_the_middle_of_a_login(connection: RawConnection) -> None:
    handshake(connection)
    with pytest.raises(ConnectionResetError):
        connection.ask(METADATA)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("after_versions", [True, False])
def test_late_versions_close_the_connection(
    connection: RawConnection, mechanism: str, *, after_versions: bool
) -> None:
    """Also between the two messages of SCRAM; as in Kafka, they may only come first."""
    if after_versions:
        versions(connection)
    handshake(connection, mechanism)
    if mechanism == "SCRAM-SHA-256":
        answer = authenticate(connection, f"n,,n={USER},r=nonce".encode())
        assert answer.error_code == 0
    with pytest.raises(ConnectionResetError):
        versions(connection)


def test_versions_in_the_middle_of_a_renewal_close_the_connection(tmp_path: Path) -> None:
    with (
        run_broker(settings(tmp_path, connections_max_reauth_ms="60000")) as running,
        RawConnection(port_of(running)) as connection,
    ):
        log_in(connection)
        assert versions(connection).error_code == 0  # Between two logins it is a request as any.
        handshake(connection)
        with pytest.raises(ConnectionResetError):
            versions(connection)


def test_versions_are_answered_once(connection: RawConnection) -> None:
    assert versions(connection).error_code == 0
    with pytest.raises(ConnectionResetError):
        versions(connection)


def test_versions_may_be_asked_again_after_an_unsupported_version(
    connection: RawConnection,
) -> None:
    connection.send_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\0")
    answer = connection.answer()
    assert answer is not None
    assert struct.unpack_from(">ih", answer) == (7, 35)  # UNSUPPORTED_VERSION.
    assert log_in(connection).error_code == 0


def test_authentication_needs_a_handshake(connection: RawConnection) -> None:
    with pytest.raises(ConnectionResetError):
        authenticate(connection, plain())


def test_an_unknown_mechanism_is_answered_with_those_that_are_enabled(
    connection: RawConnection,
) -> None:
    answer = handshake(connection, "GSSAPI")
    assert answer.error_code == ErrorCode.unsupported_sasl_mechanism
    assert ",".join(answer.mechanisms) == ALL_MECHANISMS
    assert is_closed(connection)


@pytest.mark.parametrize("version", [-1, 2, 32_767])
def test_unsupported_versions_of_the_handshake_close_the_connection(
    connection: RawConnection, version: int
) -> None:
    connection.send_frame(struct.pack(">hhih", 17, version, 1, -1) + b"\0\5PLAIN")
    assert is_closed(connection)


@pytest.mark.parametrize(
    "frame", [b"GET / HT", b"\x60" * 40, b"\x16\x03\x01\0\xa5\1\0\0", bytes(200), b"\xff" * 4096]
)
def test_other_protocols_close_the_connection(connection: RawConnection, frame: bytes) -> None:
    connection.send_frame(frame)
    assert is_closed(connection)


def test_wrong_password_is_answered_and_the_connection_closed(
    served: TestBroker, connection: RawConnection
) -> None:
    before = counts(served, "failed").get("PLAIN", 0)
    answer = log_in(connection, password="wrong")
    assert answer.error_code == FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert is_closed(connection)
    assert counts(served, "failed")["PLAIN"] == before + 1


def test_a_login_goes_on_with_the_mechanism_of_its_handshake(connection: RawConnection) -> None:
    """A peer cannot choose SCRAM and then send a message of PLAIN."""
    handshake(connection, "SCRAM-SHA-512")
    answer = authenticate(connection, plain())
    assert answer.error_code == FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism SCRAM-SHA-512"
    )
    assert is_closed(connection)


def test_unknown_users_of_scram_get_a_challenge_as_well(connection: RawConnection) -> None:
    handshake(connection, "SCRAM-SHA-256")
    answer = authenticate(connection, b"n,,n=nobody,r=abcdef")
    assert answer.error_code == 0
    challenge = answer.auth_bytes
    assert challenge.startswith(b"r=abcdef")
    nonce = challenge.split(b",")[0]
    answer = authenticate(connection, b"c=biws," + nonce + b",p=" + b"A" * 43 + b"=")
    assert answer.error_code == FAILED
    assert is_closed(connection)


def test_a_bad_token_is_answered_as_a_challenge_first(connection: RawConnection) -> None:
    handshake(connection, "OAUTHBEARER")
    expired = signed(claims_of("carol", time.time() - 600), key_of("first"))
    answer = authenticate(connection, f"n,,\x01auth=Bearer {expired}\x01\x01".encode())
    assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
    # Also with a good token the login has failed.
    token = signed(claims_of("carol", time.time()), key_of("first"))
    answer = authenticate(connection, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    assert (answer.error_code, answer.error_message) == (FAILED, '{"status":"invalid_token"}')
    assert is_closed(connection)


def test_frames_are_small_before_the_login(connection: RawConnection) -> None:
    connection.send(struct.pack(">i", 4097))
    assert is_closed(connection)


def test_messages_of_passwords_are_small(connection: RawConnection) -> None:
    handshake(connection, "PLAIN")
    connection.send(struct.pack(">i", 4097))
    assert is_closed(connection)


def test_tokens_may_be_larger_but_not_without_a_limit(served: TestBroker) -> None:
    with RawConnection(port_of(served)) as connection:
        handshake(connection, "OAUTHBEARER")
        claims = {**claims_of("carol", time.time()), "groups": ["g" * 100] * 300}
        token = signed(claims, key_of("first"))
        assert len(token) > 40_000
        answer = authenticate(connection, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        assert (answer.error_code, answer.auth_bytes) == (0, b"")
    with RawConnection(port_of(served)) as connection:
        handshake(connection, "OAUTHBEARER")
        connection.send(struct.pack(">i", 524_289))
        assert is_closed(connection)


def test_large_requests_are_served_after_the_login(connection: RawConnection) -> None:
    log_in(connection)
    connection.send(struct.pack(">i", 1_000_000) + struct.pack(">hhih", 3, 12, 1, -1))
    assert not readable([connection.socket], 0.2)  # The broker waits for the rest.


def test_requests_sent_together_with_the_login_are_served(connection: RawConnection) -> None:
    """Some clients do not wait for the answers of a login."""
    messages = [
        SaslHandshakeRequest(mechanism="PLAIN"),
        SaslAuthenticateRequest(auth_bytes=plain()),
        METADATA,
    ]
    frames = [b"".join(encode_request(i, "raw", message)) for i, message in enumerate(messages)]
    connection.send(b"".join(frames))
    answers = [connection.answer() for _ in messages]
    assert [int.from_bytes((answer or b"")[:4]) for answer in answers] == [0, 1, 2]


def test_what_follows_a_failed_login_is_not_read(connection: RawConnection) -> None:
    handshake(connection)
    wrong = SaslAuthenticateRequest(auth_bytes=plain(password="wrong"))
    right = SaslAuthenticateRequest(auth_bytes=plain())
    frames = [b"".join(encode_request(i, "raw", m)) for i, m in enumerate((wrong, right, METADATA))]
    connection.send(b"".join(frames))
    assert connection.answer() is not None
    assert is_closed(connection)


def test_other_listeners_have_no_login(served: TestBroker) -> None:
    with RawConnection(port_of(served, OPEN)) as connection:
        assert handshake(connection).error_code == ILLEGAL
        answer = authenticate(connection, plain())
        assert answer.error_code == ILLEGAL
        assert connection.ask(METADATA).brokers


def test_a_second_login_is_refused_without_a_limit_on_sessions(connection: RawConnection) -> None:
    log_in(connection)
    assert handshake(connection).error_code == ILLEGAL
    answer = authenticate(connection, plain())
    assert (answer.error_code, answer.error_message) == (
        ILLEGAL,
        "SaslAuthenticate request received after successful authentication",
    )
    assert connection.ask(METADATA).brokers


def test_failures_are_delayed_and_hold_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    values = settings(tmp_path, connection_failed_authentication_delay_ms="5000")
    with (
        run_broker(values, clock=clock) as running,
        RawConnection(port_of(running)) as connection,
        RawConnection(port_of(running)) as other,
    ):
        handshake(connection)
        connection.send_frame(_authenticate_frame(plain(password="wrong")))
        assert log_in(other).error_code == 0  # Others do not wait.
        running.advance(4.9)
        assert not readable([connection.socket], 0.1)
        running.advance(0.2)
        assert connection.answer() is not None
        assert is_closed(connection)


def _authenticate_frame(message: bytes) -> bytes:
    length = (len(message) + 1).to_bytes(1)
    return struct.pack(">hhih", 36, 2, 1, -1) + b"\0" + length + message + b"\0"


def test_a_login_that_is_not_complete_in_time_is_closed(tmp_path: Path) -> None:
    clock = ManualClock()
    with run_broker(settings(tmp_path), clock=clock) as running:
        port = port_of(running)
        with (
            RawConnection(port) as silent,
            RawConnection(port) as slow,
            RawConnection(port) as done,
        ):
            handshake(slow)
            log_in(done)
            running.advance(12)
            assert is_closed(silent)
            assert is_closed(slow)
            assert done.ask(METADATA).brokers
        pending = running.running.parts.logins.pending
        wait_until(lambda: pending.count == 0, waiting_for="all connections closed")


def test_failures_are_logged_once_per_second_without_the_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    values = settings(tmp_path, connection_failed_authentication_delay_ms="0")
    with run_broker(values, clock=clock) as running, caplog.at_level(logging.DEBUG):
        for _ in range(5):
            with RawConnection(port_of(running)) as connection:
                handshake(connection)
                connection.send_frame(_authenticate_frame(plain(password="sesame")))
        wait_until(lambda: counts(running, "failed").get("PLAIN") == 5, waiting_for="5 failures")
        running.advance(1)
        with RawConnection(port_of(running)) as connection:
            connection.send_frame(b"GET / HTTP/1.1")
        wait_until(lambda: counts(running, "failed").get("") == 1, waiting_for="a failure")
    lines = [line for line in caplog.messages if "event=authentication_failed" in line]
    assert len(lines) == 2
    assert "mechanism=PLAIN reason='wrong password' unlogged=0" in lines[0]
    assert "mechanism=none" in lines[1]
    assert "unlogged=4" in lines[1]
    assert "sesame" not in caplog.text


def test_closed_connections_without_a_login_are_logged_once_per_second(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the broker closes them for; here it stops."""
    values = settings(tmp_path)
    with (
        run_broker(values, clock=ManualClock()) as running,
        caplog.at_level(logging.INFO),
        ExitStack() as connections,
    ):
        for _ in range(20):
            connections.enter_context(RawConnection(port_of(running)))
        pending = running.running.parts.logins.pending
        wait_until(lambda: pending.count == 20, waiting_for="20 connections")
        running.stop()
    [line] = [line for line in caplog.messages if "the broker stops" in line]
    assert "event=authentication_failed" in line


def test_the_oldest_unauthenticated_connection_makes_room(tmp_path: Path) -> None:
    values = {**settings(tmp_path), "sharegroup.unauthenticated.connections.per.ip.max": "3"}
    with run_broker(values) as running:
        port = port_of(running)
        with RawConnection(port) as logged_in:
            log_in(logged_in)
            first = [RawConnection(port) for _ in range(3)]
            for connection in first:
                versions(connection)
            with RawConnection(port) as newest:
                assert log_in(newest).error_code == 0
            assert is_closed(first[0])
            assert handshake(first[1]).error_code == 0
            assert logged_in.ask(METADATA).brokers
            pending = running.running.parts.logins.pending
            assert (pending.count, pending.evicted_count) == (2, 1)
            for connection in first:
                connection.socket.close()
        wait_until(lambda: pending.count == 0, waiting_for="all connections closed")


def test_sessions_end_and_are_renewed(tmp_path: Path) -> None:
    """A session of 60 s: renewed after 50 s, and over 60 s after that."""
    clock = ManualClock()
    with run_broker(settings(tmp_path, connections_max_reauth_ms="60000"), clock=clock) as running:
        with RawConnection(port_of(running)) as connection:
            assert log_in(connection).session_lifetime.total_seconds() == 60
            running.advance(50)
            assert handshake(connection).error_code == 0
            assert authenticate(connection, plain()).session_lifetime.total_seconds() == 60
            assert handshake(connection).error_code == ILLEGAL  # A second has not passed.
            running.advance(60)
            assert connection.ask(METADATA).brokers
            running.advance(0.001)
            with pytest.raises(ConnectionResetError):
                connection.ask(METADATA)
        assert counts(running, "succeeded") == {"PLAIN": 1}
        assert counts(running, "renewed") == {"PLAIN": 1}
        assert running.running.parts.logins.expired_count == 1


def test_an_expired_session_may_be_renewed(tmp_path: Path) -> None:
    clock = ManualClock()
    with (
        run_broker(settings(tmp_path, connections_max_reauth_ms="60000"), clock=clock) as running,
        RawConnection(port_of(running)) as connection,
    ):
        log_in(connection)
        running.advance(61)
        assert handshake(connection).error_code == 0
        assert authenticate(connection, plain()).error_code == 0
        assert connection.ask(METADATA).brokers


@pytest.mark.parametrize(
    ("mechanism", "message", "text"),
    [
        (
            "PLAIN",
            plain("bob", "hunter2"),
            "Cannot change principals during re-authentication from User.alice: User.bob",
        ),
        ("PLAIN", plain("alice", "wrong"), "Authentication failed: Invalid username or password"),
        (
            "SCRAM-SHA-256",
            b"n,,n=alice,r=abcdef",
            OTHER_MECHANISM,
        ),
    ],
)
def test_a_renewal_has_the_same_user_and_mechanism(
    tmp_path: Path, mechanism: str, message: bytes, text: str
) -> None:
    values = settings(
        tmp_path,
        connections_max_reauth_ms="60000",
        connection_failed_authentication_delay_ms="0",
    )
    with run_broker(values) as running, RawConnection(port_of(running)) as connection:
        log_in(connection)
        assert handshake(connection, mechanism).error_code == 0
        answer = authenticate(connection, message)
        assert (answer.error_code, answer.error_message) == (FAILED, text)
        assert is_closed(connection)


def test_no_request_is_served_in_the_middle_of_a_renewal(tmp_path: Path) -> None:
    with (
        run_broker(settings(tmp_path, connections_max_reauth_ms="60000")) as running,
        RawConnection(port_of(running)) as connection,
    ):
        log_in(connection)
        handshake(connection)
        with pytest.raises(ConnectionResetError):
            connection.ask(METADATA)


def test_a_session_ends_with_its_token(tmp_path: Path) -> None:
    clock = ManualClock()
    with run_broker(settings(tmp_path, connections_max_reauth_ms="60000"), clock=clock) as running:
        for valid_seconds, session in ((20, 20), (600, 60)):
            with RawConnection(port_of(running)) as connection:
                handshake(connection, "OAUTHBEARER")
                claims = claims_of("carol", clock.wall_ms() / 1000, valid_seconds=valid_seconds)
                token = signed(claims, key_of("first"))
                answer = authenticate(connection, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
                assert answer.session_lifetime.total_seconds() == pytest.approx(session, abs=0.01)


def scram(connection: RawConnection) -> ErrorCode:
    """Log in with SCRAM; return the error code of the last answer."""
    assert handshake(connection, "SCRAM-SHA-512").error_code == 0
    client = ScramExchange("SCRAM-SHA-512", USER, PASSWORD, nonce="abcdefgh")
    challenge = authenticate(connection, client.first())
    assert challenge.error_code == 0
    return ErrorCode(authenticate(connection, client.final(challenge.auth_bytes)).error_code)


def test_a_removed_user_stays_until_it_has_to_log_in_again(tmp_path: Path) -> None:
    values = settings(
        tmp_path,
        connections_max_reauth_ms="60000",
        connection_failed_authentication_delay_ms="0",
    )
    mechanism = ScramMechanism.SCRAM_SHA_512
    with run_broker(values) as running, RawConnection(port_of(running)) as connection:
        add_user(running, mechanism)
        assert scram(connection) == ErrorCode.none
        removal = ScramCredentialDeletion(name=USER, mechanism=i8(mechanism))
        with RawConnection(port_of(running, OPEN)) as administrator:
            request = AlterUserScramCredentialsRequest(deletions=(removal,), upsertions=())
            assert administrator.ask(request).results[0].error_code == 0
        with RawConnection(port_of(running)) as other:
            assert scram(other) == FAILED
        assert connection.ask(METADATA).brokers
        assert scram(connection) == FAILED
        assert is_closed(connection)


def test_peers_that_leave_during_the_delay_are_forgotten_at_once(tmp_path: Path) -> None:
    """The clock stands still, so a timer that held a connection would hold it for ever."""
    values = settings(tmp_path, connection_failed_authentication_delay_ms="5000")
    with run_broker(values, clock=ManualClock()) as running:
        for _ in range(10):
            with RawConnection(port_of(running)) as connection:
                handshake(connection)
                connection.send_frame(_authenticate_frame(plain(password="wrong")))
        wait_until(lambda: counts(running, "failed").get("PLAIN") == 10, waiting_for="failures")

        def is_forgotten() -> bool:
            gc.collect()
            return not any(
                isinstance(found, SaslLogin) and found.is_deaf for found in gc.get_objects()
            )

        wait_until(is_forgotten, waiting_for="no failed login in memory")
