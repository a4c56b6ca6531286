"""One share partition in use: its state in memory, the log that it reads, and how it stands."""

from __future__ import annotations

from sharegroup.core.share_partition import SharePartition
from sharegroup.ids import SharePartitionKey, TopicName
from sharegroup.storage.partition_log import PartitionLog
from sharegroup.storage.tickets import Ticket


class LiveSharePartition:
    """One loaded share partition; ``fenced`` once it must not be used any more.

    Whoever holds it over an await looks at ``fenced`` again: its successor may be loaded.
    """

    __slots__ = (
        "crowded",
        "delivered_batches",
        "delivered_records",
        "expiry_ms",
        "fenced",
        "full",
        "key",
        "last_write",
        "log",
        "look_count",
        "look_seconds",
        "starved",
        "state",
        "state_epoch",
        "swept_ms",
        "timed_out_count",
        "topic_name",
    )

    def __init__(
        self,
        key: SharePartitionKey,
        topic_name: TopicName,
        *,
        state: SharePartition,
        log: PartitionLog,
        state_epoch: int,
        last_write: Ticket | None,
    ) -> None:
        self.key = key
        self.topic_name = topic_name
        self.state = state
        self.log = log
        self.state_epoch = state_epoch
        self.fenced = False
        self.full = False  # The last fetch found as many runs as may be held.
        self.crowded = False  # The last fetch left no room: members share it equally now.
        self.starved = False  # The last fetch found no room: whatever settles makes some.
        self.last_write = last_write  # None: all that is known of it is durable.
        self.timed_out_count = 0  # Records whose lock ended before anybody settled them.
        self.look_count = 0  # How often a fetch looked for something to take,
        self.look_seconds = 0.0  # which keeps all others out for so long.
        self.delivered_batches = 0  # Ranges handed out, each with one delivery count,
        self.delivered_records = 0  # and the offsets in them.
        self.expiry_ms: int | None = None  # When the broker's timer will look at the locks.
        self.swept_ms = -(1 << 62)  # When it last did; never, at first.

    def __str__(self) -> str:
        """As log lines and errors name it."""
        group_id, _, partition = self.key
        return f"group={group_id!r} topic={self.topic_name!r} partition={partition}"
