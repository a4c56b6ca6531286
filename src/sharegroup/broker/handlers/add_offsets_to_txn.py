"""AddOffsetsToTxn (25): adds the offsets of a group to a transaction.

Producers with ``transaction.version`` 2 do not send it: TxnOffsetCommit adds the group.
"""

from __future__ import annotations

import asyncio
import contextlib

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse
from kio.schema.errors import ErrorCode

from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.transactions.identities import ProducerIdAndEpoch, for_older_client
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId
from sharegroup.storage.sync.tickets import Ticket

PRODUCER_FENCED_VERSION = 2
"""The first version whose clients know PRODUCER_FENCED."""


def handle(
    parts: Parts, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Later[AddOffsetsToTxnResponse]:
    group_id = GroupId(request.group_id)
    parts.groups.check_id(group_id)
    coordinator = parts.transactions.coordinator()
    coordinator.claim(request.transactional_id, context.limited_user)
    adding = coordinator.add(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        (coordinator.partition_of_group(group_id),),
        client_version=0,
    )
    return _response(context, adding) if adding.done() else Later(_added(context, adding))


async def _added(
    context: RequestContext, adding: asyncio.Future[Ticket | None]
) -> AddOffsetsToTxnResponse:
    with contextlib.suppress(KafkaError):  # `_response` translates it.
        await adding
    return _response(context, adding)


def _response(
    context: RequestContext, added: asyncio.Future[Ticket | None]
) -> AddOffsetsToTxnResponse:
    try:
        added.result()
    except KafkaError as error:
        knows_fenced = context.api_version >= PRODUCER_FENCED_VERSION
        raise for_older_client(error, knows_fenced=knows_fenced) from error
    return AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none)


def refuse(request: AddOffsetsToTxnRequest, error: KafkaError) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=error_code(error))
