"""What decisions cost if ACLs name many networks."""

from __future__ import annotations

import time

from sharegroup.core.security.acls import FOUND_MAX, Acl, Acls
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType

TIMES_MORE = 200
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


def with_networks(count: int) -> Acls:
    acls = Acls()
    for number in range(count):
        acls.add(denying(f"10.{number >> 8}.{number & 255}.0/24"))
    return acls


def test_the_first_decision_does_not_take_longer_with_more_networks() -> None:
    def first_seconds(acls: Acls) -> float:
        acls.add(denying("10.0.0.1/32"))  # The answers that were kept are forgotten.
        return seconds(acls, 1)

    few, many = with_networks(20), with_networks(20 * TIMES_MORE)
    ratios = [first_seconds(many) / first_seconds(few) for _ in range(20)]
    assert min(ratios) < TIMES_MORE / 4


def test_two_spellings_of_a_network_are_two_acls() -> None:
    acls = Acls()
    spellings = ["192.0.2.0/24", "192.0.2.77/24", "::ffff:192.0.2.0/120"]
    for host in spellings:
        acls.add(denying(host))
    for host in spellings:
        denied = acls.granted("User:alice", "192.0.2.1", TOPIC, "t")
        assert denied is not None
        assert denied.denied == 1 << AclOperation.ALL
        acls.remove(denying(host))
    assert acls.granted("User:alice", "192.0.2.1", TOPIC, "t") is None


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
