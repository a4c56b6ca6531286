"""The index of the aborted transactions of a segment, in Kafka's format: ``.txnindex``.

There is one entry for each abort marker in the segment that ended a transaction:

    version (int16)  producer id  first offset  last offset  last stable offset  (int64 each)

The last offset is the marker's, and entries ascend by it.  The last stable offset is that of the
log after the marker was written.  An aborted transaction with a later marker cannot begin below it.
So the search for transactions that overlap a range may end at an entry whose last stable offset is
at or after the end of the range.

A log without transactions has no such file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sharegroup.storage.disk.entry_file import EntryFile, Fields
from sharegroup.storage.disk.stored_file import StoredFile
from sharegroup.storage.segment.index_file import RELATIVE_OFFSET_MAX

_LAYOUT = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """An entry of the index; ``last_offset`` is the marker's."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The index of the aborted transactions of a segment, in ascending order of their markers."""

    __slots__ = ("entries",)

    def __init__(self, file: StoredFile) -> None:
        """Create an empty index; `load` reads the entries of an existing file."""
        self.entries = EntryFile(file, _LAYOUT, _made)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def file(self) -> StoredFile:
        """The file that stores the index."""
        return self.entries.file

    def append(
        self, producer_id: int, *, first_offset: int, last_offset: int, last_stable_offset: int
    ) -> None:
        """Add an entry, in memory."""
        assert first_offset < last_offset, "a transaction ends after it began"
        self.entries.append(
            AbortedTransaction(_VERSION, producer_id, first_offset, last_offset, last_stable_offset)
        )

    def load(self, *, base_offset: int) -> bool:
        """Read the valid entries of a segment's file; return whether all of the file is valid."""
        return self.entries.load(lambda data: sound_entries(data, base_offset=base_offset))

    def count_before(self, offset: int) -> int:
        """Return how many entries have their marker below ``offset``."""
        low, high = 0, len(self.entries)
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def ending_from(self, offset: int) -> Iterator[AbortedTransaction]:
        """Iterate over the entries whose marker is at or after ``offset``."""
        for number in range(self.count_before(offset), len(self.entries)):
            yield self.entries[number]


def overlapping(
    indexes: Iterable[TransactionIndex], *, first: int, end: int
) -> Iterator[AbortedTransaction]:
    """Iterate over the aborted transactions with an offset in ``[first, end)``.

    ``indexes`` are those of the segments from the one that holds ``first`` on.
    """
    for index in indexes:
        for entry in index.ending_from(first):
            if entry.first_offset < end:
                yield entry
            if entry.last_stable_offset >= end:
                return


def sound_entries(data: bytes, *, base_offset: int) -> int:
    """Return how many leading entries of the file of a segment are valid.

    The file has no checksum, and a last stable offset that is too high would end a search too
    early: readers would get records of aborted transactions.  So offsets must be possible ones.
    """
    marker_before, stable_before = base_offset - 1, 0
    marker_max = base_offset + RELATIVE_OFFSET_MAX
    whole = len(data) - len(data) % _LAYOUT.size
    for count, fields in enumerate(_LAYOUT.iter_unpack(data[:whole])):
        entry = _made(fields)
        marker, stable = entry.last_offset, entry.last_stable_offset
        is_possible = (
            entry.version == _VERSION
            and marker_before < marker <= marker_max
            and 0 <= entry.first_offset < marker
            and stable_before <= stable <= marker + 1
        )
        if not is_possible:
            return count
        marker_before, stable_before = marker, stable
    return whole // _LAYOUT.size


def _made(fields: Fields) -> AbortedTransaction:
    return AbortedTransaction._make(fields)
