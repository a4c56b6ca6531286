"""What decisions cost if ACLs name many networks."""

from __future__ import annotations

import time

from sharegroup.core.security.acls import FOUND_MAX, Acl, Acls
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType

NETWORKS = 2_000
NAMES = 400
TOPIC = AclResourceType.TOPIC


def denying(host: str) -> Acl:
    everybody = "User:*"
    operation, permission = AclOperation.ALL, AclPermission.DENY
    return Acl(TOPIC, AclPatternType.LITERAL, "*", everybody, host, operation, permission)


def seconds(acls: Acls, names: int) -> float:
    """The time of decisions about so many topics, for a peer that no network contains."""
    begin = time.perf_counter()
    for number in range(names):
        granted = acls.granted("User:alice", "192.0.2.1", TOPIC, f"t{number}")
        assert granted is not None
        assert granted.denied == 0
    return time.perf_counter() - begin


def test_networks_of_a_pattern_are_compared_once_for_all_names_of_a_request() -> None:
    acls = Acls()
    for number in range(NETWORKS):
        acls.add(denying(f"10.{number >> 8}.{number & 255}.0/24"))
    once = seconds(acls, 1)
    assert seconds(acls, NAMES) < once * NAMES / 4


def test_answers_for_networks_follow_changes_and_are_limited() -> None:
    acls = Acls()
    acls.add(denying("10.0.0.0/8"))
    assert seconds(acls, 1) > 0
    acls.add(denying("192.0.2.0/24"))
    denied = acls.granted("User:alice", "192.0.2.1", TOPIC, "t")
    assert denied is not None
    assert denied.denied == 1 << AclOperation.ALL
    acls.remove(denying("192.0.2.0/24"))
    assert seconds(acls, 1) > 0
    for number in range(10 * FOUND_MAX):
        acls.granted(f"User:{number}", "192.0.2.1", TOPIC, "t")
    found = acls.of_pattern(denying("*").pattern)
    assert found is not None
    assert found.kept_count <= FOUND_MAX
