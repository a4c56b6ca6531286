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
    NO_ERROR,
    Decided,
    Results,
    answer_each,
    error_fields,
    refuse_each,
)
from sharegroup.core.share_state import PersistedState
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey


def handle(
    parts: Parts, context: Context, request: ReadShareGroupStateRequest
) -> Awaitable[ReadShareGroupStateResponse]:
    def read(key: SharePartitionKey, wanted: Any) -> Decided:
        state = parts.share_coordinator.read(key, leader_epoch=wanted.leader_epoch)
        # What it tells must be durable, whoever wrote it.
        return Decided(_result(wanted.partition, state), parts.share_coordinator.last_write(key))

    return answer_each(request, read, _failed, _response)


def refuse(request: ReadShareGroupStateRequest, error: KafkaError) -> ReadShareGroupStateResponse:
    return _response(refuse_each(request, error, _failed))


def _response(results: Results) -> ReadShareGroupStateResponse:
    return ReadShareGroupStateResponse(
        results=tuple(
            ReadStateResult(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in results
        )
    )


def _result(partition: i32, state: PersistedState) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        state_epoch=i32(state.state_epoch),
        start_offset=i64(state.start_offset),
        state_batches=tuple(
            StateBatch(
                first_offset=i64(batch.first),
                last_offset=i64(batch.end - 1),
                delivery_state=i8(batch.state),
                delivery_count=i16(batch.delivery_count),
            )
            for batch in state.batches
        ),
        **NO_ERROR,
    )


def _failed(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(
        partition=i32(partition),
        state_epoch=i32(0),
        start_offset=i64(0),
        state_batches=(),
        **error_fields(error),
    )
