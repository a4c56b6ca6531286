"""The permission that a handler asks for item by item, such as READ on the topics of a request."""

from __future__ import annotations

from typing import Any, Protocol
from uuid import UUID

from kio.static.primitive import i32

from sharegroup.broker.access.checks import DESCRIBE_CLUSTER, Check, denied
from sharegroup.broker.access.rights import NOT_ASKED, Rights
from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.errors import AuthorizationException, TopicAuthorizationFailed
from sharegroup.ids import TopicId
from sharegroup.protocol_enums import CLUSTER_NAME, AclResourceType


class Permission:
    """The answers for the resources of one request; each name is asked for once.

    A listing leaves out what the principal may not see, which is no denial, so it is not audited.
    """

    __slots__ = ("_allowed", "_check", "_is_audited", "_is_unlimited", "_rights")

    def __init__(self, rights: Rights, check: Check, *, is_audited: bool = True) -> None:
        self._rights = rights
        self._check = check
        self._is_audited = is_audited
        self._is_unlimited = rights.is_unlimited
        self._allowed: dict[str, bool] = {}

    @property
    def is_unlimited(self) -> bool:
        """Whether it allows every name, so a handler need not ask."""
        return self._is_unlimited

    def allows(self, name: str) -> bool:
        """Return whether the operation is allowed on a resource."""
        if self._is_unlimited:
            return True
        # Kept for the request: a name that occurs often is looked up once, and its denial audited
        # once.
        allowed = self._allowed.get(name)
        if allowed is None:
            check, rights = self._check, self._rights
            ask = rights.may if self._is_audited else rights.may_see
            allowed = self._allowed[name] = ask(check.operation, check.resource_type, name)
        return allowed

    def denial(self, name: str, topic_id: UUID | None = None) -> AuthorizationException | None:
        """Return the error if the operation is not allowed on a resource, otherwise None.

        The error contains only what the client knows: the id if the request names a topic by that.
        """
        if self.allows(name):
            return None
        if topic_id is None:
            return denied(self._check.operation, self._check.resource_type, name)
        return TopicAuthorizationFailed(
            f"no ACL allows {self._check.operation.name} on the topic with id {topic_id} to this "
            "user"
        )

    def require(self, name: str, topic_id: UUID | None = None) -> None:
        """Raise the error if the operation is not allowed on a resource."""
        refusal = self.denial(name, topic_id)
        if refusal is not None:
            raise refusal


def is_allowed_on_cluster(rights: Rights, check: Check, *, is_audited: bool = True) -> bool:
    """Return whether the operation is allowed on the cluster.

    A denial is not audited if the request may also be allowed in another way.
    """
    ask = rights.may if is_audited else rights.may_see
    return ask(check.operation, check.resource_type, CLUSTER_NAME)


class _AboutGroups(Protocol):
    """A request that can ask for the authorized operations on groups (KIP-430)."""

    @property
    def include_authorized_operations(self) -> bool: ...


def operations_on_group(rights: Rights, request: _AboutGroups, group_id: str) -> i32:
    """Return the value of the field for the operations on a group."""
    if not request.include_authorized_operations:
        return NOT_ASKED
    return rights.authorized_operations(AclResourceType.GROUP, group_id)


class _AboutCluster(Protocol):
    """A request that can ask for the authorized operations on the cluster (KIP-430)."""

    @property
    def include_cluster_authorized_operations(self) -> bool: ...


def operations_on_cluster(rights: Rights, request: _AboutCluster) -> i32:
    """Return the value of the field for the operations on the cluster.

    It is 0 for a principal that may not describe the cluster.
    """
    if not request.include_cluster_authorized_operations:
        return NOT_ASKED
    if not is_allowed_on_cluster(rights, DESCRIBE_CLUSTER):
        return i32(0)
    return rights.authorized_operations(AclResourceType.CLUSTER, CLUSTER_NAME)


class TopicPermission:
    """The answers for the topics of one request, by name or by id.

    Unknown ids are not denied, because the request gets another error for them.
    """

    __slots__ = ("_catalog", "_permission")

    def __init__(self, rights: Rights, check: Check, catalog: Catalog) -> None:
        self._permission = Permission(rights, check)
        self._catalog = catalog

    def denial(self, topic: str | UUID) -> AuthorizationException | None:
        """Return the error if the operation is not allowed on a topic, otherwise None."""
        if not isinstance(topic, UUID):
            return self._permission.denial(topic)
        existing_topic = self._catalog.by_id(TopicId(topic))
        return (
            None if existing_topic is None else self._permission.denial(existing_topic.name, topic)
        )

    def denial_of(self, topic: Any) -> AuthorizationException | None:
        """Return the same for a topic of a request, which has a ``name`` or a ``topic_id``."""
        named: str | UUID | None = getattr(topic, "name", None) or getattr(topic, "topic_id", None)
        return None if named is None else self.denial(named)


def topic_permission(rights: Rights, check: Check, catalog: Catalog) -> TopicPermission | None:
    """Return the permission, or None if the rights are unlimited, so hot paths need not ask."""
    return None if rights.is_unlimited else TopicPermission(rights, check, catalog)
