"""What requests require: declared beside each handler, and executed here.

A `Gate` is a permission that a request needs as a whole; `check_gates` is called before its
handler.  A `Check` is a permission that a handler asks for item by item, such as each topic of a
request; it is declared so that the table in docs/security.md is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sharegroup.broker.access.rights import Rights
from sharegroup.errors import (
    AuthorizationException,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from sharegroup.protocol_enums import CLUSTER_NAME, AclOperation, AclResourceType

_ERRORS: dict[AclResourceType, type[AuthorizationException]] = {
    AclResourceType.TOPIC: TopicAuthorizationFailed,
    AclResourceType.GROUP: GroupAuthorizationFailed,
    AclResourceType.CLUSTER: ClusterAuthorizationFailed,
    AclResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
}


def _cluster(_request: Any) -> str:
    return CLUSTER_NAME


@dataclass(frozen=True, slots=True)
class Check:
    """An operation on resources of a type."""

    operation: AclOperation
    resource_type: AclResourceType


@dataclass(frozen=True, slots=True)
class Gate(Check):
    """A permission that a request needs as a whole."""

    name_of: Callable[[Any], str | None] = _cluster
    """Returns the name of the resource that a request is about.

    None means that the request names none, which its handler refuses.
    """


def denied(
    operation: AclOperation, resource_type: AclResourceType, name: str
) -> AuthorizationException:
    """Return the error for a resource that the principal may not use."""
    error = _ERRORS[resource_type](
        f"no ACL allows {operation.name} on {resource_type.name} {name!r} to this user"
    )
    error.resource_name = name
    return error


def check_gates(gates: Iterable[Gate], rights: Rights, request: Any) -> None:
    """Raise the AuthorizationException of the first gate that the principal may not pass."""
    for gate in gates:
        name = gate.name_of(request)
        if name is not None and not rights.may(gate.operation, gate.resource_type, name):
            raise denied(gate.operation, gate.resource_type, name)
