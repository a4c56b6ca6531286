"""A port answers under its own names; a web page neither reads nor changes anything."""

from __future__ import annotations

import pytest

from sharegroup.http_hosts import HttpHosts

LOOPBACK = HttpHosts.of("127.0.0.1", ["127.0.0.1"], {})
EVERYWHERE = HttpHosts.of("0.0.0.0", ["0.0.0.0", "::"], {})

OWN = (
    "127.0.0.1:9099", "127.0.0.1", "LOCALHOST:9099", "localhost.", "[::1]:9099", "[::1]",
    "10.0.0.7:80", "[fe80::1%eth0]:80", "[::ffff:127.0.0.1]:1",
)  # fmt: skip
FOREIGN = (
    "evil.example:9099", "localhost.evil.example", "127.0.0.1.evil.example", "evil@127.0.0.1",
    "127.0.0.1:80:80", "", "127.0.0.1 evil", "127.1.evil", "[::1].evil", "[evil]",
    "sharegroup-metrics.default.svc:9404",
)  # fmt: skip


@pytest.mark.parametrize("host", OWN)
def test_own_names_are_answered(host: str) -> None:
    assert LOOPBACK.refusal([host], [], changes=True) is None
    assert EVERYWHERE.refusal([host], [], changes=True) is None


@pytest.mark.parametrize("host", FOREIGN)
def test_other_names_may_only_read_and_not_on_loopback(host: str) -> None:
    assert LOOPBACK.refusal([host], [], changes=True) is not None
    assert LOOPBACK.refusal([host], [], changes=False) is not None
    assert EVERYWHERE.refusal([host], [], changes=True) is not None
    assert EVERYWHERE.refusal([host], [], changes=False) is None


def test_configured_names_are_answered() -> None:
    environment = {"SHAREGROUP_HTTP_NAMES": "Registry.test, host.docker.internal,,"}
    hosts = HttpHosts.of("127.0.0.1", ["127.0.0.1"], environment)
    assert hosts.refusal(["registry.test:8081"], [], changes=True) is None
    assert hosts.refusal(["host.docker.internal"], [], changes=True) is None
    assert hosts.refusal(["other.test"], [], changes=True) is not None
    assert hosts.refusal([""], [], changes=True) is not None
    assert HttpHosts.of("box", ["127.0.1.1"], {}).refusal(["box:1"], [], changes=True) is None


@pytest.mark.parametrize(
    ("origins", "is_refused"),
    [
        ([], False),
        (["http://127.0.0.1:9099"], False),
        (["http://127.0.0.1:3000"], True),
        (["http://localhost:9099"], True),
        (["https://evil.example"], True),
        (["null"], True),
        ([""], True),
        (["http://127.0.0.1:9099", "https://evil.example"], True),
    ],
)
def test_a_change_needs_the_ports_own_origin(origins: list[str], *, is_refused: bool) -> None:
    hosts = ["127.0.0.1:9099"]
    assert (LOOPBACK.refusal(hosts, origins, changes=True) is not None) == is_refused
    assert LOOPBACK.refusal(hosts, origins, changes=False) is None
    if origins:
        assert LOOPBACK.refusal([], origins, changes=True) is not None


def test_clients_that_are_no_browser_need_no_host_but_two_are_refused() -> None:
    assert LOOPBACK.refusal([], [], changes=True) is None
    assert LOOPBACK.refusal(["localhost", "localhost"], [], changes=False) is not None


def test_a_refusal_quotes_little() -> None:
    assert len(LOOPBACK.refusal(["e" * 9_000], [], changes=True) or "") < 400
