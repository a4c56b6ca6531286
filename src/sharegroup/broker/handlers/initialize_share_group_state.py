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
from sharegroup.core.share_state import named
from sharegroup.errors import InvalidRequest, KafkaError
from sharegroup.ids import SharePartitionKey


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
        done = PartitionResult(partition=wanted.partition, **NO_ERROR)
        return Decided(done, parts.share_coordinator.last_write(key))

    return answer_each(request, initialize, _failed, _response)


def refuse(
    request: InitializeShareGroupStateRequest, error: KafkaError
) -> InitializeShareGroupStateResponse:
    return _response(refuse_each(request, error, _failed))


def _response(results: Results) -> InitializeShareGroupStateResponse:
    return InitializeShareGroupStateResponse(
        results=tuple(
            InitializeStateResult(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in results
        )
    )


def _failed(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition=i32(partition), **error_fields(error))
