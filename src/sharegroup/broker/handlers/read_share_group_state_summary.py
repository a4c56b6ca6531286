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
    NO_ERROR,
    Decided,
    Results,
    answer_each,
    error_fields,
    refuse_each,
)
from sharegroup.core.share_state import StateSummary
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey

NOTHING = StateSummary(state_epoch=0, leader_epoch=0, start_offset=0, delivery_complete_count=-1)
"""Beside an error; as Kafka's messages have it by default."""


def handle(
    parts: Parts, context: Context, request: ReadShareGroupStateSummaryRequest
) -> Awaitable[ReadShareGroupStateSummaryResponse]:
    def read(key: SharePartitionKey, wanted: Any) -> Decided:
        summary = parts.share_coordinator.summary(key)
        parts.share_coordinator.check_exists(key)
        result = _result(wanted.partition, summary, NO_ERROR)
        return Decided(result, parts.share_coordinator.last_write(key))

    return answer_each(request, read, _failed, _response)


def refuse(
    request: ReadShareGroupStateSummaryRequest, error: KafkaError
) -> ReadShareGroupStateSummaryResponse:
    return _response(refuse_each(request, error, _failed))


def _response(results: Results) -> ReadShareGroupStateSummaryResponse:
    return ReadShareGroupStateSummaryResponse(
        results=tuple(
            ReadStateSummaryResult(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in results
        )
    )


def _result(partition: int, summary: StateSummary, error: dict[str, Any]) -> PartitionResult:
    return PartitionResult(
        partition=i32(partition),
        state_epoch=i32(summary.state_epoch),
        leader_epoch=i32(summary.leader_epoch),
        start_offset=i64(summary.start_offset),
        delivery_complete_count=i32(summary.delivery_complete_count),
        **error,
    )


def _failed(partition: int, error: KafkaError) -> PartitionResult:
    return _result(partition, NOTHING, error_fields(error))
