"""DeleteShareGroupState (86): deletes the state of share partitions, known or not."""

from __future__ import annotations

from kio.schema.delete_share_group_state.v0.request import (
    DeleteShareGroupStateRequest,
    PartitionData,
)
from kio.schema.delete_share_group_state.v0.response import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)

from sharegroup.broker.handler_contract import Later, RequestContext
from sharegroup.broker.parts import Parts
from sharegroup.broker.share_state_requests import (
    Decided,
    ResponseClasses,
    answer_each,
    changed,
    refuse_each,
)
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey
from sharegroup.steps import Steps

CLASSES = ResponseClasses(DeleteShareGroupStateResponse, DeleteStateResult, PartitionResult)


def handle(
    parts: Parts, context: RequestContext, request: DeleteShareGroupStateRequest
) -> Steps[Later[DeleteShareGroupStateResponse]]:
    return answer_each(parts, request, _delete, CLASSES)


def refuse(
    request: DeleteShareGroupStateRequest, error: KafkaError
) -> Steps[DeleteShareGroupStateResponse]:
    return refuse_each(request, error, CLASSES)


def _delete(parts: Parts, key: SharePartitionKey, wanted: PartitionData) -> Decided:
    changed(parts, key, parts.share_coordinator.delete_one(key))
    return Decided(CLASSES.done(key.partition), parts.share_coordinator.last_write(key))
