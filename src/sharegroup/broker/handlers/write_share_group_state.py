"""WriteShareGroupState (85): what leaders of share partitions decided about their records."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kio.schema.write_share_group_state.v1.request import WriteShareGroupStateRequest
from kio.schema.write_share_group_state.v1.response import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
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
    state_batches,
)
from sharegroup.core.delivery import Delta
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey


def handle(
    parts: Parts, context: Context, request: WriteShareGroupStateRequest
) -> Awaitable[WriteShareGroupStateResponse]:
    def write(key: SharePartitionKey, wanted: Any) -> Decided:
        delta = Delta(
            max(wanted.start_offset, -1),
            max(wanted.delivery_complete_count, -1),
            state_batches(key, wanted.state_batches),
        )
        ticket = parts.share_coordinator.write(
            key, wanted.state_epoch, delta, leader_epoch=wanted.leader_epoch
        )
        changed(parts, key, ticket)
        return Decided(PartitionResult(partition=wanted.partition, **NO_ERROR), ticket)

    return answer_each(request, write, _failed, _response)


def refuse(request: WriteShareGroupStateRequest, error: KafkaError) -> WriteShareGroupStateResponse:
    return _response(refuse_each(request, error, _failed))


def _response(results: Results) -> WriteShareGroupStateResponse:
    return WriteShareGroupStateResponse(
        results=tuple(
            WriteStateResult(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in results
        )
    )


def _failed(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition=i32(partition), **error_fields(error))
