"""A probe: a request, the operations that it requires, and its outcomes with and without each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from sharegroup.protocol_enums import AclOperation, AclResourceType

TOPIC_FAILED, GROUP_FAILED, CLUSTER_FAILED, TRANSACTIONAL_ID_FAILED = 29, 30, 31, 53
FAILED = {
    AclResourceType.TOPIC: TOPIC_FAILED,
    AclResourceType.GROUP: GROUP_FAILED,
    AclResourceType.CLUSTER: CLUSTER_FAILED,
    AclResourceType.TRANSACTIONAL_ID: TRANSACTIONAL_ID_FAILED,
}
CLUSTER_NAME = "kafka-cluster"


@dataclass(frozen=True)
class Names:
    """The names of one case.  The topics `topic` and `own` exist."""

    case: str
    topic: str
    topic_id: UUID
    own_id: UUID | None
    """The id of `own`; None if the probe does not need this topic."""

    @property
    def own(self) -> str:
        """A topic of this case alone."""
        return f"{self.case}.own"

    @property
    def absent(self) -> str:
        """A topic that does not exist."""
        return f"{self.case}.absent"

    @property
    def group(self) -> str:
        """A group that does not exist before the request."""
        return f"{self.case}.group"

    @property
    def transactional_id(self) -> str:
        """A transactional id that does not exist before the request."""
        return f"{self.case}.transactional"

    @property
    def member(self) -> str:
        """A member id."""
        return str(uuid5(NAMESPACE_OID, self.case))

    classic: str = "matrix.classic"
    """A consumer group without members that has an offset of `topic`."""
    modern: str = "matrix.modern"
    """A consumer group of KIP-848 with a member that has `topic`."""
    sharing: str = "matrix.sharing"
    """A share group with a member that has `topic`."""
    idle: str = "matrix.idle"
    """A share group without members that has an offset of `topic`."""
    ledger: str = "matrix.ledger"
    """A transactional id with an open transaction in `topic`."""
    cluster: str = CLUSTER_NAME


Errors = frozenset[tuple[str, int]]
NO_ERROR: Errors = frozenset()


def errors(*codes: int, **named: int) -> Errors:
    """Return error codes by the names of their fields; the usual name is ``error_code``."""
    return frozenset([*(("error_code", code) for code in codes), *named.items()])


@dataclass(frozen=True)
class Need:
    """An operation on a resource that a probe requires."""

    operation: AclOperation
    resource_type: AclResourceType
    name: str
    """The attribute of `Names` that is the resource's name."""
    refused: Errors
    """The errors of the response without it."""
    operations: frozenset[int] = frozenset()
    """The authorized operations in the response without it."""
    hides: tuple[str, ...] = ()
    """The attributes of `Names` that the response contains only with it."""
    ours: Errors | None = None
    """The errors of our broker without it; None if they are Kafka's."""
    on_any_name: bool = False
    """Whether the operation on any resource suffices, so a literal DENY of one changes nothing."""


def need(
    operation: AclOperation,
    resource_type: AclResourceType,
    name: str | None = None,
    refused: Errors | None = None,
    *,
    hides: Sequence[str] = (),
    operations: Sequence[int] = (),
    ours: Errors | None = None,
    on_any_name: bool = False,
) -> Need:
    """Return a need; by default its absence is the resource type's error, in ``error_code``."""
    if name is None:
        name = {
            AclResourceType.TOPIC: "topic",
            AclResourceType.GROUP: "group",
            AclResourceType.CLUSTER: "cluster",
            AclResourceType.TRANSACTIONAL_ID: "transactional_id",
        }[resource_type]
    if refused is None:
        refused = NO_ERROR if hides else errors(FAILED[resource_type])
    return Need(
        operation,
        resource_type,
        name,
        refused,
        frozenset(operations),
        tuple(hides),
        ours,
        on_any_name,
    )


@dataclass(frozen=True)
class Probe:
    """A request and what it requires."""

    title: str
    """The name of the API, and which of its checks this is."""
    request: Callable[[Names], Any]
    needs: tuple[Need, ...]
    allowed: Errors = NO_ERROR
    """The errors of the response with all needs."""
    operations: frozenset[int] = frozenset()
    """The authorized operations in the response with all needs."""
    before: tuple[Callable[[Names], Any], ...] = ()
    """Requests that the same client sends first, on the same connection."""
    needs_own_topic: bool = False
    ours: Errors | None = None
    """The errors of the allowed request on our broker; None if they are Kafka's."""
    reveals: tuple[str, ...] = ()
    """Attributes of `Names` that the response contains with all needs, but the request does not."""
    leaks: tuple[str, ...] = ()
    """Attributes of `Names` that a refused response of Kafka contains, but ours does not."""
