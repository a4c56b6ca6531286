"""One pass of compaction over the closed segments of a log (`core.compaction` has the rules).

    learn     where the newest record of each key is, from the segments since the last pass
    rewrite   groups of segments, each into one that has only what stays
    swap      the new one for the old ones (`storage.swap`)

Closed segments never change, so they are read in the storage thread while the log goes on.  The
work is cut into slices of `SLICE_BYTES`, between which syncs and other work of that thread have
their turn.  What appeared meanwhile is behind the segments of the pass and not concerned.  Only
segments that are durable for good are taken: below the last stable offset, the recovery point
and the last sync.

When the disk fails, or the log's segments go meanwhile, the pass is given up; nothing of the log
has changed then.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from sharegroup.core.compaction import (
    Aborted,
    Fate,
    Keeper,
    LastOfProducer,
    NewestOffsets,
    Transactions,
)
from sharegroup.errors import CorruptMessage, KafkaStorageError
from sharegroup.storage.batch_scan import headers
from sharegroup.storage.files import Buffer, Files
from sharegroup.storage.parts import StorageParts
from sharegroup.storage.segment import RELATIVE_OFFSET_MAX, SEGMENT_BYTES_MAX, Segment
from sharegroup.storage.swap import (
    CLEANED,
    SWAP,
    discard,
    hold,
    holds,
    remove_replaced,
    take_names,
)
from sharegroup.storage.transaction_index import AbortedTransaction
from sharegroup.wire.batches import HEADER_BYTES, BatchHeader, checksum_holds, parse_header, scan
from sharegroup.wire.markers import decode_marker
from sharegroup.wire.records import batch_records
from sharegroup.wire.thinning import emptied, thinned

log = logging.getLogger(__name__)

T = TypeVar("T")

SLICE_BYTES = 64 * 1024
"""So much of a segment is read, looked through and written at a time: 2 to 5 ms of work, so that
the event loop, which needs the same interpreter lock, is late by about as much (ADR 0011)."""


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """How a pass is done."""

    memory_bytes: int
    """For the keys; more keys take several passes."""
    delete_retention_ms: int
    """How long a tombstone stays once a pass has met it."""
    segment_bytes: int
    """Old segments are joined into new ones of up to this size."""


@dataclass(frozen=True, slots=True)
class Compactable:
    """What a pass works on: a log's closed segments as they are when it begins."""

    name: str
    folder: str
    segments: tuple[Segment, ...]
    unsettled: tuple[Segment, ...]
    """Segments of an earlier pass that have not all of their names."""
    cleaned_to: int
    """Where the last pass ended."""
    aborted: tuple[AbortedTransaction, ...]
    producers: Mapping[int, LastOfProducer]
    swap_in: Callable[[Sequence[Segment], Segment], bool]
    """Let the log have a new segment for old ones; False when they are gone."""
    has: Callable[[Segment], bool]
    """Whether the log has this segment still."""


class Compacted(NamedTuple):
    """What a pass did."""

    cleaned_to: int
    bytes_before: int
    bytes_after: int


class _Piece(NamedTuple):
    """What stays of a slice."""

    records: bytes
    aborted: list[AbortedTransaction]
    is_whole: bool
    """Nothing went."""


class CompactionPass:
    """See the module's text.  ``now_ms`` is wall-clock time."""

    __slots__ = ("_entries", "_keeper", "_limits", "_now_ms", "_of", "_parts", "_transactions")

    def __init__(
        self, parts: StorageParts, of: Compactable, limits: CompactionLimits, *, now_ms: int
    ) -> None:
        self._parts = parts
        self._of = of
        self._limits = limits
        self._now_ms = now_ms
        self._transactions = Transactions(_plain(of.aborted))
        self._entries = {entry.last_offset: entry for entry in of.aborted}
        self._keeper = Keeper(
            NewestOffsets(limits.memory_bytes, end_offset=of.cleaned_to),
            last=of.producers,
            now_ms=now_ms,
        )

    async def run(self) -> Compacted:
        """Do it.  KafkaStorageError or CorruptMessage when it was given up."""
        files, folder = self._parts.files, self._of.folder
        before = sum(segment.size for segment in self._of.segments)
        try:
            for segment in self._of.unsettled:
                await self._settle(segment)
            if self._of.segments:
                await self._parts.syncer.in_thread(lambda: discard(files, folder))
            newest = await self._learn()
            self._keeper = Keeper(newest, last=self._of.producers, now_ms=self._now_ms)
            after = 0
            for group in self._groups(newest.end_offset):
                after += await self._rewrite(group)
        except OSError as error:
            raise KafkaStorageError(f"{self._of.name}: compaction: {error}") from error
        untouched = sum(s.size for s in self._of.segments if s.base_offset >= newest.end_offset)
        return Compacted(newest.end_offset, before, after + untouched)

    # Learning

    async def _learn(self) -> NewestOffsets:
        newest = NewestOffsets(self._limits.memory_bytes, end_offset=self._of.cleaned_to)
        transactions = Transactions(_plain(self._of.aborted))
        for segment in self._of.segments:
            if segment.end_offset <= self._of.cleaned_to:
                continue
            async for has_room in self._slices(
                segment, lambda data: _learn_slice(newest, transactions, data)
            ):
                if not has_room:
                    return newest
            newest.end_offset = max(newest.end_offset, segment.end_offset)
        return newest

    # Rewriting

    def _groups(self, end_offset: int) -> list[list[Segment]]:
        """The segments that begin below ``end_offset``, those together that make up one."""
        groups: list[list[Segment]] = []
        limit = min(self._limits.segment_bytes, SEGMENT_BYTES_MAX)
        for segment in self._of.segments:
            if segment.base_offset >= end_offset:
                break
            group = groups[-1] if groups else []
            if (
                group
                and sum(one.size for one in group) + segment.size <= limit
                and segment.end_offset - group[0].base_offset <= RELATIVE_OFFSET_MAX
            ):
                group.append(segment)
            else:
                groups.append([segment])
        return groups

    async def _rewrite(self, group: Sequence[Segment]) -> int:
        """Put one segment in the place of the group; how many bytes are left."""
        files, folder = self._parts.files, self._of.folder
        new = Segment(self._parts.opened, folder, group[0].base_offset)
        for file in new.files:
            file.path += CLEANED
        is_held = False
        try:
            is_whole = await self._fill(new, group)
            if not (is_whole and len(group) == 1):
                await self._make_durable(new)
                is_held = True
        finally:
            if not is_held:
                new.close()
                # Also where this task is cancelled: the thread has it to do, nobody waits.
                self._parts.syncer.later(lambda: _discard(files, folder, new))
        if not is_held:
            return group[0].size
        holds(new)
        if not self._of.swap_in(group, new):
            new.close()
            raise KafkaStorageError(f"{self._of.name}: its segments went during compaction")
        await self._settle(new)
        return new.size

    async def _fill(self, new: Segment, group: Sequence[Segment]) -> bool:
        """Write what stays of the group; whether that is all of it."""
        end_offset, is_whole = group[-1].end_offset, True
        for file in new.files:
            file.fd(create=True)
            file.truncate(0)
        for segment in group:
            async for piece in self._slices(segment, lambda data: self._keep(data, end_offset)):
                is_whole = is_whole and piece.is_whole
                _append(new, piece)
        new.touched_ms = max(segment.touched_ms for segment in group)
        new.has_holes = True
        assert new.end_offset == end_offset, "the last batch of a segment always stays"
        return is_whole

    async def _make_durable(self, new: Segment) -> None:
        files, folder = self._parts.files, self._of.folder
        new.flush_indexes()
        begun = new.files
        for file in begun:
            file.fd()
            file.begin_sync()
        try:
            await self._parts.syncer.in_thread(lambda: hold(files, folder, new))
        finally:
            for file in begun:
                file.end_sync()

    async def _settle(self, new: Segment) -> None:
        """The new segment holds: let the old files go and give it their names.

        After a failure it goes on where it was: once the log has its name, no file is an old one.
        """
        files, folder = self._parts.files, self._of.folder
        if new.log.path.endswith(SWAP):
            await self._parts.syncer.in_thread(lambda: remove_replaced(files, folder, new))
            if self._of.has(new):
                take_names(files, (new.log,))
        await self._parts.syncer.in_thread(lambda: files.sync_directory(folder))
        if self._of.has(new):
            take_names(files, new.index_files)
            new.names_are_durable()

    # In the storage thread

    async def _slices(self, segment: Segment, work: Callable[[bytes], T]) -> AsyncIterator[T]:
        """What ``work`` makes of each slice of whole batches, in the storage thread."""
        files, path, size, position = self._parts.files, segment.log.path, segment.size, 0
        while position < size:

            def read_and_work(at: int = position) -> tuple[int, T]:
                data = _read_slice(files, path, at, size)
                return len(data), work(data)

            length, result = await self._parts.syncer.in_thread(read_and_work)
            position += length
            yield result

    def _keep(self, data: bytes, end_offset: int) -> _Piece:
        """What stays of a slice of the group that ends at ``end_offset``."""
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
        """What stays of a batch: the batch itself, one with less in it, or nothing."""
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
            # Its producer made it so, and its checksum holds: nobody knows its keys.
            log.warning("event=batch_not_compacted %s error=%r", self._of.name, str(error))
            return batch

    def _is_void(
        self, batch: Buffer, header: BatchHeader, aborted: list[AbortedTransaction]
    ) -> bool:
        """Whether the batch belongs to an aborted transaction, or ends one that is gone."""
        if not header.is_control:
            return self._transactions.records(
                header.producer_id,
                end_offset=header.end_offset,
                is_transactional=header.is_transactional,
            )
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
        """Which records stay, and whether a tombstone is among them."""
        if header.is_control:
            return [True] * header.record_count, False
        kept, with_tombstones = [], False
        keeps, horizon = self._keeper.keeps, header.delete_horizon_ms
        for record in batch_records(batch, 0, header):
            is_tombstone = record.value is None
            stays = keeps(
                record.key, offset=record.offset, is_tombstone=is_tombstone, horizon=horizon
            )
            kept.append(stays)
            with_tombstones = with_tombstones or (stays and is_tombstone)
        return kept, with_tombstones


def _learn_slice(newest: NewestOffsets, transactions: Transactions, data: bytes) -> bool:
    """Count a slice in; False when the keys of its rest find no room."""
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
        if is_aborted or header.end_offset <= newest.end_offset:
            continue
        if not newest.has_room(header.record_count):
            return False
        try:
            for record in batch_records(batch, 0, header):
                if record.key is not None:
                    newest.learn(record.key, record.offset)
        except CorruptMessage:
            pass  # It stays as it is, and says nothing of any key; `_kept` reports it.
        newest.end_offset = header.end_offset
    return True


def _read_slice(files: Files, path: str, position: int, size: int) -> bytes:
    """Whole batches from ``position`` on, checked, about `SLICE_BYTES` of them."""
    fd = files.open(path)
    try:
        data = files.read(fd, min(SLICE_BYTES, size - position), position)
        if len(data) >= HEADER_BYTES and parse_header(data).size > len(data):
            data = files.read(fd, min(parse_header(data).size, size - position), position)
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
        # The next pass or the next start removes them.
        log.warning("event=remove_failed file=%s error=%r", new.log.path, str(error))


def _plain(aborted: Sequence[AbortedTransaction]) -> list[Aborted]:
    return [Aborted(one.producer_id, one.first_offset, one.last_offset) for one in aborted]


def dirty_bytes(of: Compactable) -> tuple[int, int]:
    """How many bytes no pass has looked at yet, and how many there are in all."""
    total = sum(segment.size for segment in of.segments)
    return sum(s.size for s in of.segments if s.end_offset > of.cleaned_to), total
