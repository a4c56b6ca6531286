"""Group commit: one round of syncs for everything that was written since the last round.

A component with unsynced writes calls `Syncer.request`.  At the end of the current iteration of the
event loop one round begins.  It takes all requests, asks each component what to sync, syncs, and
reports the result to each.  Writes made in the meantime wait for the next round, so more writes
share a round when there is more load.  A write that nobody waits for begins no round for a while
(`Syncer.request_later`); it shares that of the next write.

How a round syncs, and where (ADR 0001, measured):

- It calls fdatasync for each of a few files, or one syncfs for many.  Every fdatasync flushes the
  disk's cache; syncfs flushes it once.  But syncfs also writes the data of *other* programs on the
  same file system.  When that makes it slow, rounds use fdatasync for a while.
- It syncs in the event loop's thread if there are few bytes and recent rounds were quick, because
  any hand-over costs more than such a sync.  Otherwise it hands a few files to the kernel's queue
  (`kernel_syncs`), or the round to the one storage thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from sharegroup.storage.disk.files import Files, SyncQueue
from sharegroup.storage.disk.stored_file import StoredFile

T = TypeVar("T")

FILES_EACH_MAX = 3
"""Maximum number of files that are synced one by one.

It keeps the usual round, a partition and its group's state, free of other programs' data.
"""

QUEUED_FILES_MAX = 8
"""Maximum number of files that are handed to the kernel's queue, if there are no folders."""

INLINE_BYTES_MAX = 256 * 1024
"""Maximum number of unsynced bytes of a round in the event loop's thread."""

INLINE_SECONDS_MAX = 0.001
"""Maximum average duration of recent rounds for a round in the event loop's thread."""

TREE_SLOW_SECONDS = 0.050
"""If a syncfs takes longer than this, and than single syncs would, it is not used for a while."""

TREE_PAUSE_SECONDS = 10.0

PROBE_SECONDS = 0.5
"""The pause between two probes of a disk that failed."""

LATER_SECONDS = 0.01
"""The time after which a round begins for writes that nobody waits for."""

# The averages follow about the last ten rounds: one slow round must not change the way.
_AVERAGE_WEIGHT = 0.1
# Guesses for the first rounds, replaced by measurements.
_FILE_SECONDS_AT_FIRST = 0.000_2
_BYTES_PER_SECOND = 200_000_000


@dataclass(frozen=True, slots=True)
class SyncWork:
    """The files and folders that must be synced before a mark is durable."""

    files: tuple[StoredFile, ...]
    directories: tuple[str, ...] = ()


class Syncable(Protocol):
    """A component with unsynced writes.  Its methods are called in the event loop's thread."""

    def begin_sync(self) -> SyncWork:
        """Remember the current end of the writes and return what must be synced for it."""
        ...

    def synced(self) -> None:
        """Note that all writes up to the last `begin_sync` are durable."""
        ...

    def sync_failed(self, error: OSError) -> None:
        """Note that writes up to the last `begin_sync` may be lost."""
        ...


class SyncPolicy:
    """Decides how and where a round syncs, based on the durations of earlier rounds."""

    __slots__ = ("_can_sync_tree", "_file_seconds", "_round_seconds", "_tree_from")

    def __init__(self, *, can_sync_tree: bool) -> None:
        self._can_sync_tree = can_sync_tree
        self._file_seconds = _FILE_SECONDS_AT_FIRST
        # So the first rounds run in the event loop's thread, even on a slow disk (ADR 0001).
        self._round_seconds = 0.0
        self._tree_from = 0.0

    def use_tree(self, file_count: int, *, now: float) -> bool:
        """Return whether a round with this number of files calls syncfs once instead of fdatasync.

        ``now`` is in seconds, like the times of `observe`.
        """
        return self._can_sync_tree and file_count > FILES_EACH_MAX and now >= self._tree_from

    def is_quick(self, unsynced_bytes: int) -> bool:
        """Return whether the round may run in the event loop's thread."""
        return unsynced_bytes <= INLINE_BYTES_MAX and self._round_seconds <= INLINE_SECONDS_MAX

    def observe(
        self, *, tree: bool, file_count: int, unsynced_bytes: int, seconds: float, now: float
    ) -> None:
        """Update the averages with a round that has just ended."""
        self._round_seconds += (seconds - self._round_seconds) * _AVERAGE_WEIGHT
        # Without the time that the bytes take, so the average is that of a flush, which does not
        # depend on them.
        transfer = unsynced_bytes / _BYTES_PER_SECOND
        if not tree:
            file_seconds = max(0.0, seconds - transfer) / max(1, file_count)
            self._file_seconds += (file_seconds - self._file_seconds) * _AVERAGE_WEIGHT
        elif seconds > max(TREE_SLOW_SECONDS, self._file_seconds * file_count + transfer):
            self._tree_from = now + TREE_PAUSE_SECONDS


MakeSyncer = Callable[[Files, str], "Syncer"]
"""Creates the syncer of a data directory; the simulation passes one with virtual time."""


class Syncer:
    """Syncs the writes of a data directory in rounds, and runs its blocking work.

    ``clock`` returns seconds and serves only to compare durations.  ``thread`` runs the blocking
    work sequentially, in the order of the calls; by default the syncer creates its own thread.
    ``probe_seconds`` is the pause of a fenced log between two probes of its disk.
    """

    __slots__ = (
        "_files",
        "_has_looked_for_queue",
        "_idle",
        "_is_urgent",
        "_policy",
        "_queue",
        "_root",
        "_running",
        "_thread",
        "_timer",
        "_waiting",
        "clock",
        "probe_seconds",
        "rounds",
        "seconds",
    )

    def __init__(
        self,
        files: Files,
        root: str,
        *,
        clock: Callable[[], float] | None = None,
        thread: Executor | None = None,
        probe_seconds: float = PROBE_SECONDS,
    ) -> None:
        self._files = files
        self._root = root
        self.clock = clock or time.perf_counter
        self.probe_seconds = probe_seconds
        self._policy = SyncPolicy(can_sync_tree=files.can_sync_tree)
        self._queue: SyncQueue | None = None
        self._has_looked_for_queue = False
        # A dict in place of a set: a seed of the simulation has to give the same order (ADR 0015).
        self._waiting: dict[Syncable, None] = {}
        self._is_urgent = False
        """Whether somebody waits for one of the writes of the next round."""
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self._idle: list[asyncio.Future[None]] = []
        self._thread = thread or ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage")
        self.rounds = 0
        """Number of rounds so far."""
        self.seconds = 0.0
        """Total duration of all rounds in seconds."""

    def request(self, syncable: Syncable) -> None:
        """Include ``syncable`` in the next round."""
        self._waiting[syncable] = None
        self._hasten()

    def request_later(self, syncable: Syncable) -> None:
        """Include ``syncable`` in the next round, which need not begin before `LATER_SECONDS`."""
        self._waiting[syncable] = None
        # A round under way looks for it when it ends (`_rest`).
        if not self._running:
            self._begin_later()

    def withdraw(self, syncable: Syncable) -> None:
        """Remove ``syncable`` from rounds that have not begun."""
        self._waiting.pop(syncable, None)

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Do blocking work in the storage thread, then call ``done`` in the event loop.

        ``done`` gets the exception of the work, or None.
        """
        loop = asyncio.get_running_loop()

        def tell_loop(ended: Future[None]) -> None:
            loop.call_soon_threadsafe(done, ended.exception())

        self._thread.submit(work).add_done_callback(tell_loop)

    def in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        """Do blocking work in the storage thread, after all earlier work, and return its result."""
        return asyncio.wrap_future(self._thread.submit(work))

    def later(self, work: Callable[[], None]) -> None:
        """Do blocking work in the storage thread later, without reporting the result."""
        self._thread.submit(work)

    async def drain(self) -> None:
        """Wait until no round is running and none is requested."""
        while self._running or self._waiting:
            # At once, also for writes that nobody waits for.
            self._hasten()
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle

    def sync_files(self, files: list[StoredFile], directories: list[str]) -> None:
        """Blocking: sync folders, and files whose `begin_sync` was called."""
        for file in files:
            error = file.take_early_error()
            if error is not None:
                raise error
        if self._files.can_sync_tree and len(files) + len(directories) > FILES_EACH_MAX:
            self._files.sync_tree(self._root)
            return
        for file in files:
            file.sync()
        for directory in dict.fromkeys(directories):
            self._files.sync_directory(directory)

    def close(self) -> None:
        """Wait for the storage thread and the kernel's queue to finish, then stop both."""
        if self._timer is not None:
            self._timer.cancel()
        self._thread.shutdown(wait=True)
        if self._queue is not None:
            self._queue.close()

    def _take(self) -> list[Syncable]:
        syncables = list(self._waiting)
        self._waiting.clear()
        self._is_urgent = False
        return syncables

    def _hasten(self) -> None:
        """Let the next round begin as soon as possible."""
        self._is_urgent = True
        if not self._running:
            self._running = True
            # Not at once: all writes of this iteration of the event loop share the round.
            asyncio.get_running_loop().call_soon(self._begin_round)

    def _begin_later(self) -> None:
        """Let a round begin after `LATER_SECONDS`, unless one begins before."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LATER_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiting:
            self._hasten()

    def _begin_round(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        syncables = self._take()
        # Every component that asked for the round was closed meanwhile (`withdraw`).
        if not syncables:
            self._rest()
            return
        begun = _Round(self._files, self._root, syncables)
        began = self.clock()
        defect: Exception | None = None
        try:
            begun.begin()
            if not self._execute(begun, began):
                return  # It ends later.
        except Exception as error:  # noqa: BLE001 (the round fails with it, and raises it)
            # A round that does not end would let all later writes wait for ever.
            defect = error
        self._end_round(begun, self.clock() - began, defect)

    def _execute(self, begun: _Round, began: float) -> bool:
        """Sync, or hand the round over; return whether it has ended.  May raise anything."""
        is_quick = self._policy.is_quick(begun.unsynced_bytes)
        # Not for a quick round: the kernel's workers need a processor, too, and on a quick disk it
        # costs less if the loop waits (ADR 0001).
        queue = self._found_queue() if begun.fits_queue and not is_quick else None
        # False if the kernel refuses it, for example in a sandbox; the thread does the round then.
        if queue is not None and queue.begin(
            begun.fds(), lambda errors: self._end_queued(begun, errors, self.clock() - began)
        ):
            return False
        begun.tree = self._policy.use_tree(begun.file_count, now=began)
        if is_quick:
            begun.execute()
            return True
        self.run(begun.execute, lambda defect: self._end_round(begun, self.clock() - began, defect))
        return False

    def _found_queue(self) -> SyncQueue | None:
        """Return the kernel's queue, created on first use: with a quick disk it is never needed."""
        if not self._has_looked_for_queue:
            self._has_looked_for_queue = True
            self._queue = self._files.sync_queue()
        return self._queue

    def _end_queued(self, ended: _Round, errors: dict[int, OSError], seconds: float) -> None:
        ended.take_errors(errors)
        self._end_round(ended, seconds, None)

    def _end_round(self, ended: _Round, seconds: float, defect: BaseException | None) -> None:
        """Report the result; ``defect`` is an error that does not tell which files it is about."""
        if defect is not None:
            ended.fail(defect)
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
            # Also after a defect in one component: the others still wait for their syncs.
            if self._is_urgent:
                # After the waiters that this round has woken, so that their next writes share the
                # round.
                asyncio.get_running_loop().call_soon(self._begin_round)
            else:
                self._rest()

    def _rest(self) -> None:
        self._running = False
        if self._waiting:
            self._begin_later()
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
        self._idle.clear()


class _Round:
    """One round of syncs: its syncables, their work and their errors."""

    __slots__ = (
        "_begun",
        "_errors",
        "_files",
        "_raised",
        "_root",
        "_syncables",
        "_works",
        "file_count",
        "fits_queue",
        "tree",
        "unsynced_bytes",
    )

    def __init__(self, files: Files, root: str, syncables: list[Syncable]) -> None:
        self._files = files
        self._root = root
        self._syncables = syncables
        self._errors: dict[int, OSError] = {}
        """Errors by the position of the syncable."""
        self._works: list[SyncWork] = []
        """The work of each syncable."""
        self._begun: list[StoredFile] = []
        """The files whose `end_sync` is still to be called."""
        self._raised: list[BaseException] = []
        self.tree = False
        self.file_count = 0
        self.unsynced_bytes = 0
        self.fits_queue = False

    def begin(self) -> None:
        """Ask every syncable for its work.  May raise anything; then the round has to fail."""
        directories: set[str] = set()
        for index, syncable in enumerate(self._syncables):
            # The mark is set before the sync begins.  A write during the sync may be missed by it,
            # so it must not count as durable when the sync ends.
            work = syncable.begin_sync()
            self._works.append(work)
            directories.update(work.directories)
            self.file_count += len(work.files)
            for file in work.files:
                self.unsynced_bytes += file.begin_sync()
                self._begun.append(file)
                error = file.take_early_error()
                if error is not None:
                    self._errors[index] = error
        self.file_count += len(directories)
        self.fits_queue = not directories and self.file_count <= QUEUED_FILES_MAX

    def fds(self) -> list[int]:
        """Return the descriptors of all files, in the order of the syncables."""
        return [file.syncing_fd for work in self._works for file in work.files]

    def take_errors(self, errors: dict[int, OSError]) -> None:
        """Assign errors, which are given by position in `fds`, to the syncables."""
        if errors:
            owners = [index for index, work in enumerate(self._works) for _ in work.files]
            self._errors |= {owners[position]: error for position, error in errors.items()}

    def execute(self) -> None:
        """Sync all files and folders.

        This is the blocking part; it uses nothing that the event loop's thread may change.
        """
        if self.tree:
            try:
                self._files.sync_tree(self._root)
            except OSError:
                # The error may belong to any file on the disk, even to another program's.  The
                # fdatasync below tells: each file keeps its own error until a sync reports it.
                self.tree = False
            else:
                return
        directories: dict[str, OSError | None] = {}
        for index, work in enumerate(self._works):
            try:
                for file in work.files:
                    file.sync()
                for directory in work.directories:
                    self._sync_directory(directory, directories)
            except OSError as error:
                self._errors[index] = error

    def _sync_directory(self, path: str, results: dict[str, OSError | None]) -> None:
        """Sync a folder once per round; later calls repeat its result."""
        if path not in results:
            try:
                self._files.sync_directory(path)
                results[path] = None
            except OSError as error:
                results[path] = error
        failure = results[path]
        if failure is not None:
            raise failure

    def fail(self, defect: BaseException) -> None:
        """Let the round fail for every syncable, because nobody knows what is durable."""
        error = OSError(f"the round of syncs was not completed: {defect!r}")
        self._errors = {**dict.fromkeys(range(len(self._syncables)), error), **self._errors}
        self._raised.append(defect)

    def finish(self) -> None:
        """Report the result to every syncable, even if one of them raises; then raise all."""
        for file in self._begun:
            self._attempt(file.end_sync)
        for index, syncable in enumerate(self._syncables):
            error = self._errors.get(index)
            if error is None:
                self._attempt(syncable.synced)
            else:
                self._attempt(partial(syncable.sync_failed, error))
        if self._raised:
            raise BaseExceptionGroup("a sync round could not be completed", self._raised)

    def _attempt(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as defect:  # noqa: BLE001 (`finish` raises it, when all were told)
            self._raised.append(defect)
