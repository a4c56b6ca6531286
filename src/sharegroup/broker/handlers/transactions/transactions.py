"""Requests about transactions as a whole (25, 26, 27, 65, 66)."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Awaitable
from typing import Protocol, cast

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import (
    ListTransactionsResponse,
    TransactionState as ListedTransaction,
)
from kio.schema.types import ProducerId, TopicName as WireTopicName, TransactionalId
from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kio.static.primitive import TZAware, i16, i32

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.checks import check_gates
from sharegroup.broker.access.permission import Permission, is_allowed_on_cluster
from sharegroup.broker.cluster.coordinator_log import Durable, Marker
from sharegroup.broker.cluster.producer_ids import for_older_client
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    error_code,
    milliseconds,
)
from sharegroup.broker.handlers.parts import (
    HasClock,
    HasGroups,
    HasMarkers,
    HasSlices,
    HasTransactions,
)
from sharegroup.broker.load.slices import Slices
from sharegroup.core.patterns import matching
from sharegroup.core.transactions import records
from sharegroup.core.transactions.records import (
    EPOCH_BUMPS,
    TransactionMetadata,
    TransactionPartition,
)
from sharegroup.errors import InvalidTopic, KafkaError
from sharegroup.ids import GroupId, ProducerIdAndEpoch, TopicName
from sharegroup.steps import Steps, paced
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.wire.codec.schema import EPOCH

PRODUCER_FENCED_VERSION = 2
"""The first version whose clients know PRODUCER_FENCED."""


class TransactionsParts(HasClock, HasGroups, HasMarkers, HasSlices, HasTransactions, Protocol):
    """What these requests touch of the broker."""


def add_offsets_to_txn(
    parts: TransactionsParts, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Later[AddOffsetsToTxnResponse]:
    """AddOffsetsToTxn (25): adds the offsets of a group to a transaction.

    Producers with ``transaction.version`` 2 do not send it: TxnOffsetCommit adds the group.
    """
    group_id = GroupId(request.group_id)
    parts.groups.check_id(group_id)
    coordinator = parts.transaction_coordinator
    coordinator.claim(request.transactional_id, context.limited_user)
    adding = coordinator.add(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        (coordinator.partition_of_group(group_id),),
        # Clients that still send this request keep their epoch after the transaction (KIP-890).
        client_version=0,
    )
    return _offsets_added(context, adding) if adding.done() else Later(_added(context, adding))


async def _added(
    context: RequestContext, adding: asyncio.Future[Ticket | None]
) -> AddOffsetsToTxnResponse:
    with contextlib.suppress(KafkaError):  # `_offsets_added` translates it.
        await adding
    return _offsets_added(context, adding)


def _offsets_added(
    context: RequestContext, added: asyncio.Future[Ticket | None]
) -> AddOffsetsToTxnResponse:
    try:
        added.result()
    except KafkaError as error:
        knows_fenced = context.api_version >= PRODUCER_FENCED_VERSION
        raise for_older_client(error, knows_fenced=knows_fenced) from error
    return AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none)


EPOCH_BUMP_VERSION = 5
"""The first version with a new epoch for each transaction."""


def end_txn(
    parts: TransactionsParts, context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse | Later[EndTxnResponse]:
    """EndTxn (26): commits or aborts a transaction.

    From version 5 on, the response has the producer id and epoch for the next transaction
    (KIP-890).
    """
    try:
        ending = parts.transaction_coordinator.end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            client_version=EPOCH_BUMPS if context.api_version >= EPOCH_BUMP_VERSION else 0,
        )
    except KafkaError as error:
        raise _translated(context, error) from error
    identity = ending.now() if isinstance(ending, Durable) else None
    return Later(_ended(context, ending)) if identity is None else _end_response(identity)


async def _ended(context: RequestContext, ending: Awaitable[ProducerIdAndEpoch]) -> EndTxnResponse:
    try:
        return _end_response(await ending)
    except KafkaError as error:
        raise _translated(context, error) from error


def _translated(context: RequestContext, error: KafkaError) -> KafkaError:
    return for_older_client(error, knows_fenced=context.api_version >= PRODUCER_FENCED_VERSION)


def _end_response(identity: ProducerIdAndEpoch) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(identity.producer_id),
        producer_epoch=i16(identity.epoch),
    )


FEW = 16
"""Other requests get their turn after 16 markers, because each is a write."""

Outcomes = list[tuple[WireTopicName, list[tuple[i32, Ticket | KafkaError]]]]
"""The topics of a marker, each with its partitions and what became of them."""


def write_txn_markers(
    parts: TransactionsParts, context: RequestContext, request: WriteTxnMarkersRequest
) -> Later[WriteTxnMarkersResponse]:
    """WriteTxnMarkers (27): ends transactions in partitions, as their coordinator does.

    Here the coordinator is in the same process and sends no requests.  An administrator sends it to
    abort a transaction that hangs because its coordinator does not know it
    (``kafka-transactions.sh abort``).
    """
    rights = context.rights
    # ALTER is for administrators, CLUSTER_ACTION for brokers; one of them is enough, so a missing
    # ALTER is no denial yet.
    if not is_allowed_on_cluster(rights, required.ALTER_CLUSTER, is_audited=False):
        check_gates((required.CLUSTER_ACTION,), rights, request)
    return Later(_write_all(parts, request))


async def _write_all(
    parts: TransactionsParts, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    outcomes = []
    for marker in request.markers:
        await parts.slices.turn()
        outcomes.append((marker, await _write(parts, marker)))
    results = []
    for marker, of_marker in outcomes:
        results.append(await _result(parts.slices, marker, of_marker))
    return WriteTxnMarkersResponse(markers=tuple(results))


async def _write(parts: TransactionsParts, wire_marker: WritableTxnMarker) -> Outcomes:
    marker = Marker(
        wire_marker.producer_id,
        wire_marker.producer_epoch,
        wire_marker.transaction_result,
        wire_marker.coordinator_epoch,
        wire_marker.transaction_version,
    )
    outcomes: Outcomes = []
    for topic, pause_after in paced(wire_marker.topics, FEW):
        if pause_after:
            await parts.slices.turn()
        partitions: list[tuple[i32, Ticket | KafkaError]] = []
        outcomes.append((topic.name, partitions))
        for index, pause in paced(topic.partition_indexes, FEW):
            if pause:
                await parts.slices.turn()
            partition = TransactionPartition(TopicName(topic.name), index)
            partitions.append((index, _append(parts, partition, marker)))
    return outcomes


def _append(
    parts: TransactionsParts, partition: TransactionPartition, marker: Marker
) -> Ticket | KafkaError:
    try:
        if marker.producer_id < 0:
            raise InvalidTopic(f"{partition.topic}: there is no producer {marker.producer_id}")
        return parts.markers().append(partition, marker)
    except KafkaError as error:
        return error.with_traceback(None)


async def _result(
    slices: Slices, marker: WritableTxnMarker, outcomes: Outcomes
) -> WritableTxnMarkerResult:
    topics = []
    for name, partitions in outcomes:
        results = []
        for (index, outcome), pause in paced(partitions, FEW):
            code = await _code(outcome)
            results.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
            if pause:
                await slices.turn()
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


def describe_transactions(
    parts: TransactionsParts, context: RequestContext, request: DescribeTransactionsRequest
) -> Steps[DescribeTransactionsResponse]:
    """DescribeTransactions (65): returns the state of transactional ids."""
    coordinator = parts.transaction_coordinator
    describe = Permission(context.rights, required.DESCRIBE_TRANSACTIONAL_IDS)
    topics = Permission(context.rights, required.DESCRIBE_TOPICS)
    states = []
    for transactional_id, pause in paced(request.transactional_ids):
        try:
            describe.require(transactional_id)
            transaction = coordinator.transactions.describe(transactional_id)
        except KafkaError as error:
            states.append(_failed(transactional_id, error))
        else:
            states.append((yield from _state(transaction, topics)))
        if pause:
            yield
    return DescribeTransactionsResponse(throttle_time=NO_THROTTLE, transaction_states=tuple(states))


def _state(transaction: TransactionMetadata, describe: Permission) -> Steps[TransactionState]:
    by_topic: dict[str, list[i32]] = {}
    partitions: list[TransactionPartition] = sorted(transaction.partitions)
    for (topic, partition), pause in paced(partitions):
        if describe.allows(topic):
            by_topic.setdefault(topic, []).append(i32(partition))
        if pause:
            yield
    return TransactionState(
        error_code=ErrorCode.none,
        transactional_id=TransactionalId(transaction.transactional_id),
        transaction_state=transaction.state.label,
        transaction_timeout=milliseconds(transaction.timeout_ms),
        transaction_start_time=_time(transaction.started_ms),
        producer_id=ProducerId(transaction.producer_id),
        producer_epoch=i16(transaction.producer_epoch),
        topics=tuple(
            TopicData(topic=WireTopicName(topic), partitions=tuple(indexes))
            for topic, indexes in by_topic.items()
        ),
    )


def _failed(transactional_id: TransactionalId, error: KafkaError) -> TransactionState:
    return TransactionState(
        error_code=error_code(error),
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout=milliseconds(0),
        transaction_start_time=_time(0),
        producer_id=ProducerId(0),
        producer_epoch=i16(0),
        topics=(),
    )


def _time(wall_ms: int) -> TZAware:
    # kio's type accepts neither milliseconds nor -1, which stands for no transaction.
    return cast("TZAware", EPOCH + dt.timedelta(milliseconds=wall_ms))


LABELS = frozenset(state.label for state in records.TransactionState) | {
    # States of Kafka in which no transactional id is here.
    "Dead",
    "PrepareEpochFence",
}


def list_transactions(
    parts: TransactionsParts, context: RequestContext, request: ListTransactionsRequest
) -> Steps[ListTransactionsResponse]:
    """ListTransactions (66): lists transactional ids by state, producer, duration and name."""
    labels, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    describe = Permission(context.rights, required.DESCRIBE_TRANSACTIONAL_IDS, is_audited=False)
    now_ms = parts.clock.wall_ms()
    states = []
    # A copy: transactions go on between two steps.
    transactions = tuple(parts.transaction_coordinator.transactions)
    matching_ids: frozenset[str] | None = None
    if request.transactional_id_pattern:
        names = tuple(transaction.transactional_id for transaction in transactions)
        matching_ids = yield from matching(request.transactional_id_pattern, names)
    for transaction, pause in paced(transactions):
        if pause:
            yield
        if (
            (not labels or transaction.state.label in labels)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and _is_longer(transaction, request.duration_filter, now_ms)
            and (matching_ids is None or transaction.transactional_id in matching_ids)
            and describe.allows(transaction.transactional_id)
        ):
            states.append(
                ListedTransaction(
                    transactional_id=TransactionalId(transaction.transactional_id),
                    producer_id=ProducerId(transaction.producer_id),
                    transaction_state=transaction.state.label,
                )
            )
    return ListTransactionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        unknown_state_filters=tuple(sorted(labels - LABELS)),
        transaction_states=tuple(states),
    )


def _is_longer(transaction: records.TransactionMetadata, duration_ms: int, now_ms: int) -> bool:
    """Return whether a transaction is under way for longer; -1 also lists idle ids."""
    if duration_ms < 0:
        return True
    return not transaction.state.is_idle and now_ms - transaction.started_ms > duration_ms


SERVED = {
    25: ApiHandler(
        add_offsets_to_txn,
        gates=(required.WRITE_TRANSACTIONAL_ID, required.READ_GROUP),
    ),
    26: ApiHandler(
        end_txn,
        gates=(required.WRITE_TRANSACTIONAL_ID,),
    ),
    27: ApiHandler(
        write_txn_markers,
        checks=(required.ALTER_CLUSTER, required.CLUSTER_ACTION),
    ),
    65: ApiHandler(
        describe_transactions,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_TRANSACTIONAL_IDS, required.DESCRIBE_TOPICS),
    ),
    66: ApiHandler(
        list_transactions,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_TRANSACTIONAL_IDS,),
    ),
}
