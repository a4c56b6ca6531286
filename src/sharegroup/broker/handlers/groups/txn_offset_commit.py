"""TxnOffsetCommit (28): commits offsets of a consumer group when a transaction is committed.

From version 5 on it also adds the group to the transaction (KIP-890).  Before, the producer has
added it with AddOffsetsToTxn.  Topics have ids from version 6 on (KIP-1319).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sharegroup.broker.access import checks as required
from sharegroup.broker.cluster.coordinator_log import Durable
from sharegroup.broker.handler_contract import ApiHandler, Later, RequestContext
from sharegroup.broker.handlers.groups.offset_commit import (
    PIECE_OFFSETS,
    OffsetCommitParts,
    OffsetPlan,
    plan_offsets,
    response_steps,
)
from sharegroup.broker.handlers.parts import HasGroups, HasTransactions
from sharegroup.core.groups.classic.classic_groups import Committer
from sharegroup.core.transactions.records import EPOCH_BUMPS
from sharegroup.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InvalidProducerEpoch,
    KafkaError,
    ProducerFenced,
    StaleMemberEpoch,
)
from sharegroup.ids import GroupId, MemberId, ProducerIdAndEpoch

if TYPE_CHECKING:
    # The newest version stands for all.  At run time only those that clients use are imported.
    from sharegroup.wire.messages.txn_offset_commit_v6 import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    )

API_KEY = 28
ABORTABLE_VERSION = 4
"""The first version that knows TRANSACTION_ABORTABLE."""

ADDING_VERSION = 5
"""The first version that adds the group to the transaction."""

GROUP_ERRORS_VERSION = 6
"""The first version that knows GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH."""


class TxnOffsetCommitParts(OffsetCommitParts, HasGroups, HasTransactions, Protocol):
    """What these requests touch of the broker."""


def handle(
    parts: TxnOffsetCommitParts, context: RequestContext, request: TxnOffsetCommitRequest
) -> Later[TxnOffsetCommitResponse]:
    return Later(_commit(parts, context, request))


async def _commit(
    parts: TxnOffsetCommitParts, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    plan = await parts.slices.finish(plan_offsets(parts, context, request))
    # If all offsets are refused, the group must not become a part of the transaction.
    if plan.offsets:
        try:
            await _enter(parts, context, request)
            await _write(parts, context, request, plan)
        except KafkaError as error:
            refusal = _translated(error, context.api_version)
            plan.refused.update(
                (place, refusal) for place in plan.places if place not in plan.refused
            )
    response: TxnOffsetCommitResponse = await parts.slices.finish(
        response_steps(API_KEY, request, plan.refused)
    )
    return response


async def _enter(
    parts: TxnOffsetCommitParts, context: RequestContext, request: TxnOffsetCommitRequest
) -> None:
    """Add the group to the transaction, if the version does that."""
    # Before the partition is added: an id that no group can have must not begin a transaction.
    parts.groups.check_id(GroupId(request.group_id))
    if context.api_version < ADDING_VERSION:
        return
    coordinator = parts.transaction_coordinator
    await coordinator.add(
        request.transactional_id,
        _producer(request),
        (coordinator.partition_of_group(GroupId(request.group_id)),),
        client_version=EPOCH_BUMPS,
    )


async def _write(
    parts: TxnOffsetCommitParts,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    plan: OffsetPlan,
) -> None:
    """Write the offsets in pieces; each is checked, because the transaction may end meanwhile."""
    transactions, groups = parts.transaction_coordinator, parts.classic_group_coordinator
    producer = _producer(request)
    partitions = (transactions.partition_of_group(GroupId(request.group_id)),)
    committer = Committer(
        GroupId(request.group_id),
        MemberId(getattr(request, "member_id", "")),
        getattr(request, "group_instance_id", None),
        getattr(request, "generation_id", -1),
        context.limited_user,
    )
    durable = []
    for begin in range(0, len(plan.offsets), PIECE_OFFSETS):
        if begin:
            await parts.slices.turn()
        transactions.verify(
            request.transactional_id,
            producer,
            partitions,
            is_abortable=context.api_version >= ABORTABLE_VERSION,
        )
        piece = tuple(plan.offsets[begin : begin + PIECE_OFFSETS])
        durable.append(groups.commit(committer, piece, producer=producer))
    # Offsets without the record that adds their partition would stay pending after a crash, so the
    # answer promises both (ADR 0029).
    entered = transactions.last_write(request.transactional_id)
    for written in durable:
        await written
    await Durable(entered, None)


def _producer(request: TxnOffsetCommitRequest) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(request.producer_id, request.producer_epoch)


def _translated(error: KafkaError, version: int) -> KafkaError:
    """Return the error that the client knows."""
    is_of_group = isinstance(error, GroupIdNotFound | StaleMemberEpoch)
    if is_of_group and version < GROUP_ERRORS_VERSION:
        return IllegalGeneration(str(error))
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(str(error))  # As for Produce: the transaction is to be aborted.
    return error


SERVED = {
    28: ApiHandler(
        handle,
        gates=(required.WRITE_TRANSACTIONAL_ID, required.READ_GROUP),
        checks=(required.READ_TOPICS,),
        is_native=True,
    )
}
