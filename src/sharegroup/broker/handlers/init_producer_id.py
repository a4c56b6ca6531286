"""InitProducerId (22): an id for an idempotent producer; transactions are not served."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import CoordinatorNotAvailable, KafkaError


async def handle(
    parts: Parts, context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        raise CoordinatorNotAvailable(
            f"transactional id {request.transactional_id!r}: transactions are not served"
        )
    # Whatever id the producer had: without a transactional id it gets a new one, as in Kafka.
    producer_id = await parts.producer_ids.take()
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(0),
    )


def refuse(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE, error_code=error_code(error), producer_epoch=i16(-1)
    )
