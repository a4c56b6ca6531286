"""FindCoordinator (10): this broker coordinates every group.

Transactions are not served, and the share coordinator is reached over the network only where its
requests are served (ADR 0010).
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError
from sharegroup.wire.convert import downgrade, upgrade

GROUP, SHARE = 0, 2
SHARE_SINCE = 6
TOPIC_ID_AND_PARTITION = re.compile(r"[A-Za-z0-9_-]{22}:-?[0-9]{1,10}")


def handle(
    parts: Parts, context: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        throttle_time=NO_THROTTLE,
        coordinators=tuple(
            _coordinator(parts, context, request.key_type, key) for key in request.coordinator_keys
        ),
    )


def refuse(request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        throttle_time=NO_THROTTLE,
        coordinators=tuple(_failed(key, error) for key in request.coordinator_keys),
    )


def from_older(request: Any, newest: type[Any]) -> FindCoordinatorRequest:
    """Before version 4 a request asked for one key."""
    upgraded = upgrade(request, newest)
    assert isinstance(upgraded, FindCoordinatorRequest)
    if upgraded.coordinator_keys:
        return upgraded
    return replace(upgraded, coordinator_keys=(request.key,))


def to_older(response: FindCoordinatorResponse, wanted: type[Any]) -> Any:
    """Before version 4 the answer stood at the top of the response."""
    if any(field.name == "coordinators" for field in fields(wanted)):
        return downgrade(response, wanted)
    return downgrade(response.coordinators[0], wanted)


def _coordinator(parts: Parts, context: Context, key_type: int, key: str) -> Coordinator:
    try:
        if key_type == SHARE and parts.config.server.share_state_apis:
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
    if key_type == 1:
        raise CoordinatorNotAvailable(f"transactional id {key!r}: transactions are not served")
    if key_type != GROUP:
        raise InvalidRequest(f"coordinator key type {key_type} of {key!r} is not served, only 0")


def _check_share(context: Context, key: str) -> None:
    """A share partition is named by group, topic id and partition; the group may have colons."""
    if context.api_version < SHARE_SINCE:
        raise InvalidRequest(
            f"coordinator key {key!r}: key type {SHARE} needs version {SHARE_SINCE} or newer, "
            f"not {context.api_version}"
        )
    group_id, *rest = key.rsplit(":", 2)
    if not group_id.strip() or TOPIC_ID_AND_PARTITION.fullmatch(":".join(rest)) is None:
        raise InvalidRequest(
            f"coordinator key {key!r} is no share partition: expected group:topic-id:partition"
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
