"""The Produce request and its answer: from version 13 on by topic id, before by topic name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.produce.v12 import request as named
from kio.schema.produce.v13 import request as identified
from kio.schema.types import TopicName as KioTopicName
from kio.static.primitive import Records, i16, i32, i32Timedelta

from sharegroup.client.partition_queue import Batch, Written
from sharegroup.client.records import TopicPartition
from sharegroup.client.refusals import refused
from sharegroup.errors import NONE, KafkaError
from sharegroup.wire.apis import request_class
from sharegroup.wire.convert import downgrade

PRODUCE = 0
TOPIC_IDS_FROM = 13

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Answered(NamedTuple):
    """What a broker said about one batch; ``error`` is None when it is written."""

    written: Written
    error: KafkaError | None


def produce_request(
    batches: Sequence[Batch],
    version: int,
    topic_ids: Mapping[str, UUID | None],
    *,
    acks: int,
    timeout_ms: int,
) -> Any:
    """One request with at most one (encoded) batch for each partition."""
    by_topic: dict[str, list[Batch]] = defaultdict(list)
    for batch in batches:
        by_topic[batch.where.topic].append(batch)
    timeout = i32Timedelta.parse(timedelta(milliseconds=timeout_ms))
    if version >= TOPIC_IDS_FROM:
        return identified.ProduceRequest(
            transactional_id=None,
            acks=i16(acks),
            timeout=timeout,
            topic_data=tuple(
                identified.TopicProduceData(
                    topic_id=topic_ids[topic],
                    partition_data=tuple(
                        identified.PartitionProduceData(**_partition(batch)) for batch in part
                    ),
                )
                for topic, part in by_topic.items()
            ),
        )
    request = named.ProduceRequest(
        transactional_id=None,
        acks=i16(acks),
        timeout=timeout,
        topic_data=tuple(
            named.TopicProduceData(
                name=KioTopicName(topic),
                partition_data=tuple(
                    named.PartitionProduceData(**_partition(batch)) for batch in part
                ),
            )
            for topic, part in by_topic.items()
        ),
    )
    return downgrade(request, request_class(PRODUCE, version))


def answers(
    response: Any, version: int, topic_ids: Mapping[str, UUID | None]
) -> Iterator[tuple[TopicPartition, Answered]]:
    """What the broker said, by partition."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    for topic in response.responses:
        name = names.get(topic.topic_id) if version >= TOPIC_IDS_FROM else topic.name
        if name is None:
            continue  # A topic that was not asked about; the batches asked about stay open.
        for one in topic.partition_responses:
            where = TopicPartition(str(name), int(one.index))
            error = None
            if one.error_code != NONE:
                message = getattr(one, "error_message", None)  # Old versions have none.
                error = refused(one.error_code, message, topic=name, partition=one.index)
            yield where, Answered(Written(one.base_offset, _append_ms(one)), error)


def _partition(batch: Batch) -> dict[str, Any]:
    return {"index": i32(batch.where.partition), "records": _records(batch)}


def _records(batch: Batch) -> Records:
    assert batch.encoded is not None
    # The codec writes any buffer without a copy; the schema's type only names bytes.
    return batch.encoded  # type: ignore[return-value]


def _append_ms(answer: Any) -> int:
    appended = answer.log_append_time
    return -1 if appended is None else (appended - _EPOCH) // _MILLISECOND
