"""A disk in memory that may lose unsynced changes at a power failure.

Killing a process does not test durability, because the system still writes the data that the
process had written. `PowerLossDisk` replaces the file system of a broker or a log, records the
syncs, and on `cut_power` treats unsynced changes as real disks do:

- each unsynced write is kept, lost, or torn at any byte, independently of the others, so that a
  later write may survive an earlier one;
- a new file, a removal or a rename without a sync of its *folder* has happened or not, also
  independently, even if the content of the file was synced;
- synced changes stay.

All random decisions depend on a seed, so a failure can be reproduced:

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

It can also fail in other ways: `fail_next_sync`, `fill_up`, and `cut_power_after`, which fails
from a given operation on, so that a test can try every operation in turn.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from sharegroup.faults.faulty_files import checked
from sharegroup.storage.disk.files import Buffer, DiskSpace, Identity, SyncQueue


@dataclass(slots=True, eq=False)
class _File:
    """A file: its content in memory, its content on disk, and the unsynced writes."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes as (position, bytes) and truncations as (size, None), oldest first."""
    error_kept: bool = False
    """Whether `sync_tree` lost writes of this file, so that its next `sync` has to fail."""


@dataclass(slots=True, eq=False)
class _Folder:
    """A folder: its names in memory, its names on disk, and the unsynced changes."""

    names: dict[str, _Node] = field(default_factory=dict)
    durable: dict[str, _Node] = field(default_factory=dict)
    unsynced: list[tuple[tuple[str, _Node | None], ...]] = field(default_factory=list)
    """Groups of changes that happen together or not at all; None removes a name."""


_Node = _File | _Folder


@dataclass(frozen=True, slots=True, eq=False)
class _Move:
    """A rename from one folder to another that is not durable yet."""

    source: _Folder
    name: str
    target: _Folder
    new_name: str
    node: _Node
    source_changes: int
    """The number of unsynced changes of each folder before the rename."""
    target_changes: int

    def settle(self) -> None:
        """Make the rename durable in both folders."""
        self.source.durable.pop(self.name, None)
        self.target.durable[self.new_name] = self.node
        # A journal has the earlier changes of both names, too.  Otherwise a power failure could
        # bring the old name back beside the new one, or what the rename has replaced.
        _forget(self.source, self.name, self.source_changes)
        _forget(self.target, self.new_name, self.target_changes)


class PowerLossDisk:
    """A file system in memory that simulates power failures; it replaces `disk.files.Files`."""

    __slots__ = (
        "_failing_syncs",
        "_lock",
        "_locked",
        "_moves",
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
        """The number of changes and syncs so far, including failed ones."""
        self.syncs = 0
        """The number of requested syncs of files, of folders and of the whole disk."""
        self._random = random.Random(seed)  # noqa: S311
        self._lock = threading.RLock()  # A log may sync in another thread.
        self._top = _Folder()
        self._open: dict[int, _File] = {}
        self._locked: dict[int, str] = {}
        self._moves: list[_Move] = []
        self._room: int | None = None
        self._failing_syncs = 0
        self._power_left: int | None = None

    # Faults

    def cut_power(self) -> None:
        """Simulate a power failure and a restart: unsynced changes survive at random.

        All open files are closed and all locks released.
        """
        with self._lock:
            self._power_left = None
            self._open.clear()
            self._locked.clear()
            for move in self._moves:
                if self._random.random() < 0.5:
                    move.settle()
            self._moves.clear()
            self._lose_names(self._top)

    def cut_power_after(self, operations: int) -> None:
        """Allow ``operations`` more changes and syncs; all later ones fail until `cut_power`."""
        checked(operations=operations)
        self._power_left = operations

    @property
    def has_power(self) -> bool:
        """Whether the limit of `cut_power_after` is not reached yet."""
        return self._power_left is None or self._power_left > 0

    def fail_next_sync(self, count: int = 1) -> None:
        """Let the next ``count`` syncs fail; the writes that they should sync may be lost."""
        checked(count=count)
        self._failing_syncs = count

    def fill_up(self, room_bytes: int = 0) -> None:
        """Limit the free space to ``room_bytes``; writes beyond it fail with ENOSPC."""
        checked(room_bytes=room_bytes)
        self._room = room_bytes

    def make_room(self) -> None:
        """Remove the limit of `fill_up`."""
        self._room = None

    def release_locks(self) -> None:
        """Simulate the death of the process with the locks; its writes stay, synced or not."""
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
            # From 3 on, as in a process, so a number that was never opened is noticed.
            fd = max(self._open, default=2) + 1
            self._open[fd] = self._file(path)
            return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._open.pop(fd, None)  # A power failure may have closed it already.
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
                # As in write(2), the part that fits is written.
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
        """Return None: this disk has no queue of syncs."""
        return None

    def sync_directory(self, path: str) -> None:
        with self._lock:
            folder = self._folder(path)
            self._sync_operation([])
            self._settle_moves(folder)
            _make_names_durable(folder)

    def sync_tree(self, path: str) -> None:
        with self._lock:
            nodes = list(_all_below(self._folder(path)))
            files = [node for node in nodes if isinstance(node, _File)]
            counts_before = [len(file.unsynced) for file in files]
            try:
                self._sync_operation(files)
            except OSError:
                for file, count in zip(files, counts_before, strict=True):
                    file.error_kept |= len(file.unsynced) < count
                raise
            self._settle_moves(None)
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

    def modified_ms(self, path: str) -> int | None:  # noqa: ARG002  Its files have no times.
        return None

    def space(self, path: str) -> DiskSpace | None:  # noqa: ARG002  It has one volume, in memory.
        return None

    def identity(self, file: int | str) -> Identity | None:
        with self._lock:
            node = self._opened(file) if isinstance(file, int) else self._find(file)
            return None if node is None else (0, id(node))

    def make_directory(self, path: str, *, parents: bool = True) -> None:
        with self._lock:
            folder = self._top
            *above, last = _parts(path)
            for name in above:
                if name not in folder.names and not parents:
                    raise _error(errno.ENOENT, path)
                if name not in folder.names:  # Parents are durable at once: not under test.
                    folder.names[name] = folder.durable[name] = _Folder()
                folder = _as_folder(folder.names[name], path)
            if last not in folder.names:
                self._operation(path)
                _change(folder, (last, _Folder()))

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            folder, name = self._parent(source)
            target_folder, new_name = self._parent(target)
            if name not in folder.names:
                raise _error(errno.ENOENT, source)
            self._operation(source)
            node = folder.names[name]
            if folder is target_folder:
                _change(folder, (new_name, node), (name, None))
                return
            # As in a file system with a journal, a rename changes both folders or none.
            changes = len(folder.unsynced), len(target_folder.unsynced)
            move = _Move(folder, name, target_folder, new_name, node, *changes)
            del folder.names[name]
            target_folder.names[new_name] = node
            self._moves.append(move)

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

    def release(self) -> None:
        pass  # This disk holds no resources.

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
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return _as_folder(node, path)

    def _file(self, path: str) -> _File:
        node = self._find(path)
        if not isinstance(node, _File):
            raise _error(errno.ENOENT if node is None else errno.EISDIR, path)
        return node

    def _opened(self, fd: int) -> _File:
        if fd not in self._open:
            raise _error(errno.EBADF, f"file {fd}")
        return self._open[fd]

    # Faults

    def _operation(self, subject: str) -> None:
        """Count a change; raise OSError if the power is off."""
        self.operations += 1
        if not self.has_power:
            raise _error(errno.EIO, subject)
        if self._power_left is not None:
            self._power_left -= 1

    def _sync_operation(self, files: list[_File]) -> None:
        """Count a sync; if it fails, the system drops some of the unsynced writes."""
        self.syncs += 1
        self._operation("sync")
        if self._failing_syncs:
            self._failing_syncs -= 1
            for file in files:
                # The kernel marks pages that it failed to write as clean, so a later sync succeeds
                # without them; in memory they stay.
                file.unsynced = [write for write in file.unsynced if self._random.random() < 0.5]
            raise _error(errno.EIO, "sync")

    def _settle_moves(self, folder: _Folder | None) -> None:
        """Make the moves from and to a folder durable; all moves if ``folder`` is None."""
        for move in list(self._moves):
            # A sync of either folder commits the journal, and with it both sides of the rename.
            if folder in (None, move.source, move.target):
                move.settle()
                self._moves.remove(move)

    def _lose_names(self, folder: _Folder) -> None:
        """Keep or lose each unsynced change of names, then do the same in the nodes that stay."""
        for changes in folder.unsynced:
            if self._random.random() < 0.5:
                _apply_names(folder.durable, changes)
        folder.unsynced.clear()
        folder.names = dict(folder.durable)
        for node in folder.names.values():
            if isinstance(node, _Folder):
                self._lose_names(node)
            else:
                self._lose_content(node)

    def _lose_content(self, file: _File) -> None:
        """Keep, lose, or tear each unsynced write at some byte."""
        for position, written in file.unsynced:
            fate = self._random.random()
            # Kept in four cases of ten, torn in two, lost in four: a few seeds have all three.
            if fate < 0.4:
                _apply(file.durable, position, written)
            elif fate < 0.6 and written is not None:
                # At 0 and at the end as well: torn writes include those that are lost or whole.
                torn_at = self._random.randrange(len(written) + 1)
                _apply(file.durable, position, written[:torn_at])
        file.unsynced.clear()
        file.content = bytearray(file.durable)
        file.error_kept = False  # The kernel that kept it is gone.


def _apply(content: bytearray, position: int, written: bytes | None) -> None:
    """Write at ``position``, or truncate to that size; fill a gap with zeros."""
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
    """Change names in memory, and note the changes as not durable yet."""
    _apply_names(folder.names, together)
    folder.unsynced.append(together)


def _forget(folder: _Folder, name: str, changes: int) -> None:
    """Drop the unsynced changes of a name among the oldest ``changes`` of a folder."""
    # Emptied, not removed: the numbers of other moves count these, too.
    folder.unsynced[:changes] = [
        tuple(change for change in together if change[0] != name)
        for together in folder.unsynced[:changes]
    ]


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


def _error(code: int, subject: str) -> OSError:
    return OSError(code, os.strerror(code), subject)
