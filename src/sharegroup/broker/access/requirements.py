"""The gates and checks that several requests share, by name."""

from __future__ import annotations

from typing import Any, Final

from sharegroup.broker.access.checks import Check, Gate
from sharegroup.protocol_enums import AclOperation, AclResourceType


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
