"""One file of the data directory that is opened when it is needed and closed when it is not.

A broker may have more segments than a process may have open files.  `OpenFiles` keeps the
most recently used ones open, up to a limit, and closes the others; `StoredFile` opens itself
again on the next use.  A file with un-synced writes stays open until it is synced: Linux
reports a failed write-back through the descriptors that were open when it happened.
"""

from __future__ import annotations

from collections import OrderedDict

from sharegroup.storage.checkpoint_files import replace_file
from sharegroup.storage.files import Buffer, Files

OPEN_FILES_MAX = 512
"""Open segment and index files of one data directory (un-synced ones come on top)."""

_TRIED_MAX = 8
_CLOSED = -1


class OpenFiles:
    """The open files of a data directory, least recently used first."""

    __slots__ = ("_limit", "_open", "files")

    def __init__(self, files: Files, *, limit: int = OPEN_FILES_MAX) -> None:
        self.files = files
        self._limit = limit
        self._open: OrderedDict[StoredFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def used(self, file: StoredFile) -> None:
        """``file`` is in use now."""
        self._open[file] = None
        self._open.move_to_end(file)
        if len(self._open) > self._limit:
            self._close_idle()

    def forget(self, file: StoredFile) -> None:
        self._open.pop(file, None)

    def __contains__(self, file: StoredFile) -> bool:
        return file in self._open

    def _close_idle(self) -> None:
        """Close the file that was unused longest.

        Those that must stay open go to the back of the line; few are tried, so that a
        thousand un-synced files do not make every use of a file slow.
        """
        for _ in range(_TRIED_MAX):
            file = next(iter(self._open))
            if not file.must_stay_open:
                file.close()
                return
            self._open.move_to_end(file)


class StoredFile:
    """See the module's text.  All calls but `sync` come from the event loop's thread."""

    __slots__ = ("_fd", "_opened", "_syncing", "path", "unsynced_bytes")

    def __init__(self, opened: OpenFiles, path: str) -> None:
        self._opened = opened
        self._fd = _CLOSED
        self._syncing = 0
        self.path = path
        self.unsynced_bytes = 0

    @property
    def name(self) -> str:
        """Without its folder."""
        return self.path.rpartition("/")[2]

    @property
    def must_stay_open(self) -> bool:
        return self.unsynced_bytes > 0 or self._syncing > 0

    def fd(self, *, create: bool = False) -> int:
        """The descriptor, opened if need be; ``create`` makes the file if there is none."""
        if self._fd == _CLOSED:
            self._fd = self._opened.files.open(self.path, create=create)
        self._opened.used(self)
        return self._fd

    def read(self, size: int, position: int) -> bytes:
        return self._opened.files.read(self.fd(), size, position)

    def write(self, buffer: Buffer, position: int) -> None:
        fd = self.fd()
        self.unsynced_bytes += len(buffer)
        self._opened.files.write(fd, buffer, position)

    def truncate(self, size: int) -> None:
        fd = self.fd()
        self.unsynced_bytes += 1
        self._opened.files.truncate(fd, size)

    def replace(self, content: bytes) -> None:
        """Give the file, which may be new, other content: all or nothing, durably."""
        self.unsynced_bytes = 0
        self.close()
        folder, _, name = self.path.rpartition("/")
        replace_file(self._opened.files, folder, name, content)

    @property
    def exists(self) -> bool:
        return self._opened.files.exists(self.path)

    def size(self) -> int:
        return self._opened.files.size(self.fd())

    def begin_sync(self) -> int:
        """Keep the file open for a `sync` that may run in another thread; its bytes at stake."""
        assert self._fd != _CLOSED, f"{self.path}: an un-synced file was closed"
        self._syncing += 1
        at_stake, self.unsynced_bytes = self.unsynced_bytes, 0
        return at_stake

    @property
    def syncing_fd(self) -> int:
        """The descriptor, which stays open until `end_sync`."""
        assert self._syncing > 0
        return self._fd

    def sync(self) -> None:
        self._opened.files.sync(self.syncing_fd)

    def end_sync(self) -> None:
        self._syncing -= 1
        if self._syncing == 0 and self not in self._opened:
            self.close()

    def sync_now(self) -> None:
        """Sync in the calling thread."""
        self.fd()
        self.begin_sync()
        try:
            self.sync()
        finally:
            self.end_sync()

    def close(self) -> None:
        """Give the descriptor back; while a sync runs, that waits for its end."""
        self._opened.forget(self)
        if self._syncing == 0 and self._fd != _CLOSED:
            fd, self._fd = self._fd, _CLOSED
            self._opened.files.close(fd)

    def remove(self) -> None:
        """Close the file and take its name away; it may be gone already."""
        self.unsynced_bytes = 0
        self.close()
        if self.exists:
            self._opened.files.remove(self.path)
