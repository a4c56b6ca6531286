"""The messages of PLAIN and OAUTHBEARER at the server."""

import pytest

from sharegroup.core.security.login import Bearer, LoginRefused, parse_bearer, verify_plain

FAILED = "Authentication failed"
USERS = {"alice": "secret", "bob": "grüße"}


def test_right_password_gives_the_name_of_the_user() -> None:
    assert verify_plain(b"\0alice\0secret", USERS) == "alice"
    assert verify_plain(b"bob\0bob\0gr\xc3\xbc\xc3\x9fe", USERS) == "bob"


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (b"\0alice\0Secret", "Authentication failed: Invalid username or password"),
        (b"\0carol\0secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0\xff", "Authentication failed: Invalid username or password"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0" * 4000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"bob\0alice\0secret",
            f"{FAILED}: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_other_messages_of_plain_are_refused_with_the_text_of_kafka(
    message: bytes, answer: str
) -> None:
    with pytest.raises(LoginRefused) as refused:
        verify_plain(message, USERS)
    assert str(refused.value.for_client("PLAIN", again=False)) == answer
    assert "secret" not in str(refused.value)


def test_a_user_without_a_password_cannot_log_in() -> None:
    with pytest.raises(LoginRefused):
        verify_plain(b"\0alice\0x", {"alice": ""})


def test_first_message_of_oauthbearer_has_token_and_authorization_id() -> None:
    assert parse_bearer(b"n,,\x01auth=Bearer a.b-c_d/e+f~g==\x01\x01") == Bearer(
        "a.b-c_d/e+f~g==", ""
    )
    message = b"n,a=al=2Cice,\x01host=localhost\x01auth=bearer  t\x01scope=a b\x01\x01"
    assert parse_bearer(message) == Bearer("t", "al,ice")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"\xff",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer t t\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01host=h\x01\x01",
        b"n,,\x01auth=Bearer t\x01h0st=h\x01\x01",
        b"n,,\x01" + b"a=b\x01" * 20_000 + b"\x01",
    ],
)
def test_other_messages_of_oauthbearer_are_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        parse_bearer(message)
