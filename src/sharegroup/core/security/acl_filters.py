"""Filters of ACLs, as DescribeAcls and DeleteAcls have them, and the search for what they match."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sharegroup.core.security.acls import WILDCARD, Acl, Acls, Pattern
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.steps import STEP_MASK, Steps


class AclFilter(NamedTuple):
    """The conditions that an ACL must meet; ``ANY`` and None are no condition."""

    resource_type: AclResourceType = AclResourceType.ANY
    pattern_type: AclPatternType = AclPatternType.ANY
    """``MATCH`` stands for the patterns that match the resource ``name``."""
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def matches(self, acl: Acl) -> bool:
        """Return whether the ACL meets all conditions."""
        return self.matches_pattern(acl.pattern) and self._matches_entry(acl)

    def matches_pattern(self, pattern: Pattern) -> bool:
        """Return whether the pattern of an ACL meets the conditions on patterns."""
        resource_type, pattern_type, name = pattern
        if self.resource_type not in (AclResourceType.ANY, resource_type):
            return False
        if self.pattern_type not in (AclPatternType.ANY, AclPatternType.MATCH, pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != AclPatternType.MATCH:
            return self.name == name
        if pattern_type == AclPatternType.PREFIXED:
            return self.name.startswith(name)
        return name in (self.name, WILDCARD)

    def _matches_entry(self, acl: Acl) -> bool:
        return (
            (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )


def find(acls: Acls, filter_: AclFilter) -> Steps[list[Acl]]:
    """Return the ACLs that match a filter, in steps; ACLs may change between two steps."""
    found = []
    checked = 0
    for pattern in _candidates(acls, filter_):
        if not filter_.matches_pattern(pattern):
            checked += 1
            if checked & STEP_MASK == 0:
                yield
            continue
        entries = acls.of_pattern(pattern)
        for acl in () if entries is None else entries.entries(pattern):
            if filter_.matches(acl):
                found.append(acl)
            checked += 1
            if checked & STEP_MASK == 0:
                yield
    return found


def _candidates(acls: Acls, filter_: AclFilter) -> Iterator[Pattern]:
    """Yield the patterns that may match: few if the filter names a resource."""
    if filter_.name is None:
        yield from acls.patterns(filter_.resource_type)
        return
    types = (
        [type_ for type_ in AclResourceType if type_ != AclResourceType.ANY]
        if filter_.resource_type == AclResourceType.ANY
        else [filter_.resource_type]
    )
    for resource_type in types:
        if filter_.pattern_type == AclPatternType.MATCH:
            yield from acls.patterns_matching(resource_type, filter_.name)
            continue
        for pattern_type in (AclPatternType.LITERAL, AclPatternType.PREFIXED):
            pattern = Pattern(resource_type, pattern_type, filter_.name)
            if acls.of_pattern(pattern) is not None:
                yield pattern
