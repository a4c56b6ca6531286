"""The settings of transactions, and of the internal topic in which they are stored."""

from __future__ import annotations

from sharegroup.broker.configuration.config_values import INT_MAX, ConfigPart, key

ALL_BYTES_MAX = 16 * 1024 * 1024
"""Memory of all transactional ids by default: about 15,000 of 40 characters."""


class TransactionConfig(ConfigPart):
    """Time-outs and limits of transactions, and the topic ``__transaction_state``."""

    timeout_ms_max: int = key(
        "transaction.max.timeout.ms",
        900_000,
        "Largest time-out of a transaction that a producer may ask for.",
        low=1,
        high=INT_MAX,
    )
    id_expiration_ms: int = key(
        "transactional.id.expiration.ms",
        604_800_000,
        "Time without a transaction after which a transactional id is forgotten.",
        low=1,
        high=INT_MAX,
    )
    id_expiration_check_ms: int = key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "Interval between searches for expired transactional ids.",
        low=1,
        high=INT_MAX,
    )
    bytes_max: int = key(
        "sharegroup.transactions.bytes.max",
        ALL_BYTES_MAX,
        "Memory of all transactional ids and their partitions; above it, ids that have been idle "
        "for longest are forgotten.",
        low=65_536,
    )
    state_partitions: int = key(
        "transaction.state.log.num.partitions",
        50,
        "Number of partitions of `__transaction_state`; fixed when the topic is created.",
        low=1,
    )
    state_segment_bytes: int = key(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "Segment size of `__transaction_state`.",
        low=1_024,
    )
