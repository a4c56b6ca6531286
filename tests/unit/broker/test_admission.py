"""Places of connections: in total, of one address, and who gives a place up for whom."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sharegroup.broker.load.admission import IDLE_EVICTION_MS, Admission, parse_overrides
from sharegroup.core.security.principal import Principal
from sharegroup.errors import InvalidConfig

NOW = 100_000


@dataclass
class Peer:
    """A connection that was opened at `NOW` unless it says otherwise."""

    connection_id: int
    host: str = "10.0.0.1"
    peer: str = "10.0.0.1:50000"
    idle_since_ms: int | None = NOW
    closed: list[str] = field(default_factory=list)

    def close(self, reason: str) -> None:
        self.closed.append(reason)


def filled(*peers: Peer, connections_max: int) -> Admission:
    admission = Admission(connections_max, host_max=1_000)
    assert all(admission.admit(peer, now_ms=NOW) for peer in peers)
    return admission


def test_connection_beyond_the_most_of_its_address_is_refused() -> None:
    admission = Admission(10, host_max=2, overrides={"10.0.0.2": 1})
    assert [admission.admit(Peer(number), now_ms=NOW) for number in range(3)] == [True, True, False]
    others = [Peer(number, "10.0.0.2") for number in (4, 5)]
    assert [admission.admit(peer, now_ms=NOW) for peer in others] == [True, False]
    assert (admission.count, admission.refused_count) == (3, 2)
    admission.leave(others[0])
    assert admission.admit(Peer(6, "10.0.0.2"), now_ms=NOW)


def test_new_connection_takes_the_place_of_the_one_idle_for_longest() -> None:
    peers = [Peer(1, idle_since_ms=NOW - 8_000), Peer(2, idle_since_ms=NOW - 9_000), Peer(3)]
    admission = filled(*peers, connections_max=3)
    assert admission.admit(Peer(4), now_ms=NOW)
    assert [bool(peer.closed) for peer in peers] == [False, True, False]
    assert (admission.count, admission.evicted_count, admission.refused_count) == (3, 1, 0)


def test_place_is_taken_from_the_address_with_the_most_connections() -> None:
    honest = Peer(1, "10.0.0.2", idle_since_ms=NOW - 60_000)
    hogs = [Peer(number, idle_since_ms=NOW - 6_000) for number in (2, 3)]
    admission = filled(honest, *hogs, connections_max=3)
    assert admission.admit(Peer(4, "10.0.0.3"), now_ms=NOW)
    assert not honest.closed
    assert hogs[0].closed


@pytest.mark.parametrize("idle_since_ms", [None, NOW - IDLE_EVICTION_MS + 1])
def test_connections_at_work_are_not_closed_for_a_new_one(idle_since_ms: int | None) -> None:
    peers = [Peer(number, idle_since_ms=idle_since_ms) for number in range(3)]
    admission = filled(*peers, connections_max=3)
    assert not admission.admit(Peer(4, "10.0.0.2"), now_ms=NOW)
    assert not any(peer.closed for peer in peers)
    assert (admission.count, admission.refused_count) == (3, 1)


def test_leave_of_a_refused_connection_does_not_change_the_count() -> None:
    admission = filled(Peer(1), connections_max=1)
    admission.leave(Peer(2))
    assert admission.count == 1


def test_refusals_are_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    admission = Admission(10, host_max=0)
    for now_ms in (NOW, NOW + 1, NOW + 999, NOW + 1_000):
        admission.admit(Peer(1), now_ms=now_ms)
    assert [record.getMessage().rpartition(" ")[2] for record in caplog.records] == [
        "count=1",
        "count=3",
    ]


def test_overrides_name_hosts_and_addresses() -> None:
    assert parse_overrides(["127.0.0.1:5", "[::1]:7"]) == {"127.0.0.1": 5, "::1": 7}
    assert parse_overrides(["localhost:3"])["127.0.0.1"] == 3


@pytest.mark.parametrize("pair", ["127.0.0.1", ":5", "127.0.0.1:-1", "no such host:1"])
def test_override_that_cannot_be_understood_is_refused(pair: str) -> None:
    with pytest.raises(InvalidConfig, match=r"max\.connections\.per\.ip\.overrides"):
        parse_overrides([pair])


def test_user_beyond_its_most_connections_is_refused_and_others_are_not() -> None:
    admission = Admission(10, host_max=10, user_max=2)
    peers = [Peer(number) for number in range(4)]
    assert all(admission.admit(peer, now_ms=NOW) for peer in peers)
    alice, bob = Principal("User", "alice"), Principal("User", "bob")
    assert [admission.assign(peer, alice, now_ms=NOW) for peer in peers[:3]] == [True, True, False]
    assert admission.assign(peers[3], bob, now_ms=NOW)
    admission.leave(peers[2])  # It was never counted for alice.
    admission.leave(peers[0])
    assert admission.admit(Peer(5), now_ms=NOW)
    assert admission.assign(Peer(5), alice, now_ms=NOW)
    assert not admission.assign(Peer(6), alice, now_ms=NOW)
