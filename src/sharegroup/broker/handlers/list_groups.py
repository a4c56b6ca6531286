"""ListGroups (16): lists all groups, filtered by state and type (KIP-518, KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator

from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.types import GroupId as WireGroupId

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission, is_allowed_on_cluster
from sharegroup.broker.security.rights import UNLIMITED
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import GroupType
from sharegroup.steps import STEP_MASK, Steps


def handle(
    parts: Parts, context: RequestContext, request: ListGroupsRequest
) -> Steps[ListGroupsResponse]:
    states = {state.lower() for state in request.states_filter}
    types = {group_type.lower() for group_type in request.types_filter}
    rights = context.rights
    sees_all = is_allowed_on_cluster(rights, required.DESCRIBE_CLUSTER, is_audited=False)
    describe = Permission(
        UNLIMITED if sees_all else rights, required.DESCRIBE_GROUPS, is_audited=False
    )
    groups = []
    for index, group in enumerate(_groups(parts)):
        if (
            (not states or group.group_state.lower() in states)
            and (not types or group.group_type.lower() in types)
            and describe.allows(group.group_id)
        ):
            groups.append(group)
        if index & STEP_MASK == STEP_MASK:
            yield
    return ListGroupsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, groups=tuple(groups)
    )


def refuse(request: ListGroupsRequest, error: KafkaError) -> ListGroupsResponse:
    return ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=error_code(error), groups=())


def _groups(parts: Parts) -> Iterator[ListedGroup]:
    for share in parts.share_group_coordinator.list_groups():
        yield ListedGroup(
            group_id=WireGroupId(share.group_id),
            protocol_type="share",
            group_state=share.state,
            group_type=GroupType.SHARE,
        )
    for consumer in parts.consumer_group_coordinator.list_groups():
        yield ListedGroup(
            group_id=WireGroupId(consumer.group_id),
            protocol_type=consumer.protocol_type,
            group_state=consumer.state,
            group_type=GroupType.CLASSIC,
        )
    for modern in parts.modern_groups.list_groups():
        yield ListedGroup(
            group_id=WireGroupId(modern.group_id),
            protocol_type="consumer",
            group_state=modern.state,
            group_type=GroupType.CONSUMER,
        )
