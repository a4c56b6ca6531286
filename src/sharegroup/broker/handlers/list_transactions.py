"""ListTransactions (66): lists transactional ids by state, producer, duration and name."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import (
    ListTransactionsResponse,
    TransactionState,
)
from kio.schema.types import ProducerId, TransactionalId

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission
from sharegroup.core.patterns import matching
from sharegroup.core.transactions import records
from sharegroup.errors import KafkaError
from sharegroup.steps import STEP_MASK, Steps

LABELS = frozenset(state.label for state in records.TransactionState) | {
    # States of Kafka in which no transactional id is here.
    "Dead",
    "PrepareEpochFence",
}


def handle(
    parts: Parts, context: RequestContext, request: ListTransactionsRequest
) -> Steps[ListTransactionsResponse]:
    labels, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    describe = Permission(context.rights, required.DESCRIBE_TRANSACTIONAL_IDS, is_audited=False)
    now_ms = parts.clock.wall_ms()
    states = []
    # A copy: transactions go on between two steps.
    known_ids = tuple(parts.transactions.coordinator().transactions)
    matching_ids: frozenset[str] | None = None
    if request.transactional_id_pattern:
        names = tuple(known.transactional_id for known in known_ids)
        matching_ids = yield from matching(request.transactional_id_pattern, names)
    for count, known in enumerate(known_ids):
        if count & STEP_MASK == STEP_MASK:
            yield
        if (
            (not labels or known.state.label in labels)
            and (not producer_ids or known.producer_id in producer_ids)
            and _is_longer(known, request.duration_filter, now_ms)
            and (matching_ids is None or known.transactional_id in matching_ids)
            and describe.allows(known.transactional_id)
        ):
            states.append(
                TransactionState(
                    transactional_id=TransactionalId(known.transactional_id),
                    producer_id=ProducerId(known.producer_id),
                    transaction_state=known.state.label,
                )
            )
    return ListTransactionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        unknown_state_filters=tuple(sorted(labels - LABELS)),
        transaction_states=tuple(states),
    )


def _is_longer(known: records.TransactionMetadata, duration_ms: int, now_ms: int) -> bool:
    """Return whether a transaction is under way for longer; -1 also lists idle ids."""
    if duration_ms < 0:
        return True
    return not known.state.is_idle and now_ms - known.started_ms > duration_ms


def refuse(request: ListTransactionsRequest, error: KafkaError) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        unknown_state_filters=(),
        transaction_states=(),
    )
