"""A disk in memory that loses what was not synced when the power goes.

Killing a process proves nothing about durability: the system still writes what the process had
handed over.  `PowerLossDisk` stands in for the file system of a broker or a log, remembers what
was synced, and on `cut_power` does to the rest what real disks do:

- each write that was not synced is kept, lost, or torn at any byte, each on its own, so that a
  later write may survive an earlier one;
- a new file, a removal or a rename that was not made durable by syncing its *folder* has
  happened or not, each on its own, even when the file's content was synced;
- what was synced stays.

Everything is drawn from a seed, so a failure can be run again:

    >>> disk = PowerLossDisk(seed=1)
    >>> disk.make_directory("/data")
    >>> fd = disk.open("/data/file", create=True)
    >>> disk.sync_directory("/data")
    >>> disk.write(fd, b"promised", 0)
    >>> disk.sync(fd)
    >>> disk.write(fd, b" and not", 8)
    >>> disk.cut_power()
    >>> disk.read(disk.open("/data/file"), 8, 0)
    b'promised'

It can also fail in other ways: `fail_next_sync`, `fill_up`, and `cut_power_after`, which lets
the power go at a given operation, so that a test can try every one in turn.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from sharegroup.storage.files import Buffer, SyncQueue


@dataclass(slots=True, eq=False)
class _File:
    """Content as programs see it, as the disk has it, and the writes between the two."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(position, written), or (size, None) for a truncation; oldest first."""
    error_kept: bool = False
    """A sync of everything lost writes of this file: its own next sync says so."""


@dataclass(slots=True, eq=False)
class _Folder:
    """Names as programs see them, as the disk has them, and the changes between the two."""

    names: dict[str, _Node] = field(default_factory=dict)
    durable: dict[str, _Node] = field(default_factory=dict)
    unsynced: list[tuple[tuple[str, _Node | None], ...]] = field(default_factory=list)
    """Changes of names that happen together; None takes the name away."""


_Node = _File | _Folder


class PowerLossDisk:
    """See the module's text.  Implements `sharegroup.storage.files.Files`."""

    __slots__ = (
        "_failing_syncs",
        "_lock",
        "_locked",
        "_open",
        "_power_left",
        "_random",
        "_room",
        "_top",
        "can_sync_tree",
        "operations",
        "syncs",
    )

    def __init__(self, seed: int, *, can_sync_tree: bool = True) -> None:
        self.can_sync_tree = can_sync_tree
        self.operations = 0
        """Changes and syncs so far, the failed ones included."""
        self.syncs = 0
        """Syncs of files, folders and the whole disk that were asked for."""
        self._random = random.Random(seed)  # noqa: S311
        self._lock = threading.RLock()  # A log may sync in a thread of its own.
        self._top = _Folder()
        self._open: dict[int, _File] = {}
        self._locked: dict[int, str] = {}
        self._room: int | None = None
        self._failing_syncs = 0
        self._power_left: int | None = None

    # Faults

    def cut_power(self) -> None:
        """Lose the power and come back: what was not synced is up to chance.

        Every open file and every lock is gone.
        """
        with self._lock:
            self._power_left = None
            self._open.clear()
            self._locked.clear()
            self._lose_names(self._top)

    def cut_power_after(self, operations: int) -> None:
        """Let ``operations`` more changes and syncs happen; then all fail until `cut_power`."""
        self._power_left = operations

    @property
    def has_power(self) -> bool:
        """False once the limit of `cut_power_after` is reached."""
        return self._power_left is None or self._power_left > 0

    def fail_next_sync(self, count: int = 1) -> None:
        """Let the next ``count`` syncs fail; what they should have synced may be lost."""
        self._failing_syncs = count

    def fill_up(self, room_bytes: int = 0) -> None:
        """Leave room for this many bytes more; then writes fail with ENOSPC."""
        self._room = room_bytes

    def make_room(self) -> None:
        """End what `fill_up` began."""
        self._room = None

    def release_locks(self) -> None:
        """Let the process that has the locks be dead; what it wrote stays, synced or not."""
        self._locked.clear()

    def flip_bit(self, path: str, position: int) -> None:
        """Damage one bit of a byte, on the disk as well as in memory."""
        with self._lock:
            file = self._file(path)
            file.content[position] ^= 1
            if position < len(file.durable):
                file.durable[position] ^= 1

    # Files

    def open(self, path: str, *, create: bool = False) -> int:
        with self._lock:
            folder, name = self._parent(path)
            if name not in folder.names:
                if not create:
                    raise _error(errno.ENOENT, path)
                self._operation(path)
                _change(folder, (name, _File()))
            fd = max(self._open, default=2) + 1
            self._open[fd] = self._file(path)
            return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._open.pop(fd, None)  # The power may have closed it.
            self._locked.pop(fd, None)

    def read(self, fd: int, size: int, position: int) -> bytes:
        with self._lock:
            return bytes(self._opened(fd).content[position : position + size])

    def write(self, fd: int, buffer: Buffer, position: int) -> None:
        with self._lock:
            file, written = self._opened(fd), bytes(buffer)
            self._operation("write")
            room = len(written) if self._room is None else self._room
            growth = max(0, position + len(written) - len(file.content))
            if growth > room:
                # The part that fits is written, as write(2) does it.
                written = written[: len(written) - growth + room]
            if self._room is not None:
                self._room -= min(growth, room)
            _apply(file.content, position, written)
            file.unsynced.append((position, written))
            if growth > room:
                raise _error(errno.ENOSPC, "write")

    def size(self, fd: int) -> int:
        with self._lock:
            return len(self._opened(fd).content)

    def truncate(self, fd: int, size: int) -> None:
        with self._lock:
            file = self._opened(fd)
            self._operation("truncate")
            _apply(file.content, size, None)
            file.unsynced.append((size, None))

    def sync(self, fd: int) -> None:
        with self._lock:
            file = self._opened(fd)
            self._sync_operation([file])
            if file.error_kept:
                file.error_kept = False
                raise _error(errno.EIO, "sync")
            _make_durable(file)

    def sync_queue(self) -> SyncQueue | None:
        """There is none."""
        return None

    def sync_directory(self, path: str) -> None:
        with self._lock:
            folder = self._folder(path)
            self._sync_operation([])
            _make_names_durable(folder)

    def sync_tree(self, path: str) -> None:
        with self._lock:
            nodes = list(_all_below(self._folder(path)))
            files = [node for node in nodes if isinstance(node, _File)]
            before = [len(file.unsynced) for file in files]
            try:
                self._sync_operation(files)
            except OSError:
                for file, count in zip(files, before, strict=True):
                    file.error_kept |= len(file.unsynced) < count
                raise
            for node in nodes:
                if isinstance(node, _File):
                    _make_durable(node)
                else:
                    _make_names_durable(node)

    def names(self, path: str) -> list[str]:
        with self._lock:
            return sorted(self._folder(path).names)

    def exists(self, path: str) -> bool:
        with self._lock:
            return self._find(path) is not None

    def make_directory(self, path: str) -> None:
        with self._lock:
            folder = self._top
            *above, last = _parts(path)
            for name in above:
                if name not in folder.names:  # Where the test lives is not under test.
                    folder.names[name] = folder.durable[name] = _Folder()
                folder = _as_folder(folder.names[name], path)
            if last not in folder.names:
                self._operation(path)
                _change(folder, (last, _Folder()))

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            folder, name = self._parent(source)
            other, new_name = self._parent(target)
            assert folder is other, "renames stay in their folder here"
            if name not in folder.names:
                raise _error(errno.ENOENT, source)
            self._operation(source)
            _change(folder, (new_name, folder.names[name]), (name, None))

    def remove(self, path: str) -> None:
        with self._lock:
            self._file(path)
            folder, name = self._parent(path)
            self._operation(path)
            _change(folder, (name, None))

    def remove_directory(self, path: str) -> None:
        with self._lock:
            if self._folder(path).names:
                raise _error(errno.ENOTEMPTY, path)
            folder, name = self._parent(path)
            self._operation(path)
            _change(folder, (name, None))

    def lock(self, path: str) -> int:
        with self._lock:
            if path in self._locked.values():
                raise BlockingIOError(errno.EAGAIN, "in use by process 1", path)
            fd = self.open(path, create=True)
            self._locked[fd] = path
            return fd

    # Finding things

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._top
        for name in _parts(path):
            if not isinstance(node, _Folder):
                return None
            node = node.names.get(name)
        return node

    def _parent(self, path: str) -> tuple[_Folder, str]:
        above, _, name = path.rpartition("/")
        return self._folder(above), name

    def _folder(self, path: str) -> _Folder:
        found = self._find(path)
        if found is None:
            raise _error(errno.ENOENT, path)
        return _as_folder(found, path)

    def _file(self, path: str) -> _File:
        found = self._find(path)
        if not isinstance(found, _File):
            raise _error(errno.ENOENT if found is None else errno.EISDIR, path)
        return found

    def _opened(self, fd: int) -> _File:
        if fd not in self._open:
            raise _error(errno.EBADF, f"file {fd}")
        return self._open[fd]

    # Faults

    def _operation(self, what: str) -> None:
        """Count a change; fail it where the power is gone."""
        self.operations += 1
        if not self.has_power:
            raise _error(errno.EIO, what)
        if self._power_left is not None:
            self._power_left -= 1

    def _sync_operation(self, files: list[_File]) -> None:
        """Count a sync; where it fails, the system forgets some of what it should write."""
        self.syncs += 1
        self._operation("sync")
        if self._failing_syncs:
            self._failing_syncs -= 1
            for file in files:
                file.unsynced = [one for one in file.unsynced if self._random.random() < 0.5]
            raise _error(errno.EIO, "sync")

    def _lose_names(self, folder: _Folder) -> None:
        """Settle the names in a folder, and what is behind those that stay."""
        for together in folder.unsynced:
            if self._random.random() < 0.5:
                _apply_names(folder.durable, together)
        folder.unsynced.clear()
        folder.names = dict(folder.durable)
        for node in folder.names.values():
            if isinstance(node, _Folder):
                self._lose_names(node)
            else:
                self._lose_content(node)

    def _lose_content(self, file: _File) -> None:
        """Settle each write: kept, lost, or torn at some byte."""
        for position, written in file.unsynced:
            fate = self._random.random()
            if fate < 0.4:
                _apply(file.durable, position, written)
            elif fate < 0.6 and written is not None:
                torn_at = self._random.randrange(len(written) + 1)
                _apply(file.durable, position, written[:torn_at])
        file.unsynced.clear()
        file.content = bytearray(file.durable)


def _apply(content: bytearray, position: int, written: bytes | None) -> None:
    """Write at ``position``, or cut to that size; a gap in between is zeros."""
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if written is None:
        del content[position:]
    else:
        content[position : position + len(written)] = written


def _apply_names(names: dict[str, _Node], together: tuple[tuple[str, _Node | None], ...]) -> None:
    for name, node in together:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _change(folder: _Folder, *together: tuple[str, _Node | None]) -> None:
    """Change names for programs to see; the disk may learn of it later."""
    _apply_names(folder.names, together)
    folder.unsynced.append(together)


def _make_durable(file: _File) -> None:
    for position, written in file.unsynced:
        _apply(file.durable, position, written)
    file.unsynced.clear()


def _make_names_durable(folder: _Folder) -> None:
    folder.durable = dict(folder.names)
    folder.unsynced.clear()


def _all_below(folder: _Folder) -> Iterator[_Node]:
    yield folder
    for node in folder.names.values():
        if isinstance(node, _Folder):
            yield from _all_below(node)
        else:
            yield node


def _parts(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _as_folder(node: _Node, path: str) -> _Folder:
    if not isinstance(node, _Folder):
        raise _error(errno.ENOTDIR, path)
    return node


def _error(code: int, what: str) -> OSError:
    return OSError(code, os.strerror(code), what)
