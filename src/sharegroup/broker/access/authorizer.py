"""The authorizer: the rights of peers by ACLs, with the decisions that it has made before.

``authorizer.class.name`` turns it on.  The decisions about a principal at an address are kept
until ACLs change, so a request pays for a look-up only.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from kio.static.primitive import i32

from sharegroup.broker.access.audit import AuditLog, Origin
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.access.rights import ALL_OPERATIONS
from sharegroup.broker.cluster.acl_entries import AclEntries
from sharegroup.broker.configuration.authorizer_settings import AuthorizerSettings
from sharegroup.core.security.principal import canonical_address
from sharegroup.core.security.standard_rules import StandardRules
from sharegroup.protocol_enums import AclOperation, AclResourceType
from sharegroup.steps import Steps

DECISIONS_MAX = 2_000
"""Number of decisions that are kept for all principals together, each about 400 bytes."""

PRINCIPAL_DECISIONS_MAX = 1_000
"""Number of decisions that are kept for one principal at one address."""

NAME_CHARACTERS_MAX = 249
"""Number of characters of a resource name up to which decisions are kept: any topic's name."""

_TYPES = max(AclResourceType) + 1


class Authorizer:
    """Decides what peers may do, by the ACLs of the catalog."""

    __slots__ = ("_audit", "_entries", "_known", "_rules", "_super_users", "decision_count")

    def __init__(self, settings: AuthorizerSettings, entries: AclEntries, audit: AuditLog) -> None:
        self._entries = entries
        self._audit = audit
        self._super_users = settings.super_users
        self._rules = StandardRules(entries.acls, settings.super_users, settings.allow_if_no_acl)
        # Weak: the connections of a principal keep its decisions, so they go with the last one.
        self._known = WeakValueDictionary[tuple[str, str], _Decisions]()
        self.decision_count = 0
        """The number of decisions that are kept."""

    @property
    def rules(self) -> StandardRules:
        """The rules by which it decides."""
        return self._rules

    def rights_of(self, peer: Peer) -> AclRights:
        """Return the rights of a peer with its present principal."""
        # An ACL may name an IPv6 address in any spelling (`docs/differences.md`).
        key = str(peer.principal), canonical_address(peer.host) or peer.host
        decisions = self._known.get(key)
        if decisions is None:
            decisions = self._known[key] = _Decisions(self, self._entries, *key)
        is_unlimited = decisions.principal in self._super_users
        return AclRights(decisions, Origin.of(peer), self._audit, is_unlimited=is_unlimited)

    def make_room(self) -> None:
        """Forget all decisions if there are too many."""
        if self.decision_count >= DECISIONS_MAX:
            for decisions in self._known.values():
                decisions.forget()
            self.decision_count = 0


class _Decisions:
    """The decisions about one principal at one address; its connections share them."""

    __slots__ = ("__weakref__", "_anywhere", "_authorizer", "_count", "_entries", "_host",
                 "_operations", "_version", "principal")  # fmt: skip

    def __init__(
        self, authorizer: Authorizer, entries: AclEntries, principal: str, host: str
    ) -> None:
        self._authorizer = authorizer
        self._entries = entries
        self.principal = principal
        self._host = host
        self._operations: list[dict[str, int]] = [{} for _ in range(_TYPES)]
        """The bits of the allowed operations by resource type and name."""
        self._anywhere: dict[tuple[int, int], bool] = {}
        self._count = 0
        self._version = entries.version

    def __del__(self) -> None:
        self._authorizer.decision_count -= self._count

    def operations(self, resource_type: AclResourceType, name: str) -> int:
        """Return the bits of the operations that are allowed on a resource."""
        if self._version != self._entries.version:
            self.forget()
        bits_by_name = self._operations[resource_type]
        bits = bits_by_name.get(name)
        if bits is None:
            authorizer = self._authorizer
            bits = authorizer.rules.operations(self.principal, self._host, resource_type, name)
            # Clients choose the names that they ask for; only those that resources can have are
            # kept.
            if len(name) <= NAME_CHARACTERS_MAX:
                # A principal that asks for many names loses its own decisions first.  `forget`
                # empties the tables and keeps them, so `bits_by_name` is still one of them.
                if self._count >= PRINCIPAL_DECISIONS_MAX:
                    self.forget()
                authorizer.make_room()
                bits_by_name[name] = bits
                self._count += 1
                authorizer.decision_count += 1
        return bits

    def anywhere(self, operation: AclOperation, resource_type: AclResourceType) -> Steps[bool]:
        """Return, in steps, whether an operation is allowed on any resource of a type."""
        if self._version != self._entries.version:
            self.forget()
        key = int(operation), int(resource_type)
        is_allowed = self._anywhere.get(key)
        if is_allowed is None:
            version = self._version
            is_allowed = yield from self._authorizer.rules.may_any(
                self.principal, self._host, operation, resource_type
            )
            if version == self._entries.version:  # Otherwise ACLs have changed meanwhile.
                self._anywhere[key] = is_allowed
        return is_allowed

    def forget(self) -> None:
        """Forget all decisions."""
        self._version = self._entries.version
        for bits_by_name in self._operations:
            bits_by_name.clear()
        self._anywhere.clear()
        self._authorizer.decision_count -= self._count
        self._count = 0


class AclRights:
    """The rights of one peer by ACLs (`sharegroup.broker.access.rights.Rights`)."""

    __slots__ = ("_api_key", "_audit", "_by_api", "_decisions", "_origin", "is_unlimited")

    def __init__(
        self,
        decisions: _Decisions,
        origin: Origin,
        audit: AuditLog,
        *,
        is_unlimited: bool,
        api_key: int | None = None,
    ) -> None:
        self._decisions = decisions
        self._origin = origin
        self._audit = audit
        self._api_key = api_key
        self._by_api: dict[int, AclRights] = {}
        self.is_unlimited = is_unlimited

    def of_request(self, api_key: int) -> AclRights:
        """Return the same rights for a request of an API, which denials are logged with."""
        if self.is_unlimited:
            return self
        rights = self._by_api.get(api_key)
        if rights is None:  # Once for each API that the connection uses.
            rights = self._by_api[api_key] = AclRights(
                self._decisions, self._origin, self._audit, is_unlimited=False, api_key=api_key
            )
        return rights

    def may(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        if self._decisions.operations(resource_type, name) >> operation & 1:
            return True
        self._audit.denied(self._origin, self._api_key, operation, resource_type, name)
        return False

    def may_see(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        return bool(self._decisions.operations(resource_type, name) >> operation & 1)

    def may_any(self, operation: AclOperation, resource_type: AclResourceType) -> Steps[bool]:
        return self._decisions.anywhere(operation, resource_type)

    def authorized_operations(self, resource_type: AclResourceType, name: str) -> i32:
        allowed = self._decisions.operations(resource_type, name)
        return i32(allowed & ALL_OPERATIONS[resource_type])
