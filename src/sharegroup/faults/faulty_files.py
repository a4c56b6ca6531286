"""The operating system's files on a disk that a test makes slow, full or broken."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence

from sharegroup.storage.disk.files import Buffer, DiskSpace, RealFiles, SyncQueue

SYNC_SECONDS_MAX = 24 * 3_600.0
"""The longest sync; far below what `time.sleep` refuses."""


def checked(**counts: int) -> None:
    """Raise ValueError for a count below 0, which the broker would meet as no disk's error."""
    for name, count in counts.items():
        if count < 0:
            raise ValueError(f"{name}={count}: expected 0 or more")


class FaultyFiles(RealFiles):
    """Real files with faults; until one is set, they behave like `RealFiles`.

    It inherits instead of delegating, because most operations stay as they are.
    """

    __slots__ = ("_failing_syncs", "_is_temporary", "_room", "_sync_seconds")

    def __init__(self, *, is_temporary: bool = False) -> None:
        """With ``is_temporary`` nothing is synced, because the files are deleted after the test.

        No test can see the difference: only a failure of the machine loses unsynced writes.
        """
        super().__init__()
        self._is_temporary = is_temporary
        self._room: int | None = None
        self._sync_seconds = 0.0
        self._failing_syncs = 0

    def slow_down(self, sync_seconds: float) -> None:
        """Let each sync take ``sync_seconds`` longer; 0 ends it."""
        if not 0 <= sync_seconds <= SYNC_SECONDS_MAX:
            raise ValueError(f"{sync_seconds=}: expected 0 to {SYNC_SECONDS_MAX}")
        self._sync_seconds = sync_seconds

    def fill_up(self, room_bytes: int = 0) -> None:
        """Limit the free space to ``room_bytes``; writes beyond it fail with ENOSPC."""
        checked(room_bytes=room_bytes)
        self._room = room_bytes

    def make_room(self) -> None:
        """Remove the limit of `fill_up`."""
        self._room = None

    def fail_next_sync(self, count: int = 1) -> None:
        """Let the next ``count`` syncs fail with EIO."""
        checked(count=count)
        self._failing_syncs = count

    def write(self, fd: int, buffer: Buffer, position: int) -> None:
        if self._room is None:
            super().write(fd, buffer, position)
            return
        # Overwriting takes no space, so only the bytes behind the end of the file count.
        growth = max(0, position + len(buffer) - self.size(fd))
        if growth <= self._room:
            self._room -= growth
            super().write(fd, buffer, position)
            return
        fitting = len(buffer) - growth + self._room
        self._room = 0
        super().write(fd, memoryview(buffer)[:fitting], position)  # As write(2) does.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def space(self, path: str) -> DiskSpace | None:
        space = super().space(path)
        if space is None or self._room is None:
            return space
        return DiskSpace(space.total_bytes, min(space.free_bytes, self._room))

    def sync(self, fd: int) -> None:
        self._fault()
        if not self._is_temporary:
            super().sync(fd)

    def sync_directory(self, path: str) -> None:
        self._fault()
        if not self._is_temporary:
            super().sync_directory(path)

    def sync_tree(self, path: str) -> None:
        self._fault()
        if not self._is_temporary:
            super().sync_tree(path)

    def sync_queue(self) -> SyncQueue | None:
        """Return the kernel's queue, which refuses work while syncs have faults."""
        # Without a queue the syncs come to `sync`, which leaves them out.
        queue = None if self._is_temporary else super().sync_queue()
        return None if queue is None else _FaultyQueue(queue, self)

    @property
    def has_sync_faults(self) -> bool:
        """Whether a sync would be slow or fail now."""
        return bool(self._sync_seconds or self._failing_syncs)

    def _fault(self) -> None:
        if self._sync_seconds:
            # Blocks like a slow fdatasync: the broker calls it where it expects that (ADR 0001).
            time.sleep(self._sync_seconds)
        if self._failing_syncs:
            self._failing_syncs -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class _FaultyQueue:
    """A queue of syncs that leaves them to `FaultyFiles.sync` while these have faults."""

    __slots__ = ("_files", "_queue")

    def __init__(self, queue: SyncQueue, files: FaultyFiles) -> None:
        self._queue = queue
        self._files = files

    def begin(self, fds: Sequence[int], done: Callable[[dict[int, OSError]], None]) -> bool:
        # The kernel cannot be told to fail; a refused queue leaves the files to `sync`
        # (`SyncQueue.begin`).
        return not self._files.has_sync_faults and self._queue.begin(fds, done)

    def close(self) -> None:
        self._queue.close()
