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
from kio.static.primitive import i32

from sharegroup.broker.dispatch import Context
from sharegroup.broker.parts import Parts
from sharegroup.broker.share_state_requests import (
    NO_ERROR,
    Decided,
    Results,
    answer_each,
    changed,
    error_fields,
    refuse_each,
)
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey


def handle(
    parts: Parts, context: Context, request: DeleteShareGroupStateRequest
) -> Awaitable[DeleteShareGroupStateResponse]:
    def delete(key: SharePartitionKey, wanted: Any) -> Decided:
        changed(parts, key, parts.share_coordinator.delete_one(key))
        done = PartitionResult(partition=wanted.partition, **NO_ERROR)
        return Decided(done, parts.share_coordinator.last_write(key))

    return answer_each(request, delete, _failed, _response)


def refuse(
    request: DeleteShareGroupStateRequest, error: KafkaError
) -> DeleteShareGroupStateResponse:
    return _response(refuse_each(request, error, _failed))


def _response(results: Results) -> DeleteShareGroupStateResponse:
    return DeleteShareGroupStateResponse(
        results=tuple(
            DeleteStateResult(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in results
        )
    )


def _failed(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition=i32(partition), **error_fields(error))
