"""What requests require: declared beside each handler, and executed here.

A `Gate` is a permission that a request needs as a whole; `check_gates` is called before its
handler.  A `Check` is a permission that a handler asks for item by item, such as each topic of a
request; it is declared so that the table in docs/security.md is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

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


# The gates and checks that several requests share, by name.


def _group_id(request: Any) -> str | None:
    group_id: str | None = request.group_id
    return group_id


def _transactional_id(request: Any) -> str | None:
    transactional_id: str | None = request.transactional_id
    return transactional_id


def _gate_on_cluster(operation: AclOperation) -> Gate:
    return Gate(operation, AclResourceType.CLUSTER)


ALTER_CLUSTER: Final = _gate_on_cluster(AclOperation.ALTER)
DESCRIBE_CLUSTER: Final = _gate_on_cluster(AclOperation.DESCRIBE)
DESCRIBE_CONFIGS_OF_CLUSTER: Final = _gate_on_cluster(AclOperation.DESCRIBE_CONFIGS)
ALTER_CLIENT_QUOTAS: Final = _gate_on_cluster(AclOperation.ALTER_CONFIGS)
CLUSTER_ACTION: Final = _gate_on_cluster(AclOperation.CLUSTER_ACTION)
READ_GROUP: Final = Gate(AclOperation.READ, AclResourceType.GROUP, _group_id)
DELETE_GROUP: Final = Gate(AclOperation.DELETE, AclResourceType.GROUP, _group_id)
WRITE_TRANSACTIONAL_ID: Final = Gate(
    AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, _transactional_id
)

READ_TOPICS: Final = Check(AclOperation.READ, AclResourceType.TOPIC)
WRITE_TOPICS: Final = Check(AclOperation.WRITE, AclResourceType.TOPIC)
CREATE_TOPICS: Final = Check(AclOperation.CREATE, AclResourceType.TOPIC)
DELETE_TOPICS: Final = Check(AclOperation.DELETE, AclResourceType.TOPIC)
ALTER_TOPICS: Final = Check(AclOperation.ALTER, AclResourceType.TOPIC)
DESCRIBE_TOPICS: Final = Check(AclOperation.DESCRIBE, AclResourceType.TOPIC)
DESCRIBE_CONFIGS_OF_TOPICS: Final = Check(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC)
ALTER_CONFIGS_OF_TOPICS: Final = Check(AclOperation.ALTER_CONFIGS, AclResourceType.TOPIC)
DESCRIBE_GROUPS: Final = Check(AclOperation.DESCRIBE, AclResourceType.GROUP)
DELETE_GROUPS: Final = Check(AclOperation.DELETE, AclResourceType.GROUP)
DESCRIBE_CONFIGS_OF_GROUPS: Final = Check(AclOperation.DESCRIBE_CONFIGS, AclResourceType.GROUP)
ALTER_CONFIGS_OF_GROUPS: Final = Check(AclOperation.ALTER_CONFIGS, AclResourceType.GROUP)
DESCRIBE_TRANSACTIONAL_IDS: Final = Check(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID)
WRITE_TRANSACTIONAL_IDS: Final = Check(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID)
CREATE_IN_CLUSTER: Final = Check(AclOperation.CREATE, AclResourceType.CLUSTER)
DELETE_IN_CLUSTER: Final = Check(AclOperation.DELETE, AclResourceType.CLUSTER)
ALTER_CONFIGS_OF_CLUSTER: Final = Check(AclOperation.ALTER_CONFIGS, AclResourceType.CLUSTER)
IDEMPOTENT_WRITE: Final = Check(AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER)
