"""DescribeProducers (61): returns the producers of partitions, with open transactions."""

from __future__ import annotations

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId
from kio.static.primitive import i32, i64

from sharegroup.broker.configuration.topic_name import check_topic_name
from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission
from sharegroup.core.log.producer_state import ProducerEntry
from sharegroup.errors import KafkaError
from sharegroup.ids import TopicName
from sharegroup.steps import STEP_MASK, Steps


def handle(
    parts: Parts, context: RequestContext, request: DescribeProducersRequest
) -> Steps[DescribeProducersResponse]:
    read = Permission(context.rights, required.READ_TOPICS)
    topics = []
    count = 0
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            try:
                check_topic_name(topic.name)
                read.require(topic.name)
                _, log = parts.topics.named(TopicName(topic.name), index)
            except KafkaError as error:
                partitions.append(_failed(index, error))
            else:
                producers = []
                # A copy: producers write between two steps.
                for producer_id, entry in tuple(log.producers.items()):
                    producers.append(_producer(producer_id, entry))
                    count += 1
                    if count & STEP_MASK == 0:
                        yield
                partitions.append(
                    PartitionResponse(
                        partition_index=index,
                        error_code=ErrorCode.none,
                        active_producers=tuple(producers),
                    )
                )
            count += 1
            if count & STEP_MASK == 0:
                yield
        topics.append(TopicResponse(name=topic.name, partitions=tuple(partitions)))
    return DescribeProducersResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


def refuse(request: DescribeProducersRequest, error: KafkaError) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(_failed(index, error) for index in topic.partition_indexes),
            )
            for topic in request.topics
        ),
    )


def _producer(producer_id: int, entry: ProducerEntry) -> ProducerState:
    start = entry.transaction_start
    return ProducerState(
        producer_id=ProducerId(producer_id),
        producer_epoch=i32(entry.epoch),
        last_sequence=i32(entry.batches[-1].last_sequence if entry.batches else -1),
        last_timestamp=i64(entry.used_ms),
        coordinator_epoch=i32(entry.coordinator_epoch),
        current_txn_start_offset=i64(-1 if start is None else start),
    )


def _failed(index: i32, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index,
        error_code=error_code(error),
        error_message=str(error),
        active_producers=(),
    )
