"""ReadShareGroupState (84): the state for a leader, who fences those of lower epochs."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kio.schema.read_share_group_state.v0.request import ReadShareGroupStateRequest
from kio.schema.read_share_group_state.v0.response import (
    PartitionResult,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from kio.static.primitive import i8, i16, i32, i64

from sharegroup.broker.dispatch import Context
from sharegroup.broker.parts import Parts
from sharegroup.broker.share_state_requests import (
    Answer,
    Decided,
    answer_each,
    refuse_each,
)
from sharegroup.core.share_state import PersistedState
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey

ANSWER = Answer(
    ReadShareGroupStateResponse,
    ReadStateResult,
    PartitionResult,
    beside_error={"state_epoch": i32(0), "start_offset": i64(0), "state_batches": ()},
)


def handle(
    parts: Parts, context: Context, request: ReadShareGroupStateRequest
) -> Awaitable[ReadShareGroupStateResponse]:
    def read(key: SharePartitionKey, wanted: Any) -> Decided:
        state = parts.share_coordinator.read(key, leader_epoch=wanted.leader_epoch)
        # What it tells must be durable, whoever wrote it.
        result = ANSWER.done(key.partition, **_fields(state))
        return Decided(result, parts.share_coordinator.last_write(key))

    return answer_each(request, read, ANSWER)


def refuse(request: ReadShareGroupStateRequest, error: KafkaError) -> ReadShareGroupStateResponse:
    return refuse_each(request, error, ANSWER)


def _fields(state: PersistedState) -> dict[str, Any]:
    return {
        "state_epoch": i32(state.state_epoch),
        "start_offset": i64(state.start_offset),
        "state_batches": tuple(
            StateBatch(
                first_offset=i64(batch.first),
                last_offset=i64(batch.end - 1),
                delivery_state=i8(batch.state),
                delivery_count=i16(batch.delivery_count),
            )
            for batch in state.batches
        ),
    }
