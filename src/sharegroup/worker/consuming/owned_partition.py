"""A partition that this process owns: the records that were read of it, and those delivered."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import NamedTuple, Unpack

from sharegroup.backoff import Backoff, without_jitter
from sharegroup.errors import MessageTooLarge, UnreadableBatch
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.worker.consuming.commit_metadata import OFFSETS_MAX
from sharegroup.worker.consuming.group_log import LoggedRecord
from sharegroup.worker.consuming.partition_progress import PartitionProgress, Rewound
from sharegroup.worker.ports import (
    BufferedRecord,
    DeliveredRecord,
    Header,
    SendOptions,
    WrittenRecord,
)
from sharegroup.worker.records.unreadable_range import UnreadableOffsets, UnreadableRange
from sharegroup.worker.retrying.postponer import RECORD_BYTES_MAX

OUTPUT_BYTES = 200
"""The memory that an output takes, in addition to its own bytes."""
OVERHEAD_BYTES = 16 * 1024
"""Of a batch and its request, beside the contents of a record."""

OUTPUT_BYTES_MAX = 16 * 1024 * 1024
"""Outputs of a partition's finished records, from which on none of its records are delivered.

So a commit that fails for long does not fill the memory, and one transaction stays small.
"""
RUN_BYTES_MAX = 16 * 1024 * 1024
"""The maximum size of what one run sends, because it is written in one transaction."""
REFUSED_MS_MIN = 200
REFUSED_MS_MAX = 10_000
"""The pause after a transaction with an output that its topic refuses doubles up to this one."""


class Outputs:
    """The records to write with the next commit of a partition, and their size."""

    __slots__ = ("_begun", "_records", "size")

    def __init__(self) -> None:
        self._records: list[BufferedRecord] = []
        self.size = 0
        self._begun = (0, 0)
        """The number and the size of those that the commit under way writes."""

    @property
    def is_full(self) -> bool:
        """Whether no more records are to be delivered until these are written."""
        return self.size >= OUTPUT_BYTES_MAX

    def add(self, records: list[BufferedRecord], size: int) -> None:
        """Add the outputs of a finished record."""
        self._records += records
        self.size += size

    def begin(self) -> tuple[BufferedRecord, ...]:
        """Return the records for a commit; there is one commit at a time."""
        self._begun = len(self._records), self.size
        return tuple(self._records)

    def drop(self) -> None:
        """Drop what the commit has written."""
        count, size = self._begun
        del self._records[:count]
        self.size -= size
        self._begun = (0, 0)


class OwnedPartition:
    """A partition that this process owns, from its assignment to its revocation or loss."""

    __slots__ = (
        "_on_change", "_refused", "commit_at", "fresh", "is_changed", "is_gone", "is_held",
        "is_leaving", "is_paused", "is_rewound", "outputs", "partition", "progress", "read",
        "released", "topic", "was_full",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        progress: PartitionProgress,
        on_change: Callable[[], None],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.progress = progress
        self.fresh = progress.fresh
        self._on_change = on_change
        """Called when there is something to commit, after a time without."""
        self.read: deque[LoggedRecord | UnreadableRange] = deque()
        """What was read and not delivered yet, in the order of the log."""
        self.outputs = Outputs()
        """Of finished records."""
        self.commit_at = 0.0
        """The time before which no commit is tried, because its outputs were refused."""
        self._refused: Backoff | None = None
        self.released: list[ConsumedRecord | UnreadableRange] = []
        """Records that were delivered and given back, to be delivered again."""
        self.is_changed = False
        """Whether there is something to commit."""
        self.is_held = False
        """Whether the application has paused it."""
        self.is_paused = False
        """Whether its fetch is paused, because it is held or nearly full."""
        self.is_rewound = False
        """Whether the next record is at an offset that was delivered before."""
        self.was_full = False
        """Whether the log says that it is nearly full."""
        self.is_leaving = False
        """Whether the group takes the partition back, and its handlers end."""
        self.is_gone = False
        """Whether others may own the partition."""

    def take(self, room: int, *, is_first: bool = True) -> list[DeliveredRecord]:
        """Deliver up to ``room`` records: those given back first, in the order of the log.

        An unreadable range is delivered alone, and only with ``is_first``: there is nothing else
        in this take.
        """
        if self.is_leaving or self.is_gone or self.is_held or self.outputs.is_full:
            return []
        if self.progress.span >= OFFSETS_MAX:  # Nobody finishes the first of them.
            room = len(self.released)
        taken = self._take_released(room, is_first=is_first)
        if self.released or (taken and isinstance(taken[0], UnreadableRange)):
            return taken
        read, deliver, ceiling = self.read, self.progress.deliver, self.progress.ceiling
        has_skipped = False
        while read and len(taken) < room:
            if ceiling is not None and read[0].offset >= ceiling:
                break
            record = read[0]
            if isinstance(record, UnreadableRange):
                if is_first and not taken:
                    taken = self._deliver_range(record)
                break
            try:
                count = deliver(record.offset)
            except Rewound:
                self.is_rewound = True
                break
            read.popleft()
            if count is None:
                has_skipped = True
            else:
                taken.append(ConsumedRecord(self, record, count))
        if has_skipped:
            self.change()  # The offset to commit may move.
        return taken

    def _deliver_range(self, unreadable: UnreadableRange) -> list[DeliveredRecord]:
        try:
            self.progress.deliver_range(unreadable.offset, unreadable.end)
        except Rewound:
            self.is_rewound = True
            return []
        self.read.popleft()
        return [unreadable]

    def _take_released(self, room: int, *, is_first: bool) -> list[DeliveredRecord]:
        released = self.released
        released.sort(key=_offset_of)
        ranges = (at for at, given in enumerate(released) if isinstance(given, UnreadableRange))
        count = min(room, next(ranges, room))
        if count == 0 and is_first and room:
            count = 1  # The range itself.
        taken: list[DeliveredRecord] = [*released[:count]]
        del released[:count]
        return taken

    def add_unreadable(self, error: UnreadableBatch) -> None:
        """Add offsets that cannot be read behind the records that were read, as one delivery."""

        def settle(acknowledge_type: AcknowledgeType) -> None:
            if acknowledge_type in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT):
                self.progress.finish_range(error.first, error.end)
                self.change()
            elif acknowledge_type is AcknowledgeType.RELEASE:
                self.released.append(delivery)

        offsets = UnreadableOffsets(error, settle=settle, is_gone=lambda: self.is_gone)
        delivery = UnreadableRange(offsets, {})
        self.read.append(delivery)

    def refused(self, now: float) -> None:
        """Note that a topic refuses an output; the commit is tried again later and later."""
        if self._refused is None:
            self._refused = Backoff(REFUSED_MS_MIN, REFUSED_MS_MAX, chance=without_jitter)
        self.commit_at = now + self._refused.next_ms() / 1000

    def written(self) -> None:
        """Note that a commit has written its outputs."""
        self.outputs.drop()
        self._refused, self.commit_at = None, 0.0

    def change(self) -> None:
        """Note that there is something to commit."""
        if not self.is_changed:
            self.is_changed = True
            self._on_change()


class ConsumedRecord:
    """One delivery of a record of an owned partition; a `ports.DeliveredRecord`."""

    __slots__ = (
        "_output_bytes", "_outputs", "_owned", "delivery_count", "headers", "key", "offset",
        "partition", "timestamp_ms", "topic", "value",
    )  # fmt: skip

    deadline = math.inf
    """There is no lock: the record belongs to this process while the partition does."""

    def __init__(self, owned: OwnedPartition, record: LoggedRecord, delivery_count: int) -> None:
        # Positional parameters and no dataclass, because this runs for every record.
        self._owned = owned
        self.topic = owned.topic
        self.partition = owned.partition
        self.offset = record.offset
        self.timestamp_ms = record.timestamp_ms
        self.key: bytes | None = record.key
        self.value: bytes | None = record.value
        self.headers: Sequence[Header] = record.headers
        self.delivery_count = delivery_count
        self._outputs: list[BufferedRecord] | None = None
        """Records to write when this one is finished."""
        self._output_bytes = 0

    @property
    def is_lost(self) -> bool:
        """Whether others may own the partition."""
        return self._owned.is_gone

    def accept(self) -> None:
        """Note that the record is finished."""
        owned = self._owned
        if self._outputs is not None:
            if not owned.is_gone:  # Otherwise the record runs again, and the list may have an heir.
                owned.outputs.add(self._outputs, self._output_bytes)
            self._outputs = None
        owned.fresh.append(self.offset)
        if not owned.is_changed:
            owned.change()

    reject = accept

    def release(self, *, delay: timedelta | None = None) -> None:  # noqa: ARG002
        """Have the record delivered again, by this owner or the next one, who knows no delay."""
        self._outputs = None
        self._owned.released.append(self)

    def renew(self) -> None:
        """Do nothing, because there is no lock."""

    def send(
        self, topic: str, value: bytes | None, **options: Unpack[SendOptions]
    ) -> Awaitable[WrittenRecord]:
        """Write a record in the transaction that finishes this one; a `ports.Outbox`.

        Where it will be written is not known before, so its partition and offset are -1.  Raises
        MessageTooLarge at once, because a transaction that fails is repeated as it is.
        """
        written: asyncio.Future[WrittenRecord] = asyncio.get_running_loop().create_future()
        size = len(value or b"") + len(options.get("key") or b"")
        size += sum(len(name) + len(content or b"") for name, content in options.get("headers", ()))
        if size > RECORD_BYTES_MAX - OVERHEAD_BYTES:
            written.set_exception(
                MessageTooLarge(
                    f"a record for topic {topic!r} has {size} bytes; expected at most "
                    f"{RECORD_BYTES_MAX - OVERHEAD_BYTES}"
                )
            )
            return written
        if self._outputs is None:
            self._outputs, self._output_bytes = [], 0
        if self._output_bytes + size > RUN_BYTES_MAX:
            written.set_exception(
                MessageTooLarge(
                    f"a record for topic {topic!r} has {size} bytes, after "
                    f"{len(self._outputs)} others of {self._output_bytes} bytes in one run; "
                    f"expected at most {RUN_BYTES_MAX} together, because exactly_once writes them "
                    "in one transaction"
                )
            )
            return written
        self._output_bytes += size + OUTPUT_BYTES
        self._outputs.append(BufferedRecord(topic, value, options))
        written.set_result(LaterWritten(topic))
        return written

    def drop_outputs(self) -> None:
        """Forget the records that a failed run has sent."""
        self._outputs = None


class LaterWritten(NamedTuple):
    """The place of a record that a transaction will write; a `ports.WrittenRecord`."""

    topic: str
    partition: int = -1
    offset: int = -1
    timestamp_ms: int = -1


def _offset_of(delivery: ConsumedRecord | UnreadableRange) -> int:
    return delivery.offset
