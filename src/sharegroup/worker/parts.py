"""What a worker is made of that touches the world: real in `transport.kafka`, or a test's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sharegroup.worker.ports import Clock, Outbox, Source

if TYPE_CHECKING:
    from sharegroup.client import AdminClient
    from sharegroup.worker.retrying.tier_log import TierLog


BURIED_FROM = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What the broker allows a share group; Kafka's defaults."""

    deliveries: int = 5
    """After so many a record is archived: share.delivery.count.limit."""
    locks: int = 2000
    """Of one partition, over all members: share.partition.max.record.locks."""
    renewal: bool = True
    """share.renew.acknowledge.enable."""

    @property
    def buried_from(self) -> int:
        """The delivery from which on a record is buried instead of run.

        The first would do, if no process ever died while it writes a dead letter.  Each one
        that does costs a delivery, and with the last of them the broker forgets the record
        without a word.  So a worker asks for more deliveries than it runs (`infrastructure`).
        """
        return min(self.deliveries, BURIED_FROM)


class WorkerParts(NamedTuple):
    """See the module's text."""

    open_source: Callable[[str, str, int], Source]
    """A member of this group that reads this topic, with so many bytes in hand at most."""
    outbox: Outbox
    clock: Clock
    open_tier_log: Callable[[str], TierLog]
    """The retry tiers of this group."""
    admin: AdminClient | None
    """None: there is nothing to be prepared or asked."""
    group_limits: Callable[[str], Awaitable[GroupLimits]]
    """Asked at the start and now and then; raises KafkaError when nobody knows."""
    close: Callable[[], Awaitable[None]]
    """The last call."""
