"""One segment of a log: a ``.log`` file of record batches and its indexes.

File names are the base offset in twenty digits, as in Kafka.  A segment knows its files, how many
bytes of its log file are in use, their offset range, and the largest timestamp.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from sharegroup.ids import OFFSET_MAX
from sharegroup.storage.disk.entry_file import EntryFile
from sharegroup.storage.disk.files import SEGMENT_BYTES_MAX, Buffer
from sharegroup.storage.disk.stored_file import OpenFiles, StoredFile
from sharegroup.storage.segment.batch_scan import PlacedBatch, header_at, headers
from sharegroup.storage.segment.index_file import (
    OFFSET_ENTRY,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY,
    IndexFile,
)
from sharegroup.storage.segment.transaction_index import TransactionIndex

INDEX_INTERVAL_BYTES = 4096
"""A batch gets index entries after this many bytes since the last entry (Kafka's default)."""

NO_TIMESTAMP = -1
OFFSET_DIGITS = 20


def segment_name(base_offset: int, suffix: str) -> str:
    """Return a segment's file name as in Kafka: its base offset with 20 digits, and a suffix."""
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """Return the offset in a name of `segment_name`; None for the name of any other file."""
    digits = name.removesuffix(suffix)
    is_number = len(digits) == OFFSET_DIGITS and digits.isascii() and digits.isdigit()
    if not is_number or digits == name or int(digits) > OFFSET_MAX:
        return None
    return int(digits)


class SegmentLimits(NamedTuple):
    """The size, and the time that the records may span, at which a segment is closed."""

    bytes: int
    ms: int


class SegmentEnd(NamedTuple):
    """The end of a segment: in bytes of its file, in offsets and in entries of its indexes."""

    size: int
    end_offset: int
    max_timestamp: int
    max_timestamp_offset: int
    index_entries: int
    time_entries: int
    aborted_transactions: int


class Segment:
    """A segment of a log, with its log file and its indexes."""

    __slots__ = (
        "_first_timestamp",
        "_unindexed_bytes",
        "aborted",
        "base_offset",
        "end_offset",
        "has_holes",
        "index",
        "is_sealed",
        "log",
        "max_timestamp",
        "max_timestamp_offset",
        "size",
        "time_index",
        "touched_ms",
    )

    def __init__(self, opened: OpenFiles, folder: str, base_offset: int) -> None:
        """Create an empty segment; `recovery` fills in the content of its files."""
        self.base_offset = base_offset
        name = f"{folder}/{segment_name(base_offset, '')}"
        self.log = StoredFile(opened, f"{name}.log")
        self.index = IndexFile(StoredFile(opened, f"{name}.index"), OFFSET_ENTRY)
        self.time_index = IndexFile(StoredFile(opened, f"{name}.timeindex"), TIME_ENTRY)
        self.aborted = TransactionIndex(StoredFile(opened, f"{name}.txnindex"))
        self.size = 0
        self.end_offset = base_offset
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.is_sealed = False
        """Whether the end of the file is damaged, so it must be neither extended nor cut."""
        self.has_holes = False
        """Whether compaction may have removed batches.  The last batch is never removed."""
        self.touched_ms = 0
        """Wall-clock time of the last append, or of the broker's start if there was none since."""
        self._first_timestamp: int | None = None
        self._unindexed_bytes = 0

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """The log file and all index files."""
        return self.log, *self.index_files

    @property
    def index_files(self) -> tuple[StoredFile, ...]:
        """The index files: offsets, timestamps and aborted transactions."""
        return self.index.file, self.time_index.file, self.aborted.file

    @property
    def has_unwritten(self) -> bool:
        """Whether `flush_indexes` has entries to write, except the last one of the time index."""
        return any(entries.has_unwritten for entries in self._indexes)

    @property
    def has_new_files(self) -> bool:
        """Whether an index file was created and its name may not be durable yet."""
        return any(entries.is_new for entries in self._indexes)

    def names_are_durable(self) -> None:
        """Note that the folder was synced after the last `flush_indexes`."""
        for entries in self._indexes:
            entries.is_new = False

    @property
    def _indexes(self) -> tuple[EntryFile[Any], ...]:
        return self.index.entries, self.time_index.entries, self.aborted.entries

    def has_room(self, batch: PlacedBatch, end_offset: int, limits: SegmentLimits) -> bool:
        """Return whether this segment takes ``batch``, which ends at ``end_offset``."""
        if self.is_sealed:
            return False
        # A batch above the limit gets a segment of its own.
        if self.size == 0:
            return True
        fits = self.size + batch.size <= min(limits.bytes, SEGMENT_BYTES_MAX)
        near = end_offset - self.base_offset <= RELATIVE_OFFSET_MAX
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp
        # Without a timestamp in the first batch nobody knows what time the records span.
        return fits and near and (first < 0 or batch.max_timestamp - first <= limits.ms)

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp in the segment's first batch."""
        if self._first_timestamp is None:
            first = self.header_at(0)
            self._first_timestamp = NO_TIMESTAMP if first is None else first.max_timestamp
        return self._first_timestamp

    def append(self, buffer: Buffer, batch: PlacedBatch) -> None:
        """Write ``buffer``, the bytes of ``batch``, at the end.  An OSError changes nothing."""
        self.log.write(buffer, self.size)
        self.add_to_indexes(batch)

    def add_to_indexes(self, batch: PlacedBatch) -> None:
        """Extend size, end offset and indexes by a batch that is in the file at ``self.size``."""
        last_offset = batch.end_offset - 1
        if batch.max_timestamp > self.max_timestamp:
            # The offset is that of the batch's last record, as in Kafka: no record is decoded here.
            self.max_timestamp, self.max_timestamp_offset = batch.max_timestamp, last_offset
        if self._unindexed_bytes > INDEX_INTERVAL_BYTES:
            self.index.append(last_offset - self.base_offset, self.size)
            self.add_time_entry()
            self._unindexed_bytes = 0
        self.size += batch.size
        self.end_offset = batch.end_offset
        self._unindexed_bytes += batch.size

    def add_time_entry(self) -> None:
        """Add the largest timestamp so far to the time index, if it has grown."""
        last = self.time_index.last
        if self.max_timestamp > (NO_TIMESTAMP if last is None else last.key):
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def flush_indexes(self) -> None:
        """Write the index entries that are only in memory, and a last entry of the time index."""
        self.add_time_entry()
        for entries in self._indexes:
            entries.flush()
        if self.time_index.file.unsynced_bytes and not len(self.index):
            self.index.file.fd(create=True)  # kafka-dump-log reads neither without the other.

    def end(self) -> SegmentEnd:
        """Return the current end, for `truncate`."""
        return SegmentEnd(
            self.size,
            self.end_offset,
            self.max_timestamp,
            self.max_timestamp_offset,
            len(self.index),
            len(self.time_index),
            len(self.aborted),
        )

    def truncate(self, end: SegmentEnd) -> None:
        """Cut the segment back to an earlier end.

        After an OSError the state in memory is cut, but some files are not.
        """
        assert end.size <= self.size
        self.size, self.end_offset = end.size, end.end_offset
        self.max_timestamp, self.max_timestamp_offset = end.max_timestamp, end.max_timestamp_offset
        self._unindexed_bytes = 0
        # The batch that gave the first timestamp was cut off.
        if end.size == 0:
            self._first_timestamp = None
        with contextlib.ExitStack() as every:  # All files are tried, even if one fails.
            if not self.is_sealed:  # A sealed file took no appends and is longer than its size.
                every.callback(self.log.truncate, end.size)
            every.callback(self.aborted.entries.truncate, end.aborted_transactions)
            every.callback(self.time_index.truncate, end.time_entries)
            every.callback(self.index.truncate, end.index_entries)

    def forget_times_from(self, end_offset: int) -> None:
        """Remove the entries at or after ``end_offset`` from the time index."""
        count = len(self.time_index)
        while count and self.time_index.entry(count - 1).value >= end_offset - self.base_offset:
            count -= 1
        self.time_index.truncate(count)
        self.load_max_timestamp()

    def load_max_timestamp(self) -> None:
        """Set the largest timestamp from the time index and the batches not yet in it."""
        last = self.time_index.last
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        if last is not None:
            self.max_timestamp = last.key
            self.max_timestamp_offset = self.base_offset + last.value
        indexed = self.index.last
        for batch in self.headers(0 if indexed is None else indexed.value):
            if batch.max_timestamp > self.max_timestamp:
                self.max_timestamp = batch.max_timestamp
                self.max_timestamp_offset = batch.end_offset - 1

    def header_at(self, position: int) -> PlacedBatch | None:
        """Return the batch at this position, or None if its header is not plausible."""
        return header_at(self.log.read, position, limit=self.size)

    def headers(self, position: int) -> Iterator[PlacedBatch]:
        """Iterate over the batches from ``position`` to the end or the first damaged header."""
        return headers(self.log.read, position, limit=self.size)

    def close(self) -> None:
        """Close the log file and the index files; they open again on use."""
        for file in self.files:
            file.close()

    def remove(self) -> None:
        """Delete the segment's files."""
        for file in self.files:
            file.remove()
