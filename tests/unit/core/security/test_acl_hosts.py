"""The host of an ACL matches an address in each of its spellings."""

from __future__ import annotations

import pytest

from sharegroup.core.security.acls import Acl, Acls, may_match
from sharegroup.core.security.principal import canonical_address
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType

TOPIC = AclResourceType.TOPIC


def is_denied(host: str, peer: str) -> bool:
    acls = Acls()
    literal, deny = AclPatternType.LITERAL, AclPermission.DENY
    acls.add(Acl(TOPIC, literal, "orders", "User:eve", host, AclOperation.READ, deny))
    granted = acls.granted("User:eve", canonical_address(peer) or peer, TOPIC, "orders")
    return granted is not None and granted.denied != 0


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::FFFF:7f00:1", "127.0.0.1"),
        ("0:0:0:0:0:ffff:127.0.0.1", "::ffff:127.0.0.1"),
        ("::ffff:10.0.0.0/104", "10.1.2.3"),
        ("::ffff:0:0/96", "10.1.2.3"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
        ("10.0.0.0/8", "::ffff:10.1.2.3"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("fe80::1%eth0", "fe80::1%3"),
        ("fe80::%eth0/64", "fe80::1"),
        ("*", "::1"),
    ],
)
def test_a_host_matches_each_spelling_of_its_address(host: str, peer: str) -> None:
    assert is_denied(host, peer)
    assert may_match(host)


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("::ffff:127.0.0.1", "127.0.0.2"),
        ("::ffff:10.0.0.0/104", "11.0.0.1"),
        ("::ffff:10.0.0.0/104", "::1"),
        ("fe80::1%eth0", "fe80::2"),
    ],
)
def test_other_addresses_do_not_match(host: str, peer: str) -> None:
    assert not is_denied(host, peer)


@pytest.mark.parametrize(
    "host", ["localhost", "127.1", "010.0.0.1", "10.0.0.1 ", "10.0.0.0/33", "::1/129", "", "1"]
)
def test_a_host_that_matches_nobody_is_known(host: str) -> None:
    assert not may_match(host)
