"""Requests about producers (22, 61): hand out their ids, and describe those of a partition."""

from __future__ import annotations

from typing import Protocol

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16, i32, i64

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.checks import denied
from sharegroup.broker.access.permission import Permission, is_allowed_on_cluster
from sharegroup.broker.access.rights import Rights
from sharegroup.broker.cluster.producer_ids import for_older_client
from sharegroup.broker.configuration.config_values import check_topic_name
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    count_ms,
    error_code,
)
from sharegroup.broker.handlers.parts import HasProducerIds, HasSlices, HasTopics, HasTransactions
from sharegroup.core.log.producer_state import ProducerEntry
from sharegroup.errors import InvalidRequest, KafkaError
from sharegroup.ids import ProducerIdAndEpoch, TopicName
from sharegroup.protocol_enums import CLUSTER_NAME
from sharegroup.steps import STEP_MASK, Steps

PRODUCER_FENCED_VERSION = 4
"""The first version whose clients know PRODUCER_FENCED."""

NONE = -1


class ProducersParts(HasProducerIds, HasSlices, HasTopics, HasTransactions, Protocol):
    """What these requests touch of the broker."""


def init_producer_id(
    parts: ProducersParts, context: RequestContext, request: InitProducerIdRequest
) -> Later[InitProducerIdResponse]:
    """InitProducerId (22): assigns a producer id, or gives a transactional id to a producer.

    A transaction that is open under the transactional id is aborted first, and its producer is
    fenced. The response waits for that, so that clients need not ask again (in Kafka, they do).
    """
    return Later(_assign(parts, context, request))


def _check_rights(rights: Rights, request: InitProducerIdRequest) -> Steps[None]:
    """Raise an AuthorizationException unless the principal may be such a producer."""
    if request.transactional_id is not None:
        Permission(rights, required.WRITE_TRANSACTIONAL_IDS).require(request.transactional_id)
        return
    write, idempotent = required.WRITE_TOPICS, required.IDEMPOTENT_WRITE
    # Since KIP-679 the permission to write to any topic suffices.
    if is_allowed_on_cluster(rights, idempotent, is_audited=False):
        return
    if not (yield from rights.may_any(write.operation, write.resource_type)):
        raise denied(idempotent.operation, idempotent.resource_type, CLUSTER_NAME)


async def _assign(
    parts: ProducersParts, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    await parts.slices.finish(_check_rights(context.rights, request))
    expected = _expected(request)
    if request.transactional_id is None:
        # Without a transactional id a producer always gets a new id, as in Kafka.
        identity = ProducerIdAndEpoch(await parts.producer_ids.take(), 0)
    else:
        try:
            identity = await parts.transaction_coordinator.init_producer(
                request.transactional_id,
                timeout_ms=count_ms(request.transaction_timeout),
                expected=expected,
                user=context.limited_user,
            )
        except KafkaError as error:
            knows_fenced = context.api_version >= PRODUCER_FENCED_VERSION
            raise for_older_client(error, knows_fenced=knows_fenced) from error
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(identity.producer_id),
        producer_epoch=i16(identity.epoch),
    )


def _expected(request: InitProducerIdRequest) -> ProducerIdAndEpoch | None:
    """Return the producer that continues; None for a new one."""
    producer_id, epoch = request.producer_id, request.producer_epoch
    if producer_id == NONE and epoch == NONE:
        return None
    if NONE in (producer_id, epoch):
        raise InvalidRequest(
            f"a producer continues with both its producer id and its epoch, not with {producer_id} "
            f"and {epoch}"
        )
    return ProducerIdAndEpoch(producer_id, epoch)


def describe_producers(
    parts: ProducersParts, context: RequestContext, request: DescribeProducersRequest
) -> Steps[DescribeProducersResponse]:
    """DescribeProducers (61): returns the producers of partitions, with open transactions."""
    read = Permission(context.rights, required.READ_TOPICS)
    topics = []
    count = 0
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            try:
                # As in Kafka, an invalid name is another error than a missing topic (spec wire-17).
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


SERVED = {
    22: ApiHandler(
        init_producer_id,
        checks=(required.WRITE_TRANSACTIONAL_IDS, required.IDEMPOTENT_WRITE, required.WRITE_TOPICS),
        refused={"producer_epoch": -1},
    ),
    61: ApiHandler(
        describe_producers,
        handling=Handling.READS_IN_STEPS,
        checks=(required.READ_TOPICS,),
    ),
}
