"""Finding the logs of a data directory: ours, or Apache Kafka's, without a broker.

    ours     <topic id>-<partition>/     the topics' names are in catalog.journal
    Kafka    <topic name>-<partition>/   the topic's id is in partition.metadata

Everything is opened for reading and nothing else: no lock is taken, nothing is repaired.  A
running broker may write meanwhile, so what is found is what was there when it was looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sharegroup.broker.cluster.catalog import Catalog, decode_event
from sharegroup.errors import KafkaError
from sharegroup.ids import topic_id_text
from sharegroup.storage.folders import partition_of
from sharegroup.storage.journal import whole_payloads
from sharegroup.storage.log_directory import RECOVERY_POINTS_FILE, START_OFFSETS_FILE

CATALOG_FILE = "catalog.journal"
PARTITION_METADATA_FILE = "partition.metadata"
LOG_SUFFIX = ".log"

_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_SEGMENT = re.compile(r"\d{20}\.log")
_TOPIC_ID = re.compile(r"^topic_id: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FoundLog:
    """The log of one partition, as its folder and the files beside it describe it."""

    folder: Path
    topic: str
    """The name, or the id of a topic that the catalog does not name (deleted, or damaged)."""
    topic_id: str
    partition: int
    start_offset: int
    """Records before this were deleted."""
    recovery_point: int
    """Below this the log was on disk for sure; 0 when nobody wrote it down."""

    def segments(self) -> list[tuple[int, Path]]:
        """Base offset and file of every segment, oldest first."""
        names = sorted(path for path in self.folder.iterdir() if _SEGMENT.fullmatch(path.name))
        return [(int(path.stem), path) for path in names]


def find_logs(directory: Path, *, warn: Callable[[str], None]) -> list[FoundLog]:
    """The logs in a data directory, by topic and partition; or the one, if it is its folder."""
    if _is_log(directory):
        folders, directory = [directory], directory.absolute().parent
    else:
        folders = [path for path in directory.iterdir() if path.is_dir() and _is_log(path)]
    names = topic_names(directory, warn=warn)
    starts = _checkpoint(directory / START_OFFSETS_FILE)
    points = _checkpoint(directory / RECOVERY_POINTS_FILE)
    found = []
    for folder in folders:
        match = _FOLDER.fullmatch(folder.absolute().name)
        if match is None:
            continue  # Being deleted, or moved: no log any more.
        topic_id = _topic_id(folder)
        key = match["topic"], int(match["partition"])
        start, point = starts.get(key, 0), points.get(key, 0)
        name = names.get(topic_id, match["topic"])
        found.append(FoundLog(folder, name, topic_id, key[1], start, point))
    return sorted(found, key=lambda log: (log.topic, log.partition))


def topic_names(directory: Path, *, warn: Callable[[str], None]) -> Mapping[str, str]:
    """Names of topics by their ids, as far as our catalog can be read; none where there is none."""
    path = directory / CATALOG_FILE
    if not path.is_file():
        return {}
    data = path.read_bytes()
    payloads, end = whole_payloads(data)
    if end < len(data):
        warn(f"{CATALOG_FILE} is damaged or torn at byte {end}: newer topics have no name here")
    catalog = Catalog()
    for payload in payloads:
        try:
            catalog.replay(decode_event(payload))
        except (KafkaError, KeyError, ValueError) as error:
            warn(f"{CATALOG_FILE}: {error!r}: newer topics have no name here")
            break
    return {topic_id_text(topic.topic_id): topic.name for topic in catalog.topics()}


def _is_log(folder: Path) -> bool:
    return any(_SEGMENT.fullmatch(name) for name in os.listdir(folder))


def _topic_id(folder: Path) -> str:
    ours = partition_of(folder.absolute().name)
    if ours is not None and not (folder / PARTITION_METADATA_FILE).is_file():
        return topic_id_text(ours.topic_id)
    try:
        found = _TOPIC_ID.search((folder / PARTITION_METADATA_FILE).read_text())
    except FileNotFoundError:
        return ""
    return found[1] if found else ""


def _checkpoint(path: Path) -> dict[tuple[str, int], int]:
    """Offsets by topic (name or id, as in the folders' names) and partition; none if damaged."""
    try:
        lines = path.read_text("ascii", "replace").splitlines()[2:]
    except FileNotFoundError:
        return {}
    offsets = {}
    for line in lines:
        topic, *numbers = line.rsplit(" ", 2)
        if len(numbers) == 2 and all(number.isdigit() for number in numbers):
            offsets[topic, int(numbers[0])] = int(numbers[1])
    return offsets
