"""The interface of a worker to one topic that it reads as a member of a consumer group.

The members of the group share the topic's partitions, and each partition has one owner at a time.
A `PartitionOwner` is told which partitions are given and taken.  `transport.group_log_kafka`
implements the interface with this project's consumer, `transport.group_log_memory` in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from sharegroup.worker.declarations.route import GroupProtocolName, StartFrom
from sharegroup.worker.ports import BufferedRecord, Header
from sharegroup.worker.retrying.tier_log import Committed


class GroupReading(NamedTuple):
    """What a member of a consumer group reads, and how."""

    group: str
    topic: str
    in_flight_bytes: int
    """The bytes that may be fetched ahead."""
    protocol: GroupProtocolName
    start_from: StartFrom
    exactly_once: bool = False
    """Whether commits are transactions, which may write records, too."""


class LoggedRecord(Protocol):
    """A record of the topic; `sharegroup.client.ConsumerRecord` is one."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...


class PartitionOwner(Protocol):
    """Receives the partitions of the topic that the group gives to it or takes from it."""

    async def assigned(self, partitions: Mapping[int, Committed | None]) -> None:
        """Own these partitions from their committed offsets; None for one without a commit."""

    async def revoked(self, partitions: Collection[int]) -> None:
        """Finish, and commit; after this returns, others own the partitions."""

    def is_finished(self, partition: int, offset: int) -> bool:
        """Whether a record of an owned partition is finished."""

    async def lost(self, partitions: Collection[int]) -> None:
        """Stop at once, because others may own the partitions already."""


class GroupLog(Protocol):
    """Reads one topic as a member of a consumer group.  All failures raise a KafkaError."""

    @property
    def member_id(self) -> str: ...

    @property
    def is_joined(self) -> bool:
        """Whether this is a member of the group, as far as the coordinator answers."""

    async def start(self, owner: PartitionOwner) -> None:
        """Join the group."""

    async def read(self, room: int, wait_seconds: float) -> Sequence[LoggedRecord]:
        """Return up to ``room`` records of the partitions that are not paused.

        The owner is told of changes of the assignment only inside of this call, so it is to be
        called without room, too.  The result is empty if no records come within ``wait_seconds``,
        or after `wake`.  Offsets that cannot be read are an UnreadableBatch.
        """

    def wake(self) -> None:
        """Let the pending `read` return."""

    def pause(self, partition: int) -> None:
        """Stop reading an owned partition until `resume`."""

    def resume(self, partition: int) -> None:
        """Read a paused partition again."""

    def seek(self, partition: int, offset: int) -> None:
        """Read an owned partition from this offset on."""

    async def commit(
        self, offsets: Mapping[int, Committed], records: Sequence[BufferedRecord] = ()
    ) -> None:
        """Commit offsets of owned partitions, and write records with them, all or nothing.

        Records need a log that was opened for transactions.

        Raises OwnershipLost if other members own them, and OffsetMetadataTooLarge.
        """

    async def close(self, within_seconds: float) -> None:
        """Tell the owner that its partitions are revoked, and leave the group."""
