"""The log of one partition: record batches in segments, appended at the end, read anywhere.

Four offsets, in this order:

    start_offset <= last_stable_offset <= high_watermark <= end_offset
    |           readable              |                |
    |  decided   | of transactions    | written, not   |
    |            | that may be open   | yet durable    |

``append`` assigns offsets and writes at once, in the order of the calls; the batch becomes
readable when it is durable, and then its `Ticket` is done.  With ``Durability.OS`` written
counts as durable.

Transactions are known by their batches and markers (`core.producer_state`).  Whoever wants
committed records only reads up to the last stable offset and leaves out what
`aborted_transactions` names.

When the disk fails, what was not durable is cut off and its tickets fail, appends raise
`KafkaStorageError` until the disk works again (`fence`), and reads go on.

Finding and reading batches is in `log_reader`, what happens at start in `recovery`, the files
are the business of `segments`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sharegroup.core.producer_state import NO_PRODUCER_ID, ProducedBatch, ProducerStates
from sharegroup.errors import (
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicPartition, topic_id_text
from sharegroup.storage.batch_scan import PlacedBatch, header_of, stamp
from sharegroup.storage.boundaries import BatchSpans
from sharegroup.storage.compaction import Compactable
from sharegroup.storage.fence import Fence
from sharegroup.storage.folders import folder_name, remove_old_files
from sharegroup.storage.log_reader import NO_LIMIT, LogReader
from sharegroup.storage.parts import Durability, StorageParts
from sharegroup.storage.producer_snapshot import encode_producers
from sharegroup.storage.producers import check_batch, count_in, last_of_producers, marker_of
from sharegroup.storage.recovery import LoadedLog
from sharegroup.storage.retention import Retention, newest_ms, retained_from
from sharegroup.storage.segment import NO_TIMESTAMP, Segment, SegmentLimits
from sharegroup.storage.segments import Segments
from sharegroup.storage.stored_file import StoredFile
from sharegroup.storage.swap import is_unsettled
from sharegroup.storage.syncer import SyncWork
from sharegroup.storage.tickets import Ticket, TicketQueue
from sharegroup.storage.timestamps import first_not_older
from sharegroup.storage.transaction_index import overlapping
from sharegroup.wire.batches import Writable
from sharegroup.wire.markers import TransactionMarker

log = logging.getLogger(__name__)

SEGMENT_LIMITS_DEFAULT = SegmentLimits(bytes=1_073_741_824, ms=604_800_000)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What must be on disk before ``point`` becomes the recovery point of ``log``."""

    log: PartitionLog
    point: int
    files: tuple[StoredFile, ...]
    directories: tuple[str, ...]
    producers: bytes | None
    """The producer snapshot at ``point``; None if the last one still holds."""
    new_files: tuple[Segment, ...]
    """Segments with index files whose names are durable with ``directories``."""


class PartitionLog:
    """See the module's text."""

    __slots__ = (
        "_durable",
        "_fence",
        "_folder",
        "_is_closed",
        "_parts",
        "_pending",
        "_producers",
        "_reader",
        "_segments",
        "_subscribers",
        "_syncing",
        "cleaned_to",
        "end_offset",
        "high_watermark",
        "key",
        "recovery_point",
        "segment_limits",
        "start_offset",
    )

    def __init__(
        self,
        parts: StorageParts,
        key: TopicPartition,
        loaded: LoadedLog,
        *,
        limits: SegmentLimits = SEGMENT_LIMITS_DEFAULT,
    ) -> None:
        self.key = key
        self.segment_limits = limits
        self.cleaned_to = 0
        """Where the last pass of compaction ended."""
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.high_watermark = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self._parts = parts
        self._folder = f"{parts.root}/{folder_name(key)}"
        self._segments = Segments(parts, self._folder, str(self), loaded.segments)
        self._producers = loaded.producers
        self._reader = LogReader(
            str(self),
            self._segments.all,
            self._segments.map,
            verified_from=loaded.verified_from,
            ahead=parts.ahead,
        )
        self._pending = TicketQueue()
        self._durable = self._segments.mark(self.end_offset)
        self._syncing = self._durable
        self._fence = Fence(parts, self._folder, str(self), active_end=self._segments.active_end)
        self._subscribers: list[Callable[[], None]] = []
        self._is_closed = False

    def __str__(self) -> str:
        return f"topic_id={topic_id_text(self.key.topic_id)} partition={self.key.partition}"

    @property
    def producers(self) -> ProducerStates:
        return self._producers

    @property
    def is_fenced(self) -> bool:
        """Whether the disk failed and appends are refused for now."""
        return self._fence.is_up

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._segments.size

    @property
    def last_stable_offset(self) -> int:
        """All transactions that begin before this offset are durably decided."""
        undecided = self._producers.first_unstable_offset
        if undecided is None or undecided >= self.high_watermark:
            return self.high_watermark
        return max(undecided, self.start_offset)

    def aborted_transactions(self, first: int, end: int) -> tuple[tuple[int, int, int], ...]:
        """(producer id, first offset, marker's offset) of all that overlap ``[first, end)``.

        ``end`` must not be above the last stable offset: beyond it nothing is decided.
        """
        indexes = (segment.aborted for segment in self._segments.from_offset(first))
        try:
            return tuple(
                (entry.producer_id, entry.first_offset, entry.last_offset)
                for entry in overlapping(indexes, first=first, end=end)
            )
        except OSError as error:
            raise KafkaStorageError(f"{self} offset={first}: aborted: {error}") from error

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever another range can be read: its start or its end moved."""
        self._subscribers.append(callback)

    # Appending

    def append(self, batch: Writable, *, now_ms: int) -> Ticket:
        """Write one validated record batch; its offsets are stamped into ``batch``.

        ``now_ms`` is wall-clock time, for the expiry of producers.  A batch that an idempotent
        producer sends again is not written: the ticket has the offsets of the first time.
        """
        header = header_of(batch)
        if header.producer_id == NO_PRODUCER_ID:
            return self._write(batch, header, None, now_ms=now_ms)
        marker = marker_of(header, batch)
        repeated = self._check_producer(header, marker)
        if repeated is not None:
            return self._duplicate_ticket(repeated)
        return self._write(batch, header, marker, now_ms=now_ms)

    def check_writable(self) -> None:
        """Raise KafkaStorageError while appends are refused; that has the disk tried again."""
        self._fence.check()

    def _check_producer(
        self, header: PlacedBatch, marker: TransactionMarker | None
    ) -> ProducedBatch | None:
        try:
            return check_batch(self._producers, header, marker)
        except KafkaError as error:
            raise type(error)(f"{self}: {error}") from error

    def _duplicate_ticket(self, batch: ProducedBatch) -> Ticket:
        """A ticket for a batch that is in the log, though perhaps not yet durable."""
        done = batch.end_offset <= self.high_watermark
        ticket = Ticket(batch.base_offset, batch.end_offset, done=done, is_duplicate=True)
        if not done:
            self._pending.add(ticket)
        return ticket

    def _write(
        self,
        batch: Writable,
        header: PlacedBatch,
        marker: TransactionMarker | None,
        *,
        now_ms: int,
    ) -> Ticket:
        """Stamp, write, index and count in."""
        if self._is_closed:
            raise UnknownTopicOrPartition(f"{self}: the log is closed or was deleted")
        self._fence.check()
        base_offset, end_offset = self.end_offset, self.end_offset + header.offset_count
        try:
            segment = self._segments.for_append(
                header, first=base_offset, limits=self.segment_limits
            )
            placed = stamp(batch, header, base_offset=base_offset, position=segment.size)
            segment.append(batch, placed)
        except OSError as error:
            raise self._refuse(error) from error
        self._segments.appended(segment, placed, now_ms=now_ms)
        self.end_offset = end_offset
        if header.producer_id != NO_PRODUCER_ID:
            count_in(self._producers, placed, marker, segment=segment, now_ms=now_ms)
        self._parts.appended(header.size)
        ticket = Ticket(base_offset, end_offset)
        if self._parts.durability is Durability.OS:
            ticket.settle()
            self._advance_to(end_offset)
        else:
            self._pending.add(ticket)
            self._parts.syncer.request(self)
        return ticket

    # Durability

    def begin_sync(self) -> SyncWork:
        self._syncing = self._segments.mark(self.end_offset)
        return self._segments.begin_sync()

    def synced(self) -> None:
        if self._is_closed:
            return
        assert self._syncing.offset <= self.end_offset
        self._durable = self._syncing
        if self._durable.offset > self.high_watermark:
            self._advance_to(self._durable.offset)

    def sync_failed(self, error: OSError) -> None:
        if self._is_closed:
            return
        self._fence.put_up(f"a sync failed: {error}")
        if self._parts.durability is Durability.OS:
            return  # It was promised to the system only, and is readable already.
        self._pending.fail(f"{self}: a sync failed: {error}")
        self._cut_to_durable()

    def _advance_to(self, offset: int) -> None:
        """Everything before ``offset`` is durable: show it and say so."""
        self.high_watermark = offset
        self._producers.settle(offset)
        self._pending.settle(offset)
        self._tell()

    def _tell(self) -> None:
        for callback in self._subscribers:
            callback()

    def _cut_to_durable(self) -> None:
        """Take back everything that is not durable."""
        self.end_offset = self._durable.offset
        self._producers.undo_from(self._durable.offset)
        self._fence.doom(self._segments.cut_to(self._durable))

    def _refuse(self, error: OSError) -> KafkaStorageError:
        """Fence the log after a failed write; what was written before it is not affected."""
        self._fence.put_up(f"a write failed: {error}")
        self._segments.cut_unwritten()
        return KafkaStorageError(f"{self} offset={self.end_offset}: a write failed: {error}")

    # Reading

    def batches(
        self, offset: int, *, end: int | None = None, bytes_max: int, count_max: int = NO_LIMIT
    ) -> BatchSpans:
        """Whole batches from the one that holds ``offset`` on, that begin before ``end``.

        At least one where there is any, however large; none at the high watermark; not past
        the end of a segment.  ``end`` is the high watermark if not given.
        """
        end = self._readable_end(offset, end)
        return self._reader.spans(offset, end=end, bytes_max=bytes_max, count_max=count_max)

    def read(self, offset: int, *, bytes_max: int, end: int | None = None) -> bytes:
        """The bytes of what `batches` finds; CorruptMessage where the first is damaged."""
        end = self._readable_end(offset, end)
        return self._reader.read(offset, end=end, bytes_max=bytes_max)

    def read_whole(self) -> Iterator[bytes]:
        """Everything there is, past the high watermark too, for whoever keeps state in it.

        The first batch may begin before the start offset.
        """
        return self._reader.read_whole(self.start_offset)

    def read_range(self, first: int, end: int) -> bytes:
        """The bytes of exactly the batches that cover ``[first, end)``."""
        return self._reader.read_range(first, end=self._readable_end(first, end))

    def expect_read(self, first: int, end: int) -> None:
        """`read_range` will probably be asked for this: have it ready, as far as it is there."""
        if first < (end := min(end, self.high_watermark)):
            self._parts.ahead.expect(self._reader, first, end)

    def _readable_end(self, offset: int, end: int | None) -> int:
        if not self.start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"{self}: offset {offset} is not in {self.start_offset} to {self.high_watermark}"
            )
        return self.high_watermark if end is None else min(end, self.high_watermark)

    # Checkpoints and closing

    @property
    def needs_checkpoint(self) -> bool:
        return self.high_watermark > self.recovery_point

    def begin_checkpoint(self) -> Checkpoint:
        """Write what is only in memory; what must be synced before the new recovery point."""
        segments = self._segments
        for segment in segments.all:
            # Closed ones were flushed then, but for those that recovery has read anew.
            if segment is segments.active or segment.has_unwritten:
                segment.flush_indexes()
        files = [file for s in segments.all for file in s.index_files if file.unsynced_bytes]
        new = tuple(segment for segment in segments.all if segment.has_new_files)
        names: tuple[str, ...] = (self._folder,) if new else ()
        if self._parts.durability is Durability.OS:
            # Nobody has synced the log itself so far.
            work = segments.begin_sync()
            files += work.files
            names += work.directories
        for file in files:
            file.begin_sync()
        point = self.high_watermark
        producers = self._producers
        snapshot = encode_producers(producers.durable(point)) if producers.changed else None
        return Checkpoint(self, point, tuple(files), names, snapshot, new)

    def end_checkpoint(self, checkpoint: Checkpoint, *, done: bool) -> None:
        """The recovery point is durable, or could not be made so."""
        for file in checkpoint.files:
            file.end_sync()
        if done:
            self.recovery_point = checkpoint.point
            for segment in checkpoint.new_files:
                segment.names_are_durable()
            return
        self._producers.changed = True
        if self._parts.durability is Durability.OS and not self._is_closed:
            self._segments.unsynced.update((s.log, None) for s in self._segments.all)
            self._segments.new_names.update((name, None) for name in checkpoint.directories)
            self._fence.put_up("a checkpoint could not be made durable")

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record that is not older; None if all are."""
        try:
            return first_not_older(
                self._segments.all, timestamp_ms, start=self.start_offset, end=self.high_watermark
            )
        except OSError as error:
            raise KafkaStorageError(f"{self} timestamp={timestamp_ms}: {error}") from error

    def latest_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the largest timestamp, None if empty."""
        visible = [
            s.max_timestamp for s in self._segments.all if s.end_offset <= self.high_watermark
        ]
        durable = self._durable.segment_end
        if durable is not None:
            visible.append(durable.max_timestamp)
        largest = max(visible, default=NO_TIMESTAMP)
        return None if largest == NO_TIMESTAMP else self.offset_for_timestamp(largest)

    # Deleting

    async def delete_before(self, offset: int) -> int:
        """Move the start of the log up to ``offset``, durably; the start offset then."""
        self.check_deletion(offset)
        if offset > self.start_offset:
            await self._parts.delete_before({self.key: offset})
        return self.start_offset

    def check_deletion(self, offset: int) -> None:
        """Raise OffsetOutOfRange where the log cannot begin at ``offset``."""
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"{self}: records up to offset {offset} cannot be deleted; "
                f"the log is {self.start_offset} to {self.high_watermark}"
            )

    def tells_of_producers(self, offset: int) -> bool:
        """Whether a crash would need what is before ``offset`` to know the log's producers."""
        return len(self._producers) > 0 and offset > self.recovery_point

    def begin_at(self, offset: int) -> None:
        """Let the log begin at ``offset``, which is saved as its start, and free what is before.

        An active segment without a record that is kept is closed first, or it would stay.
        """
        if self._is_closed or offset <= self.start_offset:
            return
        self.start_offset = offset
        if offset == self.end_offset:
            # Where the disk refuses, the fence says so, and the segment goes another time.
            with contextlib.suppress(KafkaStorageError):
                self.roll()
        files, folder = self._parts.files, self._folder
        paths = self._segments.drop_before(offset)
        if paths:
            self._parts.syncer.later(lambda: remove_old_files(files, folder, paths))
        self._tell()

    def roll(self) -> None:
        """Close the active segment, unless it is empty: `delete_before` frees closed ones only."""
        active = self._segments.active
        if active is None or not active.size or self._is_closed:
            return
        self._fence.check()
        try:
            self._segments.roll(self.end_offset)
        except OSError as error:
            raise self._refuse(error) from error

    def retained_from(self, retention: Retention, *, now_ms: int) -> int:
        """Where the log would begin if what need not be kept went; see `storage.retention`."""
        found = retained_from(
            self._segments.all, retention, now_ms=now_ms, high_watermark=self.high_watermark
        )
        return self.start_offset if found is None else max(found, self.start_offset)

    # Compaction

    def compactable(self, *, now_ms: int, lag_ms: int) -> Compactable:
        """What a pass of compaction may work on: records that are ``lag_ms`` old, and decided."""
        decided, segments = min(self.last_stable_offset, self.recovery_point), []
        cleaned_to = min(max(self.cleaned_to, self.start_offset), self.end_offset)
        for segment in self._segments.all[:-1]:
            # A sync that fails cuts back to the segment of the last one that did not.
            if segment.end_offset > decided or self._may_be_cut_to(segment):
                break
            is_new = segment.end_offset > cleaned_to
            if is_new and lag_ms > 0 and newest_ms(segment) > now_ms - lag_ms:
                break
            segments.append(segment)
        end = segments[-1].end_offset if segments else 0
        return Compactable(
            name=str(self),
            folder=self._folder,
            segments=tuple(segments),
            unsettled=tuple(filter(is_unsettled, self._segments.all)),
            cleaned_to=cleaned_to,
            # The marker may be in a later segment.
            aborted=tuple(overlapping((s.aborted for s in self._segments.all), first=0, end=end)),
            producers=last_of_producers(self._producers),
            swap_in=lambda old, new: not self._is_closed and self._segments.swap_in(old, new),
            has=lambda segment: not self._is_closed and segment in self._segments.all,
        )

    def _may_be_cut_to(self, segment: Segment) -> bool:
        if self._parts.durability is Durability.OS:
            return False
        return segment in (self._durable.segment, self._syncing.segment)

    def close(self) -> None:
        """Give the files back; tickets that are not done fail."""
        self._is_closed = True
        self._parts.ahead.forget(self._reader)
        self._parts.syncer.withdraw(self)
        self._pending.fail(f"{self}: the log was closed")
        self._segments.close()
