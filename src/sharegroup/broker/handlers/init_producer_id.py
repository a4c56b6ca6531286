"""InitProducerId (22): assigns an id to an idempotent producer; refuses transactions."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE, NO_TRANSACTIONS, TRANSACTIONS
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError, TransactionalIdAuthorizationFailed


def handle(
    parts: Parts, context: RequestContext, request: InitProducerIdRequest
) -> Later[InitProducerIdResponse]:
    return Later(_assign(parts, context, request))


async def _assign(
    parts: Parts, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        parts.unserved.refused(
            TRANSACTIONS, client_id=context.client_id, name=request.transactional_id
        )
        raise TransactionalIdAuthorizationFailed(NO_TRANSACTIONS)
    # Without a transactional id a producer always gets a new id, as in Kafka.
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
