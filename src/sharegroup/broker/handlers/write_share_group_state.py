"""WriteShareGroupState (85): stores the state that share-partition leaders send."""

from __future__ import annotations

from kio.schema.write_share_group_state.v1.request import PartitionData, WriteShareGroupStateRequest
from kio.schema.write_share_group_state.v1.response import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

from sharegroup.broker.handler_contract import Later, RequestContext
from sharegroup.broker.parts import Parts
from sharegroup.broker.share_state_requests import (
    Decided,
    ResponseClasses,
    answer_each,
    changed,
    refuse_each,
    state_batches,
)
from sharegroup.core.share_partition.delivery import Delta
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey
from sharegroup.steps import Steps

CLASSES = ResponseClasses(WriteShareGroupStateResponse, WriteStateResult, PartitionResult)


def handle(
    parts: Parts, context: RequestContext, request: WriteShareGroupStateRequest
) -> Steps[Later[WriteShareGroupStateResponse]]:
    return answer_each(parts, request, _write, CLASSES)


def refuse(
    request: WriteShareGroupStateRequest, error: KafkaError
) -> Steps[WriteShareGroupStateResponse]:
    return refuse_each(request, error, CLASSES)


def _write(parts: Parts, key: SharePartitionKey, wanted: PartitionData) -> Decided:
    delta = Delta(
        max(wanted.start_offset, -1),
        max(wanted.delivery_complete_count, -1),
        state_batches(key, wanted.state_batches),
    )
    ticket = parts.share_coordinator.write(
        key, wanted.state_epoch, delta, leader_epoch=wanted.leader_epoch
    )
    changed(parts, key, ticket)
    return Decided(CLASSES.done(key.partition), ticket)
