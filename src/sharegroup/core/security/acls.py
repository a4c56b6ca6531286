"""Access control lists (ACLs), indexed by resource so that a decision does not scan them.

An ACL allows or denies one operation on a resource pattern to one principal from one host.  A
literal pattern matches the resource of its name, or every resource if its name is ``*``.  A
prefixed pattern matches every resource whose name begins with its name.

    resource type -> pattern -> principal -> host -> two bit fields: allowed and denied operations

The patterns of a resource are found with one look-up for its name, one for ``*``, and one for each
length that a prefixed pattern of the type has.  So the cost depends neither on the number of ACLs
of other resources nor on that of other principals.  A bit is the number of an operation in Kafka's
``AclOperation``.

`StandardRules` (`sharegroup.core.security.standard_rules`) decides with what is found here.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from sharegroup.core.security.principal import canonical_address
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.steps import STEP_MASK, Steps

WILDCARD = "*"
"""The name, or host, that matches all; as a principal it is `WILDCARD_PRINCIPAL`."""

WILDCARD_PRINCIPAL = "User:*"

MAPPED_PREFIX_BITS = 96
"""Length of the prefix of IPv4 addresses in IPv6."""

FOUND_MAX = 64
"""Number of answers that the ACLs of a pattern with networks keep."""

Network = IPv4Network | IPv6Network

Hosts = dict[Network, list[str]]
"""The host patterns of each network; several texts may name the same one."""

_OPERATIONS = {1 << operation: operation for operation in AclOperation}
"""The operation of each bit."""


class ResourcePattern(NamedTuple):
    """A resource pattern."""

    resource_type: AclResourceType
    pattern_type: AclPatternType
    name: str


class Acl(NamedTuple):
    """An access control list entry."""

    resource_type: AclResourceType
    pattern_type: AclPatternType
    name: str
    principal: str
    """The principal as text, for example ``User:alice``; ``User:*`` matches all."""
    host: str
    """An address, a network such as ``10.0.0.0/8``, or ``*``."""
    operation: AclOperation
    permission: AclPermission

    @property
    def pattern(self) -> ResourcePattern:
        """The resources that the ACL applies to."""
        return ResourcePattern(self.resource_type, self.pattern_type, self.name)


class Granted(NamedTuple):
    """The operations that the ACLs of a pattern name, as bits, without those that they imply."""

    allowed: int
    denied: int


NOTHING = Granted(0, 0)


class PatternAcls:
    """The ACLs of one resource pattern, by principal and host."""

    __slots__ = ("_found", "_networks", "_operations")

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Granted] = {}
        """Answers by principal and host, if networks have to be compared: a request may have
        hundreds of names that one pattern matches."""
        self._operations: dict[str, dict[str, Granted]] = {}
        self._networks: dict[str, dict[int, Hosts]] = {}
        """The hosts of a principal that are compared as addresses, by the length of their prefix:
        networks, and all of IPv6."""

    def __bool__(self) -> bool:
        return bool(self._operations)

    @property
    def kept_count(self) -> int:
        """The number of answers that are kept."""
        return len(self._found)

    def has(self, principal: str) -> bool:
        """Return whether an ACL names this principal."""
        return principal in self._operations

    def __contains__(self, acl: Acl) -> bool:
        allowed, denied = self._operations.get(acl.principal, {}).get(acl.host, NOTHING)
        return bool(
            (allowed if acl.permission == AclPermission.ALLOW else denied) >> acl.operation & 1
        )

    def add(self, acl: Acl) -> None:
        """Add an ACL of this pattern."""
        self._found.clear()
        hosts = self._operations.setdefault(acl.principal, {})
        allowed, denied = hosts.get(acl.host, NOTHING)
        bit = 1 << acl.operation
        if acl.permission == AclPermission.ALLOW:
            hosts[acl.host] = Granted(allowed | bit, denied)
        else:
            hosts[acl.host] = Granted(allowed, denied | bit)
        network = network_of(acl.host)
        if network is not None:
            lengths = self._networks.setdefault(acl.principal, {})
            texts = lengths.setdefault(network.prefixlen, {}).setdefault(network, [])
            if acl.host not in texts:
                texts.append(acl.host)

    def remove(self, acl: Acl) -> None:
        """Remove an ACL of this pattern."""
        self._found.clear()
        hosts = self._operations[acl.principal]
        allowed, denied = hosts[acl.host]
        bit = 1 << acl.operation
        if acl.permission == AclPermission.ALLOW:
            remaining = Granted(allowed & ~bit, denied)
        else:
            remaining = Granted(allowed, denied & ~bit)
        if remaining != NOTHING:
            hosts[acl.host] = remaining
            return
        del hosts[acl.host]
        if not hosts:
            del self._operations[acl.principal]
        network = network_of(acl.host)
        if network is not None:
            lengths = self._networks[acl.principal]
            networks = lengths[network.prefixlen]
            networks[network].remove(acl.host)
            # What is empty now goes, from the inside out.
            if not networks[network]:
                del networks[network]
            if not networks:
                del lengths[network.prefixlen]
            if not lengths:
                del self._networks[acl.principal]

    def granted(self, principal: str, host: str) -> Granted:
        """Return the operations that are allowed and denied to a principal from a host."""
        if not self._networks:
            # Without networks a search is a few look-ups, so it is not worth keeping its answer.
            return self._search(principal, host)
        answer = self._found.get((principal, host))
        if answer is None:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            answer = self._found[principal, host] = self._search(principal, host)
        return answer

    def _search(self, principal: str, host: str) -> Granted:
        allowed = denied = 0
        for name in (principal, WILDCARD_PRINCIPAL):
            hosts = self._operations.get(name)
            if hosts is None:
                continue
            matching = {host, WILDCARD}
            networks = self._networks.get(name)
            if networks is not None:
                matching.update(_networks_with(networks, host))
            for matching_host in matching:
                more_allowed, more_denied = hosts.get(matching_host, NOTHING)
                allowed |= more_allowed
                denied |= more_denied
        return Granted(allowed, denied)

    def entries(self, pattern: ResourcePattern) -> Iterator[Acl]:
        """Yield the ACLs; ``pattern`` is theirs."""
        # Copies of the keys, because a search lets others change ACLs between two steps.
        for principal in list(self._operations):
            for host, (allowed, denied) in list(self._operations.get(principal, {}).items()):
                for operation in operations_of(allowed):
                    yield Acl(*pattern, principal, host, operation, AclPermission.ALLOW)
                for operation in operations_of(denied):
                    yield Acl(*pattern, principal, host, operation, AclPermission.DENY)


class Acls:
    """All ACLs of a cluster."""

    __slots__ = ("_count", "_of_principals", "_patterns", "_prefix_counts", "_prefix_lengths")

    def __init__(self) -> None:
        self._count = 0
        self._of_principals: dict[
            tuple[AclResourceType, str], dict[tuple[AclPatternType, str], None]
        ] = {}
        """The patterns that have ACLs of a principal, by resource type and principal."""
        self._patterns: dict[AclResourceType, dict[tuple[AclPatternType, str], PatternAcls]] = {}
        self._prefix_counts: dict[AclResourceType, Counter[int]] = {}
        self._prefix_lengths: dict[AclResourceType, list[int]] = {}
        """The lengths of the names of prefixed patterns, ascending."""

    def __len__(self) -> int:
        return self._count

    def __contains__(self, acl: Acl) -> bool:
        pattern_acls = self.of_pattern(acl.pattern)
        return pattern_acls is not None and acl in pattern_acls

    def add(self, acl: Acl) -> None:
        """Add an ACL; nothing changes if it is there already."""
        patterns = self._patterns.setdefault(acl.resource_type, {})
        key = acl.pattern_type, acl.name
        pattern_acls = patterns.get(key)
        if pattern_acls is None:
            pattern_acls = patterns[key] = PatternAcls()
            if acl.pattern_type == AclPatternType.PREFIXED:
                self._count_prefix(acl.resource_type, len(acl.name))
        if acl not in pattern_acls:
            pattern_acls.add(acl)
            self._of_principals.setdefault((acl.resource_type, acl.principal), {})[key] = None
            self._count += 1

    def remove(self, acl: Acl) -> None:
        """Remove an ACL; nothing changes if it is not there."""
        pattern_acls = self.of_pattern(acl.pattern)
        if pattern_acls is None or acl not in pattern_acls:
            return
        pattern_acls.remove(acl)
        self._count -= 1
        if not pattern_acls.has(acl.principal):
            of_principal = self._of_principals[acl.resource_type, acl.principal]
            del of_principal[acl.pattern_type, acl.name]
            if not of_principal:
                del self._of_principals[acl.resource_type, acl.principal]
        if not pattern_acls:
            del self._patterns[acl.resource_type][acl.pattern_type, acl.name]
            if acl.pattern_type == AclPatternType.PREFIXED:
                self._discount_prefix(acl.resource_type, len(acl.name))

    def of_pattern(self, pattern: ResourcePattern) -> PatternAcls | None:
        """Return the ACLs of a pattern, or None if it has none."""
        resource_type, pattern_type, name = pattern
        return self._patterns.get(resource_type, {}).get((pattern_type, name))

    def patterns(self, resource_type: AclResourceType) -> Iterator[ResourcePattern]:
        """Yield the patterns of a resource type, or of all types for ``ANY``."""
        types = list(self._patterns) if resource_type == AclResourceType.ANY else [resource_type]
        for type_ in types:
            for key in list(self._patterns.get(type_, ())):
                yield ResourcePattern(type_, *key)

    def patterns_of(
        self, principal: str, resource_type: AclResourceType
    ) -> Iterator[ResourcePattern]:
        """Yield the patterns of a resource type that have ACLs of a principal or of all."""
        of_all = self._of_principals.get((resource_type, WILDCARD_PRINCIPAL), {})
        of_principal = self._of_principals.get((resource_type, principal), {})
        for key in of_principal | of_all:
            yield ResourcePattern(resource_type, *key)

    def patterns_matching(
        self, resource_type: AclResourceType, name: str
    ) -> Iterator[ResourcePattern]:
        """Yield the patterns that match a resource."""
        patterns = self._patterns.get(resource_type)
        if not patterns:
            return
        literal, prefixed = AclPatternType.LITERAL, AclPatternType.PREFIXED
        if (literal, name) in patterns:
            yield ResourcePattern(resource_type, literal, name)
        # For a resource of that very name the pattern was yielded already.
        if name != WILDCARD and (literal, WILDCARD) in patterns:
            yield ResourcePattern(resource_type, literal, WILDCARD)
        lengths = self._prefix_lengths.get(resource_type, [])
        for length in lengths[: bisect_right(lengths, len(name))]:
            if (prefixed, name[:length]) in patterns:
                yield ResourcePattern(resource_type, prefixed, name[:length])

    def granted(
        self, principal: str, host: str, resource_type: AclResourceType, name: str
    ) -> Granted | None:
        """Return the operations on a resource that ACLs allow and deny to a principal from a host.

        None means that no ACL, of whatever principal, applies to the resource.
        """
        allowed = denied = 0
        has_acls = False
        for pattern in self.patterns_matching(resource_type, name):
            pattern_acls = self.of_pattern(pattern)
            assert pattern_acls is not None
            more_allowed, more_denied = pattern_acls.granted(principal, host)
            has_acls = True
            allowed |= more_allowed
            denied |= more_denied
        return Granted(allowed, denied) if has_acls else None

    def entries(self) -> Iterator[Acl]:
        """Yield all ACLs."""
        for resource_type, patterns in self._patterns.items():
            for key, pattern_acls in patterns.items():
                yield from pattern_acls.entries(ResourcePattern(resource_type, *key))

    def _count_prefix(self, resource_type: AclResourceType, length: int) -> None:
        counts = self._prefix_counts.setdefault(resource_type, Counter())
        if not counts[length]:
            insort(self._prefix_lengths.setdefault(resource_type, []), length)
        counts[length] += 1

    def _discount_prefix(self, resource_type: AclResourceType, length: int) -> None:
        counts = self._prefix_counts[resource_type]
        counts[length] -= 1
        if not counts[length]:
            del counts[length]
            self._prefix_lengths[resource_type].remove(length)


def operations_of(bits: int) -> Iterator[AclOperation]:
    """Yield the operations of a bit field."""
    while bits:
        lowest = bits & -bits
        yield _OPERATIONS[lowest]
        bits ^= lowest


def network_of(host: str) -> Network | None:
    """Return the network that a host pattern is compared as, or None if it is compared as text.

    An IPv6 address has several spellings, so it is compared as the network of one address, and an
    IPv4 address in IPv6 as IPv4, as `canonical_address` does with those of peers.  Bits behind the
    prefix of a network are ignored, as Kafka does.
    """
    if "/" not in host and ":" not in host:
        return None
    address, slash, prefix = host.partition("/")
    try:
        network = ip_network(f"{address.partition('%')[0]}{slash}{prefix}", strict=False)
    except ValueError:
        return None
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if mapped is None or network.prefixlen < MAPPED_PREFIX_BITS:
        return network
    return ip_network(f"{mapped}/{network.prefixlen - MAPPED_PREFIX_BITS}")


def may_match(host: str) -> bool:
    """Return whether a host pattern can match an address at all."""
    return host == WILDCARD or canonical_address(host) == host or network_of(host) is not None


def _networks_with(lengths: dict[int, Hosts], host: str) -> Iterator[str]:
    """Yield the host patterns whose network contains the address ``host``.

    There is one look-up for each length of a prefix, so their cost has a bound.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return
    for length, networks in lengths.items():
        # An IPv4 address has no prefix as long as those of IPv6, and `ip_network` would raise.
        if length <= address.max_prefixlen:
            yield from networks.get(ip_network((address, length), strict=False), ())


# Filters of ACLs, as DescribeAcls and DeleteAcls have them, and the search for what they match.


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

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
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
    matches = []
    checked = 0
    for pattern in _candidates(acls, filter_):
        if not filter_.matches_pattern(pattern):
            checked += 1
            if checked & STEP_MASK == 0:
                yield
            continue
        # None if its last ACL was removed between two steps.
        entries = acls.of_pattern(pattern)
        for acl in () if entries is None else entries.entries(pattern):
            if filter_.matches(acl):
                matches.append(acl)
            checked += 1
            if checked & STEP_MASK == 0:
                yield
    return matches


def _candidates(acls: Acls, filter_: AclFilter) -> Iterator[ResourcePattern]:
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
            pattern = ResourcePattern(resource_type, pattern_type, filter_.name)
            if acls.of_pattern(pattern) is not None:
                yield pattern
