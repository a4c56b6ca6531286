"""The ACLs of the catalog, event by event."""

from __future__ import annotations

import random

from sharegroup.broker.cluster.acl_entries import EVENT_ACLS_MAX, AclEntries
from sharegroup.core.security.acls import Acl
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType

TOPICS = 3 * EVENT_ACLS_MAX
ALICE, HOST, TOPIC = "User:alice", "10.0.0.1", AclResourceType.TOPIC


def acls() -> list[Acl]:
    """For each topic an ACL that allows everything, and one that denies it; in any order."""
    found = [
        Acl(TOPIC, AclPatternType.LITERAL, f"t{number}", ALICE, "*", AclOperation.ALL, permission)
        for number in range(TOPICS)
        for permission in (AclPermission.ALLOW, AclPermission.DENY)
    ]
    random.Random(1).shuffle(found)
    return found


def is_anything_allowed(entries: AclEntries) -> bool:
    granted = (entries.acls.granted(ALICE, HOST, TOPIC, f"t{number}") for number in range(TOPICS))
    return any(found is not None and found.allowed and not found.denied for found in granted)


def test_between_two_events_nothing_is_allowed_that_is_denied_before_and_after() -> None:
    """The broker may crash there, and requests are served meanwhile."""
    entries = AclEntries()
    for events in (list(entries.created(acls())), list(entries.deleted(acls()))):
        assert len(events) == 2 * TOPICS // EVENT_ACLS_MAX
        for event in events:
            entries.replay(event)
            assert not is_anything_allowed(entries)
    assert len(entries.acls) == 0
