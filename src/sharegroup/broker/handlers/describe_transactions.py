"""DescribeTransactions (65): returns the state of transactional ids."""

from __future__ import annotations

import datetime as dt
from typing import cast

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId, TransactionalId
from kio.schema.types import TopicName as WireTopicName
from kio.static.primitive import TZAware, i16, i32

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE, milliseconds
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission
from sharegroup.core.transactions.records import TransactionMetadata, TransactionPartition
from sharegroup.errors import KafkaError
from sharegroup.steps import STEP_MASK, Steps, of_each
from sharegroup.wire.schema import EPOCH


def handle(
    parts: Parts, context: RequestContext, request: DescribeTransactionsRequest
) -> Steps[DescribeTransactionsResponse]:
    coordinator = parts.transactions.coordinator()
    describe = Permission(context.rights, required.DESCRIBE_TRANSACTIONAL_IDS)
    topics = Permission(context.rights, required.DESCRIBE_TOPICS)
    states = []
    for transactional_id in request.transactional_ids:
        try:
            describe.require(transactional_id)
            found = coordinator.transactions.describe(transactional_id)
        except KafkaError as error:
            states.append(_failed(transactional_id, error))
        else:
            states.append((yield from _state(found, topics)))
        if len(states) & STEP_MASK == 0:
            yield
    return DescribeTransactionsResponse(throttle_time=NO_THROTTLE, transaction_states=tuple(states))


def refuse(
    request: DescribeTransactionsRequest, error: KafkaError
) -> Steps[DescribeTransactionsResponse]:
    states = yield from of_each(
        lambda transactional_id: _failed(transactional_id, error), request.transactional_ids
    )
    return DescribeTransactionsResponse(throttle_time=NO_THROTTLE, transaction_states=states)


def _state(found: TransactionMetadata, describe: Permission) -> Steps[TransactionState]:
    by_topic: dict[str, list[i32]] = {}
    partitions: list[TransactionPartition] = sorted(found.partitions)
    for count, (topic, partition) in enumerate(partitions):
        if describe.allows(topic):
            by_topic.setdefault(topic, []).append(i32(partition))
        if count & STEP_MASK == STEP_MASK:
            yield
    return TransactionState(
        error_code=ErrorCode.none,
        transactional_id=TransactionalId(found.transactional_id),
        transaction_state=found.state.label,
        transaction_timeout=milliseconds(found.timeout_ms),
        transaction_start_time=_time(found.started_ms),
        producer_id=ProducerId(found.producer_id),
        producer_epoch=i16(found.producer_epoch),
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
