"""Writes the records of a transaction, and tells which of them failed and why."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from sharegroup.client import Producer, RecordMetadata
from sharegroup.errors import (
    InvalidTopic,
    KafkaError,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionAborted,
    UnknownTopicOrPartition,
)
from sharegroup.worker.ports import BufferedRecord

OF_ITS_TRANSACTION = (TransactionAbortable, TransactionAborted)
"""Errors of a record because another one of its transaction has failed."""
OF_ITS_TOPIC = (InvalidTopic, RequestTimedOut, TopicAuthorizationFailed, UnknownTopicOrPartition)
"""Errors that the next record of the topic would get, too, after the same wait."""


async def write_all(
    producer: Producer, records: Sequence[BufferedRecord]
) -> list[RecordMetadata | KafkaError]:
    """Write all records in the open transaction; returns where each is, or its error.

    If some have errors of their own, those of `OF_ITS_TRANSACTION` only follow from them.
    A topic that is missing is waited for once, so the call takes at most ``max_block_ms`` for each.
    """
    refused: dict[str, KafkaError] = {}
    pending: list[Awaitable[RecordMetadata] | KafkaError] = []
    for topic, value, options in records:
        if topic in refused:
            pending.append(refused[topic])
            continue
        try:
            future = producer.send_now(topic, value, **options) or await producer.send(
                topic, value, **options
            )
        except KafkaError as error:
            pending.append(error)
            if isinstance(error, OF_ITS_TOPIC):
                refused[topic] = error
        else:
            pending.append(future)
    outcomes: list[RecordMetadata | KafkaError] = []
    for result in pending:
        try:
            outcomes.append(result if isinstance(result, KafkaError) else await result)
        except KafkaError as error:
            outcomes.append(error)
    return outcomes
