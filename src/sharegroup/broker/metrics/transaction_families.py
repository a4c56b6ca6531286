"""The metrics of transactions."""

from __future__ import annotations

from sharegroup.broker.metrics.family import Family, MetricType

TRANSACTIONS: tuple[Family, ...] = (
    TRANSACTIONAL_IDS := Family(
        "sharegroup_transactional_ids", MetricType.GAUGE, "ids",
        "Transactional ids by the state of their transaction.", ("state",),
    ),
    TRANSACTIONS_BYTES := Family(
        "sharegroup_transactions_bytes", MetricType.GAUGE, "bytes",
        "Approximate memory of all transactional ids and their partitions.",
    ),
    TRANSACTIONS_ENDED := Family(
        "sharegroup_transactions_total", MetricType.COUNTER, "transactions",
        "Transactions that were decided, by outcome; those that timed out count as aborted, too.",
        ("outcome",),
    ),
    TRANSACTION_MARKERS := Family(
        "sharegroup_transaction_markers_total", MetricType.COUNTER, "markers",
        "Markers that were written to partitions at the end of transactions.",
    ),
)  # fmt: skip
