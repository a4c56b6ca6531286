"""The data directory: one folder per partition, and files for the whole directory.

    .lock                               held by the one broker that uses the directory
    meta.properties                     the cluster that the directory belongs to
    .kafka_cleanshutdown                exists after a clean shutdown of the last broker
    recovery-point-offset-checkpoint    recovery points: the logs are on disk below these offsets
    log-start-offset-checkpoint         log start offsets after DeleteRecords or retention
    cleaner-offset-checkpoint           end offsets of the last compaction of compacted logs
    set-aside/                          bytes that recovery removed from logs and journals
    <topic id>-<partition>/             segments, indexes, producer snapshots of one log

`create` opens (and recovers) a log when the broker first uses it; an empty log has no folder
(ADR 0007).  A checkpoint moves the recovery points up.  `run` takes one every `CHECKPOINT_SECONDS`
and after every `CHECKPOINT_BYTES` appended; `close` takes the last one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from sharegroup.core.log.producer_room import ProducerRoom
from sharegroup.errors import KafkaStorageError
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.storage.directory.checkpoints import Checkpoints
from sharegroup.storage.directory.deletions import Deletions
from sharegroup.storage.directory.journal import (
    CLEAN_SHUTDOWN_FILE,
    Journal,
    Mark,
    read_clean_shutdown,
    write_clean_shutdown,
)
from sharegroup.storage.disk.checkpoint_files import write_checkpoint
from sharegroup.storage.disk.directory_watch import (
    WATCH_SECONDS,
    WHAT_TO_DO,
    DirectoryLostError,
    DirectoryWatch,
)
from sharegroup.storage.disk.files import DiskSpace, Files, RealFiles
from sharegroup.storage.disk.folders import DELETED_SUFFIX, folder_name, is_doomed, partition_of
from sharegroup.storage.disk.metadata_files import PartitionMetadata, kept_metadata
from sharegroup.storage.disk.set_aside import SET_ASIDE_BYTES_MAX, SetAside
from sharegroup.storage.disk.stored_file import OpenFiles
from sharegroup.storage.log.partition_log import SEGMENT_LIMITS_DEFAULT, PartitionLog
from sharegroup.storage.parts import Durability, StorageParts
from sharegroup.storage.recovery.checkpoint import (
    CLEANED_FILE,
    RECOVERY_POINTS_FILE,
    START_OFFSETS_FILE,
    DirectoryOffsets,
)
from sharegroup.storage.segment.read_ahead import ReadAhead
from sharegroup.storage.segment.segment import SegmentLimits
from sharegroup.storage.sync.syncer import MakeSyncer, Syncer

if TYPE_CHECKING:
    # Imported at first use, to keep the start of a broker short.
    from sharegroup.storage.log.compaction import Compactable, Compacted, CompactionLimits

log = logging.getLogger(__name__)

TURN_LOGS = 16
"""Number of logs that get a new start offset before the event loop serves requests.

One takes about 0.07 ms.
"""

MEASURE_ROUNDS = 60
"""Number of checks of the directory between two measurements of ``set-aside``: every minute."""

LOCK_FILE = ".lock"
NO_NAME = TopicName("")


def last_write_ms(files: Files, path: str) -> int | None:
    """Blocking: return when a broker last wrote a data directory; None if that is not known.

    A broker writes one of these files when it stops, and every half minute in which records came.
    """
    write_times_ms = (
        files.modified_ms(f"{path}/{name}") for name in (CLEAN_SHUTDOWN_FILE, RECOVERY_POINTS_FILE)
    )
    return max((time_ms for time_ms in write_times_ms if time_ms is not None), default=None)


class LogDirectory:
    """The data directory of a broker: opens, deletes and checkpoints the logs of all partitions.

    >>> directory = LogDirectory.open("/var/lib/sharegroup", durability=Durability.FSYNC)
    >>> log = directory.create(topic_id, 0)  # doctest: +SKIP
    >>> await log.append(batch, now_ms=now_ms)  # doctest: +SKIP
    """

    __slots__ = (
        "_checkpoints",
        "_deletions",
        "_is_untouched",
        "_journals",
        "_lock_fd",
        "_logs",
        "_offsets",
        "_parts",
        "_saving",
        "_set_aside",
        "_wall_ms",
        "_watch",
        "closed_journals",
        "lost",
        "set_aside_bytes",
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
        set_aside_bytes_max: int,
    ) -> None:
        """Use `open` instead, which also locks the directory."""
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
        self._watch = DirectoryWatch(files)
        self.lost = ""
        """Why the directory is lost; empty while it exists."""
        self._set_aside = SetAside(files, path, wall_ms=wall_ms, bytes_max=set_aside_bytes_max)
        self._logs: dict[TopicIdPartition, PartitionLog] = {}
        self._journals: list[Journal] = []
        self._offsets = DirectoryOffsets()
        self._saving = asyncio.Lock()
        """Held while start offsets are written."""
        self._checkpoints = Checkpoints(
            self._parts,
            self._logs,
            self._offsets,
            self._watch,
            lose=self._lose,
            lose_folders=self._lose_logs,
        )
        self._deletions = Deletions(self._parts, self._logs, self._offsets)
        self._is_untouched = True
        self.was_clean = False
        """Whether the last broker that used the directory shut down cleanly."""
        self.closed_journals: dict[str, Mark] = {}
        """Marks of the journals at the last clean shutdown, by name, as far as they are known."""
        self.set_aside_bytes = 0
        """Bytes in ``set-aside`` at the last measurement."""

    @property
    def opened(self) -> OpenFiles:
        """The open files of all logs and journals."""
        return self._parts.opened

    def space(self) -> DiskSpace | None:
        """Return the space of the volume; None if it is unknown or cannot be read at present."""
        try:
            return self.files.space(self.path)
        except OSError:
            return None  # The volume may be gone; `lost` and failing writes tell of that.

    @property
    def producer_room(self) -> ProducerRoom:
        """The limit on remembered producers, which all logs share."""
        return self._parts.producer_room

    @property
    def read_ahead(self) -> ReadAhead:
        """The reads ahead of all logs."""
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
        set_aside_bytes_max: int = SET_ASIDE_BYTES_MAX,
    ) -> LogDirectory:
        """Open and lock the directory; create it if it does not exist.

        BlockingIOError names the process that has the lock.
        """
        files = RealFiles() if files is None else files
        if not files.exists(path):
            files.make_directory(path)
        is_new = not files.names(path)
        if is_new:
            # The name of the new directory is in its parent.
            files.sync_directory(os.path.dirname(os.path.abspath(path)))
        directory = cls(
            path,
            durability=durability,
            wall_ms=wall_ms,
            files=files,
            syncer=syncer(files, path),
            set_aside_bytes_max=set_aside_bytes_max,
        )
        directory._lock_fd = files.lock(f"{path}/{LOCK_FILE}")
        directory._watch.expect(f"{path}/{LOCK_FILE}", directory._lock_fd)
        # After the lock: until then another broker may write these files.
        directory._offsets.read(files, path, directory._set_aside)
        closed_journals = read_clean_shutdown(files, path)
        directory.was_clean = closed_journals is not None
        directory.closed_journals = closed_journals or {}
        if not (is_new or directory.was_clean):
            # A killed broker may have left names of files and folders only in the system's memory.
            # This broker relies on them, so they must be durable.
            files.sync_directory(path)
        state = "new" if is_new else "clean" if directory.was_clean else "unclean"
        log.info("event=data_directory_opened path=%s state=%s", path, state)
        return directory

    def begin(self) -> None:
        """Remove the mark of the clean shutdown before the first change of the directory.

        A broker that refuses to start does not call this and changes nothing.
        """
        if self._is_untouched:
            self._is_untouched = False
            if self.was_clean:
                self.files.remove(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")
                # Synced before a journal changes, because the file has marks of the old journals.
                self.files.sync_directory(self.path)

    @property
    def durability(self) -> Durability:
        """When an append counts as durable, for all logs."""
        return self._parts.durability

    @property
    def sync_rounds(self) -> int:
        """Number of rounds of syncs so far."""
        return self._parts.syncer.rounds

    @property
    def sync_seconds(self) -> float:
        """Total duration of all rounds of syncs in seconds."""
        return self._parts.syncer.seconds

    def journal(self, name: str) -> Journal:
        """Open the journal with this file name; its first payload creates the file."""
        parts, watch = self._parts, self._watch
        journal = Journal(
            parts.opened, parts.syncer, parts.root, name, set_aside=self._set_aside, watch=watch
        )
        self._journals.append(journal)
        return journal

    @property
    def path(self) -> str:
        """The path of the data directory."""
        return self._parts.root

    @property
    def files(self) -> Files:
        """The file system that the logs use."""
        return self._parts.files

    def had_records(self, key: TopicIdPartition) -> bool:
        """Return whether the log had records at its last checkpoint, so its folder must exist."""
        return self._offsets.recovery_points.get(key, 0) > 0

    def partitions(self) -> list[TopicIdPartition]:
        """Return the partitions that have a folder, whether their logs are open or not."""
        partitions = (partition_of(name) for name in self._parts.files.names(self._parts.root))
        return [key for key in partitions if key is not None]

    def doomed_partitions(self) -> list[TopicIdPartition]:
        """Return the partitions whose folders were to be removed before a crash."""
        names = self._parts.files.names(self._parts.root)
        doomed = (name.removesuffix(DELETED_SUFFIX) for name in names if is_doomed(name))
        return [key for key in map(partition_of, doomed) if key is not None]

    def get(self, topic_id: TopicId, partition: int) -> PartitionLog | None:
        """Return the log if `create` has opened it, otherwise None."""
        return self._logs.get(TopicIdPartition(topic_id, partition))

    def create(
        self,
        topic_id: TopicId,
        partition: int,
        *,
        limits: SegmentLimits = SEGMENT_LIMITS_DEFAULT,
        topic_name: TopicName = NO_NAME,
        partition_count: int = 1,
    ) -> PartitionLog:
        """Open the log of a partition: recovered from its folder, or empty.

        The topic's name and partition count are stored in the folder, so that a lost catalog can be
        restored from the folders.
        """
        # Imported with the first log, because a new data directory has none.
        from sharegroup.storage.recovery.recovery import CheckpointedOffsets, load_log

        key = TopicIdPartition(topic_id, partition)
        assert key not in self._logs, f"{key} is open already"
        self._check_there()
        self.begin()
        cleaned_to = self._offsets.cleaned.get(key, 0)
        folder = f"{self._parts.root}/{folder_name(key)}"
        about = PartitionMetadata(topic_id, topic_name, partition_count)
        try:
            metadata = kept_metadata(self.files, folder, about)
            loaded = load_log(
                self._parts.opened,
                folder,
                CheckpointedOffsets(
                    self._offsets.start_offsets.get(key, 0),
                    # Compaction works below a recovery point only, so its end was one, even if that
                    # file is lost.
                    max(self._offsets.recovery_points.get(key, 0), cleaned_to),
                    is_compacted=cleaned_to > 0,
                ),
                now_ms=self._wall_ms(),
                set_aside=self._set_aside,
                producers_max=self._parts.producer_room.producers_max,
            )
        except OSError as error:
            raise KafkaStorageError(
                f"{folder_name(key)}: could not be opened: {error}; correct the file's rights, or "
                "restore it from a copy. An index or a producer snapshot can be moved away: it is "
                "made again from the log"
            ) from error
        opened = PartitionLog(self._parts, key, loaded, limits=limits, metadata=metadata)
        opened.cleaned_to = cleaned_to
        self._logs[key] = opened
        return opened

    def delete(
        self,
        topic_id: TopicId,
        *,
        partition_count: int,
        removed: Callable[[], None] = lambda: None,
    ) -> None:
        """Remove all partitions of a topic, whose deletion is durable (`deletions`).

        ``removed`` is called when the removal of its folders is durable. If it fails, the next
        start tries again.
        """
        self.begin()
        self._deletions.begin(topic_id, partition_count=partition_count, removed=removed)

    def forget_offsets(self, deleted: Collection[TopicId]) -> None:
        """Drop the offsets of topics that an earlier run of the broker deleted."""
        self._offsets.forget_topics(deleted)

    async def watch(self, *, watch_seconds: float = WATCH_SECONDS) -> None:
        """Check every ``watch_seconds`` whether the directory still exists, until it is lost."""
        for round_ in itertools.count():
            await asyncio.sleep(watch_seconds)
            if self.lost:
                return
            try:
                await self._parts.syncer.in_thread(self._watch.check)
                if round_ % MEASURE_ROUNDS == 0:
                    await self.measure_set_aside()
            except DirectoryLostError as error:
                self._lose(str(error))
            except OSError as error:
                log.warning("event=watch_failed path=%s error=%r", self.path, str(error))

    async def measure_set_aside(self) -> None:
        """Measure the bytes in ``set-aside``, because an operator may have removed some of them."""
        self.set_aside_bytes = await self._parts.syncer.in_thread(self._set_aside.size)

    def _lose(self, reason: str) -> None:
        """Fence all logs and journals: the directory is gone or belongs to another broker."""
        if self.lost:
            return
        self.lost = f"the data directory {self.path} is lost: {reason}"
        log.critical("event=data_directory_lost reason=%r action=%r", self.lost, WHAT_TO_DO)
        for opened in self._logs.values():
            opened.lose(self.lost)
        for journal in self._journals:
            journal.lose(self.lost)

    def _check_there(self) -> None:
        if self.lost:
            raise KafkaStorageError(self.lost)

    async def run(self) -> None:
        """Take checkpoints when they are due, until cancelled."""
        await self._checkpoints.run()

    async def checkpoint(self) -> None:
        """Take a checkpoint of all logs now; see `storage.directory.checkpoints`."""
        await self._checkpoints.take()

    async def checkpoint_of(self, logs: Iterable[PartitionLog]) -> None:
        """Take a checkpoint of these logs now."""
        await self._checkpoints.take_of(logs)

    @property
    def fenced_count(self) -> int:
        """The number of logs that refuse appends because their disk failed."""
        return sum(opened.is_fenced for opened in self._logs.values())

    def _lose_logs(self, folders: frozenset[str]) -> None:
        """Fence the logs whose folders are lost."""
        for opened in self._logs.values():
            folder = folder_name(opened.key)
            if folder in folders:
                log.critical("event=folder_lost folder=%s action=%r", folder, WHAT_TO_DO)
                opened.lose(f"the folder {folder} or its newest segment no longer exists")

    async def close(self) -> None:
        """Make everything durable, write the mark of a clean shutdown, and unlock the directory."""
        await self._parts.syncer.drain()
        self._deletions.close()
        await self.checkpoint()
        for key in list(self._logs):
            self._logs.pop(key).close()
        # Last of all comes the mark of the clean shutdown: it vouches for everything before it.
        marks = {journal.name: journal.mark() for journal in self._journals}
        for journal in self._journals:
            journal.close()
        self._parts.syncer.close()
        files, root = self._parts.files, self._parts.root
        try:
            self._watch.check()
            if not self._is_untouched:
                known_marks = {name: mark for name, mark in marks.items() if mark is not None}
                write_clean_shutdown(files, root, known_marks)
        except OSError as error:
            # The only consequence: the next start checks the ends of all logs, as after a crash.
            log.warning("event=clean_shutdown_not_noted path=%s error=%r", root, str(error))
        files.close(self._lock_fd)
        files.release()
        log.info("event=data_directory_closed path=%s", root)

    async def drain(self) -> None:
        """Wait until every append so far is durable or failed and the storage thread is idle."""
        await self._parts.syncer.drain()
        await self._parts.syncer.in_thread(lambda: None)

    def abandon(self) -> None:
        """Close all files without a sync, as after a crash; for recovery tests."""
        self._deletions.abandon()
        for opened in self._logs.values():
            opened.close()
        for journal in self._journals:
            journal.close()
        self._parts.syncer.close()
        self._parts.files.close(self._lock_fd)
        self._parts.files.release()

    def _appended(self, size: int) -> None:
        self._checkpoints.appended(size)

    async def delete_before(self, offsets: Mapping[TopicIdPartition, int]) -> None:
        """Move the start offsets of many logs up durably, with one write of a file for all.

        Logs that were deleted are skipped.  OffsetOutOfRange if an offset is above the high
        watermark of its log.
        """
        logs = [(self._logs[key], end) for key, end in offsets.items() if key in self._logs]
        for log_, end in logs:
            log_.check_deletion(end)
        if any(log_.tells_of_producers(end) for log_, end in logs):
            # The snapshot replaces the batches that are deleted.
            await self.checkpoint()
        try:
            await self._save_start_offsets(offsets)
        except OSError as error:
            raise KafkaStorageError(f"{self._parts.root}: new start offsets: {error}") from error
        # The offsets are durable before any file goes: after a crash the log must not be taken for
        # one that has lost its beginning.
        for count, (key, offset) in enumerate(offsets.items(), start=1):
            if key in self._logs:
                self._logs[key].begin_at(offset)
            if count % TURN_LOGS == 0:
                await asyncio.sleep(0)

    async def compact(
        self, of: PartitionLog, found: Compactable, limits: CompactionLimits
    ) -> Compacted:
        """Do one pass of compaction over the segments that `PartitionLog.compactable` found."""
        self._check_there()
        # Imported at first use, like the type of its argument.
        from sharegroup.storage.log.compaction import CompactionPass

        done = await CompactionPass(self._parts, found, limits, now_ms=self._wall_ms()).run()
        if self._logs.get(of.key) is not of:
            return done  # The topic was deleted in the meantime.
        # Written after the swap: an offset that is too low repeats work, one too high would skip
        # records.
        of.cleaned_to = self._offsets.cleaned[of.key] = done.cleaned_to
        cleaned = dict(self._offsets.cleaned)
        try:
            await self._parts.syncer.in_thread(lambda: self._write_offsets(CLEANED_FILE, cleaned))
        except OSError as error:
            raise KafkaStorageError(f"{of}: end of compaction: {error}") from error
        return done

    async def _save_start_offsets(self, moved: Mapping[TopicIdPartition, int]) -> None:
        """Write the start offsets; none moves back, even if calls are out of order."""
        # One after the other, because each file has what the earlier calls have saved, and nothing
        # of a call that failed: its caller was told that the records are still there.
        async with self._saving:
            saved = self._offsets.start_offsets
            higher = {
                key: max(offset, saved.get(key, 0))
                for key, offset in moved.items()
                if key in self._logs  # Else the topic was deleted.
            }
            written = {**saved, **higher}
            await self._parts.syncer.in_thread(
                lambda: self._write_offsets(START_OFFSETS_FILE, written)
            )
            saved.update((key, end) for key, end in higher.items() if key in self._logs)

    def _write_offsets(self, name: str, offsets: Mapping[TopicIdPartition, int]) -> None:
        """Blocking: check that the directory is not lost, then replace a checkpoint file."""
        self._watch.check()
        write_checkpoint(self.files, self.path, name, offsets)
