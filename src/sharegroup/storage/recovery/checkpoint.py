"""The checkpoint of one log, and the writing of new recovery points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sharegroup.ids import TopicIdPartition
from sharegroup.storage.disk.checkpoint_files import replace_file, replace_many, write_checkpoint
from sharegroup.storage.disk.directory_watch import DirectoryWatch, FoldersLostError
from sharegroup.storage.disk.files import Files
from sharegroup.storage.disk.folders import folder_name
from sharegroup.storage.disk.metadata_files import sync_partition_metadata
from sharegroup.storage.disk.stored_file import StoredFile
from sharegroup.storage.parts import StorageParts
from sharegroup.storage.recovery.directory_offsets import RECOVERY_POINTS_FILE
from sharegroup.storage.recovery.producer_snapshot import SNAPSHOT_SUFFIX
from sharegroup.storage.segment.segment import Segment, offset_of, segment_name
from sharegroup.storage.sync.syncer import FILES_EACH_MAX


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
