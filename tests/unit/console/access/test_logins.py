"""Tokens, limits of attempts, sessions, and where a console may listen."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sharegroup.console.access.attempts import (
    ADDRESSES_MAX,
    PER_ADDRESS_MAX,
    TOTAL_MAX,
    WINDOW_SECONDS,
    Attempts,
)
from sharegroup.console.access.exposure import Listening
from sharegroup.console.access.roles import User
from sharegroup.console.access.sessions import (
    IDLE_SECONDS,
    PER_USER_MAX,
    SESSIONS_MAX,
    TOTAL_SECONDS,
    Sessions,
    TooManySessions,
)
from sharegroup.console.access.tokens import Tokens, read_tokens
from sharegroup.errors import InvalidConfig

SECRET = "0123456789abcdef0123"
ADA = User("ada")


def test_tokens_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# ours\n\nada:{SECRET}\n  bob : {SECRET}:2 \n")
    tokens = read_tokens(path)
    assert tokens.user_of(SECRET) == ADA
    assert tokens.user_of(f"{SECRET}:2") == User("bob")
    assert tokens.user_of(SECRET[:-1]) is None
    assert tokens.user_of("") is None
    assert tokens.user_of("\udcff") is None
    assert SECRET not in repr(tokens)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected 1 to 1000 lines name:token, found 0; make one with"),
        (SECRET, "line 1: expected name:token"),
        (f":{SECRET}", "line 1: expected name:token"),
        (f"ada:{SECRET}\nada:{SECRET}x", "line 2: 'ada' has two"),
        (f"ada:{SECRET}\nbob:{SECRET}", "two users have the same token"),
        ("\nada:short-secret", "line 2: expected a token of 16 to 1000 characters, found 12"),
        (f"a\x1bda:{SECRET}", "line 1: expected name:token"),
    ],
)
def test_wrong_file_of_tokens_names_its_line_and_no_token(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(InvalidConfig) as raised:
        read_tokens(path)
    assert problem in str(raised.value)
    assert SECRET not in str(raised.value)
    assert "short-secret" not in str(raised.value)


def test_unreadable_file_of_tokens(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="No such file"):
        read_tokens(tmp_path / "none")
    path = tmp_path / "tokens"
    path.write_bytes(b"ada:\xff" + b"x" * 20)
    with pytest.raises(InvalidConfig, match="byte 4 is not UTF-8"):
        read_tokens(path)


def test_attempts_of_an_address_are_limited_until_the_window_is_over() -> None:
    attempts = Attempts()
    assert [attempts.begin("10.0.0.1", 5.0) for _ in range(PER_ADDRESS_MAX)] == (
        [0.0] * PER_ADDRESS_MAX
    )
    assert attempts.begin("10.0.0.1", 15.0) == WINDOW_SECONDS - 10.0
    assert attempts.begin("10.0.0.2", 15.0) == 0.0
    assert attempts.begin("10.0.0.1", 5.0 + WINDOW_SECONDS) == 0.0


def test_attempts_that_succeed_do_not_count() -> None:
    attempts = Attempts()
    for _ in range(TOTAL_MAX * 2):
        assert attempts.begin("10.0.0.1", 0.0) == 0.0
        attempts.take_back("10.0.0.1")


def test_one_machine_with_many_addresses_of_ipv6_is_one() -> None:
    attempts = Attempts()
    for number in range(PER_ADDRESS_MAX):
        assert attempts.begin(f"2001:db8::{number}", 0.0) == 0.0
    assert attempts.begin("2001:db8::ffff", 0.0) > 0
    assert attempts.begin("2001:db8:0:1::1", 0.0) == 0.0
    for _ in range(PER_ADDRESS_MAX - 1):
        attempts.begin("::ffff:10.0.0.1", 0.0)
    attempts.begin("10.0.0.1", 0.0)
    assert attempts.begin("::ffff:10.0.0.1", 0.0) > 0


def test_attempts_in_total_are_limited() -> None:
    attempts = Attempts()
    for number in range(TOTAL_MAX):
        assert attempts.begin(f"10.0.{number}.1", 0.0) == 0.0
    assert attempts.begin("10.1.0.1", 0.0) == WINDOW_SECONDS
    for number in range(ADDRESSES_MAX + 10):
        attempts.begin(f"name-{number}", 1.0)
    assert len(attempts._by_address) == ADDRESSES_MAX


def sessions() -> Sessions[str]:
    numbers = count()
    return Sessions(random=lambda _: f"secret-{next(numbers)}")


def test_session_lives_by_its_use_and_ends_by_time() -> None:
    ours = sessions()
    session_id, session, ended = ours.begin(ADA, "clients", 0.0)
    assert ended == []
    assert session.form_token != session_id
    now = 0.0
    while now + IDLE_SECONDS - 1 < TOTAL_SECONDS:
        now += IDLE_SECONDS - 1
        assert ours.of(session_id, now) is session
    assert ours.of(session_id, TOTAL_SECONDS) is None
    assert [each.owned for each in ours.expired(TOTAL_SECONDS)] == ["clients"]
    assert len(ours) == 0


def test_what_a_page_asks_by_itself_keeps_no_session_alive() -> None:
    ours = sessions()
    session_id, session, _ = ours.begin(ADA, "clients", 0.0)
    assert ours.of(session_id, IDLE_SECONDS - 1, is_use=False) is session
    assert ours.of(session_id, IDLE_SECONDS, is_use=False) is None


def test_ended_and_unknown_sessions_are_none() -> None:
    ours = sessions()
    session_id, session, _ = ours.begin(ADA, "clients", 0.0)
    assert ours.of("", 0.0) is None
    assert ours.of("\udcff", 0.0) is None
    assert ours.end(session_id) == [session]
    assert ours.end(session_id) == []
    assert ours.of(session_id, 0.0) is None


def test_sessions_are_bounded_for_a_user_and_in_total() -> None:
    ours = sessions()
    first = [ours.begin(ADA, f"{number}", float(number))[0] for number in range(PER_USER_MAX)]
    ours.of(first[0], 100.0)
    _, _, ended = ours.begin(ADA, "one more", 101.0)
    assert [session.owned for session in ended] == ["1"]
    assert ours.of(first[0], 102.0) is not None
    for number in range(SESSIONS_MAX - PER_USER_MAX):
        ours.begin(User(f"user-{number}"), "", 103.0)
    with pytest.raises(TooManySessions, match="100 users are logged in"):
        ours.begin(User("late"), "", 104.0)
    later = 103.0 + IDLE_SECONDS
    _, _, ended = ours.begin(User("late"), "", later)
    assert len(ended) == SESSIONS_MAX
    assert len(ours.end_all()) == 1


@pytest.mark.parametrize(
    ("host", "has_tls", "is_behind_proxy", "has_login", "problem"),
    [
        ("127.0.0.1", False, False, False, None),
        ("localhost", False, False, False, None),
        ("::1", False, False, False, None),
        ("127.0.0.1", False, True, False, "--token-file"),
        ("127.0.0.1", False, True, True, None),
        ("0.0.0.0", False, False, True, "--tls-cert"),
        ("::", False, False, False, "--tls-cert"),
        ("console.example", False, False, True, "--behind-proxy"),
        ("10.0.0.1", True, False, False, "--cluster-login"),
        ("10.0.0.1", True, False, True, None),
        ("10.0.0.1", False, True, True, None),
    ],
)
def test_where_a_console_may_listen(
    host: str, has_tls: bool, is_behind_proxy: bool, has_login: bool, problem: str | None
) -> None:
    listening = Listening(host=host, proxies=("10.0.0.9",) if is_behind_proxy else ())
    # The files are checked when it is made; here it is about the decision.
    object.__setattr__(listening, "tls_cert", Path("cert.pem") if has_tls else None)
    refusal = listening.refusal(has_login=has_login)
    assert (refusal is None) == (problem is None)
    assert problem is None or (refusal is not None and problem in refusal)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"proxies": ("*",)}, "expected an address or a network of the proxy"),
        ({"proxies": ("10.0.0.1/8",)}, "has host bits set"),
        ({"tls_key": Path("key.pem")}, "--tls-key needs --tls-cert"),
        ({"tls_cert": Path("/none/cert.pem")}, "No such file"),
        ({"tls_cert": Path(__file__)}, "expected a certificate in PEM"),
    ],
)
def test_what_protects_the_port_is_checked(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        Listening(**options)
    assert problem in str(raised.value)


def test_token_of_nobody() -> None:
    assert Tokens({}).user_of(SECRET) is None
