"""DeleteShareGroupState (86): forget share partitions; one that is not known is forgotten, too."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kio.schema.delete_share_group_state.v0.request import DeleteShareGroupStateRequest
from kio.schema.delete_share_group_state.v0.response import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)

from sharegroup.broker.dispatch import Context
from sharegroup.broker.parts import Parts
from sharegroup.broker.share_state_requests import (
    Answer,
    Decided,
    answer_each,
    changed,
    refuse_each,
)
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey

ANSWER = Answer(DeleteShareGroupStateResponse, DeleteStateResult, PartitionResult)


def handle(
    parts: Parts, context: Context, request: DeleteShareGroupStateRequest
) -> Awaitable[DeleteShareGroupStateResponse]:
    def delete(key: SharePartitionKey, wanted: Any) -> Decided:
        changed(parts, key, parts.share_coordinator.delete_one(key))
        return Decided(ANSWER.done(key.partition), parts.share_coordinator.last_write(key))

    return answer_each(request, delete, ANSWER)


def refuse(
    request: DeleteShareGroupStateRequest, error: KafkaError
) -> DeleteShareGroupStateResponse:
    return refuse_each(request, error, ANSWER)
