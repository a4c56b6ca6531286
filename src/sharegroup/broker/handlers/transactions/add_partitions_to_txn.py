"""AddPartitionsToTxn (24): adds partitions to a transaction, or verifies that it has them.

Clients send one transaction, up to version 3.  Brokers send any number from version 4 on, and may
ask only for verification.  If one partition is refused, no partition of its transaction is added.
Producers with ``transaction.version`` 2 do not send it: Produce adds the partitions (KIP-890).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.errors import ErrorCode

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.checks import check_gates
from sharegroup.broker.access.permission import Permission
from sharegroup.broker.access.rights import UNLIMITED
from sharegroup.broker.cluster.producer_ids import for_older_client
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Later,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import HasSlices, HasTopics, HasTransactions
from sharegroup.core.transactions.records import EPOCH_BUMPS, TransactionPartition
from sharegroup.errors import (
    KafkaError,
    OperationNotAttempted,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from sharegroup.ids import ProducerIdAndEpoch, TopicName
from sharegroup.steps import STEP_MASK, Steps, run_to_end
from sharegroup.wire.codec.apis import response_module
from sharegroup.wire.codec.convert import downgrade, upgrade

API_KEY = 24
PRODUCER_FENCED_VERSION = 2
"""The first version whose clients know PRODUCER_FENCED."""

TRANSACTIONS_VERSION = 4
"""The first version whose requests have any number of transactions."""

ABORTABLE_VERSION = 5
"""The first version that knows TRANSACTION_ABORTABLE."""

SMALL = STEP_MASK
"""Requests with at most so many topics and partitions of one transaction are handled at once."""

Refused = Mapping[TransactionPartition, KafkaError]


class AddPartitionsToTxnParts(HasSlices, HasTopics, HasTransactions, Protocol):
    """What these requests touch of the broker."""


class _Permissions(NamedTuple):
    write_id: Permission
    write_topics: Permission


def handle(
    parts: AddPartitionsToTxnParts, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Later[AddPartitionsToTxnResponse]:
    rights = context.rights
    if context.api_version >= TRANSACTIONS_VERSION:  # Only brokers send it.
        check_gates((required.CLUSTER_ACTION,), rights, request)
        # The other broker has checked the rights of its client (`handleAddPartitionsToTxnRequest`).
        rights = UNLIMITED
    permissions = _Permissions(
        Permission(rights, required.WRITE_TRANSACTIONAL_IDS),
        Permission(rights, required.WRITE_TOPICS),
    )
    if len(request.transactions) == 1 and _size(request.transactions[0]) <= SMALL:
        return _add_small(parts, context, request.transactions[0], permissions)
    return Later(_add_all(parts, context, request, permissions))


def _size(transaction: AddPartitionsToTxnTransaction) -> int:
    return sum(1 + len(topic.partitions) for topic in transaction.topics)


def _add_small(
    parts: AddPartitionsToTxnParts,
    context: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    permissions: _Permissions,
) -> AddPartitionsToTxnResponse | Later[AddPartitionsToTxnResponse]:
    """Add few partitions at once, unless the previous transaction is not complete."""
    failure: KafkaError | None = permissions.write_id.denial(transaction.transactional_id)
    refused: Refused = {}
    if failure is None:
        checked = _checked(parts.topics, transaction, permissions.write_topics)
        partitions, refused = run_to_end(checked)
        if refused:
            failure = _not_attempted()
        else:
            adding = _begin_to_add(parts, context, transaction, partitions)
            if not adding.done():
                return Later(_add_small_later(context, transaction, adding))
            failure = _failure(context, adding)
    return _response(run_to_end(_result(transaction, refused, failure)))


async def _add_small_later(
    context: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    adding: asyncio.Future[Any],
) -> AddPartitionsToTxnResponse:
    failure = await _failure_later(context, adding)
    return _response(run_to_end(_result(transaction, {}, failure)))


def _response(*results: AddPartitionsToTxnResult) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results_by_transaction=results
    )


def _not_attempted() -> OperationNotAttempted:
    return OperationNotAttempted("another partition of the transaction was refused")


async def _add_all(
    parts: AddPartitionsToTxnParts,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
    permissions: _Permissions,
) -> AddPartitionsToTxnResponse:
    results = []
    for transaction in request.transactions:
        await parts.slices.turn()
        denial = permissions.write_id.denial(transaction.transactional_id)
        if denial is not None:
            results.append(await parts.slices.finish(_result(transaction, {}, denial)))
            continue
        checked = _checked(parts.topics, transaction, permissions.write_topics)
        partitions, refused = await parts.slices.finish(checked)
        failure: KafkaError | None = None
        if refused:
            failure = _not_attempted()
        else:
            adding = _begin_to_add(parts, context, transaction, partitions)
            failure = await _failure_later(context, adding)
        results.append(await parts.slices.finish(_result(transaction, refused, failure)))
    return _response(*results)


def _begin_to_add(
    parts: AddPartitionsToTxnParts,
    context: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    partitions: tuple[TransactionPartition, ...],
) -> asyncio.Future[Any]:
    """Add or verify the partitions, at once or when the previous transaction is complete."""
    version = context.api_version
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    coordinator = parts.transaction_coordinator
    if transaction.verify_only:
        return coordinator.when_settled(
            transaction.transactional_id,
            lambda: coordinator.verify(
                transaction.transactional_id,
                producer,
                partitions,
                is_abortable=version >= ABORTABLE_VERSION,
            ),
        )
    if version < TRANSACTIONS_VERSION:  # Later versions come from brokers.
        coordinator.claim(transaction.transactional_id, context.limited_user)
    return coordinator.add(
        transaction.transactional_id,
        producer,
        partitions,
        # Brokers, which send version 4 and newer, add partitions only for producers that get a new
        # epoch with each transaction (KIP-890).
        client_version=EPOCH_BUMPS if version >= TRANSACTIONS_VERSION else 0,
    )


def _failure(context: RequestContext, added: asyncio.Future[Any]) -> KafkaError | None:
    """Return the error with which adding partitions ended, as the client knows it."""
    try:
        added.result()
    except KafkaError as error:
        knows_fenced = context.api_version >= PRODUCER_FENCED_VERSION
        return for_older_client(error, knows_fenced=knows_fenced)
    return None


async def _failure_later(context: RequestContext, adding: asyncio.Future[Any]) -> KafkaError | None:
    with contextlib.suppress(KafkaError):  # `_failure` translates it.
        await adding
    return _failure(context, adding)


def _checked(
    topics: Topics, transaction: AddPartitionsToTxnTransaction, write: Permission
) -> Steps[tuple[tuple[TransactionPartition, ...], Refused]]:
    """Return the partitions of a transaction, and those that do not exist or are not allowed."""
    partitions: list[TransactionPartition] = []
    refused: dict[TransactionPartition, KafkaError] = {}
    for topic in transaction.topics:
        name = TopicName(topic.name)
        denial = write.denial(name)
        existing_topic = topics.catalog.find(name)
        for index in topic.partitions:
            partition = TransactionPartition(name, index)
            partitions.append(partition)
            if len(partitions) & STEP_MASK == 0:
                yield
            if denial is not None:
                refused[partition] = denial
            elif existing_topic is None or not 0 <= index < existing_topic.partition_count:
                text = f"there is no partition {name}-{index}"
                refused[partition] = UnknownTopicOrPartition(text)
            # Offsets reach `__consumer_offsets` by TxnOffsetCommit alone; Kafka has the same error.
            elif existing_topic.is_internal:
                refused[partition] = TopicAuthorizationFailed(f"{name!r} is internal")
    return tuple(partitions), refused


def _result(
    transaction: AddPartitionsToTxnTransaction, refused: Refused, failure: KafkaError | None
) -> Steps[AddPartitionsToTxnResult]:
    """Return the result of a transaction; ``failure`` is that of partitions not in ``refused``."""
    topics = []
    count = 0
    default = ErrorCode.none if failure is None else error_code(failure)
    for topic in transaction.topics:
        results = []
        for index in topic.partitions:
            count += 1
            if count & STEP_MASK == 0:
                yield
            error = refused.get(TransactionPartition(TopicName(topic.name), index))
            results.append(
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=default if error is None else error_code(error),
                )
            )
        topics.append(
            AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=tuple(results))
        )
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id, topic_results=tuple(topics)
    )


def refuse(
    request: AddPartitionsToTxnRequest, error: KafkaError
) -> Steps[AddPartitionsToTxnResponse]:
    results: list[AddPartitionsToTxnResult] = []
    for transaction in request.transactions:
        result = yield from _result(transaction, {}, error)
        results.append(result)
    return AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        results_by_transaction=tuple(results),
    )


def from_older(request: Any, newest: type[AddPartitionsToTxnRequest]) -> AddPartitionsToTxnRequest:
    """Convert a request to the newest version; before version 4 it has one transaction."""
    if request.__version__ >= TRANSACTIONS_VERSION:
        return upgrade(request, newest)
    older: Any = request
    topics = tuple(upgrade(topic, AddPartitionsToTxnTopic) for topic in older.v3_and_below_topics)
    return newest(
        transactions=(
            AddPartitionsToTxnTransaction(
                transactional_id=older.v3_and_below_transactional_id,
                producer_id=older.v3_and_below_producer_id,
                producer_epoch=older.v3_and_below_producer_epoch,
                topics=topics,
            ),
        )
    )


def to_older(response: AddPartitionsToTxnResponse, wanted: type[Any]) -> Any:
    """Convert a response to an older version; before version 4 it has one transaction."""
    if wanted.__version__ >= TRANSACTIONS_VERSION:
        return downgrade(response, wanted)
    (result,) = response.results_by_transaction
    topic_class = response_module(API_KEY, wanted.__version__).AddPartitionsToTxnTopicResult
    return wanted(
        throttle_time=response.throttle_time,
        results_by_topic_v3_and_below=tuple(
            downgrade(topic, topic_class) for topic in result.topic_results
        ),
    )


SERVED = {
    24: ApiHandler(
        handle,
        refuse,
        checks=(required.WRITE_TRANSACTIONAL_IDS, required.WRITE_TOPICS, required.CLUSTER_ACTION),
        from_older=from_older,
        to_older=to_older,
    )
}
