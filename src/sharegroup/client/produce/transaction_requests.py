"""Makes the requests of transactions and reads the error of each answer.

Every function that reads an answer returns the errors that are not NONE; an empty list means
success.  A request that adds partitions, or commits offsets, has an error for each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_partitions_to_txn.v3.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.txn_offset_commit.v5.request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kio.schema.types import (
    GroupId as KioGroupId,
    ProducerId as KioProducerId,
    TopicName as KioTopicName,
    TransactionalId as KioTransactionalId,
)
from kio.static.primitive import i16, i32, i32Timedelta

from sharegroup.client.net.leader_requests import by_topic, commit_topics
from sharegroup.client.net.refusals import errors_of, refused
from sharegroup.client.produce.partition_queue import ANONYMOUS, Identity
from sharegroup.client.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sharegroup.errors import NONE, KafkaError, OperationNotAttempted

Read = Callable[[Any], list[KafkaError]]
"""Returns the errors in an answer."""


def init_request(
    transactional_id: str, timeout_ms: int, identity: Identity = ANONYMOUS
) -> InitProducerIdRequest:
    """Make the request for a producer id, or with ``identity`` for its next epoch."""
    return InitProducerIdRequest(
        transactional_id=KioTransactionalId(transactional_id),
        transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)),
        producer_id=KioProducerId(identity.producer_id),
        producer_epoch=i16(identity.epoch),
    )


def end_request(transactional_id: str, identity: Identity, *, is_commit: bool) -> EndTxnRequest:
    """Make the request that commits or aborts."""
    return EndTxnRequest(
        transactional_id=KioTransactionalId(transactional_id),
        producer_id=KioProducerId(identity.producer_id),
        producer_epoch=i16(identity.epoch),
        committed=is_commit,
    )


def add_partitions_request(
    transactional_id: str, identity: Identity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Make the request that adds partitions; versions from 4 on are between brokers."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=KioTransactionalId(transactional_id),
        v3_and_below_producer_id=KioProducerId(identity.producer_id),
        v3_and_below_producer_epoch=i16(identity.epoch),
        v3_and_below_topics=tuple(
            AddPartitionsToTxnTopic(name=KioTopicName(topic), partitions=tuple(map(i32, indexes)))
            for topic, indexes in by_topic(dict.fromkeys(partitions)).items()
        ),
    )


def add_offsets_request(
    transactional_id: str, identity: Identity, group_id: str
) -> AddOffsetsToTxnRequest:
    """Make the request that adds a group; its offsets follow in TxnOffsetCommit."""
    return AddOffsetsToTxnRequest(
        transactional_id=KioTransactionalId(transactional_id),
        producer_id=KioProducerId(identity.producer_id),
        producer_epoch=i16(identity.epoch),
        group_id=KioGroupId(group_id),
    )


def commit_offsets_request(
    transactional_id: str,
    identity: Identity,
    member: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    """Make the request that commits offsets of a group within the transaction."""
    return TxnOffsetCommitRequest(
        transactional_id=KioTransactionalId(transactional_id),
        group_id=KioGroupId(member.group_id),
        producer_id=KioProducerId(identity.producer_id),
        producer_epoch=i16(identity.epoch),
        generation_id=i32(member.generation_id),
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=commit_topics(offsets, TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition),
    )


def read_error(
    principal: str | None, *, operation: str, **about: str | int
) -> Callable[[Any], list[KafkaError]]:
    """Return a reader of answers with a single error code."""

    def read(response: Any) -> list[KafkaError]:
        code = response.error_code
        if code == NONE:
            return []
        return [refused(code, None, operation=operation, principal=principal, **about)]

    return read


def read_added(principal: str | None, partitions: Iterable[TopicPartition]) -> Read:
    """Return a reader of answers to AddPartitionsToTxn.

    OPERATION_NOT_ATTEMPTED, the code of the partitions beside one that failed, comes last.
    """
    requested_partitions = tuple(partitions)

    def read(response: Any) -> list[KafkaError]:
        codes = {
            TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }
        errors = errors_of(codes, requested_partitions, operation="WRITE", principal=principal)
        return sorted(errors, key=lambda error: isinstance(error, OperationNotAttempted))

    return read


def read_committed(
    principal: str | None, group_id: str, partitions: Iterable[TopicPartition]
) -> Read:
    """Return a reader of answers to TxnOffsetCommit."""
    requested_partitions = tuple(partitions)

    def read(response: Any) -> list[KafkaError]:
        codes = {
            TopicPartition(topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }
        return errors_of(
            codes, requested_partitions, operation="READ", principal=principal, group=group_id
        )

    return read
