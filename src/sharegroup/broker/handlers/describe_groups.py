"""DescribeGroups (15): describes consumer groups of the classic protocol and their members.

The state of an unknown group is Dead.  From version 6 on it is also an error (KIP-1043).
"""

from __future__ import annotations

from dataclasses import replace

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId as WireGroupId

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission, operations_on_group
from sharegroup.errors import GroupIdNotFound, KafkaError
from sharegroup.ids import GroupId
from sharegroup.steps import STEP_MASK, Steps

DEAD = "Dead"

FEW = 15
"""Bit mask: a step ends after every 16 groups."""

NOT_FOUND_VERSION = 6


def handle(
    parts: Parts, context: RequestContext, request: DescribeGroupsRequest
) -> Steps[DescribeGroupsResponse]:
    describe = Permission(context.rights, required.DESCRIBE_GROUPS)
    groups = []
    for group_id in dict.fromkeys(request.groups):
        if (denial := describe.denial(group_id)) is not None:
            groups.append(_failed(group_id, denial))
        else:
            group = yield from _group(parts, context, group_id)
            operations = operations_on_group(context.rights, request, group_id)
            groups.append(replace(group, authorized_operations=operations))
        if len(groups) & FEW == FEW:
            yield
    return DescribeGroupsResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


def refuse(request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(_failed(group_id, error) for group_id in request.groups),
    )


def _group(parts: Parts, context: RequestContext, group_id: WireGroupId) -> Steps[DescribedGroup]:
    try:
        group = parts.consumer_group_coordinator.describe(GroupId(group_id))
    except GroupIdNotFound as error:
        known = context.api_version >= NOT_FOUND_VERSION
        return _failed(group_id, error if known else None)
    members = []
    for index, member in enumerate(group.members):
        members.append(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
        )
        if index & STEP_MASK == STEP_MASK:
            yield
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=tuple(members),
    )


def _failed(group_id: WireGroupId, error: KafkaError | None) -> DescribedGroup:
    return DescribedGroup(
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else str(error),
        group_id=group_id,
        group_state=DEAD,
        protocol_type="",
        protocol_data="",
        members=(),
    )
