"""Takes the checkpoints of all logs of a data directory when they are due.

A broker may have 20,000 logs with unsynced files, and syncing them takes minutes.  So checkpoints
are taken in groups of at most `GROUP_LOGS` logs.  The event loop and the storage thread do other
work between two groups; the event loop also does so between a few logs of a group:

    event loop       | begin  | begin  |                                   | end | end |
    storage thread                     | sync, producer snapshots, points  |

A recovery point is written after everything below it is synced, so a crash between two groups
leaves some recovery points unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping

from sharegroup.ids import TopicIdPartition
from sharegroup.storage.disk.directory_watch import (
    DirectoryLostError,
    DirectoryWatch,
    FoldersLostError,
)
from sharegroup.storage.disk.folders import folder_name
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.parts import StorageParts
from sharegroup.storage.recovery.checkpoint import (
    Checkpoint,
    CheckpointedLog,
    DirectoryOffsets,
    write_recovery_points,
)

log = logging.getLogger(__name__)

CHECKPOINT_BYTES = 64 * 1024 * 1024
"""Bytes appended to all logs after which a checkpoint is due.

So recovery after a crash reads and checks at most about this many bytes.
"""

# With ``durability=os`` this is also the time after which written records reach the disk.
CHECKPOINT_SECONDS = 30.0

GROUP_LOGS = 256
"""Number of logs that are synced together; about three files of each stay open meanwhile."""

TURN_LOGS = 8
"""Number of logs that begin or end their checkpoints before the event loop serves requests.

A log that begins a checkpoint may create its index files, which takes about 0.2 ms.
"""


class Checkpoints:
    """Takes the checkpoints of a data directory, one at a time."""

    __slots__ = (
        "_bytes_due",
        "_bytes_since",
        "_logs",
        "_lose",
        "_lose_folders",
        "_offsets",
        "_parts",
        "_taking",
        "_watch",
    )

    def __init__(
        self,
        parts: StorageParts,
        logs: Mapping[TopicIdPartition, PartitionLog],
        offsets: DirectoryOffsets,
        watch: DirectoryWatch,
        *,
        lose: Callable[[str], None],
        lose_folders: Callable[[frozenset[str]], None],
    ) -> None:
        """``lose`` is called with the reason if the directory is lost.

        ``lose_folders`` is called with the names of partition folders that are lost.
        """
        self._parts = parts
        self._logs = logs
        self._offsets = offsets
        self._watch = watch
        self._lose = lose
        self._lose_folders = lose_folders
        self._bytes_since = 0
        self._bytes_due = asyncio.Event()
        self._taking = asyncio.Lock()

    def appended(self, size: int) -> None:
        """Count ``size`` bytes that were appended to a log."""
        self._bytes_since += size
        if self._bytes_since >= CHECKPOINT_BYTES:
            self._bytes_due.set()

    async def run(self) -> None:
        """Take checkpoints when they are due by time or bytes, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECKPOINT_SECONDS):
                    await self._bytes_due.wait()
            await self.take()

    async def take_of(self, logs: Iterable[PartitionLog]) -> None:
        """Take a checkpoint of these logs alone, which others do not need yet."""
        async with self._taking:
            # Within the lock: the checkpoint before may have moved the points of these logs.
            due = [log_ for log_ in logs if log_.needs_checkpoint]
            for first in range(0, len(due), GROUP_LOGS):
                await self._take_group(due[first : first + GROUP_LOGS])

    async def take(self) -> None:
        """Move the recovery points of all logs up to the current high watermarks.

        With OS durability this syncs the logs first. If the disk fails, the old recovery points
        stay; they are still valid.
        """
        async with self._taking:
            # Before the logs are looked at: what is appended during this checkpoint counts for the
            # next one.
            self._bytes_since = 0
            self._bytes_due.clear()
        await self.take_of(list(self._logs.values()))

    async def _take_group(self, due: list[PartitionLog]) -> None:
        begun, error = await self._begin(due), None
        while begun:
            error = await self._try(begun)
            lost = [checkpoint for checkpoint in begun if not self._has(checkpoint.log)]
            if error is None or not lost:
                break
            # The files of a log are gone: its topic was deleted meanwhile, or its folder was
            # lost.  The disk has not failed, so try again without the log.
            for checkpoint in lost:
                checkpoint.log.end_checkpoint(checkpoint, done=False)
            begun = [checkpoint for checkpoint in begun if self._has(checkpoint.log)]
        if begun and error is not None:
            log.warning("event=checkpoint_failed error=%r", str(error))
        await self._end(begun, done=error is None)

    def _has(self, log_: CheckpointedLog) -> bool:
        """Return whether the log was neither deleted nor lost."""
        return self._logs.get(log_.key) is log_ and not log_.is_lost

    async def _begin(self, due: list[PartitionLog]) -> list[Checkpoint]:
        begun: list[Checkpoint] = []
        try:
            for count, log_ in enumerate(due, start=1):
                if self._has(log_):  # It may have been deleted since the last turn.
                    self._begin_one(log_, begun)
                if count % TURN_LOGS == 0:
                    await asyncio.sleep(0)
        except asyncio.CancelledError:
            for checkpoint in begun:
                checkpoint.log.end_checkpoint(checkpoint, done=False)
            raise
        return begun

    def _begin_one(self, log_: PartitionLog, begun: list[Checkpoint]) -> None:
        try:
            begun.append(log_.begin_checkpoint())
        except OSError as error:
            log.warning("event=checkpoint_failed %s error=%r", log_, str(error))
            if not log_.has_files:
                self._lose_folders(frozenset({folder_name(log_.key)}))

    async def _end(self, begun: list[Checkpoint], *, done: bool) -> None:
        remaining = iter(begun)
        try:
            for count, checkpoint in enumerate(remaining, start=1):
                checkpoint.log.end_checkpoint(checkpoint, done=done)
                if count % TURN_LOGS == 0:
                    await asyncio.sleep(0)
        finally:
            for (
                checkpoint
            ) in remaining:  # Cancelled: end the others, or their files would stay open.
                checkpoint.log.end_checkpoint(checkpoint, done=done)

    async def _try(self, begun: list[Checkpoint]) -> OSError | None:
        """Write the new recovery points of these logs, and the old ones of all others.

        Returns the error if that failed.
        """
        # A copy, because the storage thread writes it while the event loop may change the mapping.
        points = dict(self._offsets.recovery_points)
        points.update((checkpoint.log.key, checkpoint.point) for checkpoint in begun)
        try:
            await self._parts.syncer.in_thread(
                lambda: write_recovery_points(self._parts, self._watch, begun, points)
            )
        except DirectoryLostError as error:
            self._lose(str(error))
            return error
        except OSError as error:
            if isinstance(error, FoldersLostError):
                self._lose_folders(error.folders)
            return error
        for checkpoint in begun:
            if self._has(checkpoint.log):  # It may have been deleted in the meantime.
                self._offsets.recovery_points[checkpoint.log.key] = checkpoint.point
        return None
