"""The permission on the topics of a request that may name them by id."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sharegroup.broker.access.checks import Check
from sharegroup.broker.access.permission import Permission
from sharegroup.broker.access.rights import Rights
from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.errors import AuthorizationException
from sharegroup.ids import TopicId


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
        found = self._catalog.by_id(TopicId(topic))
        return None if found is None else self._permission.denial(found.name, topic)

    def denial_of(self, topic: Any) -> AuthorizationException | None:
        """Return the same for a topic of a request, which has a ``name`` or a ``topic_id``."""
        named: str | UUID | None = getattr(topic, "name", None) or getattr(topic, "topic_id", None)
        return None if named is None else self.denial(named)


def topic_permission(rights: Rights, check: Check, catalog: Catalog) -> TopicPermission | None:
    """Return the permission, or None if the rights are unlimited, so hot paths need not ask."""
    return None if rights.is_unlimited else TopicPermission(rights, check, catalog)
