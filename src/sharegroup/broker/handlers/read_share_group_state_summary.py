"""ReadShareGroupStateSummary (87): start offset and epochs, for listing; nobody is fenced."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kio.schema.read_share_group_state_summary.v1.request import ReadShareGroupStateSummaryRequest
from kio.schema.read_share_group_state_summary.v1.response import (
    PartitionResult,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from kio.static.primitive import i32, i64

from sharegroup.broker.dispatch import Context
from sharegroup.broker.parts import Parts
from sharegroup.broker.share_state_requests import (
    Answer,
    Decided,
    answer_each,
    refuse_each,
)
from sharegroup.core.share_state import StateSummary
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey

ANSWER = Answer(
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
    PartitionResult,
    beside_error={
        "state_epoch": i32(0),
        "leader_epoch": i32(0),
        "start_offset": i64(0),
        "delivery_complete_count": i32(-1),
    },
)


def handle(
    parts: Parts, context: Context, request: ReadShareGroupStateSummaryRequest
) -> Awaitable[ReadShareGroupStateSummaryResponse]:
    def read(key: SharePartitionKey, wanted: Any) -> Decided:
        summary = parts.share_coordinator.summary(key)
        parts.share_coordinator.check_exists(key)
        result = ANSWER.done(key.partition, **_fields(summary))
        return Decided(result, parts.share_coordinator.last_write(key))

    return answer_each(request, read, ANSWER)


def refuse(
    request: ReadShareGroupStateSummaryRequest, error: KafkaError
) -> ReadShareGroupStateSummaryResponse:
    return refuse_each(request, error, ANSWER)


def _fields(summary: StateSummary) -> dict[str, Any]:
    return {
        "state_epoch": i32(summary.state_epoch),
        "leader_epoch": i32(summary.leader_epoch),
        "start_offset": i64(summary.start_offset),
        "delivery_complete_count": i32(summary.delivery_complete_count),
    }
