"""The checkpoint of one log, and the writing of new recovery points."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.storage.disk.checkpoint_files import (
    read_checkpoint,
    replace_file,
    replace_many,
    write_checkpoint,
)
from sharegroup.storage.disk.directory_watch import DirectoryWatch, FoldersLostError
from sharegroup.storage.disk.files import Files
from sharegroup.storage.disk.folders import folder_name
from sharegroup.storage.disk.metadata_files import sync_partition_metadata
from sharegroup.storage.disk.set_aside import DAMAGED_FILE, SetAside
from sharegroup.storage.disk.stored_file import StoredFile
from sharegroup.storage.parts import StorageParts
from sharegroup.storage.recovery.producer_snapshot import SNAPSHOT_SUFFIX
from sharegroup.storage.segment.segment import Segment, offset_of, segment_name
from sharegroup.storage.sync.syncer import FILES_EACH_MAX

log = logging.getLogger(__name__)


# Holds the offsets that a data directory stores for all its logs, in one checkpoint file per kind.
#
#     recovery-point-offset-checkpoint    recovery points: the logs are on disk below these offsets
#     log-start-offset-checkpoint         log start offsets after DeleteRecords or retention
#     cleaner-offset-checkpoint           end offsets of the last compaction of compacted logs


RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
START_OFFSETS_FILE = "log-start-offset-checkpoint"
CLEANED_FILE = "cleaner-offset-checkpoint"


class DirectoryOffsets:
    """The offsets of the three checkpoint files, with the changes since they were read.

    Only the event loop changes or replaces the mappings.
    """

    __slots__ = ("cleaned", "recovery_points", "start_offsets")

    def __init__(self) -> None:
        self.recovery_points: dict[TopicIdPartition, int] = {}
        self.start_offsets: dict[TopicIdPartition, int] = {}
        self.cleaned: dict[TopicIdPartition, int] = {}

    def read(self, files: Files, root: str, set_aside: SetAside) -> None:
        """Read the three files. A damaged file is set aside and counts as empty."""
        self.recovery_points = _read(files, root, RECOVERY_POINTS_FILE, set_aside)
        self.start_offsets = _read(files, root, START_OFFSETS_FILE, set_aside)
        self.cleaned = _read(files, root, CLEANED_FILE, set_aside)

    def forget_topics(self, topic_ids: Collection[TopicId]) -> None:
        """Remove the offsets of topics that an earlier run of the broker deleted."""
        for offsets in (self.recovery_points, self.start_offsets, self.cleaned):
            for key in [key for key in offsets if key.topic_id in topic_ids]:
                del offsets[key]

    def forget(self, key: TopicIdPartition) -> None:
        """Remove the offsets of a deleted partition."""
        for offsets in (self.recovery_points, self.start_offsets, self.cleaned):
            offsets.pop(key, None)


def _read(files: Files, root: str, name: str, set_aside: SetAside) -> dict[TopicIdPartition, int]:
    """Return the offsets in a checkpoint file. A damaged file is set aside and counts as empty.

    Without recovery points recovery reads all segments; without start offsets deleted records may
    be served again. Neither loses a record.
    """
    try:
        return read_checkpoint(files, root, name)
    except ValueError as error:
        path = set_aside.move(f"{root}/{name}", size=0, why=DAMAGED_FILE, name=name)
        log.warning(
            "event=checkpoint_set_aside file=%s reason=%r set_aside=%s", name, str(error), path
        )
        return {}


class CheckpointedLog(Protocol):
    """A log, as far as its checkpoints are concerned."""

    @property
    def key(self) -> TopicIdPartition: ...

    @property
    def is_lost(self) -> bool: ...

    def end_checkpoint(self, checkpoint: Checkpoint, *, done: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The files and folders to sync before ``point`` becomes the recovery point of ``log``."""

    log: CheckpointedLog
    point: int
    files: tuple[StoredFile, ...]
    directories: tuple[str, ...]
    producers: bytes | None
    """The producer snapshot at ``point``; None if the last one is still valid."""
    new_files: tuple[Segment, ...]
    """Segments with new index files, whose names become durable with ``directories``."""
    has_new_metadata: bool
    """Whether the folder's ``partition.metadata`` must be synced, too."""
    active_path: str
    """Path of the active segment's file. If it is gone, the log's records are lost."""


def write_recovery_points(
    parts: StorageParts,
    watch: DirectoryWatch,
    begun: Sequence[Checkpoint],
    points: Mapping[TopicIdPartition, int],
) -> None:
    """Blocking: sync the files of the checkpoints, then write the recovery points.

    If files are gone, raises DirectoryLostError or FoldersLostError and writes nothing.
    """
    files, root = parts.files, parts.root
    # Before anything is written: another broker may use the path by now (ADR 0019).
    watch.check()
    lost = [checkpoint for checkpoint in begun if not files.exists(checkpoint.active_path)]
    if lost:
        raise FoldersLostError(folder_name(checkpoint.log.key) for checkpoint in lost)
    parts.syncer.sync_files(
        [file for checkpoint in begun for file in checkpoint.files],
        [name for checkpoint in begun for name in checkpoint.directories],
    )
    snapshots = {
        f"{root}/{folder_name(checkpoint.log.key)}": (
            segment_name(checkpoint.point, SNAPSHOT_SUFFIX),
            checkpoint.producers,
        )
        for checkpoint in begun
        if checkpoint.producers is not None
    }
    with_metadata = [
        f"{root}/{folder_name(checkpoint.log.key)}"
        for checkpoint in begun
        if checkpoint.has_new_metadata
    ]
    if files.can_sync_tree and len(snapshots) + len(with_metadata) > FILES_EACH_MAX:
        # This syncs the whole file system, and so the metadata, too.
        replace_many(
            files, root, {f"{folder}/{name}": data for folder, (name, data) in snapshots.items()}
        )
    else:
        for folder in with_metadata:
            sync_partition_metadata(files, folder)
        for folder, (name, data) in snapshots.items():
            replace_file(files, folder, name, data)
    # Only now, when everything below the new points is on disk: recovery does not look there again.
    write_checkpoint(files, root, RECOVERY_POINTS_FILE, points)
    for folder in snapshots:
        # Until the new points are durable, recovery needs the snapshots of the old points.
        _remove_old_snapshots(files, folder)


def _remove_old_snapshots(files: Files, folder: str) -> None:
    """Remove all snapshots but the newest two; the second is for when the newest is unreadable."""
    names = [name for name in files.names(folder) if offset_of(name, SNAPSHOT_SUFFIX) is not None]
    for name in names[:-2]:
        files.remove(f"{folder}/{name}")
