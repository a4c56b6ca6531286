"""DeleteGroups (42): empty groups of either kind, with all that they know of their records."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.errors import ErrorCode

from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.groups.group_log import Kind
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import GroupIdNotFound, KafkaError
from sharegroup.ids import GroupId

log = logging.getLogger(__name__)


async def handle(
    parts: Parts, context: Context, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):  # As in Kafka, one result for each.
        code = ErrorCode.none
        try:
            await _delete(parts, GroupId(group_id))
        except KafkaError as error:
            code = error_code(error)
            # The response has no room for the text; that there is no such group needs none.
            if not isinstance(error, GroupIdNotFound):
                log.info("event=group_not_deleted group=%r reason=%r", group_id, str(error))
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def _delete(parts: Parts, group_id: GroupId) -> Awaitable[None]:
    if parts.groups.kind_of(group_id) is Kind.SHARE:
        return parts.share_group_coordinator.delete(group_id)
    return parts.consumer_group_coordinator.delete(group_id)


def refuse(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            DeletableGroupResult(group_id=group_id, error_code=error_code(error))
            for group_id in request.groups_names
        ),
    )
