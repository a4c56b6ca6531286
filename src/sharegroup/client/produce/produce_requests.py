"""Makes Produce requests and reads their answers.

Topics are identified by id since version 13, and by name before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.produce.v12 import request as named
from kio.schema.produce.v13 import request as identified
from kio.schema.types import TopicName as KioTopicName, TransactionalId
from kio.static.primitive import Records, i16, i32, i32Timedelta

from sharegroup.client.net.refusals import refused
from sharegroup.client.produce.partition_queue import Batch, Written
from sharegroup.client.records import TopicPartition
from sharegroup.errors import NONE, KafkaError
from sharegroup.wire.codec.apis import request_class
from sharegroup.wire.codec.convert import downgrade
from sharegroup.wire.codec.schema import EPOCH, MILLISECOND

PRODUCE = 0
TOPIC_IDS_FROM = 13


class Answered(NamedTuple):
    """The broker's answer about one batch; ``error`` is None if the batch is written."""

    written: Written
    error: KafkaError | None
    record_errors: Mapping[int, KafkaError] = MappingProxyType({})
    """The errors of the records for which the batch is refused, by their position (KIP-467)."""


def produce_request(
    batches: Sequence[Batch],
    version: int,
    topic_ids: Mapping[str, UUID | None],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> Any:
    """Make one request with at most one encoded batch for each partition."""
    by_topic: dict[str, list[Batch]] = defaultdict(list)
    for batch in batches:
        by_topic[batch.where.topic].append(batch)
    has_ids = version >= TOPIC_IDS_FROM
    schema: Any = identified if has_ids else named
    request = schema.ProduceRequest(
        transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
        acks=i16(acks),
        timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)),
        topic_data=tuple(
            schema.TopicProduceData(
                **{"topic_id": topic_ids[topic]} if has_ids else {"name": KioTopicName(topic)},
                partition_data=tuple(
                    schema.PartitionProduceData(
                        index=i32(batch.where.partition), records=_records(batch)
                    )
                    for batch in part
                ),
            )
            for topic, part in by_topic.items()
        ),
    )
    return request if has_ids else downgrade(request, request_class(PRODUCE, version))


def answers(
    response: Any, version: int, topic_ids: Mapping[str, UUID | None], principal: str | None = None
) -> Iterator[tuple[TopicPartition, Answered]]:
    """Yield the broker's answers by partition."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    for topic in response.responses:
        name = names.get(topic.topic_id) if version >= TOPIC_IDS_FROM else topic.name
        if name is None:
            continue  # A topic that was not in the request; the batches sent stay unanswered.
        for partition in topic.partition_responses:
            where = TopicPartition(str(name), int(partition.index))
            error = None
            if partition.error_code != NONE:
                message = getattr(partition, "error_message", None)  # Old versions lack it.
                error = refused(
                    partition.error_code,
                    message,
                    operation="WRITE",
                    principal=principal,
                    topic=name,
                    partition=partition.index,
                )
            written = Written(partition.base_offset, _append_ms(partition))
            yield where, Answered(written, error, _record_errors(partition, error))


def _record_errors(partition: Any, error: KafkaError | None) -> Mapping[int, KafkaError]:
    """Return the errors of single records; the error of their batch is the kind of each.

    Versions before 8 name no records.
    """
    if error is None:
        return {}
    return {
        int(record.batch_index): type(error)(record.batch_index_error_message or str(error))
        for record in getattr(partition, "record_errors", ())
    }


def _records(batch: Batch) -> Records:
    assert batch.encoded is not None
    # The encoder writes any buffer without a copy, although the schema's type allows bytes only.
    return batch.encoded  # type: ignore[return-value]


def _append_ms(answer: Any) -> int:
    appended = answer.log_append_time
    return -1 if appended is None else (appended - EPOCH) // MILLISECOND
