"""ReadShareGroupStateSummary (87): returns start offset and epochs, without fencing a leader."""

from __future__ import annotations

from typing import Any

from kio.schema.read_share_group_state_summary.v1.request import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
)
from kio.schema.read_share_group_state_summary.v1.response import (
    PartitionResult,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from kio.static.primitive import i32, i64

from sharegroup.broker.handler_contract import Later, RequestContext
from sharegroup.broker.parts import Parts
from sharegroup.broker.share_state_requests import (
    Decided,
    ResponseClasses,
    answer_each,
    refuse_each,
)
from sharegroup.core.share_state.share_states import StateSummary
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey
from sharegroup.steps import Steps

CLASSES = ResponseClasses(
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
    parts: Parts, context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> Steps[Later[ReadShareGroupStateSummaryResponse]]:
    return answer_each(parts, request, _read, CLASSES)


def refuse(
    request: ReadShareGroupStateSummaryRequest, error: KafkaError
) -> Steps[ReadShareGroupStateSummaryResponse]:
    return refuse_each(request, error, CLASSES)


def _read(parts: Parts, key: SharePartitionKey, wanted: PartitionData) -> Decided:
    summary = parts.share_coordinator.summary(key)
    parts.share_coordinator.check_exists(key)
    result = CLASSES.done(key.partition, **_fields(summary))
    return Decided(result, parts.share_coordinator.last_write(key))


def _fields(summary: StateSummary) -> dict[str, Any]:
    return {
        "state_epoch": i32(summary.state_epoch),
        "leader_epoch": i32(summary.leader_epoch),
        "start_offset": i64(summary.start_offset),
        "delivery_complete_count": i32(summary.delivery_complete_count),
    }
