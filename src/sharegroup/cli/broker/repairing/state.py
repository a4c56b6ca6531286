"""Reads the state of a data directory: catalog, `meta.properties`, folders and checkpoints.

It changes nothing. Unreadable files become part of the state, which `diagnosis` interprets.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.broker.cluster.catalog import CATALOG_FILE, Catalog, decode_event
from sharegroup.broker.cluster.catalog_part import Event
from sharegroup.errors import InvalidRequest, KafkaError
from sharegroup.ids import TopicIdPartition
from sharegroup.storage.directory.journal import (
    CLEAN_SHUTDOWN_FILE,
    Mark,
    mark_of,
    read_clean_shutdown,
    salvaged_payloads,
    whole_payloads,
)
from sharegroup.storage.disk.checkpoint_files import read_checkpoint, read_file
from sharegroup.storage.disk.files import Files
from sharegroup.storage.disk.folders import DELETED_SUFFIX, is_doomed, partition_of
from sharegroup.storage.disk.metadata_files import (
    MetaProperties,
    PartitionMetadata,
    read_meta_properties,
    read_partition_metadata,
)
from sharegroup.storage.recovery.checkpoint import (
    CLEANED_FILE,
    RECOVERY_POINTS_FILE,
    START_OFFSETS_FILE,
)

PARTITIONS_MAX = 100_000
"""Number of partitions of all topics up to which the names of folders are believed."""

CHECKPOINT_FILES = (RECOVERY_POINTS_FILE, START_OFFSETS_FILE, CLEANED_FILE)


class JournalState(enum.Enum):
    """The state of `catalog.journal`: which part of it can be read."""

    SOUND = "sound"
    MISSING = "missing"
    EMPTY = "empty"
    TORN = "torn"
    """Its last bytes are not a complete event: a torn write, or damage."""
    DAMAGED = "damaged"
    """Complete events follow the damage, or an event cannot be decoded."""


class Problem(NamedTuple):
    """What is wrong with a file."""

    text: str
    is_unreadable: bool = False
    """Whether it is no regular file, is too large, or lacks rights, and not only damaged."""


@dataclass(frozen=True, slots=True)
class FoundFolder:
    """One partition folder of a data directory."""

    name: str
    key: TopicIdPartition
    is_doomed: bool
    """Whether the folder is marked for removal, because its topic was deleted."""
    has_files: bool
    metadata: PartitionMetadata | None
    """None if `partition.metadata` is missing or damaged."""
    problem: Problem | None
    """The problem of `partition.metadata`, or of the folder itself."""
    is_folder: bool = True
    """False for a file or a link with the name of a partition folder."""


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """The state of a data directory, as `read_state` found it."""

    root: str
    journal: JournalState
    journal_end: int
    """The position of the first bytes that are not a complete event."""
    catalog: Catalog
    """The catalog after all complete events of the journal."""
    is_other_journal: bool
    """Whether the last broker stopped cleanly with another catalog than this one."""
    properties: MetaProperties | None
    properties_problem: Problem | None
    folders: Sequence[FoundFolder]
    damaged_checkpoints: Sequence[tuple[str, Problem]]
    """Name and problem of each checkpoint file that cannot be read."""

    @property
    def is_foreign(self) -> bool:
        """Whether catalog and `meta.properties` name different clusters."""
        cluster_id, properties = self.catalog.cluster_id, self.properties
        return properties is not None and cluster_id not in ("", properties.cluster_id)

    def is_known(self, folder: FoundFolder) -> bool:
        """Whether the catalog has the partition of a folder."""
        topic = self.catalog.by_id(folder.key.topic_id)
        return topic is not None and folder.key.partition < topic.partition_count

    def is_deleted(self, folder: FoundFolder) -> bool:
        """Whether the catalog has the event of the topic's deletion."""
        return folder.key.topic_id in self.catalog.deleted_topics


def read_state(files: Files, root: str) -> DirectoryState:
    """Read the small files of a data directory and the names of its folders."""
    names = files.names(root)
    data = _catalog_content(files, root) if CATALOG_FILE in names else None
    payloads, end = whole_payloads(data or b"")
    salvaged = salvaged_payloads(data or b"")
    catalog, is_understood = _replayed(salvaged)
    marked, unread = _marks(files, root)
    mark = mark_of(data or b"")
    try:
        properties, problem = read_meta_properties(files, root), None
    except (OSError, ValueError) as error:
        properties, problem = None, _problem(error)
    return DirectoryState(
        root=root,
        journal=_journal_state(data, end, has_more=len(salvaged) > len(payloads))
        if is_understood
        else JournalState.DAMAGED,
        journal_end=end,
        catalog=catalog,
        is_other_journal=end == len(data or b"") and marked.get(CATALOG_FILE, mark) != mark,
        properties=properties,
        properties_problem=problem,
        folders=tuple(_folders(files, root, names)),
        damaged_checkpoints=(*unread, *_damaged_checkpoints(files, root)),
    )


def _marks(files: Files, root: str) -> tuple[dict[str, Mark], list[tuple[str, Problem]]]:
    """Return the marks of the journals, and the problem of the file that has them."""
    try:
        return read_clean_shutdown(files, root) or {}, []
    except OSError as error:
        return {}, [(CLEAN_SHUTDOWN_FILE, _problem(error))]


def _problem(error: OSError | ValueError, damaged: str = "") -> Problem:
    if isinstance(error, OSError):
        return Problem(f"cannot be read: {error.strerror}", is_unreadable=True)
    return Problem(f"{damaged}{error}")


def _catalog_content(files: Files, root: str) -> bytes:
    """Return the bytes of the catalog; InvalidRequest if it is no file that can be read."""
    try:
        return read_file(files, f"{root}/{CATALOG_FILE}")
    except OSError as error:
        raise InvalidRequest(
            f"{root}/{CATALOG_FILE} cannot be read: {error.strerror}; move it away, and the repair "
            "makes a catalog from the folders"
        ) from error


def _journal_state(data: bytes | None, end: int, *, has_more: bool) -> JournalState:
    if data is None:
        return JournalState.MISSING
    if not data:
        return JournalState.EMPTY
    if has_more:
        return JournalState.DAMAGED
    return JournalState.SOUND if end == len(data) else JournalState.TORN


def _replayed(payloads: Sequence[bytes]) -> tuple[Catalog, bool]:
    """Return the catalog after all valid events, and whether all events are valid."""
    catalog, is_understood = Catalog(), True
    for payload in payloads:
        try:
            event: Event = decode_event(payload)
            catalog.replay(event)
        except (KafkaError, AssertionError, KeyError, TypeError, ValueError):
            is_understood = False  # An earlier event that this one needs may be lost.
    return catalog, is_understood


def _folders(files: Files, root: str, names: Sequence[str]) -> list[FoundFolder]:
    folders = []
    for name in names:
        key = partition_of(name.removesuffix(DELETED_SUFFIX))
        if key is None:
            continue
        path, metadata, problem = f"{root}/{name}", None, None
        try:
            has_files = bool(files.names(path))
        except NotADirectoryError as error:
            problem = Problem(f"it is no folder: {error.strerror}")
            folders.append(
                FoundFolder(name, key, is_doomed(name), False, None, problem, is_folder=False)
            )
            continue
        try:
            metadata = read_partition_metadata(files, path)
            problem = Problem("missing") if metadata is None else None
        except (OSError, ValueError) as error:
            problem = _problem(error, "damaged: ")
        folders.append(FoundFolder(name, key, is_doomed(name), has_files, metadata, problem))
    return folders


def _damaged_checkpoints(files: Files, root: str) -> list[tuple[str, Problem]]:
    damaged = []
    for name in CHECKPOINT_FILES:
        try:
            read_checkpoint(files, root, name)
        except (OSError, ValueError) as error:
            damaged.append((name, _problem(error)))
    return damaged
