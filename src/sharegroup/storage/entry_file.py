"""A file of entries of one fixed size beside a segment: what all of its indexes have in common.

Entries are collected in memory and written in blocks, at every checkpoint: an index says
nothing that the log does not say, so it need not be on disk before the log's next recovery
point.  What is lost in a crash is written again by recovery.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Generic, TypeVar

from sharegroup.storage.stored_file import StoredFile

Fields = tuple[int, ...]
Entry = TypeVar("Entry", bound=Fields)


class EntryFile(Generic[Entry]):
    """See the module's text.  ``make`` turns the fields of an entry into one."""

    __slots__ = ("_layout", "_make", "_pending", "_written", "file", "is_new")

    def __init__(
        self, file: StoredFile, layout: struct.Struct, make: Callable[[Fields], Entry]
    ) -> None:
        """Without entries; `load` takes in what the file holds."""
        self.file = file
        self._layout = layout
        self._make = make
        self._written = 0
        self._pending: list[Entry] = []
        self.is_new = False
        """The file was made since somebody last made its name durable."""

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
        """Write what is only in memory."""
        if not self._pending:
            return
        if self._written == 0:
            self.is_new = True
        self.file.fd(create=True)
        self.file.write(self._block(), self._written * self._layout.size)
        self._take_for_written()

    def replace(self) -> None:
        """Put the entries, all of which are in memory, in the place of the file's, durably.

        Until all of them are there, the file is what it was.
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
        """Take in an existing file, as many entries from its first as ``sound`` believes.

        Whether that is all there is in it.  If not, the file is left as it is: whoever begins anew
        must find out the same until somebody has seen to it.
        """
        size = self.file.size()
        self._written = sound(self.file.read(size, 0))
        return self._written * self._layout.size == size

    def cut(self) -> None:
        """Let the file end with the last entry that was believed."""
        self.file.truncate(self._written * self._layout.size)

    def forget(self) -> None:
        """Begin anew; what is in the file stays there."""
        self._pending.clear()
        self._written = 0

    def reset(self) -> None:
        """Begin anew, with an empty file if there is one: it may speak of a log that was cut."""
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
