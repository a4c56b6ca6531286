"""One share partition in use: its state in memory, its log, and its counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.ids import SharePartitionKey, TopicName
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.sync.tickets import Ticket

if TYPE_CHECKING:
    from sharegroup.core.delivery.key_order import KeyOrder


class LiveKeyOrder:
    """The key order of one loaded share partition."""

    __slots__ = ("__weakref__", "is_full", "is_learning", "order")

    def __init__(self, order: KeyOrder) -> None:
        self.order = order
        self.is_learning = False
        self.is_full = False
        """Whether the limit was reached when a fetch last wanted more."""


class LiveSharePartition:
    """One loaded share partition; ``fenced`` is True once it must no longer be used.

    After an await, check ``fenced`` again, because a new object may have been loaded for its key.
    """

    __slots__ = (
        # For the entries of `LockExpiry`, which keep no share partition in memory.
        "__weakref__",
        "batch_verdicts",
        "batches_checked",
        "check_writable",
        "crowded",
        "delivered_batches",
        "delivered_records",
        "expiry_ms",
        "fenced",
        "full",
        "key",
        "key_order",
        "last_write",
        "log",
        "look_count",
        "look_seconds",
        "noted_outcomes",
        "sound_from",
        "sound_until",
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
        check_writable: Callable[[], None],
    ) -> None:
        self.key = key
        self.topic_name = topic_name
        self.state = state
        self.log = log
        self.state_epoch = state_epoch
        self.fenced = False
        self.batch_verdicts: dict[int, bool] = {}
        """Whether members can read a large batch, by its first offset, if it was checked."""
        self.batches_checked: set[int] = set()
        """First offsets of the batches whose check is under way."""
        self.sound_from = self.sound_until = 0
        """All batches in ``[sound_from, sound_until)`` can be delivered."""
        self.key_order: LiveKeyOrder | None = None
        """None if the group's records are not ordered by key, or were not looked for yet."""
        self.full = False
        """Whether the limit of runs was reached at the last fetch."""
        self.crowded = False
        """Whether the last fetch left no room for more locks, so members share the room equally."""
        self.starved = False
        """Whether the last fetch found no room, so every change wakes the waiting fetches."""
        self.last_write = last_write
        """The last write of the state; None if the whole state is durable."""
        self.check_writable = check_writable
        """Raises KafkaStorageError while no change of the state could be stored."""
        self.timed_out_count = 0
        """Records whose lock expired before they were settled."""
        self.look_count = 0
        """Number of times that a fetch looked for records to acquire."""
        self.look_seconds = 0.0
        """Total time of these looks, during which no other fetch can look."""
        self.delivered_batches = 0
        """Number of acquired ranges; each has one delivery count."""
        self.delivered_records = 0
        """Number of offsets in the acquired ranges."""
        self.noted_outcomes = (0, 0, 0)
        """The outcomes of records (`SharePartition.outcomes`) that the group's breaker knows."""
        self.expiry_ms: int | None = None
        """The time at which the timer checks the locks next; None if it is not set."""
        self.swept_ms = -(1 << 62)
        """The time at which the timer checked the locks last; far in the past before the first."""

    def __str__(self) -> str:
        """Return the text that names it in log lines and errors."""
        group_id, _, partition = self.key
        return f"group={group_id!r} topic={self.topic_name!r} partition={partition}"
