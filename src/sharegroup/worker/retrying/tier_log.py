"""The interface of the scheduler to the retry topics: ordered records, owners, and commits.

The members of one consumer group share the partitions of all tiers, and each partition has one
owner at a time.  A `TierOwner` is told which partitions were assigned and revoked.  Records read
before a partition was revoked are never returned after it was assigned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from sharegroup.worker.ports import Header


class TierPartition(NamedTuple):
    """One partition of a tier's retry topic."""

    topic: str
    partition: int


class TierRecord(NamedTuple):
    """A record in a retry topic."""

    offset: int
    append_ms: int
    """The time at which the record was written, by the broker's clock (LogAppendTime)."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


class Committed(NamedTuple):
    """A committed offset with its metadata, from which the next owner of a partition continues."""

    offset: int
    """All records below were moved on."""
    metadata: str = ""
    """The offsets above that were moved on too, as text (`shelf`)."""


class OwnershipLost(Exception):
    """Another member owns the partition; records moved but not committed are moved twice."""


class TierOwner(Protocol):
    """Receives the partitions that are assigned to it or revoked from it."""

    async def assigned(self, partitions: Mapping[TierPartition, Committed]) -> None:
        """Start moving records of these partitions from their committed offsets."""

    async def revoked(self, partitions: Iterable[TierPartition]) -> None:
        """Stop, and commit the moved records; after this returns, others own the partitions."""


class TierLog(Protocol):
    """Reads retry topics as a member of a consumer group.  All failures raise a KafkaError."""

    async def start(self, topics: Sequence[str], owner: TierOwner) -> None:
        """Join the group; may be called again after a failure."""

    async def read(self, wait_seconds: float) -> Mapping[TierPartition, Sequence[TierRecord]]:
        """Return the next records of all partitions that are not paused.

        The result is empty if there are none within ``wait_seconds``.
        """

    def pause(self, partition: TierPartition) -> None:
        """Stop reading a partition until `resume`; no effect on one that is not owned."""

    def resume(self, partition: TierPartition) -> None:
        """Read a paused partition again."""

    def end_offset(self, partition: TierPartition) -> int | None:
        """The end offset of the partition as of the last fetch; None while it is unknown."""

    async def commit(self, partition: TierPartition, committed: Committed) -> None:
        """Commit an offset for the next owner; raises OwnershipLost if another member owns it."""

    async def close(self) -> None:
        """Leave the group if it was joined."""
