"""Runs one pass of compaction over the closed segments of a log (rules: `core.log.compaction`).

    learn     find the newest record of each key in the segments since the last pass
    rewrite   each group of segments into one new segment with the remaining records
    swap      the new segment for the old ones (`storage.segment.swap`)

Closed segments never change, so the storage thread reads them while the log is in use.  The work is
cut into slices of `SLICE_BYTES`; syncs and other work of that thread run in between.  Records that
are appended in the meantime are in later segments and not affected.  A pass uses only segments that
cannot be cut any more: below the last stable offset, the recovery point and the last sync.

If the disk fails, or the log drops the segments in the meantime, the pass is aborted without a
change to the log (ADR 0011).
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from sharegroup.core.log.compaction import (
    Aborted,
    CompactionRules,
    Fate,
    LastOfProducer,
    LogTransactions,
    NewestOffsets,
)
from sharegroup.errors import CorruptMessage, KafkaStorageError
from sharegroup.storage.disk.files import SEGMENT_BYTES_MAX, Buffer, Files
from sharegroup.storage.parts import StorageParts
from sharegroup.storage.segment.batch_scan import headers, is_whole_at, placed_in
from sharegroup.storage.segment.index_file import RELATIVE_OFFSET_MAX
from sharegroup.storage.segment.segment import Segment
from sharegroup.storage.segment.swap import (
    CLEANED,
    SWAP,
    discard,
    hold,
    holds,
    remove_replaced,
    take_names,
)
from sharegroup.storage.segment.transaction_index import AbortedTransaction
from sharegroup.wire.batches.batches import BatchHeader, checksum_holds, scan
from sharegroup.wire.batches.markers import decode_marker
from sharegroup.wire.batches.records import DecodedRecord, batch_records, read_batch
from sharegroup.wire.batches.thinning import emptied, thinned

log = logging.getLogger(__name__)

T = TypeVar("T")

SLICE_BYTES = 64 * 1024
"""Bytes of a segment that are read, processed and written at a time: 2 to 5 ms of work.

The event loop needs the same interpreter lock and may be delayed by about that time (ADR 0011).
"""

BATCH_RECORDS_MAX = 200_000
"""Maximum number of records of a batch that is compacted.

A larger batch is kept unchanged, like an unreadable one, because each record takes 200 bytes and a
microsecond.  An uncompressed batch of 1 MiB holds at most 150,000 records.
"""

STEP_RECORDS = 1_000
"""Number of records that are processed without a pause, which takes about a millisecond."""


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """The limits and settings of a pass."""

    memory_bytes: int
    """Memory for the keys; if they need more, compaction takes several passes."""
    delete_retention_ms: int
    """Time that a tombstone is kept after the first pass that reads it."""
    segment_bytes: int
    """Maximum size of a new segment that old segments are joined into."""
    sleep: Callable[[float], None] = time.sleep
    """Called with 0 after every `STEP_RECORDS` of a large batch."""


@dataclass(frozen=True, slots=True)
class Compactable:
    """The input of a pass: the closed segments of a log when the pass begins."""

    name: str
    folder: str
    segments: tuple[Segment, ...]
    unsettled: tuple[Segment, ...]
    """Segments of an earlier pass whose files do not all have their final names."""
    cleaned_to: int
    """The offset where the last pass ended."""
    aborted: tuple[AbortedTransaction, ...]
    producers: Mapping[int, LastOfProducer]
    swap_in: Callable[[Sequence[Segment], Segment], bool]
    """Replaces old segments of the log by a new one; returns False if all of them are gone."""
    has: Callable[[Segment], bool]
    """Returns whether the log still has this segment."""


class Compacted(NamedTuple):
    """The result of a pass: the offset where it ended and the size of the segments."""

    cleaned_to: int
    bytes_before: int
    bytes_after: int


class _Piece(NamedTuple):
    """The remaining batches of a slice."""

    records: bytes
    aborted: list[AbortedTransaction]
    is_whole: bool
    """Whether nothing was removed from the slice."""


class CompactionPass:
    """One pass of compaction over a log.  ``now_ms`` is wall-clock time."""

    __slots__ = ("_entries", "_keeper", "_limits", "_now_ms", "_of", "_parts", "_transactions")

    def __init__(
        self, parts: StorageParts, of: Compactable, limits: CompactionLimits, *, now_ms: int
    ) -> None:
        self._parts = parts
        self._of = of
        self._limits = limits
        self._now_ms = now_ms
        self._transactions = LogTransactions(_plain(of.aborted))
        self._entries = {entry.last_offset: entry for entry in of.aborted}
        self._keeper = CompactionRules(
            NewestOffsets(limits.memory_bytes, end_offset=of.cleaned_to),
            last=of.producers,
            now_ms=now_ms,
        )

    async def run(self) -> Compacted:
        """Run the pass.  KafkaStorageError or CorruptMessage if it is aborted."""
        files, folder = self._parts.files, self._of.folder
        bytes_before = sum(segment.size for segment in self._of.segments)
        try:
            for segment in self._of.unsettled:
                await self._settle(segment)
            if self._of.segments:
                # After the swaps of earlier passes, because it removes every file with a temporary
                # name. One that a failed pass has left would be valid at the next start.
                await self._parts.syncer.in_thread(lambda: discard(files, folder))
            newest = await self._learn()
            self._keeper = CompactionRules(newest, last=self._of.producers, now_ms=self._now_ms)
            bytes_after = 0
            for group in self._groups(newest.end_offset):
                bytes_after += await self._rewrite(group)
        except OSError as error:
            raise KafkaStorageError(f"{self._of.name}: compaction: {error}") from error
        untouched = sum(s.size for s in self._of.segments if s.base_offset >= newest.end_offset)
        return Compacted(newest.end_offset, bytes_before, bytes_after + untouched)

    # Learning

    async def _learn(self) -> NewestOffsets:
        newest = NewestOffsets(self._limits.memory_bytes, end_offset=self._of.cleaned_to)
        new = [s for s in self._of.segments if s.end_offset > self._of.cleaned_to]
        first_offset = new[0].base_offset if new else 0
        # A marker below the first segment that is read here would never end its transaction: the
        # producer's later, committed records would count as aborted.
        aborted = [entry for entry in self._of.aborted if entry.last_offset >= first_offset]
        # Not those of the pass: the rewrite follows the transactions once more from the first
        # segment on.
        transactions = LogTransactions(_plain(aborted))
        sleep = self._limits.sleep
        for segment in new:
            async for has_room in self._slices(
                segment, lambda data: _learn_slice(newest, transactions, data, sleep=sleep)
            ):
                if not has_room:
                    return newest  # Records behind `end_offset` are kept; a later pass notes them.
            # Control batches and aborted records at the end of the segment have no keys to note.
            newest.end_offset = max(newest.end_offset, segment.end_offset)
        return newest

    # Rewriting

    def _groups(self, end_offset: int) -> list[list[Segment]]:
        """Group the segments that begin below ``end_offset``; each group becomes one segment."""
        groups: list[list[Segment]] = []
        limit = min(self._limits.segment_bytes, SEGMENT_BYTES_MAX)
        for segment in self._of.segments:
            if segment.base_offset >= end_offset:
                break
            group = groups[-1] if groups else []
            if (
                group
                and sum(member.size for member in group) + segment.size <= limit
                # Index entries have offsets relative to the base of the new segment, with 31 bits.
                and segment.end_offset - group[0].base_offset <= RELATIVE_OFFSET_MAX
            ):
                group.append(segment)
            else:
                groups.append([segment])
        return groups

    async def _rewrite(self, group: Sequence[Segment]) -> int:
        """Replace the group by one new segment; return the bytes that remain."""
        files, folder = self._parts.files, self._of.folder
        new = Segment(self._parts.opened, folder, group[0].base_offset)
        for file in new.files:
            file.path += CLEANED
        is_held = False
        try:
            is_whole = await self._fill(new, group)
            # A segment that loses nothing stays as it is: a swap would only cost syncs.
            if not (is_whole and len(group) == 1):
                await self._make_durable(new)
                is_held = True
        finally:
            if not is_held:
                new.close()
                # In the thread without waiting, because this task may have been cancelled.
                self._parts.syncer.later(lambda: _discard(files, folder, new))
        if not is_held:
            return group[0].size
        holds(new)
        # Retention may have dropped all of them, or the topic was deleted.
        if not self._of.swap_in(group, new):
            new.close()
            raise KafkaStorageError(f"{self._of.name}: its segments were removed during compaction")
        await self._settle(new)
        return new.size

    async def _fill(self, new: Segment, group: Sequence[Segment]) -> bool:
        """Write the remaining batches of the group; return whether nothing was removed."""
        end_offset, is_whole = group[-1].end_offset, True
        for file in new.files:
            file.fd(create=True)
            # The files of an aborted pass may still be there.
            file.truncate(0)
        for segment in group:
            async for piece in self._slices(segment, lambda data: self._keep(data, end_offset)):
                is_whole = is_whole and piece.is_whole
                _append(new, piece)
        # Retention uses it for records without a timestamp, and a rewrite must not make them
        # younger.
        new.touched_ms = max(segment.touched_ms for segment in group)
        new.has_holes = True
        assert new.end_offset == end_offset, "the last batch of a segment always stays"
        return is_whole

    async def _make_durable(self, new: Segment) -> None:
        files, folder = self._parts.files, self._of.folder
        new.flush_indexes()
        begun = new.files
        for file in begun:
            # Opened in the event loop: the storage thread must not open files of a segment.
            file.fd()
            file.begin_sync()
        try:
            await self._parts.syncer.in_thread(lambda: hold(files, folder, new))
        finally:
            for file in begun:
                file.end_sync()

    async def _settle(self, new: Segment) -> None:
        """Remove the files that the new segment replaces, and give its files their final names.

        After a failure the next pass continues: once the log file has its final name, no old file
        is left.
        """
        files, folder = self._parts.files, self._of.folder
        if new.log.path.endswith(SWAP):
            await self._parts.syncer.in_thread(lambda: remove_replaced(files, folder, new))
            # The log may have dropped it meanwhile; then its files are removed under their present
            # names.
            if self._of.has(new):
                take_names(files, (new.log,))
        await self._parts.syncer.in_thread(lambda: files.sync_directory(folder))
        if self._of.has(new):
            take_names(files, new.index_files)
            new.names_are_durable()

    # In the storage thread

    async def _slices(self, segment: Segment, work: Callable[[bytes], T]) -> AsyncIterator[T]:
        """Read whole batches slice by slice and yield the results of ``work`` for them.

        Both run in the storage thread.
        """
        files, path, size, position = self._parts.files, segment.log.path, segment.size, 0
        while position < size:

            def read_and_work(at: int = position) -> tuple[int, T]:
                data = _read_slice(files, path, at, size)
                return len(data), work(data)

            length, result = await self._parts.syncer.in_thread(read_and_work)
            position += length
            yield result

    def _keep(self, data: bytes, end_offset: int) -> _Piece:
        """Return the remaining batches of a slice of the group that ends at ``end_offset``."""
        kept: list[Buffer] = []
        aborted: list[AbortedTransaction] = []
        is_whole = True
        view = memoryview(data)
        for position, header in scan(data):
            batch = view[position : position + header.size]
            stays = self._kept(batch, header, aborted, ends_segment=header.end_offset == end_offset)
            is_whole = is_whole and stays is batch
            if stays is not None:
                kept.append(stays)
        return _Piece(b"".join(kept), aborted, is_whole)

    def _kept(
        self,
        batch: memoryview,
        header: BatchHeader,
        aborted: list[AbortedTransaction],
        *,
        ends_segment: bool,
    ) -> Buffer | None:
        """Return the batch itself, a batch with its remaining records, or None if none remains."""
        # First, whatever becomes of the batch, because it follows the transactions from batch to
        # batch.
        is_void = self._is_void(batch, header, aborted)
        must_stay = ends_segment or self._keeper.is_last_of_producer(
            header.producer_id,
            epoch=header.producer_epoch,
            end_offset=header.end_offset,
            is_marker=header.is_control,
        )
        fate = self._keeper.fate(
            must_stay=must_stay,
            is_void=is_void,
            is_marker=header.is_control,
            horizon=header.delete_horizon_ms,
        )
        # A batch that an earlier pass has emptied goes when it is no longer the last of its
        # producer or segment.
        if fate is Fate.DROPPED or (header.record_count == 0 and not must_stay):
            return None
        if header.record_count == 0:
            return batch
        if fate is Fate.EMPTIED:
            return emptied(header)
        try:
            kept, with_tombstones = self._kept_records(batch, header)
            if not any(kept):
                return emptied(header) if must_stay else None
            horizon = None
            if (with_tombstones or is_void) and header.delete_horizon_ms is None:
                horizon = self._now_ms + self._limits.delete_retention_ms
            if all(kept) and horizon is None:
                return batch
            return thinned(batch, header, kept, delete_horizon_ms=horizon)
        except CorruptMessage as error:
            # The checksum matches, so the producer wrote it this way.  Its keys are unknown.
            log.warning("event=batch_not_compacted %s error=%r", self._of.name, str(error))
            return batch

    def _is_void(
        self, batch: Buffer, header: BatchHeader, aborted: list[AbortedTransaction]
    ) -> bool:
        """Return whether the batch belongs to an aborted transaction or to a removed one.

        The second case is a marker whose transaction has no records any more.
        """
        if not header.is_control:
            return self._transactions.records(
                header.producer_id,
                end_offset=header.end_offset,
                is_transactional=header.is_transactional,
            )
        # An earlier pass has emptied the marker, so it cannot be decoded.
        if header.record_count == 0:
            return True
        marker = decode_marker(batch)
        if marker is None:
            return False
        is_void = self._transactions.marker(
            header.producer_id, end_offset=header.end_offset, is_commit=marker.is_commit
        )
        if not marker.is_commit and not is_void:
            aborted.append(self._entries[header.base_offset])
        return is_void

    def _kept_records(self, batch: Buffer, header: BatchHeader) -> tuple[list[bool], bool]:
        """Return for each record whether it is kept, and whether a kept record is a tombstone."""
        if header.is_control:
            return [True] * header.record_count, False
        is_kept, with_tombstones = [], False
        keeps, horizon = self._keeper.keeps, header.delete_horizon_ms
        for record in _records(batch, header, sleep=self._limits.sleep):
            is_tombstone = record.value is None
            stays = keeps(
                record.key, offset=record.offset, is_tombstone=is_tombstone, horizon=horizon
            )
            is_kept.append(stays)
            with_tombstones = with_tombstones or (stays and is_tombstone)
        return is_kept, with_tombstones


def _learn_slice(
    newest: NewestOffsets,
    transactions: LogTransactions,
    data: bytes,
    *,
    sleep: Callable[[float], None],
) -> bool:
    """Learn the keys of a slice; return False if the map has no room for the rest of them."""
    for position, header in scan(data):
        batch = memoryview(data)[position : position + header.size]
        if header.is_control:
            marker = decode_marker(batch)
            if marker is not None:
                transactions.marker(
                    header.producer_id, end_offset=header.end_offset, is_commit=marker.is_commit
                )
            continue
        is_aborted = transactions.records(
            header.producer_id,
            end_offset=header.end_offset,
            is_transactional=header.is_transactional,
        )
        # Earlier passes noted these keys. They are passed over only here: their transactions may
        # end in the new part.
        if is_aborted or header.end_offset <= newest.end_offset:
            continue
        is_decoded = header.record_count <= BATCH_RECORDS_MAX
        if is_decoded and not newest.has_room(header.record_count):
            return False
        try:
            for record in _records(batch, header, sleep=sleep):
                if record.key is not None:
                    newest.learn(record.key, record.offset)
        except CorruptMessage:
            pass  # The batch is kept unchanged and its keys are unknown; `_kept` logs it.
        newest.end_offset = header.end_offset
    return True


def _records(
    batch: Buffer, header: BatchHeader, *, sleep: Callable[[float], None]
) -> Iterable[DecodedRecord]:
    """Return the records of a batch. CorruptMessage if it is unreadable or has too many records."""
    if header.record_count > BATCH_RECORDS_MAX:
        raise CorruptMessage(
            f"batch at offset {header.base_offset}: {header.record_count} records, "
            f"{BATCH_RECORDS_MAX} can be compacted"
        )
    if header.record_count <= STEP_RECORDS:
        return batch_records(batch, 0, header)
    # Read twice: first to check that all records are readable, then to iterate over them. A list of
    # so many objects would make the garbage collector scan it, which takes 100 ms.
    read_batch(batch, 0, header, lambda records: _read_through(records, header, sleep))
    return _in_steps(read_batch(batch, 0, header, iter), sleep)


def _read_through(
    records: Iterable[DecodedRecord], header: BatchHeader, sleep: Callable[[float], None]
) -> None:
    following = header.base_offset
    for record in _in_steps(records, sleep):
        if not following <= record.offset < header.end_offset:
            raise CorruptMessage(
                f"batch at offset {header.base_offset}: expected a record of the offsets "
                f"{following} to {header.end_offset - 1}, found {record.offset}"
            )
        following = record.offset + 1


def _in_steps(
    records: Iterable[DecodedRecord], sleep: Callable[[float], None]
) -> Iterator[DecodedRecord]:
    """Yield the records; release the interpreter lock to other threads every `STEP_RECORDS`.

    Without that the compiled decoder would keep the lock for a whole batch.
    """
    for number, record in enumerate(records, 1):
        if number % STEP_RECORDS == 0:
            sleep(0)
        yield record


def _read_slice(files: Files, path: str, position: int, size: int) -> bytes:
    """Read and check whole batches from ``position`` on, about `SLICE_BYTES`.

    CorruptMessage if a batch is damaged.
    """
    # A descriptor of its own: the event loop may close that of the segment at any time.
    fd = files.open(path)
    try:
        data = files.read(fd, min(SLICE_BYTES, size - position), position)
        first = placed_in(data, position=position, limit=size)
        # One batch at least is read whole, or the pass would stand still at a large one; but its
        # length may be damage.
        if (
            first is not None
            and first.size > len(data)
            and is_whole_at(lambda size, at: files.read(fd, size, at), position, first.size)
        ):
            data = files.read(fd, first.size, position)
    finally:
        files.close(fd)
    end = 0
    for at, header in scan(data):
        if not checksum_holds(data, at, header):
            break
        end = at + header.size
    else:
        if end:
            return data[:end]
    raise CorruptMessage(f"{path}: a batch at byte {position + end} is damaged")


def _append(new: Segment, piece: _Piece) -> None:
    if not piece.records:
        return
    # The old segments fit, but a batch that is compressed again may be larger than the producer's.
    if new.size + len(piece.records) > SEGMENT_BYTES_MAX:
        raise KafkaStorageError(f"{new.log.path}: would grow beyond {SEGMENT_BYTES_MAX} bytes")
    data = piece.records
    new.log.write(data, new.size)
    for batch in headers(lambda size, at: data[at : at + size], 0, limit=len(data)):
        new.add_to_indexes(batch)
    for entry in piece.aborted:
        new.aborted.append(
            entry.producer_id,
            first_offset=entry.first_offset,
            last_offset=entry.last_offset,
            last_stable_offset=entry.last_stable_offset,
        )


def _discard(files: Files, folder: str, new: Segment) -> None:
    try:
        discard(files, folder, new.base_offset)
    except OSError as error:
        # The next pass or the next start removes the files.
        log.warning("event=remove_failed file=%s error=%r", new.log.path, str(error))


def _plain(aborted: Sequence[AbortedTransaction]) -> list[Aborted]:
    return [Aborted(entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted]


def dirty_bytes(of: Compactable) -> tuple[int, int]:
    """Return the bytes of segments that no pass has read yet, and of all segments."""
    total = sum(segment.size for segment in of.segments)
    return sum(s.size for s in of.segments if s.end_offset > of.cleaned_to), total
