"""The few things that storage asks of a file system, behind one protocol.

Everything that reaches the disk goes through `Files`, so that the same code runs on the real
one (`RealFiles`) and on one that loses what was not synced
(`sharegroup.testing.power_loss.PowerLossDisk`).  Calls block, raise `OSError` and know
nothing of logs.

What a durable file takes: its content is safe after ``sync``, its name after
``sync_directory`` on the folder that holds it.  ``sync_tree`` does both for everything at
once where the system has a call for it (ADR 0001).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from sharegroup.storage.kernel_syncs import KernelSyncs

Buffer = bytes | bytearray | memoryview

_SYNCFS_REPORTS_ERRORS_SINCE = (5, 8)


class SyncQueue(Protocol):
    """Syncs some files at a time, for one event loop."""

    def begin(self, fds: Sequence[int], done: Callable[[dict[int, OSError]], None]) -> bool:
        """Call ``done`` when all are synced, with what failed by its position in ``fds``.

        False: nothing was begun, they have to be synced in another way.
        """
        ...

    def close(self) -> None:
        """Return when nothing is going on; ``done`` is not called any more."""
        ...


class Files(Protocol):
    """A file system; paths are absolute, positions and sizes are bytes."""

    @property
    def can_sync_tree(self) -> bool:
        """Whether ``sync_tree`` works here and reports errors."""
        ...

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading and writing; ``create`` makes the file if there is none."""
        ...

    def close(self, fd: int) -> None: ...

    def read(self, fd: int, size: int, position: int) -> bytes:
        """``size`` bytes from ``position``; fewer only where the file ends."""
        ...

    def write(self, fd: int, buffer: Buffer, position: int) -> None:
        """Write all of ``buffer`` or raise; after an error any part may be written."""
        ...

    def size(self, fd: int) -> int: ...

    def truncate(self, fd: int, size: int) -> None: ...

    def sync(self, fd: int) -> None:
        """Return when the content of the file is on stable storage."""
        ...

    def sync_queue(self) -> SyncQueue | None:
        """What does the work of ``sync`` while the event loop goes on; None: there is none."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the names in the folder are on stable storage."""
        ...

    def sync_tree(self, path: str) -> None:
        """Do ``sync`` and ``sync_directory`` for all of the file system that holds ``path``."""
        ...

    def names(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Make a folder, and those above it; it may be there already."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give ``source`` the name ``target``; what had that name is gone."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> int:
        """Take the lock file for this process; BlockingIOError names who has it."""
        ...


class RealFiles:
    """The operating system's files."""

    __slots__ = ("_syncfs",)

    def __init__(self) -> None:
        self._syncfs = _find_syncfs()

    @property
    def can_sync_tree(self) -> bool:
        return self._syncfs is not None

    def open(self, path: str, *, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(path, flags | os.O_CREAT if create else flags, 0o640)

    def close(self, fd: int) -> None:
        os.close(fd)

    def read(self, fd: int, size: int, position: int) -> bytes:
        data = os.pread(fd, size, position)
        if len(data) == size or not data:
            return data
        # A short read in the middle of a file is allowed; the end is where nothing comes.
        rest = self.read(fd, size - len(data), position + len(data))
        return data + rest if rest else data

    def write(self, fd: int, buffer: Buffer, position: int) -> None:
        written = os.pwrite(fd, buffer, position)
        if written < len(buffer):
            if written == 0:
                raise OSError(errno.EIO, f"wrote nothing of {len(buffer)} bytes at {position}")
            self.write(fd, memoryview(buffer)[written:], position + written)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        if sys.platform == "darwin":
            # fsync alone leaves the data in the drive's cache there.
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(fd)

    def sync_queue(self) -> SyncQueue | None:
        return KernelSyncs.take()

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_tree(self, path: str) -> None:
        assert self._syncfs is not None
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # ctypes releases the interpreter lock for the duration of the call.
            if self._syncfs(fd) != 0:
                code = ctypes.get_errno()
                raise OSError(code, f"syncfs: {os.strerror(code)}", path)
        finally:
            os.close(fd)

    def names(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=0o750, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def lock(self, path: str) -> int:
        fd = self.open(path, create=True)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise BlockingIOError(error.errno, f"in use by process {owner}", path) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
        return fd


class _SyncFs(Protocol):
    def __call__(self, fd: int, /) -> int: ...


def _find_syncfs() -> _SyncFs | None:
    """The C library's syncfs where the kernel reports write errors through it, else None."""
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
    found: _SyncFs = function
    return found
