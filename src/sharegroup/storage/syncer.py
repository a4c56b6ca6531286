"""Group commit: one round of syncs for everything that was written since the last round.

Whoever has un-synced writes calls `Syncer.request`.  At the end of the current turn of the
event loop one round begins: it takes all that asked, asks each what to sync, syncs, and tells
each how it went.  What is written meanwhile waits for the next round, so the more there is to
do, the more writes share a round.

How a round syncs, and where (ADR 0001, measured):

- few files: fdatasync on each; many: one syncfs for all.  A file costs a flush of the disk's
  cache of its own, and syncfs needs one.  syncfs also writes what *other* programs left in
  memory for the same file system; when that makes it slow, rounds go back to fdatasync for a
  while.
- in the event loop's thread when little is at stake and recent rounds were quick, because any
  hand-over costs more than such a sync.  Otherwise few files are left to the kernel's queue
  (`kernel_syncs`), and the rest goes to the one storage thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sharegroup.storage.files import Files, SyncQueue
from sharegroup.storage.stored_file import StoredFile

T = TypeVar("T")

FILES_EACH_MAX = 3
"""Up to this many files are synced one by one."""

QUEUED_FILES_MAX = 8
"""Up to this many files, and no folders, are left to the kernel's queue."""

INLINE_BYTES_MAX = 256 * 1024
"""The event loop does not wait for a round with more un-synced bytes than this."""

INLINE_SECONDS_MAX = 0.001
"""The event loop does not wait for rounds while they take longer than this on average."""

TREE_SLOW_SECONDS = 0.050
"""A syncfs slower than this, and than the files alone would be, is not used for a while."""

TREE_PAUSE_SECONDS = 10.0

_AVERAGE_WEIGHT = 0.1
_FILE_SECONDS_AT_FIRST = 0.000_2
_BYTES_PER_SECOND = 200_000_000


@dataclass(frozen=True, slots=True)
class SyncWork:
    """What must be synced before a mark is durable."""

    files: tuple[StoredFile, ...]
    directories: tuple[str, ...] = ()


class Syncable(Protocol):
    """Something with un-synced writes.  Called from the event loop's thread."""

    def begin_sync(self) -> SyncWork:
        """Remember how far the writes go by now and say what must be synced for that."""
        ...

    def synced(self) -> None:
        """All that `begin_sync` remembered is durable."""
        ...

    def sync_failed(self, error: OSError) -> None:
        """Some of what `begin_sync` remembered may be lost."""
        ...


class SyncPolicy:
    """Decides how a round is done from what earlier rounds took; see the module's text."""

    __slots__ = ("_can_sync_tree", "_file_seconds", "_round_seconds", "_tree_from")

    def __init__(self, *, can_sync_tree: bool) -> None:
        self._can_sync_tree = can_sync_tree
        self._file_seconds = _FILE_SECONDS_AT_FIRST
        self._round_seconds = 0.0
        self._tree_from = 0.0

    def use_tree(self, file_count: int, *, now: float) -> bool:
        return self._can_sync_tree and file_count > FILES_EACH_MAX and now >= self._tree_from

    def is_quick(self, unsynced_bytes: int) -> bool:
        """Whether the event loop can as well wait for it."""
        return unsynced_bytes <= INLINE_BYTES_MAX and self._round_seconds <= INLINE_SECONDS_MAX

    def observe(
        self, *, tree: bool, file_count: int, unsynced_bytes: int, seconds: float, now: float
    ) -> None:
        """Learn from a round that has just ended."""
        self._round_seconds += (seconds - self._round_seconds) * _AVERAGE_WEIGHT
        transfer = unsynced_bytes / _BYTES_PER_SECOND
        if not tree:
            each = max(0.0, seconds - transfer) / max(1, file_count)
            self._file_seconds += (each - self._file_seconds) * _AVERAGE_WEIGHT
        elif seconds > max(TREE_SLOW_SECONDS, self._file_seconds * file_count + transfer):
            self._tree_from = now + TREE_PAUSE_SECONDS


MakeSyncer = Callable[[Files, str], "Syncer"]
"""Makes the syncer of a data directory; the simulation has one on virtual time."""


class Syncer:
    """See the module's text.

    ``clock`` counts seconds, only to compare durations.  ``thread`` does the blocking work, one
    piece after the other in the order in which it was given; without one the syncer makes its own.
    """

    __slots__ = (
        "_files",
        "_has_looked_for_queue",
        "_idle",
        "_policy",
        "_queue",
        "_root",
        "_running",
        "_thread",
        "_waiting",
        "clock",
        "rounds",
        "seconds",
    )

    def __init__(
        self,
        files: Files,
        root: str,
        *,
        clock: Callable[[], float] = time.perf_counter,
        thread: Executor | None = None,
    ) -> None:
        self._files = files
        self._root = root
        self.clock = clock
        self._policy = SyncPolicy(can_sync_tree=files.can_sync_tree)
        self._queue: SyncQueue | None = None
        self._has_looked_for_queue = False
        self._waiting: dict[Syncable, None] = {}
        self._running = False
        self._idle: list[asyncio.Future[None]] = []
        self._thread = thread or ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage")
        self.rounds = 0
        """How many rounds were done."""
        self.seconds = 0.0
        """How long all of them took."""

    def request(self, syncable: Syncable) -> None:
        """Let the next round include ``syncable``."""
        self._waiting[syncable] = None
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._begin_round)

    def withdraw(self, syncable: Syncable) -> None:
        """Leave ``syncable`` out of rounds that have not begun."""
        self._waiting.pop(syncable, None)

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Do blocking work in the storage thread, then call ``done`` in the event loop."""
        loop = asyncio.get_running_loop()

        def tell_loop(ended: Future[None]) -> None:
            loop.call_soon_threadsafe(done, ended.exception())

        self._thread.submit(work).add_done_callback(tell_loop)

    def in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        """Do blocking work in the storage thread, after what was handed to it before."""
        return asyncio.wrap_future(self._thread.submit(work))

    def later(self, work: Callable[[], None]) -> None:
        """Do blocking work in the storage thread some time; nobody waits for it."""
        self._thread.submit(work)

    async def drain(self) -> None:
        """Return when everything that was requested is decided."""
        while self._running:
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle

    def sync_files(self, files: list[StoredFile], directories: list[str]) -> None:
        """Blocking: sync files whose `begin_sync` was called, and folders."""
        if self._files.can_sync_tree and len(files) + len(directories) > FILES_EACH_MAX:
            self._files.sync_tree(self._root)
            return
        for file in files:
            file.sync()
        for directory in dict.fromkeys(directories):
            self._files.sync_directory(directory)

    def close(self) -> None:
        """Wait for what the storage thread and the kernel have to do, then end it."""
        self._thread.shutdown(wait=True)
        if self._queue is not None:
            self._queue.close()

    def _take(self) -> list[Syncable]:
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def _begin_round(self) -> None:
        taken = self._take()
        if not taken:
            self._rest()
            return
        begun = _Round(self._files, self._root, taken, tree=False)
        began = self.clock()
        is_quick = self._policy.is_quick(begun.unsynced_bytes)
        queue = self._found_queue() if begun.fits_queue and not is_quick else None
        if queue is not None and queue.begin(
            begun.fds(), lambda errors: self._end_queued(begun, errors, self.clock() - began)
        ):
            return
        begun.tree = self._policy.use_tree(begun.file_count, now=began)
        if is_quick:
            begun.execute()
            self._end_round(begun, self.clock() - began)
            return
        self.run(begun.execute, lambda _: self._end_round(begun, self.clock() - began))

    def _found_queue(self) -> SyncQueue | None:
        """The kernel's queue, taken when it is needed first: on a quick disk never."""
        if not self._has_looked_for_queue:
            self._has_looked_for_queue = True
            self._queue = self._files.sync_queue()
        return self._queue

    def _end_queued(self, ended: _Round, errors: dict[int, OSError], seconds: float) -> None:
        ended.take_errors(errors)
        self._end_round(ended, seconds)

    def _end_round(self, ended: _Round, seconds: float) -> None:
        self.rounds += 1
        self.seconds += seconds
        self._policy.observe(
            tree=ended.tree,
            file_count=ended.file_count,
            unsynced_bytes=ended.unsynced_bytes,
            seconds=seconds,
            now=self.clock(),
        )
        try:
            ended.finish()
        finally:
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._begin_round)
            else:
                self._rest()

    def _rest(self) -> None:
        self._running = False
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
        self._idle.clear()


class _Round:
    """The syncables of one round and what became of each."""

    __slots__ = (
        "_errors",
        "_files",
        "_root",
        "_works",
        "file_count",
        "fits_queue",
        "tree",
        "unsynced_bytes",
    )

    def __init__(self, files: Files, root: str, taken: list[Syncable], *, tree: bool) -> None:
        self._files = files
        self._root = root
        self._errors: dict[int, OSError] = {}
        self._works: list[tuple[Syncable, SyncWork]] = []
        self.tree = tree
        self.file_count = 0
        self.unsynced_bytes = 0
        directories: set[str] = set()
        for syncable in taken:
            work = syncable.begin_sync()
            self._works.append((syncable, work))
            directories.update(work.directories)
            self.file_count += len(work.files)
            self.unsynced_bytes += sum(file.begin_sync() for file in work.files)
        self.file_count += len(directories)
        self.fits_queue = not directories and self.file_count <= QUEUED_FILES_MAX

    def fds(self) -> list[int]:
        """The descriptors of all files, one syncable's after the other's."""
        return [file.syncing_fd for _, work in self._works for file in work.files]

    def take_errors(self, errors: dict[int, OSError]) -> None:
        """What went wrong, by the place in `fds`."""
        if errors:
            owners = [index for index, (_, work) in enumerate(self._works) for _ in work.files]
            self._errors = {owners[position]: error for position, error in errors.items()}

    def execute(self) -> None:
        """The blocking part; touches nothing that the event loop's thread may change."""
        if self.tree:
            try:
                self._files.sync_tree(self._root)
            except OSError:
                # The error may be of any file on the disk, another program's too.  fdatasync
                # tells which: a file keeps its own error until it is asked for.
                self.tree = False
            else:
                return
        directories: dict[str, OSError | None] = {}
        for index, (_, work) in enumerate(self._works):
            try:
                for file in work.files:
                    file.sync()
                for directory in work.directories:
                    self._sync_directory(directory, directories)
            except OSError as error:
                self._errors[index] = error

    def _sync_directory(self, path: str, seen: dict[str, OSError | None]) -> None:
        """Once per folder and round: all that were created in it share the sync."""
        if path not in seen:
            try:
                self._files.sync_directory(path)
                seen[path] = None
            except OSError as error:
                seen[path] = error
        failure = seen[path]
        if failure is not None:
            raise failure

    def finish(self) -> None:
        """Tell every syncable how it went, even if one of them raises."""
        raised: list[Exception] = []
        for index, (syncable, work) in enumerate(self._works):
            for file in work.files:
                file.end_sync()
            try:
                error = self._errors.get(index)
                if error is None:
                    syncable.synced()
                else:
                    syncable.sync_failed(error)
            except Exception as defect:  # noqa: BLE001 (raised below, when all were told)
                raised.append(defect)
        if raised:
            raise ExceptionGroup("a sync round could not be brought to its end", raised)
