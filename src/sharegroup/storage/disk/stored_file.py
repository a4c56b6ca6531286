"""Files of the data directory that are opened on use and closed when other files are needed.

A broker may have more segments than a process may have open files.  `OpenFiles` keeps the most
recently used files open, up to a limit, and closes the others.  A `StoredFile` reopens itself on
the next use.  A file with unsynced writes stays open until it is synced, because Linux reports a
failed write-back only through descriptors that were open when it happened.

Unsynced files may therefore exceed the limit, up to a second one, the ceiling.  Above the ceiling
they are synced at once, so that they can be closed.  The same happens when the
system refuses to open another file.  If such a sync fails, the file keeps the error, and the next
round of syncs fails with it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from sharegroup.storage.disk.checkpoint_files import replace_file
from sharegroup.storage.disk.files import NO_DESCRIPTORS, Buffer, Files

log = logging.getLogger(__name__)

OPEN_FILES_MAX = 512
"""Open segment and index files of one data directory, not counting unsynced ones."""

OPEN_FILES_CEILING = 10_000
"""Open files of one data directory, including unsynced ones, except those in a round of syncs."""

_TRIED_MAX = 8
_CLOSED = -1


class OpenFiles:
    """The open files of a data directory, least recently used first."""

    __slots__ = ("_ceiling", "_limit", "_open", "files", "shortage_count")

    def __init__(
        self, files: Files, *, limit: int = OPEN_FILES_MAX, ceiling: int = OPEN_FILES_CEILING
    ) -> None:
        self.files = files
        self._open: OrderedDict[StoredFile, None] = OrderedDict()
        self.shortage_count = 0
        """The number of times that the system had no descriptor left to open a file."""
        self.bound(limit=limit, ceiling=ceiling)

    def bound(self, *, limit: int, ceiling: int) -> None:
        """Set the limit of the files that can be closed at once, and of all open files."""
        self._limit = limit
        self._ceiling = max(limit, ceiling)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def ceiling(self) -> int:
        """The maximum number of open files, except those in a round of syncs."""
        return self._ceiling

    def open(self, path: str, *, create: bool) -> int:
        """Return a descriptor of the file; closes other files if the system has none left."""
        try:
            return self.files.open(path, create=create)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
            self.shortage_count += 1
            open_count = len(self._open)
            # Half of them at once, so that the next files can be opened, too.
            self._close_down_to(open_count // 2, keep=None)
            log.warning(
                "event=no_descriptors error=%r open_files=%d closed=%d action='raise ulimit -n'",
                str(error),
                open_count,
                open_count - len(self._open),
            )
        return self.files.open(path, create=create)

    def used(self, file: StoredFile) -> None:
        """Mark ``file`` as the most recently used; close another file if there are too many."""
        self._open[file] = None
        self._open.move_to_end(file)
        if len(self._open) > self._limit:
            self._close_idle(keep=file)

    def forget(self, file: StoredFile) -> None:
        """Remove a file that is being closed; unknown files are ignored."""
        self._open.pop(file, None)

    def __contains__(self, file: StoredFile) -> bool:
        return file in self._open

    def _close_idle(self, *, keep: StoredFile) -> None:
        """Close the least recently used file, except ``keep``.

        Files that must stay open become the most recently used. Only a few are tried, because a
        thousand unsynced files would make every use of a file slow.
        """
        for _ in range(_TRIED_MAX):
            file = next(iter(self._open))
            if not (file.must_stay_open or file is keep):
                file.close()
                return
            self._open.move_to_end(file)
        if len(self._open) > self._ceiling:
            self._close_down_to(self._limit // 2, keep=keep)

    def _close_down_to(self, count: int, *, keep: StoredFile | None) -> None:
        """Close files until ``count`` are left, but not ``keep``; sync unsynced files first."""
        files = [file for file in self._open if file is not keep]
        # Only if the others are too few, because a sync in the event loop can take milliseconds.
        if sum(not file.must_stay_open for file in files) < len(self._open) - count:
            self._sync([file for file in files if file.unsynced_bytes and not file.is_syncing])
        for file in files:
            if len(self._open) <= count:
                return
            if not file.must_stay_open:
                file.close()

    def _sync(self, files: list[StoredFile]) -> None:
        """Sync these files in the calling thread, with one call if the system supports it."""
        if files and self.files.can_sync_tree:
            try:
                # Any folder of the file system will do: the call syncs all of it.
                self.files.sync_tree(files[0].path.rpartition("/")[0])
            except OSError:
                pass  # The syncs below tell which file has the error.
            else:
                for file in files:
                    file.unsynced_bytes = 0
                return
        for file in files:
            file.sync_early()


class StoredFile:
    """A file that opens itself on use.  Only `sync` may be called outside the event loop."""

    __slots__ = ("_early_error", "_fd", "_opened", "_syncing", "path", "unsynced_bytes")

    def __init__(self, opened: OpenFiles, path: str) -> None:
        self._opened = opened
        self._fd = _CLOSED
        self._syncing = 0
        self.path = path
        self.unsynced_bytes = 0
        self._early_error: OSError | None = None
        """The error of a failed `sync_early`, until a round of syncs takes it."""

    @property
    def name(self) -> str:
        """The file name without its folder."""
        return self.path.rpartition("/")[2]

    @property
    def must_stay_open(self) -> bool:
        """Whether the file has unsynced writes or is in a round of syncs.

        Linux reports a failed write-back only through descriptors that were open at that time.
        """
        return self.unsynced_bytes > 0 or self._syncing > 0

    @property
    def is_syncing(self) -> bool:
        """Whether the file is between `begin_sync` and `end_sync`."""
        return self._syncing > 0

    def fd(self, *, create: bool = False) -> int:
        """Return the descriptor, opened if necessary; ``create`` creates a missing file."""
        if self._fd == _CLOSED:
            self._fd = self._opened.open(self.path, create=create)
        self._opened.used(self)
        return self._fd

    def read(self, size: int, position: int) -> bytes:
        """Read up to ``size`` bytes at ``position``; fewer only at the end of the file."""
        return self._opened.files.read(self.fd(), size, position)

    def write(self, buffer: Buffer, position: int) -> None:
        """Write the whole buffer at ``position``; the bytes count as unsynced even on failure."""
        fd = self.fd()
        self.unsynced_bytes += len(buffer)
        self._opened.files.write(fd, buffer, position)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes; a change of size counts as one unsynced byte."""
        fd = self.fd()
        self.unsynced_bytes += 1
        self._opened.files.truncate(fd, size)

    def replace(self, content: bytes) -> None:
        """Replace the content of the file, which may be new, atomically and durably."""
        # They belong to the content that is replaced, and no file may be closed with unsynced
        # bytes.
        self.unsynced_bytes = 0
        self.close()
        folder, _, name = self.path.rpartition("/")
        replace_file(self._opened.files, folder, name, content)

    @property
    def exists(self) -> bool:
        """Whether there is a file at the path; it is not opened."""
        return self._opened.files.exists(self.path)

    def size(self) -> int:
        """Return the size of the file in bytes."""
        return self._opened.files.size(self.fd())

    def begin_sync(self) -> int:
        """Keep the file open for a `sync` that may run in another thread.

        Returns the number of bytes to sync. It is 0 for a closed file, which was synced before it
        was closed.
        """
        assert self._fd != _CLOSED or not self.unsynced_bytes, f"{self.path}: closed un-synced"
        self._syncing += 1
        at_stake, self.unsynced_bytes = self.unsynced_bytes, 0
        return at_stake

    @property
    def syncing_fd(self) -> int:
        """The descriptor, which stays open until `end_sync`."""
        assert self._syncing > 0
        return self.fd()

    def take_early_error(self) -> OSError | None:
        """Return the error of a failed `sync_early` once, then None."""
        error, self._early_error = self._early_error, None
        return error

    def sync(self) -> None:
        """Sync the file; call it between `begin_sync` and `end_sync`, in any thread."""
        assert self._syncing > 0
        if self._fd != _CLOSED:
            self._opened.files.sync(self._fd)

    def sync_early(self) -> None:
        """Sync before the next round of syncs; keep an error for that round."""
        assert self._syncing == 0, f"{self.path}: a round of syncs has the file"
        try:
            self._opened.files.sync(self._fd)
        except OSError as error:
            log.warning("event=early_sync_failed path=%s error=%r", self.path, str(error))
            self._early_error = error  # The file stays unsynced, and so it stays open.
        else:
            self.unsynced_bytes = 0

    def end_sync(self) -> None:
        """End a `begin_sync`; close the file now if `close` was called in the meantime."""
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
        """Close the descriptor, or let `end_sync` close it if a sync is running."""
        # First: by this `end_sync` knows that it has to close the file.
        self._opened.forget(self)
        if self._syncing == 0 and self._fd != _CLOSED:
            fd, self._fd = self._fd, _CLOSED
            self._opened.files.close(fd)

    def remove(self) -> None:
        """Close and delete the file, if it still exists."""
        # As in `replace`: no file may be closed with unsynced bytes.
        self.unsynced_bytes = 0
        self.close()
        if self.exists:
            self._opened.files.remove(self.path)
