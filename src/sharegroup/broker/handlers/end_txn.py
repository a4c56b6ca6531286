"""EndTxn (26): commits or aborts a transaction.

From version 5 on, the response has the producer id and epoch for the next transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable

from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.transactions.identities import ProducerIdAndEpoch, for_older_client
from sharegroup.broker.transactions.waiting_requests import DurableResult
from sharegroup.core.transactions.records import EPOCH_BUMPS
from sharegroup.errors import KafkaError

PRODUCER_FENCED_VERSION = 2
"""The first version whose clients know PRODUCER_FENCED."""

EPOCH_BUMP_VERSION = 5
"""The first version with a new epoch for each transaction."""


def handle(
    parts: Parts, context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse | Later[EndTxnResponse]:
    try:
        ending = parts.transactions.coordinator().end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            client_version=EPOCH_BUMPS if context.api_version >= EPOCH_BUMP_VERSION else 0,
        )
    except KafkaError as error:
        raise _translated(context, error) from error
    identity = ending.now() if isinstance(ending, DurableResult) else None
    return Later(_ended(context, ending)) if identity is None else _response(identity)


async def _ended(context: RequestContext, ending: Awaitable[ProducerIdAndEpoch]) -> EndTxnResponse:
    try:
        return _response(await ending)
    except KafkaError as error:
        raise _translated(context, error) from error


def _translated(context: RequestContext, error: KafkaError) -> KafkaError:
    return for_older_client(error, knows_fenced=context.api_version >= PRODUCER_FENCED_VERSION)


def _response(identity: ProducerIdAndEpoch) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(identity.producer_id),
        producer_epoch=i16(identity.epoch),
    )


def refuse(request: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    return EndTxnResponse(throttle_time=NO_THROTTLE, error_code=error_code(error))
