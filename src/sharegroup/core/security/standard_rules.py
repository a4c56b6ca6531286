"""The rules by which ACLs allow or deny an operation, as Kafka's ``StandardAuthorizer`` has them.

In this order:

1. A super user may do everything.
2. An ACL that denies the operation, or all operations, decides.
3. An ACL that allows the operation, all operations, or one that implies it, allows it.  READ,
   WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS.  A denied
   operation implies nothing.
4. If no ACL applies to the resource, ``allow.everyone.if.no.acl.found`` decides.  Otherwise the
   operation is denied.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain

from sharegroup.core.security.acls import NOTHING, WILDCARD, Acls, ResourcePattern
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclResourceType
from sharegroup.steps import Steps, paced

ALL_BITS = sum(1 << operation for operation in AclOperation if operation >= AclOperation.READ)
"""The bits of all operations."""

_ALL = 1 << AclOperation.ALL

IMPLIED = (
    (
        1 << AclOperation.READ
        | 1 << AclOperation.WRITE
        | 1 << AclOperation.DELETE
        | 1 << AclOperation.ALTER,
        1 << AclOperation.DESCRIBE,
    ),
    (1 << AclOperation.ALTER_CONFIGS, 1 << AclOperation.DESCRIBE_CONFIGS),
)
"""Operations, and the one that each of them implies if it is allowed."""

ANY_NAME = "hardcode"
"""The name of a resource that Kafka tries first when it asks for any resource of a type."""


@dataclass(frozen=True, slots=True)
class StandardRules:
    """Decides with the ACLs, the super users, and the default for resources without ACLs."""

    acls: Acls
    super_users: Collection[str] = frozenset()
    allow_if_no_acl: bool = False

    def operations(
        self, principal: str, host: str, resource_type: AclResourceType, name: str
    ) -> int:
        """Return the bits of all operations that a principal may perform on a resource."""
        if principal in self.super_users:
            return ALL_BITS
        granted = self.acls.granted(principal, host, resource_type, name)
        if granted is None:
            return ALL_BITS if self.allow_if_no_acl else 0
        allowed, denied = granted
        if denied & _ALL:
            return 0
        return _with_implied(allowed) & ~denied & ALL_BITS

    def may_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> Steps[bool]:
        """Return, in steps, whether a principal may perform an operation on any resource of a type.

        The allowed operations imply no others here, as in Kafka's ``authorizeByResourceType``.
        """
        # First, as in Kafka, so that denials do not concern super users
        # (`Authorizer.authorizeByResourceType`).
        if self.operations(principal, host, resource_type, ANY_NAME) >> operation & 1:
            return True
        bits = 1 << operation | _ALL
        literal, prefixed = _Names(), _Names()
        patterns = self.acls.patterns_of(principal, resource_type)
        for (_, pattern_type, name), pause in paced(patterns):
            if pause:
                yield
            pattern_acls = self.acls.of_pattern(ResourcePattern(resource_type, pattern_type, name))
            granted = NOTHING if pattern_acls is None else pattern_acls.granted(principal, host)
            names = literal if pattern_type == AclPatternType.LITERAL else prefixed
            if granted.denied & bits:
                if pattern_type == AclPatternType.LITERAL and name == WILDCARD:
                    return False
                names.denied.add(name)
            if granted.allowed & bits:
                names.allowed.add(name)
        if WILDCARD in literal.allowed:
            return True
        # A denied name never covers a whole prefix, so it counts against the same name only.
        literal_names = (name for name in literal.allowed if name not in literal.denied)
        for name, pause in paced(chain(literal_names, prefixed.allowed)):
            if not _begins_with_any(name, prefixed.denied):
                return True
            if pause:
                yield
        return False


class _Names:
    """The names of patterns that allow and deny an operation."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed: set[str] = set()
        self.denied: set[str] = set()


def _with_implied(allowed: int) -> int:
    """Return the allowed operations and those that they imply."""
    if allowed & _ALL:
        return ALL_BITS
    for implying, implied in IMPLIED:
        if allowed & implying:
            allowed |= implied
    return allowed


def _begins_with_any(name: str, prefixes: set[str]) -> bool:
    # One look-up for each length, so the time does not grow with the number of denials.
    return any(name[:length] in prefixes for length in range(1, len(name) + 1))
