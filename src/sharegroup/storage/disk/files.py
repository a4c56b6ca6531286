"""The protocol for the file system operations that storage needs, and its implementation.

All disk access goes through `Files`.  So the same code runs on the operating system's files
(`RealFiles`) and on a simulated disk that loses unsynced data
(`sharegroup.testing.power_loss.PowerLossDisk`).  Calls block, raise `OSError` and know nothing of
logs.

The content of a file is durable after ``sync``, its name after ``sync_directory`` on its folder.
``sync_tree`` does both for all files at once if the system has a call for it (ADR 0001).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

try:
    import fcntl
except ImportError as error:
    raise ImportError(
        "a broker needs a POSIX system such as Linux or macOS, whose fcntl locks its data "
        "directory; clients run here, too: connect them to a broker elsewhere"
    ) from error

from sharegroup.storage.disk.kernel_syncs import KernelSyncs

Buffer = bytes | bytearray | memoryview

T = TypeVar("T")

Identity = tuple[int, int]
"""Device and inode, which together identify an existing file."""


class DiskSpace(NamedTuple):
    """The space of a volume; ``free_bytes`` are those that this process may use."""

    total_bytes: int
    free_bytes: int


# Before Linux 5.8 syncfs succeeded even if data could not be written (ADR 0001).
_SYNCFS_REPORTS_ERRORS_SINCE = (5, 8)

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""Error codes for a process, or a system, that has no descriptor left."""

SEGMENT_BYTES_MAX = 2**31 - 1
"""Size of the largest segment: in Kafka's index files positions have 32 bits, with a sign."""

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error codes for a full disk."""

SECRET_FILES = ("catalog.journal",)
"""The beginnings of the names of files with keys: those of SCRAM users.  Copies have a suffix."""

SPARE_DESCRIPTORS = 16
"""Number of descriptors that storage reserves for a process that has no others left."""


class SyncQueue(Protocol):
    """Syncs files asynchronously, one group at a time, for one event loop."""

    def begin(self, fds: Sequence[int], done: Callable[[dict[int, OSError]], None]) -> bool:
        """Start to sync the files; call ``done`` with the errors, by position in ``fds``.

        Returns False if nothing was begun; then the files must be synced in another way.
        """
        ...

    def close(self) -> None:
        """Wait until no sync is running; ``done`` is not called after that."""
        ...


class Files(Protocol):
    """A file system; paths are absolute, positions and sizes are bytes."""

    @property
    def can_sync_tree(self) -> bool:
        """Whether ``sync_tree`` works here and reports errors."""
        ...

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file for reading and writing; ``create`` creates a missing file.

        OSError for a link, a folder and anything else that is not a regular file.
        """
        ...

    def close(self, fd: int) -> None: ...

    def read(self, fd: int, size: int, position: int) -> bytes:
        """Read ``size`` bytes from ``position``; fewer only at the end of the file."""
        ...

    def write(self, fd: int, buffer: Buffer, position: int) -> None:
        """Write all of ``buffer`` or raise OSError; after an error any part may be written."""
        ...

    def size(self, fd: int) -> int: ...

    def truncate(self, fd: int, size: int) -> None: ...

    def sync(self, fd: int) -> None:
        """Wait until the content of the file is on stable storage."""
        ...

    def sync_queue(self) -> SyncQueue | None:
        """Return a queue that syncs while the event loop runs, or None if there is none."""
        ...

    def sync_directory(self, path: str) -> None:
        """Wait until the names in the folder are on stable storage."""
        ...

    def sync_tree(self, path: str) -> None:
        """Sync all files and folders of the file system that holds ``path``."""
        ...

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; NotADirectoryError for a link to one."""
        ...

    def exists(self, path: str) -> bool: ...

    def identity(self, file: int | str) -> Identity | None:
        """Return the identity of the file at a descriptor or path, or None if there is none."""
        ...

    def modified_ms(self, path: str) -> int | None:
        """Return when a file was last written, in ms since 1970; None without it or a time."""
        ...

    def space(self, path: str) -> DiskSpace | None:
        """Return the space of the volume that holds ``path``; None if there is no such number."""
        ...

    def make_directory(self, path: str, *, parents: bool = True) -> None:
        """Create a folder, with its parents if ``parents``; the folder may already exist."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename ``source`` to ``target``, replacing an existing file."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> int:
        """Lock the lock file for this process. BlockingIOError names the process that has it."""
        ...

    def release(self) -> None:
        """Release the reserved resources of the system; later calls work without them, too."""
        ...


class RealFiles:
    """The operating system's files.

    A call that finds no descriptor left uses one of the spare descriptors.  The next close reserves
    a spare descriptor again.  So syncs of folders and small files, which need a descriptor for a
    moment, do not fail because connections or other code of the process use all descriptors.
    """

    __slots__ = ("_spare", "_spare_max", "_syncfs")

    def __init__(self) -> None:
        self._syncfs = _find_syncfs()
        self._spare: deque[int] = deque()  # A deque, because the storage thread uses it, too.
        self._spare_max = SPARE_DESCRIPTORS
        self._keep_spare()

    def release(self) -> None:
        self._spare_max = 0
        while self._spare:
            os.close(self._spare.pop())

    __del__ = release

    def _keep_spare(self) -> None:
        while len(self._spare) < self._spare_max:
            try:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return  # There is no descriptor left; the next `close` tries again.

    def _with_spare(self, call: Callable[[], T]) -> T:
        """Return the result of ``call``; if no descriptor is left, release a spare and retry."""
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS or not self._spare:
                    raise
                with contextlib.suppress(IndexError):  # The storage thread took the last one.
                    os.close(self._spare.pop())

    @property
    def can_sync_tree(self) -> bool:
        return self._syncfs is not None

    def open(self, path: str, *, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        if create:
            flags |= os.O_CREAT
        is_secret = path.rpartition("/")[2].startswith(SECRET_FILES)
        fd = self._with_spare(lambda: os.open(path, flags, 0o600 if is_secret else 0o640))
        mode = os.fstat(fd).st_mode
        # A read of a pipe could wait without end.
        if not stat.S_ISREG(mode):
            self.close(fd)
            raise OSError(errno.EINVAL, "expected a regular file", path)
        if is_secret and mode & 0o077:
            os.fchmod(fd, 0o600)  # An older version made it.
        return fd

    def close(self, fd: int) -> None:
        os.close(fd)
        if len(self._spare) < self._spare_max:
            self._keep_spare()

    def read(self, fd: int, size: int, position: int) -> bytes:
        data = os.pread(fd, size, position)
        if len(data) == size or not data:
            return data
        # A short read may occur in the middle of a file; only an empty read is its end.
        remainder = self.read(fd, size - len(data), position + len(data))
        return data + remainder if remainder else data

    def write(self, fd: int, buffer: Buffer, position: int) -> None:
        written = os.pwrite(fd, buffer, position)
        if written < len(buffer):
            if written == 0:
                raise OSError(errno.EIO, f"wrote nothing of {len(buffer)} bytes at {position}")
            # A disk that becomes full takes a part first; the next call raises its error.
            self.write(fd, memoryview(buffer)[written:], position + written)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        if sys.platform == "darwin":
            # On macOS fsync alone leaves the data in the drive's cache.
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            # It also writes the file's size, without which new bytes could not be read.
            os.fdatasync(fd)

    def sync_queue(self) -> SyncQueue | None:
        return KernelSyncs.take()

    def sync_directory(self, path: str) -> None:
        fd = self._open_directory(path)
        try:
            os.fsync(fd)
        finally:
            self.close(fd)

    def _open_directory(self, path: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        return self._with_spare(lambda: os.open(path, flags))

    def sync_tree(self, path: str) -> None:
        assert self._syncfs is not None
        fd = self._open_directory(path)
        try:
            # ctypes releases the interpreter lock for the duration of the call.
            if self._syncfs(fd) != 0:
                code = ctypes.get_errno()
                raise OSError(code, f"syncfs: {os.strerror(code)}", path)
        finally:
            self.close(fd)

    def names(self, path: str) -> list[str]:
        # Not through a link: the deletion of a topic would empty the folder that the link leads to.
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = self._with_spare(lambda: os.open(path, flags))
        except OSError as error:
            if error.errno != errno.ELOOP:  # That is macOS's error for a link.
                raise
            raise NotADirectoryError(errno.ENOTDIR, "expected a folder, not a link", path) from None
        try:
            return sorted(self._with_spare(lambda: os.listdir(fd)))  # It duplicates the descriptor.
        finally:
            self.close(fd)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def modified_ms(self, path: str) -> int | None:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except (FileNotFoundError, NotADirectoryError):
            return None

    def space(self, path: str) -> DiskSpace | None:
        status = os.statvfs(path)
        return DiskSpace(status.f_frsize * status.f_blocks, status.f_frsize * status.f_bavail)

    def identity(self, file: int | str) -> Identity | None:
        try:
            status = os.stat(file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_dev, status.st_ino

    def make_directory(self, path: str, *, parents: bool = True) -> None:
        if parents:
            os.makedirs(path, mode=0o750, exist_ok=True)
            return
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, mode=0o750)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def lock(self, path: str) -> int:
        fd = self.open(path, create=True)
        try:
            # The system releases this lock when the process ends, so `kill -9` leaves none behind.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            self.close(fd)
            raise BlockingIOError(error.errno, f"in use by process {owner}", path) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
        return fd


class _SyncFs(Protocol):
    def __call__(self, fd: int, /) -> int: ...


def _find_syncfs() -> _SyncFs | None:
    """Return the C library's syncfs, or None if the kernel does not report errors through it."""
    if sys.platform != "linux":
        return None
    version = os.uname().release.split(".")[:2]
    if not all(part.isdigit() for part in version):
        return None
    if tuple(int(part) for part in version) < _SYNCFS_REPORTS_ERRORS_SINCE:
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is None:
        return None
    function.argtypes = (ctypes.c_int,)
    function.restype = ctypes.c_int
    syncfs: _SyncFs = function
    return syncfs
