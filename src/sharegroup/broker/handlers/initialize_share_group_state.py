"""InitializeShareGroupState (83): begin share partitions at a start offset, in a state epoch."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kio.schema.initialize_share_group_state.v0.request import InitializeShareGroupStateRequest
from kio.schema.initialize_share_group_state.v0.response import (
    InitializeShareGroupStateResponse,
    InitializeStateResult,
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
from sharegroup.core.share_state import named
from sharegroup.errors import InvalidRequest, KafkaError
from sharegroup.ids import SharePartitionKey

ANSWER = Answer(InitializeShareGroupStateResponse, InitializeStateResult, PartitionResult)


def handle(
    parts: Parts, context: Context, request: InitializeShareGroupStateRequest
) -> Awaitable[InitializeShareGroupStateResponse]:
    def initialize(key: SharePartitionKey, wanted: Any) -> Decided:
        if wanted.start_offset < -1:
            raise InvalidRequest(
                f"{named(key)}: expected a start offset, or -1 for none yet, not "
                f"{wanted.start_offset}"
            )
        ticket = parts.share_coordinator.initialize(
            key, state_epoch=wanted.state_epoch, start_offset=wanted.start_offset
        )
        changed(parts, key, ticket)
        return Decided(ANSWER.done(key.partition), parts.share_coordinator.last_write(key))

    return answer_each(request, initialize, ANSWER)


def refuse(
    request: InitializeShareGroupStateRequest, error: KafkaError
) -> InitializeShareGroupStateResponse:
    return refuse_each(request, error, ANSWER)
