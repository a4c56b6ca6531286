"""What the peer of a connection may do, as handlers ask it, and as bit fields for responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from kio.static.primitive import i32

from sharegroup.protocol_enums import ACL_OPERATIONS, AclOperation, AclResourceType
from sharegroup.steps import Steps

NOT_ASKED = i32(-(2**31))
"""The value of the field if the request does not ask for authorized operations."""


def operation_bits(operations: Iterable[AclOperation]) -> i32:
    """Return the bit field of these operations: bits at their numbers in Kafka's AclOperation."""
    return i32(sum(1 << operation for operation in operations))


ALL_OPERATIONS: Mapping[AclResourceType, i32] = MappingProxyType(
    {resource_type: operation_bits(every) for resource_type, every in ACL_OPERATIONS.items()}
)
"""The bit fields with all operations of each type."""


class Rights(Protocol):
    """The permissions of one principal at one address."""

    @property
    def is_unlimited(self) -> bool:
        """Whether every question has the answer yes, so hot paths need not ask."""
        ...

    def of_request(self, api_key: int) -> Rights:
        """Return these rights for a request of an API, which denials are logged with."""
        ...

    def may(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        """Return whether the operation is allowed; a denial is counted and logged."""
        ...

    def may_see(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        """Return whether the operation is allowed, for listings: a denial is not logged."""
        ...

    def may_any(self, operation: AclOperation, resource_type: AclResourceType) -> Steps[bool]:
        """Return, in steps, whether the operation is allowed on a resource of the type."""
        ...

    def authorized_operations(self, resource_type: AclResourceType, name: str) -> i32:
        """Return the bit field of the operations that are allowed on a resource."""
        ...


class UnlimitedRights:
    """The rights of every peer while the broker has no authorizer."""

    __slots__ = ()

    is_unlimited: Final = True

    def of_request(self, api_key: int) -> Rights:  # noqa: ARG002
        return self

    def may(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:  # noqa: ARG002
        return True

    def may_see(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:  # noqa: ARG002
        return True

    def may_any(self, operation: AclOperation, resource_type: AclResourceType) -> Steps[bool]:  # noqa: ARG002
        yield from ()
        return True

    def authorized_operations(self, resource_type: AclResourceType, name: str) -> i32:  # noqa: ARG002
        return ALL_OPERATIONS[resource_type]


UNLIMITED: Final[Rights] = UnlimitedRights()
