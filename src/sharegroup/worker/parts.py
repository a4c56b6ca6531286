"""The parts of a worker that do I/O: real ones are in `transport.kafka`, tests have their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sharegroup.worker.ports import Outbox, RecordSource, WorkerClock

if TYPE_CHECKING:
    from sharegroup.client import AdminClient
    from sharegroup.client.net.cluster import Reachability
    from sharegroup.worker.consuming.group_log import GroupLog, GroupReading
    from sharegroup.worker.results.asks import ReplyLog
    from sharegroup.worker.retrying.tier_log import TierLog
    from sharegroup.worker.retrying.tier_moves import TierMoves
    from sharegroup.worker.scheduling.schedule_store import ScheduleAccess


SUSPECTED_FROM = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupLimits:
    """Limits that the broker sets for a share group.  The defaults are Kafka's."""

    deliveries: int = 5
    """The delivery count limit: share.delivery.count.limit."""
    locks: int = 2000
    """Locks in one partition for all members: share.partition.max.record.locks."""
    renewal: bool = True
    """Whether locks may be renewed: share.renew.acknowledge.enable."""

    @property
    def suspected_from(self) -> int:
        """The delivery count from which a record moves to the group's own topic as a suspect.

        A process that dies during this write costs a delivery.  After the last delivery the
        broker archives the record.  So one delivery remains for that, and a worker sets a higher
        limit (`infrastructure`).  It is never the first delivery.
        """
        return max(min(self.deliveries - 1, SUSPECTED_FROM), 2)

    @property
    def alone_from(self) -> int:
        """The delivery count from which the handler of a record runs alone in its process.

        A process that ends then has this record alone to blame.  It is never the first delivery.
        Suspects run alone from their first delivery in the own topic.
        """
        return max(self.suspected_from - 1, 2)


CONSUMER_GROUP_LIMITS = ShareGroupLimits(deliveries=6, locks=2**31 - 1)
"""The same for consumer groups, which have no locks and whose deliveries the worker counts."""


class WorkerParts(NamedTuple):
    """The parts of a worker that do I/O, and functions that open more of them."""

    open_source: Callable[[str, str, int], RecordSource]
    """Opens a member of a group for a topic: ``(group, topic, in_flight_bytes)``."""
    open_group_log: Callable[[GroupReading], GroupLog]
    """Opens a member of a consumer group for a topic."""
    outbox: Outbox
    clock: WorkerClock
    open_tier_log: Callable[[str], TierLog]
    """Opens the retry tiers of a group."""
    open_schedules: Callable[[], ScheduleAccess]
    """Opens the schedules of the application, if it has any."""
    open_tier_moves: Callable[[str, TierLog], TierMoves]
    """Opens the moves of a steered group, as the member that the tier log is."""
    open_replies: Callable[[str], ReplyLog]
    """Opens a reader of a topic for replies, for a process that asks."""
    admin: AdminClient | None
    """None if there is no cluster to prepare or to query."""
    group_limits: Callable[[str], Awaitable[ShareGroupLimits]]
    """Queries the limits of a group, at the start and regularly; raises KafkaError if it fails."""
    reachability: Callable[[], Reachability]
    """Returns which brokers the clients of this process reach."""
    close: Callable[[], Awaitable[None]]
    """Closes the parts; called last."""
