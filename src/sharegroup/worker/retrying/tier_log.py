"""What the scheduler needs of the tiers' topics: records in order, an owner, a commit.

The members of one consumer group share the partitions of all tiers, and each partition has one
owner at a time.  Who gets it and who has to give it up is told to a `TierOwner`; what was read
before a partition was given up is never handed out after it was taken again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from sharegroup.worker.ports import Header


class TierPartition(NamedTuple):
    """One partition of one tier's topic."""

    topic: str
    partition: int


class TierRecord(NamedTuple):
    """A record that waits."""

    offset: int
    append_ms: int
    """When it was written, by the broker's clock (LogAppendTime)."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


class Committed(NamedTuple):
    """What the owner of a partition left to the next one."""

    offset: int
    """Everything below was moved on."""
    metadata: str = ""
    """What was moved on above (`done_offsets`)."""


class OwnershipLost(Exception):
    """The partition is somebody else's by now; what was moved and not committed is moved twice."""


class TierOwner(Protocol):
    """Who is told which partitions are its own."""

    async def assigned(self, partitions: Mapping[TierPartition, Committed]) -> None:
        """These are yours from now on."""

    async def revoked(self, partitions: Iterable[TierPartition]) -> None:
        """Commit what you moved; when this returns, these are somebody else's."""


class TierLog(Protocol):
    """See the module's text.  Everything that goes wrong is raised as a KafkaError."""

    async def start(self, topics: Sequence[str], owner: TierOwner) -> None:
        """Join; may be called again after it failed."""

    async def read(self, wait_seconds: float) -> Mapping[TierPartition, Sequence[TierRecord]]:
        """What comes next in each partition that is not paused; nothing after ``wait_seconds``."""

    def pause(self, partition: TierPartition) -> None:
        """Read nothing more of it for now; no effect on one that is not owned."""

    def resume(self, partition: TierPartition) -> None:
        """Read it again."""

    def end_offset(self, partition: TierPartition) -> int | None:
        """Where it ended when it was last read; None while that is not known."""

    async def commit(self, partition: TierPartition, committed: Committed) -> None:
        """Leave this to the next owner; raises OwnershipLost."""

    async def close(self) -> None:
        """Leave the group, if it was joined."""
