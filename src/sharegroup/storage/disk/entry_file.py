"""The file of fixed-size entries that all indexes of a segment are based on.

Entries are collected in memory and written in blocks at every checkpoint.  An index can be derived
from the log, so it need not be on disk before the log's next recovery point.  Recovery recreates
the entries that a crash lost.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Generic, TypeVar

from sharegroup.storage.disk.checkpoint_files import SMALL_FILE_BYTES_MAX
from sharegroup.storage.disk.stored_file import StoredFile

Fields = tuple[int, ...]
Entry = TypeVar("Entry", bound=Fields)


class EntryFile(Generic[Entry]):
    """A file of entries of one fixed size, with the newest entries in memory until `flush`.

    ``make`` converts the fields of an entry to an ``Entry``.
    """

    __slots__ = ("_layout", "_make", "_pending", "_written", "file", "is_new")

    def __init__(
        self, file: StoredFile, layout: struct.Struct, make: Callable[[Fields], Entry]
    ) -> None:
        """Create it without entries; `load` reads those of an existing file."""
        self.file = file
        self._layout = layout
        self._make = make
        self._written = 0
        self._pending: list[Entry] = []
        self.is_new = False
        """Whether the file was created and its name may not be durable yet."""

    def __len__(self) -> int:
        return self._written + len(self._pending)

    def __getitem__(self, number: int) -> Entry:
        if number >= self._written:
            return self._pending[number - self._written]
        size = self._layout.size
        return self._make(self._layout.unpack(self.file.read(size, number * size)))

    @property
    def has_unwritten(self) -> bool:
        """Whether there are entries that are only in memory."""
        return bool(self._pending)

    def append(self, entry: Entry) -> None:
        """Add an entry, in memory."""
        self._pending.append(entry)

    def flush(self) -> None:
        """Write the entries that are only in memory to the file."""
        if not self._pending:
            return
        if self._written == 0:
            self.is_new = True
        self.file.fd(create=True)
        self.file.write(self._block(), self._written * self._layout.size)
        self._take_for_written()

    def replace(self) -> None:
        """Replace the file's content durably by the entries, all of which are in memory.

        The replacement is atomic: until it is complete, the file has its old content.
        """
        assert self._written == 0
        self.file.replace(self._block())
        self._take_for_written()

    def _block(self) -> bytes:
        return b"".join(self._layout.pack(*entry) for entry in self._pending)

    def _take_for_written(self) -> None:
        self._written += len(self._pending)
        self._pending.clear()

    def load(self, sound: Callable[[bytes], int]) -> bool:
        """Read an existing file; ``sound`` returns how many leading entries are valid.

        Returns whether the whole file is valid. If it is not, the file is left as it is, so that
        the next start detects the damage again until it is repaired. Entries behind
        `SMALL_FILE_BYTES_MAX` count as not valid, because a sparse file can have any size.
        """
        size = self.file.size()
        self._written = sound(self.file.read(min(size, SMALL_FILE_BYTES_MAX), 0))
        return self._written * self._layout.size == size

    def cut(self) -> None:
        """Truncate the file after the last valid entry."""
        self.file.truncate(self._written * self._layout.size)

    def forget(self) -> None:
        """Drop all entries from memory; the file keeps its content."""
        self._pending.clear()
        self._written = 0

    def reset(self) -> None:
        """Drop all entries, and empty the file if it exists: it may describe a log that was cut."""
        self.forget()
        if self.file.exists:
            self.cut()

    def truncate(self, count: int) -> None:
        """Keep the first ``count`` entries."""
        if count >= self._written:
            del self._pending[count - self._written :]
            return
        self._pending.clear()
        self._written = count
        self.file.truncate(count * self._layout.size)
