"""InitProducerId (22): assigns a producer id, or gives a transactional id to a producer.

A transaction that is open under the transactional id is aborted first, and its producer is fenced.
The response waits for that, so that clients need not ask again (in Kafka, they do).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE, count_ms
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.checks import denied
from sharegroup.broker.security.permission import Permission, is_allowed_on_cluster
from sharegroup.broker.security.rights import Rights
from sharegroup.broker.transactions.identities import ProducerIdAndEpoch, for_older_client
from sharegroup.errors import InvalidRequest, KafkaError
from sharegroup.protocol_enums import CLUSTER_NAME

PRODUCER_FENCED_VERSION = 4
"""The first version whose clients know PRODUCER_FENCED."""

NONE = -1


def handle(
    parts: Parts, context: RequestContext, request: InitProducerIdRequest
) -> Later[InitProducerIdResponse]:
    _check_rights(context.rights, request)
    return Later(_assign(parts, context, request))


def _check_rights(rights: Rights, request: InitProducerIdRequest) -> None:
    """Raise an AuthorizationException unless the principal may be such a producer."""
    if request.transactional_id is not None:
        Permission(rights, required.WRITE_TRANSACTIONAL_IDS).require(request.transactional_id)
        return
    write, idempotent = required.WRITE_TOPICS, required.IDEMPOTENT_WRITE
    # Since KIP-679 the permission to write to any topic suffices.
    if not is_allowed_on_cluster(rights, idempotent, is_audited=False) and not rights.may_any(
        write.operation, write.resource_type
    ):
        raise denied(idempotent.operation, idempotent.resource_type, CLUSTER_NAME)


async def _assign(
    parts: Parts, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    expected = _expected(request)
    if request.transactional_id is None:
        # Without a transactional id a producer always gets a new id, as in Kafka.
        identity = ProducerIdAndEpoch(await parts.producer_ids.take(), 0)
    else:
        try:
            identity = await parts.transactions.coordinator().init_producer(
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


def refuse(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE, error_code=error_code(error), producer_epoch=i16(-1)
    )
