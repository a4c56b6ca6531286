"""DeleteGroups (42): deletes empty groups of all types, with their offsets and share state."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from kio.schema.errors import ErrorCode

from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission
from sharegroup.errors import GroupIdNotFound, KafkaError
from sharegroup.ids import GroupId
from sharegroup.protocol_enums import GroupType
from sharegroup.wire.messages.delete_groups_v3 import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

log = logging.getLogger(__name__)


def handle(
    parts: Parts, context: RequestContext, request: DeleteGroupsRequest
) -> Later[DeleteGroupsResponse]:
    delete = Permission(context.rights, required.DELETE_GROUPS)
    return Later(_delete_all(parts, request, delete))


async def _delete_all(
    parts: Parts, request: DeleteGroupsRequest, delete: Permission
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


def _delete(parts: Parts, group_id: GroupId) -> Awaitable[None]:
    match parts.groups.type_of(group_id):
        case GroupType.SHARE:
            return parts.share_group_coordinator.delete(group_id)
        case GroupType.CONSUMER:
            return parts.modern_group_coordinator.delete(group_id)
    return parts.consumer_group_coordinator.delete(group_id)


def refuse(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            DeletableGroupResult(
                group_id=group_id, error_code=error_code(error), error_message=str(error)
            )
            for group_id in request.groups_names
        ),
    )
