"""Requests about transactions: their coordinators describe them, partition leaders the producers.

An open transaction holds back the readers of committed records.  An administrator finds it by
`describe_producers` at the partition where they stand still, or by `list_transactions` with a
minimum age; `fence_producers` ends it by its transactional id, and `abort_transaction` writes
the marker of a transaction that its coordinator has forgotten (KIP-664).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_producers.v0.response import ProducerState as KioProducerState
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import TransactionState as KioTransactionState
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.types import (
    ProducerId as KioProducerId,
    TopicName as KioTopicName,
    TransactionalId as KioTransactionalId,
)
from kio.schema.write_txn_markers.v2.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kio.static.primitive import i16, i32, i32Timedelta, i64

from sharegroup.client.admin.calls import call, check, known
from sharegroup.client.admin.groups import ask_coordinator, by_group
from sharegroup.client.admin.types import (
    OpenTransaction,
    ProducerIdentity,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from sharegroup.client.net.cluster import Cluster, CoordinatorType, Topic
from sharegroup.client.net.leader_requests import (
    LEADER_CHANGED,
    LeaderRequest,
    ask_leaders,
    by_topic,
)
from sharegroup.client.net.refusals import refused
from sharegroup.client.records import TopicPartition
from sharegroup.errors import NONE, InvalidRequest, KafkaError, UnknownServerError
from sharegroup.wire.codec.schema import EPOCH, MILLISECOND

BY_DURATION = 1
BY_PATTERN = 2
"""The versions of ListTransactions that filter by age (KIP-994) and by a pattern (KIP-1152)."""
NO_DURATION = -1


@call
async def list_transactions(
    cluster: Cluster,
    *,
    states_filter: Iterable[TransactionState | str] = (),
    producer_ids_filter: Iterable[int] = (),
    duration_min_ms: int | None = None,
    transactional_id_pattern: str | None = None,
    timeout: float | None = None,
) -> list[TransactionListing]:
    """List the transactional ids of all coordinators, sorted.

    ``duration_min_ms`` restricts the list to transactions that have been open for longer, and
    ``transactional_id_pattern``, a regular expression of RE2, to ids that match as a whole.

    An error of one broker fails the whole request, because the list would be incomplete.
    """
    request = ListTransactionsRequest(
        state_filters=tuple(states_filter),
        producer_id_filters=tuple(map(KioProducerId, producer_ids_filter)),
        duration_filter=i64(NO_DURATION if duration_min_ms is None else duration_min_ms),
        transactional_id_pattern=transactional_id_pattern,
    )
    version_min = 0
    if transactional_id_pattern is not None:
        version_min = BY_PATTERN
    elif duration_min_ms is not None:
        version_min = BY_DURATION

    async def attempt() -> list[TransactionListing]:
        # Without topics: only the brokers are asked for.
        await cluster.refresh(())
        listed: list[TransactionListing] = []
        for node_id in cluster.nodes:
            connection = await cluster.connection(node_id)
            # Without the filter an older broker would list all transactions.
            connection.check_version(request.__api_key__, version_min)
            response = await connection.request(request)
            check(cluster, response, request="list_transactions", node=node_id)
            if response.unknown_state_filters:
                raise InvalidRequest(
                    f"no such transaction states: {', '.join(response.unknown_state_filters)}; "
                    f"expected some of {', '.join(TransactionState)}"
                )
            listed += [
                TransactionListing(
                    str(transaction.transactional_id),
                    int(transaction.producer_id),
                    TransactionState.of(transaction.transaction_state),
                )
                for transaction in response.transaction_states
            ]
        return sorted(listed, key=lambda transaction: transaction.transactional_id)

    return await cluster.retrying(attempt, subject="list_transactions")


@call
async def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str], *, timeout: float | None = None
) -> dict[str, TransactionDescription | KafkaError]:
    """Describe transactions by their transactional ids: state, producer and partitions."""

    async def describe(transactional_id: str) -> TransactionDescription:
        request = DescribeTransactionsRequest(
            transactional_ids=(KioTransactionalId(transactional_id),)
        )
        response = await ask_coordinator(
            cluster,
            transactional_id,
            request,
            lambda answer: answer.transaction_states,
            kind=CoordinatorType.TRANSACTION,
        )
        coordinator_id = await cluster.coordinator(
            transactional_id, kind=CoordinatorType.TRANSACTION
        )
        return _described(response.transaction_states[0], coordinator_id)

    return await by_group(transactional_ids, describe)


@call
async def fence_producers(
    cluster: Cluster, transactional_ids: Iterable[str], *, timeout: float | None = None
) -> dict[str, ProducerIdentity | KafkaError]:
    """Fence the producers with these transactional ids, and abort their transactions.

    The result is the producer id and the epoch that older producers are fenced by, or the error.
    """

    async def fence(transactional_id: str) -> ProducerIdentity:
        request = InitProducerIdRequest(
            transactional_id=KioTransactionalId(transactional_id),
            # No transaction is begun with it.
            transaction_timeout=i32Timedelta.parse(
                timedelta(milliseconds=cluster.config.request_timeout_ms)
            ),
        )
        response = await ask_coordinator(
            cluster,
            transactional_id,
            request,
            lambda answer: (answer,),
            operation="WRITE",
            kind=CoordinatorType.TRANSACTION,
        )
        return ProducerIdentity(int(response.producer_id), int(response.producer_epoch))

    return await by_group(transactional_ids, fence)


@call
async def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, timeout: float | None = None
) -> dict[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
    """Describe the idempotent and transactional producers that partition leaders know."""

    def request(
        part: Mapping[TopicPartition, None], _: Mapping[str, Topic]
    ) -> DescribeProducersRequest:
        return DescribeProducersRequest(
            topics=tuple(
                TopicRequest(name=KioTopicName(topic), partition_indexes=tuple(map(i32, indexes)))
                for topic, indexes in by_topic(part).items()
            )
        )

    return await ask_leaders(
        cluster,
        dict.fromkeys(partitions),
        LeaderRequest(make=request, read=_producers, operation="READ"),
        subject="describe_producers",
    )


@call
async def abort_transaction(
    cluster: Cluster, transaction: OpenTransaction, *, timeout: float | None = None
) -> None:
    """Write an abort marker to one partition; for a transaction that no coordinator knows.

    Use `fence_producers` for all others.  `describe_producers` has the values to give.

    The user needs CLUSTER_ACTION on the cluster, like a broker.
    """
    where = transaction.topic_partition
    request = WriteTxnMarkersRequest(
        markers=(
            WritableTxnMarker(
                producer_id=KioProducerId(transaction.producer_id),
                producer_epoch=i16(transaction.producer_epoch),
                transaction_result=False,
                topics=(
                    WritableTxnMarkerTopic(
                        name=KioTopicName(where.topic), partition_indexes=(i32(where.partition),)
                    ),
                ),
                coordinator_epoch=i32(transaction.coordinator_epoch),
            ),
        )
    )

    async def attempt() -> None:
        topic = await cluster.topic(where.topic)
        node_id = topic.leader_of(where.partition)
        response = await (await cluster.connection(node_id)).request(request)
        codes = [
            partition.error_code
            for marker in response.markers
            for topic_answer in marker.topics
            for partition in topic_answer.partitions
        ]
        if len(codes) != 1:
            raise UnknownServerError(f"partition {where!r}: the broker's response has {codes}")
        if codes[0] != NONE:
            error = refused(
                codes[0],
                None,
                operation="CLUSTER_ACTION",
                principal=cluster.principal,
                topic=where.topic,
                partition=where.partition,
            )
            if isinstance(error, LEADER_CHANGED):
                cluster.outdate(where.topic)
            raise error

    await cluster.retrying(attempt, subject=f"abort_transaction in {where!r}")


def _described(transaction: KioTransactionState, coordinator_id: int) -> TransactionDescription:
    return TransactionDescription(
        str(transaction.transactional_id),
        TransactionState.of(transaction.transaction_state),
        int(transaction.producer_id),
        int(transaction.producer_epoch),
        transaction.transaction_timeout // MILLISECOND,
        _milliseconds(transaction.transaction_start_time),
        tuple(
            TopicPartition(str(topic.topic), int(partition))
            for topic in transaction.topics
            for partition in topic.partitions
        ),
        coordinator_id,
    )


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else known((moment - EPOCH) // MILLISECOND)


def _producers(partition: Any) -> tuple[ProducerState, ...]:
    return tuple(
        sorted(
            map(_producer, partition.active_producers), key=lambda producer: producer.producer_id
        )
    )


def _producer(producer: KioProducerState) -> ProducerState:
    return ProducerState(
        int(producer.producer_id),
        int(producer.producer_epoch),
        known(producer.last_sequence),
        known(producer.last_timestamp),
        known(producer.coordinator_epoch),
        known(producer.current_txn_start_offset),
    )
