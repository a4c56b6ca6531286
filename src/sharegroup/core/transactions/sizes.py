"""The memory of transactional ids: limits and estimates."""

from __future__ import annotations

from sharegroup.core.transactions.records import TransactionMetadata

ID_CHARACTERS_MAX = 1_024
"""Maximum length of a new transactional id."""

PARTITIONS_MAX = 2_000
"""Maximum number of partitions in one transaction, because its record names all of them."""

ID_BYTES = 900
"""Memory of one more transactional id, without its characters."""

PARTITION_BYTES = 1_300
"""Memory of one more partition in a transaction, with the state of its producer there.

The state of a producer with an open transaction is not forgotten, so it must be counted here.
"""


def size_bytes(metadata: TransactionMetadata) -> int:
    """Return the estimated memory of a transactional id, rounded up."""
    return (
        ID_BYTES
        + metadata.transactional_id.__sizeof__()
        + PARTITION_BYTES * len(metadata.partitions)
    )
