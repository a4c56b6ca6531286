"""The interface of a steered group's scheduler to Kafka: moves in transactions, and commands.

A move writes records to their next topics, answers to the control topic, and the offset of the
partition, all or nothing.  Only the owner of the partition can commit it.  So a record that was
moved is never moved again, by whomever, and a command and the scheduler cannot both move it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from sharegroup.errors import KafkaError
from sharegroup.waiting.control_records import ControlRecord
from sharegroup.worker.ports import BufferedRecord, Header, SendOptions, WrittenRecord
from sharegroup.worker.retrying.tier_log import Committed, TierPartition, TierRecord


class MovedRecord(NamedTuple):
    """A record to write in a move."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    partition: int | None = None
    """None lets the key choose."""

    def buffered(self) -> BufferedRecord:
        """Return it as a record of a transaction."""
        options: SendOptions = {
            "key": self.key,
            "headers": self.headers,
            "partition": self.partition,
        }
        return BufferedRecord(self.topic, self.value, options)


class MovesRefused(KafkaError):
    """Some records of a move cannot be written, so nothing was; `errors` has them by index."""

    def __init__(self, errors: Mapping[int, KafkaError]) -> None:
        index, error = next(iter(errors.items()))
        super().__init__(
            f"{len(errors)} records cannot be written, the first at index {index}: {error}"
        )
        self.errors = errors


class TierMoves(Protocol):
    """Moves the records of one group's retry topics in transactions, and reads its commands."""

    async def move(
        self, partition: TierPartition, records: Sequence[MovedRecord], committed: Committed
    ) -> Sequence[WrittenRecord]:
        """Write the records and commit the offset, all or nothing; returns where they are.

        Raises OwnershipLost if another member owns the partition, MovesRefused, or another
        KafkaError; then nothing was moved.
        """

    async def record_at(self, partition: TierPartition, offset: int) -> TierRecord | None:
        """Read one record; None if there is none with this offset."""

    async def read_control(self) -> Sequence[ControlRecord]:
        """Return the committed control records up to the end, from the last call on.

        The first call begins at the start of the topic.
        """

    async def wait_control(self, wait_seconds: float) -> None:
        """Return when there may be new control records, or after this time."""

    async def close(self) -> None:
        """End an open transaction, and close the clients."""
