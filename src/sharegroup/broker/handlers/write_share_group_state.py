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

from sharegroup.broker.dispatch import Context
from sharegroup.broker.parts import Parts
from sharegroup.broker.share_state_requests import (
    Answer,
    Decided,
    answer_each,
    changed,
    refuse_each,
    state_batches,
)
from sharegroup.core.delivery import Delta
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey

ANSWER = Answer(WriteShareGroupStateResponse, WriteStateResult, PartitionResult)


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
        return Decided(ANSWER.done(key.partition), ticket)

    return answer_each(request, write, ANSWER)


def refuse(request: WriteShareGroupStateRequest, error: KafkaError) -> WriteShareGroupStateResponse:
    return refuse_each(request, error, ANSWER)
