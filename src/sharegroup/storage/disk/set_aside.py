"""Keeps the bytes that the broker removes from its files at start in ``<data>/set-aside``.

    set-aside/20261122T211735Z-damaged-log/<partition folder>/<offset>.log
              |                |
              when             why

There is one entry for each start of the broker and reason.  The copy is durable before anything is
cut.  ``sharegroup logs`` prints the records of such a folder like those of a partition.

The entries have a limit in bytes (``sharegroup.set.aside.max.bytes``).  Before a new entry is
created, the oldest are removed, each with a WARNING.  The entries of the current start are kept
regardless of their size.  Entries created by an operator or ``sharegroup data repair`` are never
removed.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from sharegroup.storage.disk.checkpoint_files import read_file, replace_file
from sharegroup.storage.disk.files import SEGMENT_BYTES_MAX, Files
from sharegroup.storage.disk.stored_file import StoredFile

log = logging.getLogger(__name__)

SET_ASIDE_FOLDER = "set-aside"
SET_ASIDE_BYTES_MAX = 1 << 30
"""Default limit for the bytes of all entries that the broker created."""

DAMAGED_LOG = "damaged-log"
TORN_LOG = "torn-log"
TORN_JOURNAL = "torn-journal"
DAMAGED_FILE = "damaged-file"
_REMOVABLE = (DAMAGED_LOG, TORN_LOG, TORN_JOURNAL, DAMAGED_FILE)

_COPY_BYTES = 1 << 20


class SetAside:
    """The folder ``set-aside`` of one data directory, as one start of the broker uses it."""

    __slots__ = ("_bytes_max", "_entries", "_files", "_root", "_wall_ms")

    def __init__(
        self, files: Files, root: str, *, wall_ms: Callable[[], int], bytes_max: int
    ) -> None:
        self._files = files
        self._root = root
        self._wall_ms = wall_ms
        self._bytes_max = bytes_max
        self._entries: dict[str, str] = {}

    def copy(self, file: StoredFile, *, first: int, why: str, name: str) -> str:
        """Copy a file's bytes from position ``first`` on durably; return the path of the copy.

        ``name`` is the path inside the entry.  After an OSError there is no copy.
        """
        end = file.size()
        if end - first > self._bytes_max:
            # A sparse file can have any size, and its copy would fill the disk.
            raise OSError(errno.EFBIG, f"{end - first} bytes are more than {self._bytes_max}")
        path = self._place(why, name, end - first)
        fd = self._files.open(path, create=True)
        try:
            for position in range(first, end, _COPY_BYTES):
                piece = file.read(min(_COPY_BYTES, end - position), position)
                self._files.write(fd, piece, position - first)
            self._files.sync(fd)
        except OSError:
            self._take_back(path)
            raise
        finally:
            self._files.close(fd)
        self._sync_names(path)
        return path

    def copy_file(self, source: str, *, why: str, name: str) -> str:
        """Copy a small file durably; return the path of the copy."""
        content = read_file(self._files, source)
        path = self._place(why, name, len(content))
        folder, _, file = path.rpartition("/")
        replace_file(self._files, folder, file, content)
        self._sync_names(path)
        return path

    def move(self, source: str, *, size: int, why: str, name: str) -> str:
        """Move a file or folder of ``size`` bytes durably; return its new path.

        OSError for a file that is larger than any segment.
        """
        if size > SEGMENT_BYTES_MAX:
            # It is sparse.  Making room for it would remove all other entries.
            raise OSError(errno.EFBIG, f"{size} bytes are more than {SEGMENT_BYTES_MAX}", source)
        path = self._place(why, name, size)
        self._files.rename(source, path)
        self._sync_names(path)
        self._files.sync_directory(source.rpartition("/")[0])
        return path

    def move_away(self, source: str, *, size: int, why: str, name: str) -> str:
        """Move a file as `move` does, or, if that fails, rename it in its folder, durably.

        Returns the new path.  Renaming needs no space for a folder, and takes a file of any size.
        """
        try:
            return self.move(source, size=size, why=why, name=name)
        except OSError as error:
            target = f"{source}.set-aside"
            log.warning("event=set_aside_in_place path=%s error=%r", target, str(error))
            self._files.rename(source, target)
            self._files.sync_directory(source.rpartition("/")[0])
            return target

    def size(self) -> int:
        """Blocking: return the bytes of all entries."""
        folder = f"{self._root}/{SET_ASIDE_FOLDER}"
        return _bytes_below(self._files, folder) if self._files.exists(folder) else 0

    def _place(self, why: str, name: str, size: int) -> str:
        """Return a free path in the entry for the reason ``why``; make room for ``size`` bytes."""
        entry = self._entries.get(why)
        if entry is None:
            entry = self._entries[why] = self._new_entry(why)
        self._make_room(size)
        path = f"{self._root}/{SET_ASIDE_FOLDER}/{entry}/{name}"
        assert not self._files.exists(path), f"{path} was already set aside"
        self._files.make_directory(path.rpartition("/")[0])
        return path

    def _take_back(self, path: str) -> None:
        """Remove a failed copy and the folders that are empty without it."""
        with contextlib.suppress(OSError):
            self._files.remove(path)
            while (path := path.rpartition("/")[0]) != self._root:
                self._files.remove_directory(path)

    def _new_entry(self, why: str) -> str:
        timestamp = datetime.fromtimestamp(self._wall_ms() / 1000, tz=UTC).strftime(
            "%Y%m%dT%H%M%SZ"
        )
        number, entry = 1, f"{timestamp}-{why}"
        while self._files.exists(f"{self._root}/{SET_ASIDE_FOLDER}/{entry}"):
            number += 1
            entry = f"{timestamp}-{number}-{why}"
        return entry

    def _make_room(self, size: int) -> None:
        """Remove the oldest entries until ``size`` more bytes are within the limit."""
        folder = f"{self._root}/{SET_ASIDE_FOLDER}"
        if not self._files.exists(folder):
            return
        removable = [name for name in self._files.names(folder) if name.endswith(_REMOVABLE)]
        sizes = {name: _bytes_below(self._files, f"{folder}/{name}") for name in removable}
        total = sum(sizes.values()) + size
        # The names begin with the time, so the oldest come first.
        for name in removable:
            if total <= self._bytes_max:
                return
            if name in self._entries.values():
                continue
            log.warning(
                "event=set_aside_removed path=%s/%s bytes=%d limit=%d", folder, name, sizes[name],
                self._bytes_max,
            )  # fmt: skip
            _remove_below(self._files, f"{folder}/{name}")
            total -= sizes[name]

    def _sync_names(self, path: str) -> None:
        """Make the name of ``path`` and the names of the folders above it durable."""
        while path != self._root:
            path = path.rpartition("/")[0]
            self._files.sync_directory(path)


def _names_below(files: Files, path: str) -> list[str] | None:
    """Return the names in a folder, or None for a file or a link."""
    try:
        return files.names(path)
    except NotADirectoryError:
        return None


def _bytes_below(files: Files, path: str) -> int:
    names = _names_below(files, path)
    if names is not None:
        return sum(_bytes_below(files, f"{path}/{name}") for name in names)
    try:
        fd = files.open(path)
    except OSError:
        return 0  # It is a link or a pipe, which has no bytes here.
    try:
        return files.size(fd)
    finally:
        files.close(fd)


def _remove_below(files: Files, path: str) -> None:
    names = _names_below(files, path)
    if names is None:
        files.remove(path)
        return
    for name in names:
        _remove_below(files, f"{path}/{name}")
    files.remove_directory(path)
