"""JAAS configurations, the limits on unauthenticated connections, and the log of failures."""

from __future__ import annotations

import logging

import pytest

from sharegroup.broker.access.jaas import PLAIN_MODULE, LoginModule, parse_jaas, plain_users
from sharegroup.broker.access.logins import Logins, PendingLogins
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.load.log_limit import ADDRESSES_MAX, LINES_MAX
from sharegroup.errors import InvalidConfig

KEY = "listener.name.external.plain.sasl.jaas.config"


def test_users_of_plain() -> None:
    text = f"""
        {PLAIN_MODULE} required  // the broker's own login has no meaning here
            username="admin" password='admin-secret'
            user_alice="with \\"quotes\\" = and ; signs" /* and a
            comment */ user_bob=bare user_carol='//none';
    """
    assert plain_users(KEY, text) == {
        "alice": 'with "quotes" = and ; signs',
        "bob": "bare",
        "carol": "//none",
    }


def test_a_module_without_options() -> None:
    text = "org.apache.kafka.common.security.scram.ScramLoginModule REQUIRED ;"
    name = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert parse_jaas(KEY, text) == LoginModule(name, {})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not set, and PLAIN has its users there"),
        (f'{PLAIN_MODULE} required user_alice="sesame"', "semicolon"),
        (f'{PLAIN_MODULE} user_alice="sesame";', "one module with a flag"),
        (f'{PLAIN_MODULE} required user_alice="sesame;', "closing quotation mark"),
        (f'{PLAIN_MODULE} required user_alice "sesame";', "name=value"),
        (f"{PLAIN_MODULE} required user_alice=sesame bob;", "name=value"),
        (f"{PLAIN_MODULE} required a=sesame; {PLAIN_MODULE} required b=sesame;", "exactly one"),
        (f"{PLAIN_MODULE} required alice=sesame;", "at least one user"),
        (f"{PLAIN_MODULE} required user_=sesame;", "at least one user"),
        (f'{PLAIN_MODULE} required user_alice="";', "a password for each"),
        ("other.PlainLoginModule required user_alice=sesame;", "must have the login module"),
    ],
)
def test_other_texts_are_refused_without_the_password(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason) as refused:
        plain_users(KEY, text)
    assert KEY in str(refused.value)
    assert "sesame" not in str(refused.value)


class Opened:
    """A connection that is not logged in."""

    def __init__(self, pending: PendingLogins, host: str, connection_id: int) -> None:
        self.host, self.connection_id = host, connection_id
        self.closed: list[str] = []
        pending.begin(self)

    def close(self, reason: str) -> None:
        self.closed.append(reason)


def opened(pending: PendingLogins, hosts: str) -> list[Opened]:
    return [Opened(pending, host, number) for number, host in enumerate(hosts)]


def numbers(connections: list[Opened]) -> list[int]:
    """Return the numbers of the connections that were closed."""
    assert all(len(connection.closed) < 2 for connection in connections)
    return [connection.connection_id for connection in connections if connection.closed]


def test_an_address_replaces_its_own_oldest_connection() -> None:
    pending = PendingLogins(100, host_max=2)
    connections = opened(pending, "abaaba")
    assert numbers(connections) == [0, 2]
    assert (pending.count, pending.evicted_count) == (4, 2)


def test_a_full_broker_closes_the_oldest_of_the_address_with_the_most() -> None:
    pending = PendingLogins(4, host_max=100)
    connections = opened(pending, "baaacdb")
    # The third connection of b finds one of each address, so b's own first is the oldest of most.
    assert numbers(connections) == [0, 1, 2]
    assert pending.count == 4


def test_ended_logins_make_room() -> None:
    pending = PendingLogins(2, host_max=2)
    first, second = opened(pending, "aa")
    pending.end(first)
    pending.end(first)
    assert pending.count == 1
    Opened(pending, "a", 7)
    assert not second.closed
    assert pending.count == 2


def logins() -> Logins:
    return Logins({}, PendingLogins(1, host_max=1))


def note(logins: Logins, host: str, now_ms: int) -> None:
    logins.failed_login(Peer(host, 1, "L"), "", "wrong", now_ms=now_ms)


def test_one_line_for_an_address_and_second(caplog: pytest.LogCaptureFixture) -> None:
    own = logins()
    with caplog.at_level(logging.WARNING):
        for now_ms in (0, 1, 999, 1_000, 1_001, 2_500):
            note(own, "a", now_ms)
        note(own, "b", 2_501)
    assert [line.partition("peer=")[2] for line in caplog.messages] == [
        "a:1 listener=L mechanism=none reason='wrong' unlogged=0",
        "a:1 listener=L mechanism=none reason='wrong' unlogged=2",
        "a:1 listener=L mechanism=none reason='wrong' unlogged=1",
        "b:1 listener=L mechanism=none reason='wrong' unlogged=0",
    ]


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about failed logins; a broker of another test may still write others."""
    return [line for line in caplog.messages if line.startswith("event=authentication_failed")]


def test_many_addresses_have_a_limit_on_lines_and_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = logins()
    with caplog.at_level(logging.WARNING):
        for number in range(10 * ADDRESSES_MAX):
            note(own, str(number), number // 1_000)
        assert len(lines_of(caplog)) == LINES_MAX
        for second in range(1, 200):
            for number in range(LINES_MAX):
                note(own, f"{second}.{number}", second * 1_000)
    assert len(lines_of(caplog)) == 200 * LINES_MAX
    assert len(own.failures._addresses) == ADDRESSES_MAX
