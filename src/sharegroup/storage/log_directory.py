"""The data directory: one folder per partition, and what is kept about all of them.

    .lock                               held by the one broker that uses the directory
    .kafka_cleanshutdown                the last broker ended in order
    recovery-point-offset-checkpoint    below these offsets the logs are on disk for sure
    log-start-offset-checkpoint         where logs begin after DeleteRecords or retention
    cleaner-offset-checkpoint           up to where compacted logs are compacted
    <topic id>-<partition>/             segments, indexes, producer snapshots of one log

A log is opened (and recovered) by `create` when the broker first touches it; an empty log has
no folder at all.  `checkpoint` moves the recovery points up, by `run` every
`CHECKPOINT_SECONDS`, after every `CHECKPOINT_BYTES` appended, and when the directory is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping

from sharegroup.errors import KafkaStorageError
from sharegroup.ids import TopicId, TopicPartition
from sharegroup.storage.checkpoint_files import (
    read_checkpoint,
    replace_file,
    write_checkpoint,
)
from sharegroup.storage.compaction import (
    Compactable,
    Compacted,
    CompactionLimits,
    CompactionPass,
)
from sharegroup.storage.files import Files, RealFiles
from sharegroup.storage.folders import folder_name, partition_of, remove_folder
from sharegroup.storage.journal import Journal
from sharegroup.storage.partition_log import (
    SEGMENT_LIMITS_DEFAULT,
    Checkpoint,
    PartitionLog,
)
from sharegroup.storage.parts import Durability, StorageParts
from sharegroup.storage.read_ahead import ReadAhead
from sharegroup.storage.recovery import SNAPSHOT_SUFFIX, load_log
from sharegroup.storage.segment import SegmentLimits, segment_name
from sharegroup.storage.stored_file import OpenFiles
from sharegroup.storage.syncer import MakeSyncer, Syncer

log = logging.getLogger(__name__)

CHECKPOINT_BYTES = 64 * 1024 * 1024
"""After a crash at most about this much of all logs is read and checked."""

CHECKPOINT_SECONDS = 30.0

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
START_OFFSETS_FILE = "log-start-offset-checkpoint"
CLEANED_FILE = "cleaner-offset-checkpoint"
_DELETED_SUFFIX = "-delete"


class LogDirectory:
    """See the module's text.

    >>> directory = LogDirectory.open("/var/lib/sharegroup", durability=Durability.FSYNC)
    >>> log = directory.create(topic_id, 0)  # doctest: +SKIP
    >>> await log.append(batch, now_ms=now_ms)  # doctest: +SKIP
    """

    __slots__ = (
        "_bytes_due",
        "_bytes_since_checkpoint",
        "_checkpointing",
        "_cleaned",
        "_journals",
        "_lock_fd",
        "_logs",
        "_parts",
        "_recovery_points",
        "_start_offsets",
        "_wall_ms",
        "was_clean",
    )

    def __init__(
        self,
        path: str,
        *,
        durability: Durability,
        wall_ms: Callable[[], int],
        files: Files,
        syncer: Syncer,
    ) -> None:
        """Use `open`, which takes the directory's lock first."""
        opened = OpenFiles(files)
        self._lock_fd = -1
        self._parts = StorageParts(
            root=path,
            opened=opened,
            syncer=syncer,
            durability=durability,
            appended=self._appended,
            delete_before=self.delete_before,
        )
        self._wall_ms = wall_ms
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._journals: list[Journal] = []
        self._bytes_since_checkpoint = 0
        self._bytes_due = asyncio.Event()
        self._checkpointing = asyncio.Lock()
        self._recovery_points: dict[TopicPartition, int] = {}
        self._start_offsets: dict[TopicPartition, int] = {}
        self._cleaned: dict[TopicPartition, int] = {}
        self.was_clean = False
        """The broker that had the directory last ended in order."""

    @property
    def read_ahead(self) -> ReadAhead:
        """What was read, or is to be read, before anybody asks."""
        return self._parts.ahead

    @classmethod
    def open(
        cls,
        path: str,
        *,
        durability: Durability = Durability.FSYNC,
        wall_ms: Callable[[], int],
        files: Files | None = None,
        syncer: MakeSyncer = Syncer,
    ) -> LogDirectory:
        """Take the directory, made if need be; BlockingIOError names the process that has it."""
        files = RealFiles() if files is None else files
        if not files.exists(path):
            files.make_directory(path)
        is_new = not files.names(path)
        if is_new:
            files.sync_directory(os.path.dirname(os.path.abspath(path)))
        directory = cls(
            path, durability=durability, wall_ms=wall_ms, files=files, syncer=syncer(files, path)
        )
        directory._lock_fd = files.lock(f"{path}/{LOCK_FILE}")
        directory._recovery_points = read_checkpoint(files, path, RECOVERY_POINTS_FILE)
        directory._start_offsets = read_checkpoint(files, path, START_OFFSETS_FILE)
        directory._cleaned = read_checkpoint(files, path, CLEANED_FILE)
        directory.was_clean = files.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}")
        if not (is_new or directory.was_clean):
            # A broker that was killed may have left names in the system's memory only: of these
            # files, of the journal, of folders.  All of them count from now on.
            files.sync_directory(path)
        if directory.was_clean:
            files.remove(f"{path}/{CLEAN_SHUTDOWN_FILE}")
        for name in files.names(path):
            if name.endswith(_DELETED_SUFFIX):
                remove_folder(files, f"{path}/{name}")
        log.info("event=data_directory_opened path=%s clean=%s", path, directory.was_clean)
        return directory

    @property
    def durability(self) -> Durability:
        return self._parts.durability

    @property
    def sync_rounds(self) -> int:
        """How many rounds of syncs were done."""
        return self._parts.syncer.rounds

    @property
    def sync_seconds(self) -> float:
        """How long they took."""
        return self._parts.syncer.seconds

    def journal(self, name: str) -> Journal:
        """The journal with this file name, made if there is none."""
        journal = Journal(self._parts.opened, self._parts.syncer, self._parts.root, name)
        self._journals.append(journal)
        return journal

    def partitions(self) -> list[TopicPartition]:
        """The partitions that have a folder, opened or not."""
        found = (partition_of(name) for name in self._parts.files.names(self._parts.root))
        return [key for key in found if key is not None]

    def get(self, topic_id: TopicId, partition: int) -> PartitionLog | None:
        """The log if it was opened by `create`, else None."""
        return self._logs.get(TopicPartition(topic_id, partition))

    def create(
        self,
        topic_id: TopicId,
        partition: int,
        *,
        limits: SegmentLimits = SEGMENT_LIMITS_DEFAULT,
    ) -> PartitionLog:
        """Open the log of a partition: recovered from its folder, or empty."""
        key = TopicPartition(topic_id, partition)
        assert key not in self._logs, f"{key} is open already"
        cleaned_to = self._cleaned.get(key, 0)
        try:
            loaded = load_log(
                self._parts.opened,
                f"{self._parts.root}/{folder_name(key)}",
                start_offset=self._start_offsets.get(key, 0),
                recovery_point=max(self._recovery_points.get(key, 0), cleaned_to),
                now_ms=self._wall_ms(),
            )
        except OSError as error:
            raise KafkaStorageError(f"{folder_name(key)}: could not be opened: {error}") from error
        opened = PartitionLog(self._parts, key, loaded, limits=limits)
        opened.cleaned_to = cleaned_to
        self._logs[key] = opened
        return opened

    def delete(self, topic_id: TopicId) -> None:
        """Remove all partitions of a topic; the files go a little later."""
        for key in {*self._logs, *self.partitions()}:
            if key.topic_id == topic_id:
                self._delete_log(key)

    def _delete_log(self, key: TopicPartition) -> None:
        opened = self._logs.pop(key, None)
        if opened is not None:
            opened.close()
        self._recovery_points.pop(key, None)
        self._start_offsets.pop(key, None)
        self._cleaned.pop(key, None)
        files, folder = self._parts.files, f"{self._parts.root}/{folder_name(key)}"
        if not files.exists(folder):
            return
        # Under another name the folder is no log any more, whenever its files go.
        doomed = folder + _DELETED_SUFFIX
        files.rename(folder, doomed)
        self._parts.syncer.later(lambda: remove_folder(files, doomed))

    async def run(self) -> None:
        """Move the recovery points up from time to time, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECKPOINT_SECONDS):
                    await self._bytes_due.wait()
            await self.checkpoint()

    async def checkpoint(self) -> None:
        """Make the recovery points what is durable by now (and, with OS durability, make it so).

        A disk that fails here leaves the old points, which are right, only further back.
        """
        async with self._checkpointing:
            self._bytes_since_checkpoint = 0
            self._bytes_due.clear()
            begun, error = self._begin_checkpoints(), None
            while begun:
                error = await self._try_checkpoint(begun)
                gone = [one for one in begun if self._logs.get(one.log.key) is not one.log]
                if error is None or not gone:
                    break
                # A topic was deleted meanwhile and took its folder away, which is no failure of
                # the disk: once more, without it.
                for checkpoint in gone:
                    checkpoint.log.end_checkpoint(checkpoint, done=False)
                begun = [one for one in begun if self._logs.get(one.log.key) is one.log]
            if begun and error is not None:
                log.warning("event=checkpoint_failed error=%r", str(error))
            for checkpoint in begun:
                checkpoint.log.end_checkpoint(checkpoint, done=error is None)

    async def _try_checkpoint(self, begun: list[Checkpoint]) -> OSError | None:
        """Write the recovery points of these logs, and those of all others as they were."""
        points = dict(self._recovery_points)
        points.update((checkpoint.log.key, checkpoint.point) for checkpoint in begun)
        try:
            await self._parts.syncer.in_thread(lambda: self._write_checkpoint(begun, points))
        except OSError as error:
            return error
        self._recovery_points = {
            key: point
            for key, point in points.items()
            if key in self._logs or key in self._recovery_points  # Not deleted meanwhile.
        }
        return None

    async def close(self) -> None:
        """Make everything durable, say that this was done in order, give the directory back."""
        await self._parts.syncer.drain()
        await self.checkpoint()
        for key in list(self._logs):
            self._logs.pop(key).close()
        for journal in self._journals:
            journal.close()
        self._parts.syncer.close()
        files, root = self._parts.files, self._parts.root
        try:
            replace_file(files, root, CLEAN_SHUTDOWN_FILE, b'{"version":0}\n')
        except OSError as error:
            # The next start looks at the ends of all logs, as after a crash; that is all.
            log.warning("event=clean_shutdown_not_noted path=%s error=%r", root, str(error))
        files.close(self._lock_fd)
        log.info("event=data_directory_closed path=%s", root)

    async def drain(self) -> None:
        """Return when every append so far is decided and the storage thread is idle."""
        await self._parts.syncer.drain()
        await self._parts.syncer.in_thread(lambda: None)

    def abandon(self) -> None:
        """Give everything up as it is, as a crash would; for tests of recovery."""
        for opened in self._logs.values():
            opened.close()
        for journal in self._journals:
            journal.close()
        self._parts.syncer.close()
        self._parts.files.close(self._lock_fd)

    def _begin_checkpoints(self) -> list[Checkpoint]:
        begun = []
        for opened in self._logs.values():
            if not opened.needs_checkpoint:
                continue
            try:
                begun.append(opened.begin_checkpoint())
            except OSError as error:
                log.warning("event=checkpoint_failed %s error=%r", opened, str(error))
        return begun

    def _write_checkpoint(self, begun: list[Checkpoint], points: dict[TopicPartition, int]) -> None:
        """Blocking: sync what the points promise, then write the points."""
        files, root = self._parts.files, self._parts.root
        self._parts.syncer.sync_files(
            [file for checkpoint in begun for file in checkpoint.files],
            [name for checkpoint in begun for name in checkpoint.directories],
        )
        folders = []
        for checkpoint in begun:
            if checkpoint.producers is not None:
                folder = f"{root}/{folder_name(checkpoint.log.key)}"
                name = segment_name(checkpoint.point, SNAPSHOT_SUFFIX)
                replace_file(files, folder, name, checkpoint.producers)
                folders.append(folder)
        write_checkpoint(files, root, RECOVERY_POINTS_FILE, points)
        for folder in folders:
            # Only now: until the new points are durable, recovery needs the snapshot of the old.
            _remove_old_snapshots(files, folder)

    def _appended(self, size: int) -> None:
        self._bytes_since_checkpoint += size
        if self._bytes_since_checkpoint >= CHECKPOINT_BYTES:
            self._bytes_due.set()

    async def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Move the starts of many logs up at once, durably: one file is written for all.

        Logs that are gone by now are passed over.  OffsetOutOfRange where one has less.
        """
        logs = [(self._logs[key], end) for key, end in offsets.items() if key in self._logs]
        for log_, end in logs:
            log_.check_deletion(end)
        if any(log_.tells_of_producers(end) for log_, end in logs):
            await self.checkpoint()
        try:
            await self._save_start_offsets(offsets)
        except OSError as error:
            raise KafkaStorageError(f"{self._parts.root}: new start offsets: {error}") from error
        for key, offset in offsets.items():
            if key in self._logs:
                self._logs[key].begin_at(offset)

    async def compact(
        self, of: PartitionLog, found: Compactable, limits: CompactionLimits
    ) -> Compacted:
        """One pass over what `PartitionLog.compactable` found in a log."""
        done = await CompactionPass(self._parts, found, limits, now_ms=self._wall_ms()).run()
        if self._logs.get(of.key) is not of:
            return done  # The topic went meanwhile.
        of.cleaned_to = self._cleaned[of.key] = done.cleaned_to
        cleaned, files, root = dict(self._cleaned), self._parts.files, self._parts.root
        try:
            await self._parts.syncer.in_thread(
                lambda: write_checkpoint(files, root, CLEANED_FILE, cleaned)
            )
        except OSError as error:
            raise KafkaStorageError(f"{of}: end of compaction: {error}") from error
        return done

    async def _save_start_offsets(self, moved: Mapping[TopicPartition, int]) -> None:
        """Write the file; a start never moves back, whoever is saved last."""
        offsets, files, root = dict(self._start_offsets), self._parts.files, self._parts.root
        for key, offset in moved.items():
            if key not in self._logs:
                continue  # The topic is gone.
            offsets[key] = max(offset, offsets.get(key, 0))
        self._start_offsets = offsets
        await self._parts.syncer.in_thread(
            lambda: write_checkpoint(files, root, START_OFFSETS_FILE, offsets)
        )


def _remove_old_snapshots(files: Files, folder: str) -> None:
    """Keep the newest two: the newest, and the one before should that be unreadable."""
    names = [name for name in files.names(folder) if name.endswith(SNAPSHOT_SUFFIX)]
    for name in names[:-2]:
        files.remove(f"{folder}/{name}")
