"""Requests about groups of every type (15, 16, 42): describe classic ones, list and delete all."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from typing import Protocol

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.types import GroupId as WireGroupId

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import (
    Permission,
    is_allowed_on_cluster,
    operations_on_group,
)
from sharegroup.broker.access.rights import UNLIMITED
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import (
    HasClassicGroups,
    HasGroups,
    HasModernCoordinator,
    HasModernGroups,
    HasShareGroups,
    HasSlices,
)
from sharegroup.errors import GroupIdNotFound, KafkaError
from sharegroup.ids import GroupId
from sharegroup.protocol_enums import GroupType
from sharegroup.steps import Steps, paced
from sharegroup.wire.messages.delete_groups_v3 import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

DEAD = "Dead"

FEW = 16
"""A step ends after every 16 groups."""

NOT_FOUND_VERSION = 6


class GroupsParts(
    HasClassicGroups,
    HasGroups,
    HasModernCoordinator,
    HasModernGroups,
    HasShareGroups,
    HasSlices,
    Protocol,
):
    """What these requests touch of the broker."""


def describe_groups(
    parts: GroupsParts, context: RequestContext, request: DescribeGroupsRequest
) -> Steps[DescribeGroupsResponse]:
    """DescribeGroups (15): describes consumer groups of the classic protocol and their members.

    The state of an unknown group is Dead. From version 6 on it is also an error (KIP-1043).
    """
    describe = Permission(context.rights, required.DESCRIBE_GROUPS)
    groups = []
    # Each group once: a small request must not multiply the description of a large group.
    for group_id, pause in paced(dict.fromkeys(request.groups), FEW):
        if (denial := describe.denial(group_id)) is not None:
            groups.append(_failed(group_id, denial))
        else:
            group = yield from _group(parts, context, group_id)
            operations = operations_on_group(context.rights, request, group_id)
            groups.append(replace(group, authorized_operations=operations))
        if pause:
            yield
    return DescribeGroupsResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


def _group(
    parts: GroupsParts, context: RequestContext, group_id: WireGroupId
) -> Steps[DescribedGroup]:
    try:
        group = parts.classic_group_coordinator.describe(GroupId(group_id))
    except GroupIdNotFound as error:
        has_error = context.api_version >= NOT_FOUND_VERSION
        return _failed(group_id, error if has_error else None)
    members = []
    for member, pause in paced(group.members):
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
        if pause:
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


def list_groups(
    parts: GroupsParts, context: RequestContext, request: ListGroupsRequest
) -> Steps[ListGroupsResponse]:
    """ListGroups (16): lists all groups, filtered by state and type (KIP-518, KIP-848)."""
    states = {state.lower() for state in request.states_filter}
    types = {group_type.lower() for group_type in request.types_filter}
    rights = context.rights
    # DESCRIBE on the cluster shows all groups; without it, each group is asked for (`KafkaApis`).
    sees_all = is_allowed_on_cluster(rights, required.DESCRIBE_CLUSTER, is_audited=False)
    describe = Permission(
        UNLIMITED if sees_all else rights, required.DESCRIBE_GROUPS, is_audited=False
    )
    groups = []
    for group, pause in paced(_groups(parts)):
        if (
            (not states or group.group_state.lower() in states)
            and (not types or group.group_type.lower() in types)
            and describe.allows(group.group_id)
        ):
            groups.append(group)
        if pause:
            yield
    return ListGroupsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, groups=tuple(groups)
    )


def _groups(parts: GroupsParts) -> Iterator[ListedGroup]:
    for share in parts.share_group_coordinator.list_groups():
        yield ListedGroup(
            group_id=WireGroupId(share.group_id),
            protocol_type="share",
            group_state=share.state,
            group_type=GroupType.SHARE,
        )
    for consumer in parts.classic_group_coordinator.list_groups():
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


log = logging.getLogger(__name__)


def delete_groups(
    parts: GroupsParts, context: RequestContext, request: DeleteGroupsRequest
) -> Later[DeleteGroupsResponse]:
    """DeleteGroups (42): deletes empty groups of all types, with their offsets and share state."""
    delete = Permission(context.rights, required.DELETE_GROUPS)
    return Later(_delete_all(parts, request, delete))


async def _delete_all(
    parts: GroupsParts, request: DeleteGroupsRequest, delete: Permission
) -> DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):  # As in Kafka, one result per group.
        code, text = ErrorCode.none, None
        await parts.slices.turn()
        try:
            delete.require(group_id)
            await _delete(parts, GroupId(group_id))
        except KafkaError as error:
            code, text = error_code(error), str(error)
            # Before version 3 the response has no field for the text, so it is logged.
            if not isinstance(error, GroupIdNotFound):
                log.info("event=group_not_deleted group=%r reason=%r", group_id, text)
        results.append(DeletableGroupResult(group_id=group_id, error_code=code, error_message=text))
    return DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def _delete(parts: GroupsParts, group_id: GroupId) -> Awaitable[None]:
    match parts.groups.type_of(group_id):
        case GroupType.SHARE:
            return parts.share_group_coordinator.delete(group_id)
        case GroupType.CONSUMER:
            return parts.modern_group_coordinator.delete(group_id)
    return parts.classic_group_coordinator.delete(group_id)


SERVED = {
    15: ApiHandler(
        describe_groups,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_GROUPS,),
        refused={"group_state": "Dead"},
    ),
    16: ApiHandler(
        list_groups,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_CLUSTER, required.DESCRIBE_GROUPS),
    ),
    42: ApiHandler(
        delete_groups,
        checks=(required.DELETE_GROUPS,),
    ),
}
