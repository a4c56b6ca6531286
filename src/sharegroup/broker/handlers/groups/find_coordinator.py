"""FindCoordinator (10): names this broker as the coordinator of every group and transactional id.

The share coordinator is named only if the broker serves its requests over the network (ADR 0010).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.checks import Check, check_gates
from sharegroup.broker.access.permission import Permission
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import HasNode, HasShareStateSwitch
from sharegroup.errors import InvalidRequest, KafkaError
from sharegroup.steps import Steps, paced
from sharegroup.wire.codec.convert import downgrade, upgrade

GROUP, TRANSACTION, SHARE = 0, 1, 2
KEYS_SINCE = 4
"""The first version whose requests have any number of keys, or none."""

SHARE_SINCE = 6
TOPIC_ID_AND_PARTITION = re.compile(r"[A-Za-z0-9_-]{22}:-?[0-9]{1,10}")


DESCRIBE_KEYS: Mapping[int, Check] = MappingProxyType(
    {GROUP: required.DESCRIBE_GROUPS, TRANSACTION: required.DESCRIBE_TRANSACTIONAL_IDS}
)
"""The permission for each key, by the type of the keys."""


class FindCoordinatorParts(HasNode, HasShareStateSwitch, Protocol):
    """What these requests touch of the broker."""


def handle(
    parts: FindCoordinatorParts, context: RequestContext, request: FindCoordinatorRequest
) -> Steps[FindCoordinatorResponse]:
    """Name this broker for each key."""
    # Only brokers look for the share coordinator (KIP-932), so it takes their right.
    if request.key_type == SHARE:
        check_gates((required.CLUSTER_ACTION,), context.rights, request)
    check = DESCRIBE_KEYS.get(request.key_type)
    describe = None if check is None else Permission(context.rights, check)
    coordinators = []
    for key, pause in paced(request.coordinator_keys):
        denial = None if describe is None else describe.denial(key)
        coordinators.append(
            _coordinator(parts, context, request.key_type, key)
            if denial is None
            else _failed(key, denial)
        )
        if pause:
            yield
    return FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=tuple(coordinators))


def from_older(request: Any, newest: type[FindCoordinatorRequest]) -> FindCoordinatorRequest:
    """Convert a request to the newest version; before version 4 it has one key."""
    upgraded = upgrade(request, newest)
    if hasattr(request, "key"):
        return replace(upgraded, coordinator_keys=(request.key,))
    return upgraded


def to_older(response: FindCoordinatorResponse, wanted: type[Any]) -> Any:
    """Convert a response to an older version; before version 4 it has one coordinator."""
    if wanted.__version__ >= KEYS_SINCE:
        return downgrade(response, wanted)
    return downgrade(response.coordinators[0], wanted)


def _coordinator(
    parts: FindCoordinatorParts, context: RequestContext, key_type: int, key: str
) -> Coordinator:
    try:
        if key_type == SHARE and parts.serves_share_state:
            _check_share(context, key)
        else:
            _check(key_type, key)
    except KafkaError as error:
        return _failed(key, error)
    node = parts.node
    return Coordinator(
        key=key,
        node_id=BrokerId(node.node_id),
        host=node.host,
        port=i32(node.port),
        error_code=ErrorCode.none,
        error_message=None,
    )


def _check(key_type: int, key: str) -> None:
    if key_type not in (GROUP, TRANSACTION):
        raise InvalidRequest(
            f"coordinator key type {key_type} of {key!r} is not served, only 0 and 1"
        )


def _check_share(context: RequestContext, key: str) -> None:
    """Raise InvalidRequest unless the key is group, topic id and partition, joined by colons.

    The group id may contain colons.
    """
    if context.api_version < SHARE_SINCE:
        raise InvalidRequest(
            f"coordinator key {key!r}: key type {SHARE} needs version {SHARE_SINCE} or newer, "
            f"not {context.api_version}"
        )
    # From the right, because the group id may contain colons (spec state-23).
    group_id, *suffix = key.rsplit(":", 2)
    if not group_id.strip() or TOPIC_ID_AND_PARTITION.fullmatch(":".join(suffix)) is None:
        raise InvalidRequest(
            f"coordinator key {key!r} is not a share partition: expected group:topic-id:partition"
        )


def _failed(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=BrokerId(-1),
        host="",
        port=i32(-1),
        error_code=error_code(error),
        error_message=str(error),
    )


SERVED = {
    10: ApiHandler(
        handle,
        handling=Handling.READS_IN_STEPS,
        checks=(
            required.DESCRIBE_GROUPS,
            required.DESCRIBE_TRANSACTIONAL_IDS,
            required.CLUSTER_ACTION,
        ),
        refused={"node_id": -1, "port": -1},
        from_older=from_older,
        to_older=to_older,
    )
}
