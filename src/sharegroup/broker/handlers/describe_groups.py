"""DescribeGroups (15): consumer groups of the classic protocol, and their members.

An unknown group is Dead; from version 6 on that is an error as well (KIP-1043).
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

from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.operations import NOT_ASKED, ON_GROUP
from sharegroup.broker.parts import Parts
from sharegroup.errors import GroupIdNotFound, KafkaError
from sharegroup.ids import GroupId

DEAD = "Dead"
NOT_FOUND_VERSION = 6


def handle(
    parts: Parts, context: Context, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    operations = ON_GROUP if request.include_authorized_operations else NOT_ASKED
    return DescribeGroupsResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(
            replace(_group(parts, context, group_id), authorized_operations=operations)
            for group_id in dict.fromkeys(request.groups)
        ),
    )


def refuse(request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(_failed(group_id, error) for group_id in request.groups),
    )


def _group(parts: Parts, context: Context, group_id: WireGroupId) -> DescribedGroup:
    try:
        group = parts.consumer_group_coordinator.describe(GroupId(group_id))
    except GroupIdNotFound as error:
        known = context.api_version >= NOT_FOUND_VERSION
        return _failed(group_id, error if known else None)
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ),
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
