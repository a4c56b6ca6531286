"""ReadShareGroupState (84): returns the state to a share-partition leader, fencing older ones.

Leaders with a lower leader epoch are fenced from then on.
"""

from __future__ import annotations

from typing import Any

from kio.schema.read_share_group_state.v0.request import PartitionData, ReadShareGroupStateRequest
from kio.schema.read_share_group_state.v0.response import (
    PartitionResult,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from kio.static.primitive import i8, i16, i32, i64

from sharegroup.broker.handler_contract import Later, RequestContext
from sharegroup.broker.parts import Parts
from sharegroup.broker.share_state_requests import (
    Decided,
    ResponseClasses,
    answer_each,
    refuse_each,
)
from sharegroup.core.share_state.share_states import PersistedState
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey
from sharegroup.steps import Steps

CLASSES = ResponseClasses(
    ReadShareGroupStateResponse,
    ReadStateResult,
    PartitionResult,
    beside_error={"state_epoch": i32(0), "start_offset": i64(0), "state_batches": ()},
)


def handle(
    parts: Parts, context: RequestContext, request: ReadShareGroupStateRequest
) -> Steps[Later[ReadShareGroupStateResponse]]:
    return answer_each(parts, request, _read, CLASSES)


def refuse(
    request: ReadShareGroupStateRequest, error: KafkaError
) -> Steps[ReadShareGroupStateResponse]:
    return refuse_each(request, error, CLASSES)


def _read(parts: Parts, key: SharePartitionKey, wanted: PartitionData) -> Decided:
    state = parts.share_coordinator.read(key, leader_epoch=wanted.leader_epoch)
    # The response waits for the last write to this state, also by another request.
    result = CLASSES.done(key.partition, **_fields(state))
    return Decided(result, parts.share_coordinator.last_write(key))


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
