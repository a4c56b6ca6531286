"""The ACLs of the catalog: creating and deleting them, as events that its journal holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sharegroup.broker.cluster.catalog_part import Event
from sharegroup.core.security.acls import Acl, Acls
from sharegroup.errors import InvalidRequest
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType

EVENT_ACLS_MAX = 64
"""Number of ACLs of one event, which takes 0.2 ms to encode and to apply."""

TEXT_CHARACTERS_MAX = 1_024
"""Number of characters of each of resource name, principal and host; an event of
`EVENT_ACLS_MAX` such ACLs fits into the journal, even if every character is escaped."""


class AclEntries:
    """All ACLs of the cluster, which only `replay` changes."""

    kinds = frozenset({"acls_created", "acls_deleted"})

    __slots__ = ("acls", "version")

    def __init__(self) -> None:
        self.acls = Acls()
        self.version = 0
        """A number that changes whenever ACLs change; not stored."""

    def __len__(self) -> int:
        return (len(self.acls) + EVENT_ACLS_MAX - 1) // EVENT_ACLS_MAX

    def created(self, acls: Iterable[Acl]) -> Iterator[Event]:
        """Yield the events that create these ACLs.

        Each event is applied for itself, so those that deny come first: what is allowed before the
        last event, or after a crash, is never more than in the end.
        """
        return _events("acls_created", sorted(acls, key=_allows))

    def deleted(self, acls: Iterable[Acl]) -> Iterator[Event]:
        """Yield the events that delete these ACLs, those that allow first."""
        return _events("acls_deleted", sorted(acls, key=_allows, reverse=True))

    def events(self) -> Iterator[Event]:
        yield from _events("acls_created", self.acls.entries())

    def replay(self, event: Event) -> None:
        change = self.acls.add if event["event"] == "acls_created" else self.acls.remove
        for row in event["acls"]:
            change(_acl(row))
        self.version += 1


def check_texts(acl: Acl) -> None:
    """Raise InvalidRequest if a text of the ACL is too long for the catalog."""
    for field in ("name", "principal", "host"):
        length = len(getattr(acl, field))
        if length > TEXT_CHARACTERS_MAX:
            raise InvalidRequest(
                f"the {field} of an ACL may have {TEXT_CHARACTERS_MAX} characters, not {length}; "
                "use a prefixed pattern for long resource names"
            )


def _allows(acl: Acl) -> bool:
    return acl.permission == AclPermission.ALLOW


def _events(kind: str, acls: Iterable[Acl]) -> Iterator[Event]:
    """Yield events with the ACLs as rows of their fields, codes as numbers."""
    rest = iter(acls)
    while rows := [list(acl) for acl in islice(rest, EVENT_ACLS_MAX)]:
        yield {"event": kind, "acls": rows}


def _acl(row: Sequence[Any]) -> Acl:
    """Return the ACL of a row of an event."""
    resource_type, pattern_type, name, principal, host, operation, permission = row
    return Acl(
        AclResourceType(resource_type),
        AclPatternType(pattern_type),
        name,
        principal,
        host,
        AclOperation(operation),
        AclPermission(permission),
    )
