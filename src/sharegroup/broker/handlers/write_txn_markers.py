"""WriteTxnMarkers (27): ends transactions in partitions, as their coordinator does.

Here the coordinator is in the same process and sends no requests.  An administrator sends it to
abort a transaction that hangs because its coordinator does not know it (``kafka-transactions.sh
abort``).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName as WireTopicName
from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kio.static.primitive import i32

from sharegroup.broker.cluster.coordinator_log import Marker
from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.checks import check_gates
from sharegroup.broker.security.permission import is_allowed_on_cluster
from sharegroup.core.transactions.records import TransactionPartition
from sharegroup.errors import InvalidTopic, KafkaError
from sharegroup.ids import TopicName
from sharegroup.storage.sync.tickets import Ticket

FEW_MASK = 15
"""Bit mask: other requests get their turn after 16 markers, because each is a write."""

Outcomes = list[tuple[WireTopicName, list[tuple[i32, Ticket | KafkaError]]]]
"""The topics of a marker, each with its partitions and what became of them."""


def handle(
    parts: Parts, context: RequestContext, request: WriteTxnMarkersRequest
) -> Later[WriteTxnMarkersResponse]:
    rights = context.rights
    if not is_allowed_on_cluster(rights, required.ALTER_CLUSTER, is_audited=False):
        check_gates((required.CLUSTER_ACTION,), rights, request)
    return Later(_write_all(parts, request))


async def _write_all(parts: Parts, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    outcomes = []
    for marker in request.markers:
        await parts.slices.turn()
        outcomes.append((marker, await _write(parts, marker)))
    results = []
    for marker, of_marker in outcomes:
        results.append(await _result(parts, marker, of_marker))
    return WriteTxnMarkersResponse(markers=tuple(results))


async def _write(parts: Parts, wanted: WritableTxnMarker) -> Outcomes:
    marker = Marker(
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.transaction_result,
        wanted.coordinator_epoch,
        wanted.transaction_version,
    )
    outcomes: Outcomes = []
    for count, topic in enumerate(wanted.topics):
        if count & FEW_MASK == FEW_MASK:
            await parts.slices.turn()
        partitions: list[tuple[i32, Ticket | KafkaError]] = []
        outcomes.append((topic.name, partitions))
        for index in topic.partition_indexes:
            if len(partitions) & FEW_MASK == FEW_MASK:
                await parts.slices.turn()
            partition = TransactionPartition(TopicName(topic.name), index)
            partitions.append((index, _append(parts, partition, marker)))
    return outcomes


def _append(parts: Parts, partition: TransactionPartition, marker: Marker) -> Ticket | KafkaError:
    try:
        if marker.producer_id < 0:
            raise InvalidTopic(f"{partition.topic}: there is no producer {marker.producer_id}")
        return parts.transactions.markers.append(partition, marker)
    except KafkaError as error:
        return error.with_traceback(None)


async def _result(
    parts: Parts, marker: WritableTxnMarker, outcomes: Outcomes
) -> WritableTxnMarkerResult:
    topics = []
    for name, partitions in outcomes:
        results = []
        for index, outcome in partitions:
            code = await _code(outcome)
            results.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
            if len(results) & FEW_MASK == FEW_MASK:
                await parts.slices.turn()
        topics.append(WritableTxnMarkerTopicResult(name=name, partitions=tuple(results)))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=tuple(topics))


async def _code(outcome: Ticket | KafkaError) -> ErrorCode:
    if isinstance(outcome, KafkaError):
        return error_code(outcome)
    try:
        await outcome
    except KafkaError as error:
        return error_code(error)
    return ErrorCode.none


def refuse(request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    code = error_code(error)
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=tuple(
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=tuple(
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for marker in request.markers
        )
    )
