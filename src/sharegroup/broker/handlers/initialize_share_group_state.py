"""InitializeShareGroupState (83): sets start offset and state epoch of share partitions."""

from __future__ import annotations

from kio.schema.initialize_share_group_state.v0.request import (
    InitializeShareGroupStateRequest,
    PartitionData,
)
from kio.schema.initialize_share_group_state.v0.response import (
    InitializeShareGroupStateResponse,
    InitializeStateResult,
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
from sharegroup.core.share_state.share_states import named
from sharegroup.errors import InvalidRequest, KafkaError
from sharegroup.ids import SharePartitionKey
from sharegroup.steps import Steps

CLASSES = ResponseClasses(InitializeShareGroupStateResponse, InitializeStateResult, PartitionResult)


def handle(
    parts: Parts, context: RequestContext, request: InitializeShareGroupStateRequest
) -> Steps[Later[InitializeShareGroupStateResponse]]:
    return answer_each(parts, request, _initialize, CLASSES)


def refuse(
    request: InitializeShareGroupStateRequest, error: KafkaError
) -> Steps[InitializeShareGroupStateResponse]:
    return refuse_each(request, error, CLASSES)


def _initialize(parts: Parts, key: SharePartitionKey, wanted: PartitionData) -> Decided:
    if wanted.start_offset < -1:
        raise InvalidRequest(
            f"{named(key)}: expected a start offset, or -1 for none yet, not {wanted.start_offset}"
        )
    ticket = parts.share_coordinator.initialize(
        key, state_epoch=wanted.state_epoch, start_offset=wanted.start_offset
    )
    changed(parts, key, ticket)
    return Decided(CLASSES.done(key.partition), parts.share_coordinator.last_write(key))
