"""The interface of an owner of schedules to its partition: take over, and write transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from sharegroup.schedules.schedule_log import ReadPartition
from sharegroup.worker.retrying.tier_log import TierLog
from sharegroup.worker.retrying.tier_moves import MovedRecord


class RunRefused(Exception):
    """Some topics take no runs; nothing of the transaction was written."""

    def __init__(self, errors: Mapping[str, Exception]) -> None:
        super().__init__("; ".join(f"topic {topic!r}: {error}" for topic, error in errors.items()))
        self.topics = tuple(errors)


class ScheduleStore(Protocol):
    """One partition of the topic of schedules, for one owner.  All failures raise a KafkaError.

    After a failure the outcome of the last transaction is unknown: open another store.
    """

    async def take_over(self) -> ReadPartition:
        """Fence the owner before, and return what it has committed, to the end."""

    async def write(self, records: Sequence[MovedRecord]) -> int:
        """Write all records, or none, and return the broker's time of the last one.

        Raises RunRefused, with all topics that are to blame.
        """

    async def close(self) -> None:
        """Close the connections."""


class ScheduleAccess(NamedTuple):
    """How a process reaches the schedules of its application."""

    tier_log: TierLog
    """The member of the consumer group that shares the partitions."""
    open_store: Callable[[int], ScheduleStore]
    """Opens the store of a partition, for its owner."""
    close: Callable[[], Awaitable[None]]
    """Closes what the stores share; called last."""
