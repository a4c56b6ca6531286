"""Bit fields of the operations that a client may perform.

An operation is a bit, at the position of its number in Kafka's ``AclOperation``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kio.static.primitive import i32

from sharegroup.protocol_enums import AclOperation, AclResourceType

NOT_ASKED = i32(-(2**31))
"""The value of the field if the request does not ask for authorized operations."""

OPERATIONS: Mapping[AclResourceType, frozenset[AclOperation]] = MappingProxyType(
    {
        AclResourceType.TOPIC: frozenset(
            {
                AclOperation.READ,
                AclOperation.WRITE,
                AclOperation.CREATE,
                AclOperation.DELETE,
                AclOperation.ALTER,
                AclOperation.DESCRIBE,
                AclOperation.DESCRIBE_CONFIGS,
                AclOperation.ALTER_CONFIGS,
            }
        ),
        AclResourceType.GROUP: frozenset(
            {
                AclOperation.READ,
                AclOperation.DELETE,
                AclOperation.DESCRIBE,
                AclOperation.DESCRIBE_CONFIGS,
                AclOperation.ALTER_CONFIGS,
            }
        ),
        AclResourceType.CLUSTER: frozenset(
            {
                AclOperation.CREATE,
                AclOperation.ALTER,
                AclOperation.DESCRIBE,
                AclOperation.CLUSTER_ACTION,
                AclOperation.DESCRIBE_CONFIGS,
                AclOperation.ALTER_CONFIGS,
                AclOperation.IDEMPOTENT_WRITE,
            }
        ),
    }
)
"""The operations that exist for each type of resource (Kafka's ``AclEntry``)."""


def operation_bits(operations: Iterable[AclOperation]) -> i32:
    """Return the bit field of these operations."""
    return i32(sum(1 << operation for operation in operations))


ALL_OPERATIONS: Mapping[AclResourceType, i32] = MappingProxyType(
    {resource_type: operation_bits(every) for resource_type, every in OPERATIONS.items()}
)
"""The bit fields with all operations of each type."""

ON_TOPIC = ALL_OPERATIONS[AclResourceType.TOPIC]
ON_GROUP = ALL_OPERATIONS[AclResourceType.GROUP]
ON_CLUSTER = ALL_OPERATIONS[AclResourceType.CLUSTER]
