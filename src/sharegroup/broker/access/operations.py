"""Bit fields of the operations that a client may perform.

An operation is a bit, at the position of its number in Kafka's ``AclOperation``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kio.static.primitive import i32

from sharegroup.protocol_enums import ACL_OPERATIONS, AclOperation, AclResourceType

NOT_ASKED = i32(-(2**31))
"""The value of the field if the request does not ask for authorized operations."""


def operation_bits(operations: Iterable[AclOperation]) -> i32:
    """Return the bit field of these operations."""
    return i32(sum(1 << operation for operation in operations))


ALL_OPERATIONS: Mapping[AclResourceType, i32] = MappingProxyType(
    {resource_type: operation_bits(every) for resource_type, every in ACL_OPERATIONS.items()}
)
"""The bit fields with all operations of each type."""
