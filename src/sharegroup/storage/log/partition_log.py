"""The log of one partition: record batches in segments, appended at the end, read anywhere.

Four offsets, in this order:

    start_offset <= last_stable_offset <= high_watermark <= end_offset
    |           readable              |                |
    |  decided   | of transactions    | written, not   |
    |            | that may be open   | yet durable    |

``append`` assigns offsets and writes at once, in the order of the calls.  When the batch is
durable, it becomes readable and its `Ticket` is done.  With ``Durability.OS`` a written batch is
durable.

The state of transactions follows from their batches and markers (`core.log.producer_state`).  A
reader of committed records stops at the last stable offset and skips the records of
`aborted_transactions`.

When the disk fails, the batches that are not durable are cut off and their tickets fail.  Appends
raise `KafkaStorageError` until the disk works again (`fence`); reads continue.

`log_reader` finds and reads batches, `recovery` opens a log at start, `segments` manages the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sharegroup.core.log.producer_state import ProducedBatch, ProducerStates
from sharegroup.errors import (
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicIdPartition, topic_id_text
from sharegroup.storage.disk.files import NO_DESCRIPTORS
from sharegroup.storage.disk.folders import folder_name, remove_old_files
from sharegroup.storage.disk.metadata_files import Metadata
from sharegroup.storage.log.fence import Fence
from sharegroup.storage.log.log_reader import NO_LIMIT, LogReader
from sharegroup.storage.log.retention import Retention, newest_ms, retained_from
from sharegroup.storage.log.segments import Segments
from sharegroup.storage.parts import Durability, StorageParts
from sharegroup.storage.recovery.checkpoint import Checkpoint
from sharegroup.storage.recovery.producer_snapshot import encode_producers
from sharegroup.storage.recovery.producers import (
    check_batch,
    count_in,
    last_of_producers,
    marker_of,
)
from sharegroup.storage.segment.batch_scan import PlacedBatch, header_of, stamp
from sharegroup.storage.segment.boundaries import BatchSpans, ListedBatch
from sharegroup.storage.segment.segment import NO_TIMESTAMP, Segment, SegmentLimits
from sharegroup.storage.segment.transaction_index import overlapping
from sharegroup.storage.segment.whole_read import PIECE_BYTES
from sharegroup.storage.sync.syncer import SyncWork
from sharegroup.storage.sync.tickets import Ticket, TicketQueue
from sharegroup.wire.batches.batches import WITHOUT_PRODUCER, Writable

if TYPE_CHECKING:
    # Imported by the first look-up of a timestamp.
    # Imported at first use, to keep the start of a broker short.
    from sharegroup.storage.log.compaction import Compactable
    from sharegroup.storage.recovery.recovery import LoadedLog
    from sharegroup.storage.segment.timestamps import LogTimes
    from sharegroup.wire.batches.markers import TransactionMarker

SEGMENT_LIMITS_DEFAULT = SegmentLimits(bytes=1_073_741_824, ms=604_800_000)


class PartitionLog:
    """The log of one partition: appends record batches, reads them, and deletes old ones."""

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
        key: TopicIdPartition,
        loaded: LoadedLog,
        *,
        limits: SegmentLimits = SEGMENT_LIMITS_DEFAULT,
        metadata: Metadata,
    ) -> None:
        self.key = key
        self.segment_limits = limits
        self.cleaned_to = 0
        """The offset where the last pass of compaction ended."""
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        # Recovery has synced the part that it scanned, so all of it is durable.
        self.high_watermark = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self._parts = parts
        self._folder = f"{parts.root}/{folder_name(key)}"
        self._segments = Segments(
            parts, self._folder, str(self), loaded.segments, metadata=metadata
        )
        self._producers = loaded.producers
        self._producers.move_to(parts.producer_room)
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
        self._fence = Fence(parts, self._folder, str(self), self._segments)
        self._subscribers: list[Callable[[], None]] = []
        self._is_closed = False

    def __str__(self) -> str:
        return f"topic_id={topic_id_text(self.key.topic_id)} partition={self.key.partition}"

    @property
    def producers(self) -> ProducerStates:
        """The producers of this partition, including their batches that are not durable yet."""
        return self._producers

    @property
    def is_fenced(self) -> bool:
        """Whether appends are refused because the disk failed."""
        return self._fence.is_up

    @property
    def is_lost(self) -> bool:
        """Whether the log's files are gone, so it takes no appends until the broker restarts."""
        return self._fence.is_final

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._segments.size

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is durably committed or aborted."""
        undecided = self._producers.first_unstable_offset
        if undecided is None or undecided >= self.high_watermark:
            return self.high_watermark
        # The transaction may have begun with records that were deleted since.
        return max(undecided, self.start_offset)

    def aborted_transactions(self, first: int, end: int) -> tuple[tuple[int, int, int], ...]:
        """Return the aborted transactions that overlap ``[first, end)``.

        Each is (producer id, first offset, offset of the marker). ``end`` must not be above the
        last stable offset, because transactions beyond it may be open.
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
        """Call ``callback`` whenever the start offset or the high watermark has moved."""
        self._subscribers.append(callback)

    # Appending

    def append(
        self, batch: Writable, *, now_ms: int, marker_version: int = 0, is_urgent: bool = True
    ) -> Ticket:
        """Write one validated record batch; its offsets are written into ``batch``.

        ``now_ms`` is wall-clock time, for the expiry of producers.  ``marker_version`` is the
        transaction version of a marker (`ProducerStates.check_marker`).  A batch that is not
        ``is_urgent`` is synced with the next one, or a little later.  A batch that an idempotent
        producer sends again is not written: the ticket has the offsets of the first append.
        """
        header = header_of(batch)
        if header.producer_id in WITHOUT_PRODUCER:
            return self._write(batch, header, None, now_ms=now_ms, is_urgent=is_urgent)
        marker = marker_of(header, batch)
        repeated = self._check_producer(header, marker, marker_version)
        if repeated is not None:
            return self._duplicate_ticket(repeated)
        return self._write(batch, header, marker, now_ms=now_ms, is_urgent=is_urgent)

    def check_writable(self) -> None:
        """Raise KafkaStorageError while appends are refused, and let the fence probe the disk."""
        self._fence.check()

    def _check_producer(
        self, header: PlacedBatch, marker: TransactionMarker | None, marker_version: int
    ) -> ProducedBatch | None:
        try:
            return check_batch(self._producers, header, marker, marker_version=marker_version)
        except KafkaError as error:
            # The core does not know which log it decides for.
            raise type(error)(f"{self}: {error}") from error

    def _duplicate_ticket(self, batch: ProducedBatch) -> Ticket:
        """Return a ticket for a batch that is already in the log but may not be durable yet."""
        done = batch.end_offset <= self.high_watermark
        ticket = Ticket(batch.base_offset, batch.end_offset, done=done, is_duplicate=True)
        # The first append may still fail. Then this answer has to fail, too, or the producer would
        # believe that the batch is written.
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
        is_urgent: bool,
    ) -> Ticket:
        """Assign the offsets, write the batch, and update indexes and producer states."""
        if self._is_closed:
            raise UnknownTopicOrPartition(f"{self}: the log is closed or was deleted")
        self._fence.check()
        base_offset, end_offset = self.end_offset, self.end_offset + header.offset_count
        try:
            segment = self._segments.for_append(
                header, first=base_offset, end=end_offset, limits=self.segment_limits
            )
            placed = stamp(batch, header, base_offset=base_offset, position=segment.size)
            segment.append(batch, placed)
        except OSError as error:
            raise self._refuse(error) from error
        # Only after the write: a refused batch must leave offsets, indexes and producers unchanged.
        self._segments.appended(segment, placed, now_ms=now_ms)
        self.end_offset = end_offset
        if header.producer_id not in WITHOUT_PRODUCER:
            count_in(self._producers, placed, marker, segment=segment, now_ms=now_ms)
        self._parts.appended(header.size)
        ticket = Ticket(base_offset, end_offset)
        if self._parts.durability is Durability.OS:
            ticket.settle()
            self._advance_to(end_offset)
        else:
            self._pending.add(ticket)
            syncer = self._parts.syncer
            if is_urgent:
                syncer.request(self)
            else:
                syncer.request_later(self)
        return ticket

    # Durability

    def begin_sync(self) -> SyncWork:
        self._syncing = self._segments.mark(self.end_offset)
        return self._segments.begin_sync()

    def synced(self) -> None:
        if self._is_closed or self._fence.is_final:
            return
        assert self._syncing.offset <= self.end_offset
        self._durable = self._syncing
        # With `Durability.OS` the high watermark is ahead of the syncs.
        if self._durable.offset > self.high_watermark:
            self._advance_to(self._durable.offset)

    def sync_failed(self, error: OSError) -> None:
        """Fence the log, fail the pending appends, and cut off what is not durable (ADR 0004).

        With `Durability.OS` only the fence is put up.
        """
        if self._is_closed or self._fence.is_final:
            return
        self._fence.put_up(f"a sync failed: {error}")
        if self._parts.durability is Durability.OS:
            return  # Appends were only promised to reach the system, and are readable already.
        self._pending.fail(f"{self}: a sync failed: {error}")
        self._cut_to_durable()

    def lose(self, reason: str) -> None:
        """Fence the log until the broker restarts, because its files are gone; fail its tickets."""
        self._fence.put_up_for_good(reason)
        self._pending.fail(f"{self}: {reason}")

    @property
    def has_files(self) -> bool:
        """Whether the newest segment's file exists at its path."""
        return all(map(self._parts.files.exists, self._segments.paths()[-1:]))

    def _advance_to(self, offset: int) -> None:
        """Move the high watermark to ``offset``, settle tickets and call the subscribers."""
        # All offsets before the first callback, which reads them.
        self.high_watermark = offset
        self._producers.settle(offset)
        self._pending.settle(offset)
        self._tell()

    def _tell(self) -> None:
        for callback in self._subscribers:
            callback()

    def _cut_to_durable(self) -> None:
        """Cut off everything that is not durable."""
        self.end_offset = self._durable.offset
        # A producer repeats the batches that were cut off; they must not pass for duplicates.
        self._producers.undo_from(self._durable.offset)
        self._fence.doom(self._segments.cut_to(self._durable))

    def _refuse(self, error: OSError) -> KafkaStorageError:
        """Fence the log after a failed write; earlier writes are not affected.

        If the process has no file descriptors left, only this write is refused: the disk works.
        """
        if error.errno not in NO_DESCRIPTORS:
            self._fence.put_up(f"a write failed: {error}")
        self._segments.cut_unwritten()
        return KafkaStorageError(f"{self} offset={self.end_offset}: a write failed: {error}")

    # Reading

    def batches(
        self, offset: int, *, end: int | None = None, bytes_max: int, count_max: int = NO_LIMIT
    ) -> BatchSpans:
        """Return whole batches from the one that holds ``offset`` on that begin before ``end``.

        The first batch is included even if it exceeds ``bytes_max``. No batch is past the end of
        the segment. ``end`` defaults to the high watermark.
        """
        end = self._readable_end(offset, end)
        return self._reader.spans(offset, end=end, bytes_max=bytes_max, count_max=count_max)

    def bytes_from(self, offset: int, *, end: int) -> int:
        """Return the size in bytes of the batches in ``[offset, end)``.

        Returns `NO_LIMIT` if they span segments.
        """
        return self._reader.bytes_from(offset, end=self._readable_end(offset, end))

    def read(self, offset: int, *, bytes_max: int, end: int | None = None) -> bytes:
        """Read the batches that `batches` would find. CorruptMessage if the first is damaged."""
        end = self._readable_end(offset, end)
        return self._reader.read(offset, end=end, bytes_max=bytes_max)

    def read_whole(self, *, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """Iterate over all batches, including those above the high watermark.

        The first batch may begin before the start offset. The files are read in pieces of
        ``piece_bytes``, or more if a batch is larger.
        """
        return self._reader.read_whole(self.start_offset, piece_bytes=piece_bytes)

    def read_range(self, first: int, end: int) -> bytes:
        """Read exactly the batches that cover ``[first, end)``."""
        return self._reader.read_range(first, end=self._readable_end(first, end))

    def listed(self, first: int, end: int) -> list[ListedBatch] | None:
        """Return the batches that cover ``[first, end)``; None if they have to be read first."""
        return self._reader.listed(first, end=self._readable_end(first, end))

    def expect_read(self, first: int, end: int) -> None:
        """Schedule ``[first, end)`` to be read ahead, because `read_range` will likely need it."""
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
        """Whether a checkpoint would move the recovery point."""
        return self.high_watermark > self.recovery_point and not self._fence.is_final

    def begin_checkpoint(self) -> Checkpoint:
        """Flush the indexes and return what must be synced before the new recovery point."""
        segments = self._segments
        files, new = segments.flush_indexes()
        names: tuple[str, ...] = (self._folder,) if new else ()
        if self._parts.durability is Durability.OS:
            # With this durability only checkpoints sync the log itself.
            work = segments.begin_sync()
            files += work.files
            names += work.directories
        # Keeps them open while the storage thread syncs them: Linux reports a failed write-back
        # only through descriptors that were open then.
        for file in files:
            file.begin_sync()
        # Not the end offset: what is not durable may be cut off, and recovery must not trust it.
        point = self.high_watermark
        producers = self._producers
        snapshot = (
            encode_producers(producers.durable(point), self.key) if producers.changed else None
        )
        has_new_metadata = segments.has_new_metadata
        active = segments.paths()[-1]
        return Checkpoint(self, point, tuple(files), names, snapshot, new, has_new_metadata, active)

    def end_checkpoint(self, checkpoint: Checkpoint, *, done: bool) -> None:
        """End a checkpoint; ``done`` says whether its recovery point is durable."""
        for file in checkpoint.files:
            file.end_sync()
        if done:
            self.recovery_point = checkpoint.point
            self._segments.has_new_metadata &= not checkpoint.has_new_metadata
            for segment in checkpoint.new_files:
                segment.names_are_durable()
            return
        # The snapshot may not have been written, so the next checkpoint must make one.
        self._producers.changed = True
        if self._parts.durability is Durability.OS and not self._is_closed:
            # `begin_checkpoint` has forgotten which files were unsynced, so all count as such.
            self._segments.unsynced.update(
                (stored_segment.log, None) for stored_segment in self._segments.all
            )
            self._segments.new_names.update((name, None) for name in checkpoint.directories)
            self._fence.put_up("a checkpoint could not be made durable")

    @property
    def times(self) -> LogTimes:
        """Lookups by timestamp in the records that can be read now."""
        durable = self._durable.segment_end
        # Imported by the first look-up of a timestamp.
        from sharegroup.storage.segment.timestamps import LogTimes

        return LogTimes(
            self,
            # A copy: a lookup is done in pieces, and between two of them segments come and go.
            tuple(self._segments.all),
            start=self.start_offset,
            end=self.high_watermark,
            durable_max=NO_TIMESTAMP if durable is None else durable.max_timestamp,
        )

    # Deleting

    async def delete_before(self, offset: int) -> int:
        """Move the start of the log up to ``offset`` durably; return the new start offset."""
        self.check_deletion(offset)
        if offset > self.start_offset:
            await self._parts.delete_before({self.key: offset})
        return self.start_offset

    def check_deletion(self, offset: int) -> None:
        """Raise OffsetOutOfRange if the log cannot begin at ``offset``."""
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"{self}: records up to offset {offset} cannot be deleted; "
                f"the log is {self.start_offset} to {self.high_watermark}"
            )

    def tells_of_producers(self, offset: int) -> bool:
        """Return whether recovery needs the batches before ``offset`` for the producer states."""
        return len(self._producers) > 0 and offset > self.recovery_point

    def begin_at(self, offset: int) -> None:
        """Let the log begin at ``offset``, which is saved as its start, and free older segments.

        If no record of the active segment is kept, it is closed first, because only closed segments
        are freed.
        """
        if self._is_closed or offset <= self.start_offset:
            return
        self.start_offset = offset
        if offset == self.end_offset:
            # If the disk refuses, the log is fenced, and a later deletion frees the segment.
            with contextlib.suppress(KafkaStorageError):
                self.roll()
        files, folder = self._parts.files, self._folder
        paths = self._segments.drop_before(offset)
        if paths:
            # Nobody waits: the start offset is saved, so the next start removes what a crash
            # leaves.
            self._parts.syncer.later(lambda: remove_old_files(files, folder, paths))
        self._tell()

    def roll(self) -> None:
        """Close the active segment unless it is empty; `delete_before` frees only closed ones."""
        active = self._segments.active
        if active is None or not active.size or self._is_closed:
            return
        self._fence.check()
        try:
            self._segments.roll(self.end_offset)
        except OSError as error:
            raise self._refuse(error) from error

    def retained_from(self, retention: Retention, *, now_ms: int) -> int:
        """Return the start offset that `retention` would give the log."""
        start = retained_from(
            self._segments.all, retention, now_ms=now_ms, high_watermark=self.high_watermark
        )
        return self.start_offset if start is None else max(start, self.start_offset)

    # Compaction

    @property
    def awaits_checkpoint(self) -> bool:
        """Whether a closed segment becomes compactable by a checkpoint."""
        segments = self._segments.all
        return (
            len(segments) > 1
            and segments[-1].base_offset > self.recovery_point
            and self.needs_checkpoint
        )

    def compactable(
        self, *, now_ms: int, lag_ms: int, after_checkpoint: bool = False
    ) -> Compactable:
        """Return the segments that a pass of compaction may work on.

        Their records are durable, below the last stable offset and at least ``lag_ms`` old.
        ``after_checkpoint`` returns what a checkpoint now would make compactable.
        """
        # Imported by the first pass of compaction, not at the start of a broker.
        from sharegroup.storage.log.compaction import Compactable
        from sharegroup.storage.segment.swap import is_unsettled

        # An open transaction may still be aborted, and above the recovery point a crash may cut the
        # log.
        point = self.high_watermark if after_checkpoint else self.recovery_point
        decided, segments = min(self.last_stable_offset, point), []
        cleaned_to = min(max(self.cleaned_to, self.start_offset), self.end_offset)
        for segment in self._segments.all[:-1]:
            # A sync that fails cuts the log back to the segment of the last successful sync.
            if segment.end_offset > decided or self._may_be_cut_to(segment):
                break
            # The lag holds back new segments only: those below `cleaned_to` were old enough for an
            # earlier pass.
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
            # The marker may be in a later segment, so the indexes of all segments are searched.
            aborted=tuple(overlapping((s.aborted for s in self._segments.all), first=0, end=end)),
            producers=last_of_producers(self._producers),
            swap_in=lambda old, new: not self._is_closed and self._segments.swap_in(old, new),
            has=lambda segment: not self._is_closed and segment in self._segments.all,
        )

    def _may_be_cut_to(self, segment: Segment) -> bool:
        if self._parts.durability is Durability.OS:
            return False
        # Also the segment of the round under way: when it ends, a later failure cuts back to its
        # end.
        return segment in (self._durable.segment, self._syncing.segment)

    def close(self) -> None:
        """Close the files; tickets that are not done fail."""
        self._is_closed = True
        self._parts.ahead.forget(self._reader)
        self._parts.syncer.withdraw(self)
        self._producers.leave_room()
        self._pending.fail(f"{self}: the log was closed")
        self._segments.close()
