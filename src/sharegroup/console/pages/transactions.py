"""Transactions that are open, with their age: a long one stops readers of committed records."""

from __future__ import annotations

from sharegroup.client.admin.types import TransactionDescription, TransactionState
from sharegroup.console.pages.page import Page, Visit
from sharegroup.console.pages.tables import Column, table

OPEN = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.PREPARE_EPOCH_FENCE,
)
DESCRIBED_MAX = 500
"""Open transactions that are described."""
COLUMNS = (
    Column("transactional_id", "Transactional id", "id"),
    Column("state", "State", "state"),
    Column("age_ms", "Open for", "age"),
    Column("timeout_ms", "Time-out", "age", narrow=False),
    Column("producer_id", "Producer id", "number", narrow=False),
    Column("partitions", "Partitions", "list"),
)


async def transactions(visit: Visit) -> Page:
    """Return the open transactions, the oldest first."""
    listed = await visit.admin.list_transactions(states_filter=OPEN)
    names = [transaction.transactional_id for transaction in listed[:DESCRIBED_MAX]]
    described = await visit.admin.describe_transactions(names)
    rows = [
        {
            "transactional_id": found.transactional_id,
            "state": str(found.state),
            "age_ms": max(0, visit.now_ms - found.started_at_ms) if found.started_at_ms else None,
            "timeout_ms": found.timeout_ms,
            "producer_id": found.producer_id,
            "partitions": [
                f"{where.topic} {where.partition}"
                for where in found.partitions
                if visit.rights.may_see_topic(where.topic)
            ],
        }
        for found in described.values()
        if isinstance(found, TransactionDescription) and found.state in OPEN
    ]
    # An id may be the name of what is hidden.
    if not visit.rights.may_see_cluster:
        rows = [row for row in rows if row["partitions"]]
    shown = table(
        "transactions", COLUMNS, rows, visit.query, sort="-age_ms",
        empty="No transaction is open.",
    )  # fmt: skip
    context = {"shown": shown, "more": max(0, len(listed) - DESCRIBED_MAX)}
    return Page("list.html", "Open transactions", context, {"transactions": rows})
