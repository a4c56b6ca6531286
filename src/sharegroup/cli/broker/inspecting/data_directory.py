"""Finds the logs of a data directory of sharegroup or of Apache Kafka, without a broker.

    ours     <topic id>-<partition>/     the topics' names are in catalog.journal
    Kafka    <topic name>-<partition>/   the topic's id is in partition.metadata

All files are opened only for reading: it takes no lock and repairs nothing. A running broker may
write meanwhile, so each file is read as it is at that moment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sharegroup.broker.cluster.catalog import CATALOG_FILE, Catalog
from sharegroup.cli.broker.inspecting.segment_file import read_small
from sharegroup.errors import KafkaError
from sharegroup.ids import topic_id_text
from sharegroup.storage.directory.journal import whole_payloads
from sharegroup.storage.disk.folders import partition_of
from sharegroup.storage.disk.metadata_files import PARTITION_METADATA_FILE
from sharegroup.storage.recovery.checkpoint import RECOVERY_POINTS_FILE, START_OFFSETS_FILE
from sharegroup.storage.segment.swap import SWAP

LOG_SUFFIX = ".log"

_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]{1,10})")
_SEGMENT = re.compile(r"[0-9]{20}\.log")
_NUMBER = re.compile(r"[0-9]{1,19}")
_TOPIC_ID = re.compile(r"^topic_id: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FoundLog:
    """The log of one partition, as its folder and the files beside it describe it."""

    folder: Path
    topic: str
    """The topic's name; its id if the catalog has no name (topic deleted, catalog damaged)."""
    topic_id: str
    partition: int
    start_offset: int
    """The log start offset: records below it were deleted."""
    recovery_point: int
    """The offset below which the log is known to be on disk; 0 without a checkpoint."""

    def segments(self) -> list[tuple[int, Path]]:
        """Return the base offset and the file of every segment, oldest first."""
        names = sorted(
            path
            for path in map(self.folder.joinpath, _names(self.folder))
            if _SEGMENT.fullmatch(path.name) and _is_regular(path)
        )
        return [(int(path.stem), path) for path in names]

    def no_segments(self) -> list[Path]:
        """Return the links, pipes and folders with the name of a segment."""
        paths = (path for path in self.folder.iterdir() if _SEGMENT.fullmatch(path.name))
        return sorted(path for path in paths if not _is_regular(path))


def find_logs(directory: Path, *, warn: Callable[[str], None]) -> list[FoundLog]:
    """Return the logs in a data directory, sorted by topic and partition.

    If ``directory`` is the folder of one partition, return only its log.
    """
    if _is_log(directory):
        folders, directory = [directory], directory.absolute().parent
    else:
        folders = [
            path
            for path in directory.iterdir()
            if path.is_dir() and not path.is_symlink() and _is_log(path)
        ]
    names = topic_names(directory, warn=warn)
    starts = _checkpoint(directory / START_OFFSETS_FILE)
    points = _checkpoint(directory / RECOVERY_POINTS_FILE)
    logs = []
    for folder in folders:
        # Absolute, because the folder may be given as `.`.
        match = _FOLDER.fullmatch(folder.absolute().name)
        if match is None:
            continue  # The folder is being deleted or was moved, so it is not a log any more.
        topic_id = _topic_id(folder)
        key = match["topic"], int(match["partition"])
        start, point = starts.get(key, 0), points.get(key, 0)
        name = names.get(topic_id, match["topic"])
        logs.append(FoundLog(folder, name, topic_id, key[1], start, point))
    return sorted(logs, key=lambda log: (log.topic, log.partition))


def topic_names(directory: Path, *, warn: Callable[[str], None]) -> Mapping[str, str]:
    """Return names of topics by their ids from the readable part of our catalog, if there is one.

    Warns of damage in the catalog.
    """
    path = directory / CATALOG_FILE
    try:
        data = read_small(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        warn(f"{CATALOG_FILE}: {error}; the names of topics are not known")
        return {}
    payloads, end = whole_payloads(data)
    if end < len(data):
        warn(
            f"{CATALOG_FILE} is damaged or incomplete at byte {end}: the names of newer topics are "
            "not known"
        )
    catalog = Catalog()
    try:
        catalog.load(payloads)
    except KafkaError as error:
        warn(f"{CATALOG_FILE}: {error}; the names of newer topics are not known")
    return {topic_id_text(topic.topic_id): topic.name for topic in catalog.topics()}


def _is_log(folder: Path) -> bool:
    # After a crash in compaction there may be only the new segment, under its temporary name.
    return any(_SEGMENT.fullmatch(name.removesuffix(SWAP)) for name in _names(folder))


def _names(folder: Path) -> list[str]:
    """Return the names in a folder; none if a running broker has just removed it."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _topic_id(folder: Path) -> str:
    partition = partition_of(folder.absolute().name)
    if partition is not None and not (folder / PARTITION_METADATA_FILE).is_file():
        return topic_id_text(partition.topic_id)
    try:
        metadata = read_small(folder / PARTITION_METADATA_FILE)
        match = _TOPIC_ID.search(metadata.decode("utf-8", "replace"))
    except OSError:
        return ""
    return match[1] if match else ""


def _checkpoint(path: Path) -> dict[tuple[str, int], int]:
    """Read a checkpoint: offsets by topic (name or id, as in folder names) and partition.

    Damaged lines are skipped.
    """
    try:
        # The first two lines are the version and the number of entries.
        lines = read_small(path).decode("ascii", "replace").splitlines()[2:]
    except OSError:
        return {}
    offsets = {}
    for line in lines:
        topic, *numbers = line.rsplit(" ", 2)
        if len(numbers) == 2 and all(_NUMBER.fullmatch(number) for number in numbers):
            offsets[topic, int(numbers[0])] = int(numbers[1])
    return offsets
