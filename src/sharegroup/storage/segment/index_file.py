"""A sparse index beside a segment, in Kafka's format: ``.index`` and ``.timeindex``.

An index is a file of fixed-size entries, ascending in their first field.

    .index      relative offset (int32), position (int32)     of every batch after 4 KiB of log
    .timeindex  timestamp (int64), relative offset (int32)    largest timestamp so far

The relative offset is that of a batch's last record, counted from the segment's base.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from sharegroup.storage.disk.entry_file import EntryFile
from sharegroup.storage.disk.stored_file import StoredFile

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")

# In Kafka's index files relative offsets have 32 bits, with a sign, as positions have.
RELATIVE_OFFSET_MAX = 2**31 - 1


class IndexEntry(NamedTuple):
    """An entry of an index: ``key`` is an offset or timestamp, ``value`` a position or offset."""

    key: int
    value: int


class IndexFile:
    """A sparse index of a segment, by offset or by timestamp."""

    __slots__ = ("_entries", "_layout")

    def __init__(self, file: StoredFile, layout: struct.Struct) -> None:
        """Create an empty index; `load` reads the entries of an existing file."""
        self._layout = layout
        self._entries = EntryFile(file, layout, IndexEntry._make)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> EntryFile[IndexEntry]:
        """The file of entries that the index is based on."""
        return self._entries

    @property
    def file(self) -> StoredFile:
        """The file that stores the index."""
        return self._entries.file

    @property
    def last(self) -> IndexEntry | None:
        """The newest entry, or None in an empty index."""
        return self.entry(len(self) - 1) if len(self) else None

    def entry(self, number: int) -> IndexEntry:
        """Return the entry with this number; entries are numbered from 0 in ascending order."""
        return self._entries[number]

    def append(self, key: int, value: int) -> None:
        """Add an entry, in memory."""
        self._entries.append(IndexEntry(key, value))

    def flush(self) -> None:
        """Write the entries that are only in memory."""
        self._entries.flush()

    def load(self, *, value_max: int) -> None:
        """Read the valid entries of an existing file and cut off the rest."""
        # Unlike the index of aborted transactions these may lack entries: reads take longer without
        # a position, and recovery compares the times with the log.
        if not self._entries.load(
            lambda data: sound_entries(data, self._layout, value_max=value_max)
        ):
            self._entries.cut()

    def count_through(self, key: int) -> int:
        """Return how many entries have a key of at most ``key``."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).key <= key:
                low = middle + 1
            else:
                high = middle
        return low

    def floor(self, key: int) -> IndexEntry | None:
        """Return the last entry with a key of at most ``key``, or None if all are above it."""
        count = self.count_through(key)
        return self.entry(count - 1) if count else None

    def reset(self) -> None:
        """Drop all entries and empty the file."""
        self._entries.reset()

    def truncate(self, count: int) -> None:
        """Keep the first ``count`` entries."""
        self._entries.truncate(count)


def sound_entries(data: bytes, entry: struct.Struct, *, value_max: int) -> int:
    """Return how many leading entries of an index file are valid.

    Keys must ascend strictly; values must not descend or exceed ``value_max``. So a tail of zeros,
    which a crash may leave, is not valid.
    """
    key_before, value_before = -1, -1
    whole = len(data) - len(data) % entry.size
    for count, (key, value) in enumerate(entry.iter_unpack(data[:whole])):
        if key <= key_before or value < value_before or value > value_max:
            return count
        key_before, value_before = key, value
    return whole // entry.size
