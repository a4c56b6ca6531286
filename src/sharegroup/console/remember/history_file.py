"""A local file with the history of one cluster's groups.

    sharegroup console history 1
    "cluster id"
    size, block, size, block, ...      minutes before seconds

It is replaced as a whole, so a reader sees the old content or the new one.  A file beside it is
locked by the process that writes.  Nothing here knows the event loop.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from sharegroup.console.remember.blocks import Block, DamagedBlock, parsed
from sharegroup.state_folder import state_folder

MAGIC = b"sharegroup console history 1\n"
SIZE = struct.Struct(">I")
FILE_BYTES_MAX = 64 * 1024 * 1024
"""Blocks that would make the file larger are left out, and a larger file is not read."""
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class DamagedFile(ValueError):
    """A file that is not a history, or not a whole one."""


class OtherCluster(ValueError):
    """A history of another cluster's groups."""


def default_file(cluster_id: str) -> Path:
    """Return the file of a cluster in the user's folder for state.

    Raises RuntimeError if the user has no home directory.
    """
    name = cluster_id
    if not _PLAIN_ID.fullmatch(cluster_id):  # Whatever a broker says, it is no path.
        name = hashlib.sha256(cluster_id.encode("utf-8", "surrogatepass")).hexdigest()
    return state_folder() / f"console-{name}.history"


class HistoryFile:
    """The file, and the lock of the process that writes it."""

    __slots__ = ("_lock", "cluster_id", "path")

    def __init__(self, path: Path, cluster_id: str) -> None:
        self.path, self.cluster_id = path, cluster_id
        self._lock: int | None = None

    def lock(self) -> bool:
        """Become the process that writes; False if another one is.  Creates the folder."""
        if self._lock is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._beside(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(lock)
                if isinstance(error, BlockingIOError):
                    return False
                raise
            self._lock = lock
        return True

    def close(self) -> None:
        """Let another process write."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks; none without a file.

        Raises DamagedFile, OtherCluster and OSError.
        """
        try:
            with self.path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return
        if len(content) > FILE_BYTES_MAX:
            raise DamagedFile(f"expected at most {FILE_BYTES_MAX} bytes, and it has more")
        magic, cluster, rest = content[: len(MAGIC)], *_line(content, len(MAGIC))
        if magic != MAGIC:
            raise DamagedFile("expected a history of this version's format")
        if cluster != _quoted(self.cluster_id):
            raise OtherCluster(f"it is the history of cluster {cluster.decode(errors='replace')}")
        while rest < len(content):
            end = rest + SIZE.size
            end += SIZE.unpack(content[rest:end])[0] if end <= len(content) else SIZE.size
            if end > len(content):
                raise DamagedFile("it ends in the middle of a block")
            try:
                yield parsed(content[rest + SIZE.size : end])
            except DamagedBlock as error:
                raise DamagedFile(f"the block at byte {rest} is damaged: {error}") from error
            rest = end

    def write(self, blocks: Iterable[bytes]) -> int:
        """Replace the file atomically; return the number of blocks that had no room in it."""
        assert self._lock is not None, "one process writes"
        unfinished = self._beside(".new")
        left_out = 0
        try:
            with open(unfinished, "wb", opener=_private) as file:
                file.write(MAGIC + _quoted(self.cluster_id) + b"\n")
                for block in blocks:
                    if file.tell() + SIZE.size + len(block) > FILE_BYTES_MAX:
                        left_out += 1
                        continue
                    file.write(SIZE.pack(len(block)) + block)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self.path)
        except OSError:
            with suppress(OSError):  # The disk may be full; the first error is the one to tell.
                unfinished.unlink()
            raise
        return left_out

    def set_aside(self) -> Path:
        """Rename a damaged file, for somebody to look at; only the last one is kept."""
        assert self._lock is not None, "one process writes"
        aside = self._beside(".damaged")
        self.path.replace(aside)
        return aside

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(self.path.name + ending)


def _private(path: str, flags: int) -> int:
    """Open for this user alone: names of groups are nobody else's business."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _quoted(cluster_id: str) -> bytes:
    return json.dumps(cluster_id).encode()


def _line(content: bytes, first: int) -> tuple[bytes, int]:
    """Return a line without its end, and where the next one begins."""
    end = content.find(b"\n", first)
    end = len(content) if end < 0 else end
    return content[first:end], end + 1
