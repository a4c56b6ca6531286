"""Files that carry the decisions about a batch's records from `foreachBatch` to the reader.

Both run on the driver's host in processes that cannot reach each other, so a decision is a file.
It is written before the batch is committed; the reader reads it after that, when it acknowledges
the batch.  A file also survives a crash of both.

    <location>/<group>/<load>/5f2a....json             written by foreachBatch
    <location>/<group>/<load>/<query>.7.5f2a....json   belongs to the batch with seq 7

``<group>`` and ``<load>`` are hashes, because a group may have any name, even `..` or `/`, and a
checkpoint may contain any text.

The offsets in a file tell its batch.  The reader uses the files with offsets of the current batch
and renames them to mark them with the batch's number.  So a record that is released in batch 7 and
delivered again in batch 8 is not released twice by the same file.  If batch 7 is acknowledged again
after a crash, its marked files are read again; they are removed when batch 8 is acknowledged.
``load`` separates queries, ``query`` separates those that share one `load()`.

A file is named after the hash of its content, so a batch that runs again writes the same files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sharegroup.client.share.session.acquired_records import acquired_offsets
from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet
from sharegroup.ids import TopicIdPartition
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark.carry import DecidedOffsets
from sharegroup.spark.offsets import StreamOffset, deltas_of, ranges_of

VERSION = 1
MADE_FOLDERS = 3
"""A folder of decisions may be new with that of its group and the location."""
KEPT_SECONDS = 7 * 24 * 3600
"""Time for which the files of a query that does not run again are kept."""

STRONGEST_FIRST = (AcknowledgeType.REJECT, AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT)
"""Acknowledgement types by precedence, for a record with more than one outcome."""
KINDS = {kind.name.lower(): kind for kind in STRONGEST_FIRST}

Decided = Mapping[tuple[str, int], Mapping[AcknowledgeType, OffsetSet]]
"""Decisions by topic name and partition, as in the rows."""


def default_location() -> str:
    """Return the default directory, one per user, which survives a restart of the machine."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return str(Path(state) / "sharegroup" / "spark")


def folder_of(location: str, group: str, load: str) -> str:
    """Return the folder for the decisions of one `load()`.

    ValueError if a symbolic link leads out of ``location``.
    """
    return str(_inside(location, _group_folder(location, group) / _component(load)))


def write_decisions(folder: str, decided: Decided) -> Path:
    """Write decisions for the reader, atomically and durably."""
    text = json.dumps({"v": VERSION, "outcomes": _said(decided)}, sort_keys=True).encode()
    path = Path(folder) / f"{hashlib.sha256(text).hexdigest()}.json"
    if is_new := not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    # The reader looks for ``*.json``, so it never reads an incomplete file.
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    with open(unfinished, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(unfinished, path)
    # A file that is gone after a loss of power would let its records be accepted.
    made = path.parent.parents[:MADE_FOLDERS] if is_new else ()
    for changed in (path.parent, *made):
        _sync_directory(changed)
    return path


def _sync_directory(folder: Path) -> None:
    """Make the names in a folder durable; a folder that is not ours to read had no change."""
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class DecisionFiles:
    """The reader's side of a query's decisions."""

    def __init__(self, location: str, group: str, load: str) -> None:
        self._location = location
        self._group = group
        self._load = load

    def outcomes(self, batch: StreamOffset) -> DecidedOffsets:
        """Return the decisions about the records of this batch; all others are to be accepted."""
        outcomes: dict[TopicIdPartition, dict[AcknowledgeType, OffsetSet]] = {}
        held = {
            (batch.names[key.topic_id], key.partition): (key, acquired_offsets(runs))
            for key, runs in batch.acquired.items()
        }
        for path in self._files(batch):
            is_about_batch = False
            for place, kinds in _read(path).items():
                if place not in held:
                    continue
                key, batch_offsets = held[place]
                for kind, offsets in kinds.items():
                    if part := offsets & batch_offsets:
                        is_about_batch = True
                        so_far = outcomes.setdefault(key, {})
                        so_far[kind] = so_far.get(kind, EMPTY) | part
            if is_about_batch:
                # Before the acknowledgement: a record that it releases may be in the next batch,
                # which must not find this file (the module's text).
                _mark(path, batch)
        return {key: _without_doubles(kinds) for key, kinds in outcomes.items()}

    def remove_old(self) -> None:
        """Remove the files of queries that have not run for `KEPT_SECONDS`."""
        group = _inside(self._location, _group_folder(self._location, self._group))
        limit = time.time() - KEPT_SECONDS
        for folder in group.iterdir() if group.is_dir() else ():
            # A folder's time changes with each file that is written, marked or removed in it.
            if folder.stat().st_mtime < limit:
                shutil.rmtree(folder, ignore_errors=True)

    def _files(self, batch: StreamOffset) -> Iterator[Path]:
        """Iterate over the files that may be about the batch; remove those of earlier batches."""
        # A batch that runs again after a restart is decided under the new `load`, and may have
        # been decided under its old one before the crash.
        for load in dict.fromkeys((batch.load, self._load)):
            folder = Path(folder_of(self._location, self._group, load))
            for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
                query, seq = _marked(path)
                if seq is None or (query, seq) == (batch.query, batch.seq):
                    yield path
                elif query == batch.query and seq < batch.seq:
                    path.unlink(missing_ok=True)


def _group_folder(location: str, group: str) -> Path:
    return Path(location) / _component(group)


def _component(name: str) -> str:
    """Return a safe file name for any text: its hash."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()


def _inside(location: str, path: Path) -> Path:
    """Return the path. ValueError if a symbolic link leads out of the location."""
    if not path.resolve().is_relative_to(Path(location).resolve()):
        raise ValueError(f"{path}: is outside of {location}; remove the symbolic link")
    return path


def _marked(path: Path) -> tuple[str, int | None]:
    """Return the query and batch number that a file is marked with; None if it is not marked."""
    parts = path.name.split(".")
    return (parts[0], int(parts[1])) if len(parts) == 4 else ("", None)


def _mark(path: Path, batch: StreamOffset) -> None:
    if _marked(path)[1] is None:
        os.rename(path, path.with_name(f"{batch.query}.{batch.seq}.{path.name}"))


def _said(decided: Decided) -> dict[str, Any]:
    topics: dict[str, Any] = {}
    for (topic, partition), kinds in decided.items():
        topics.setdefault(topic, {})[str(partition)] = {
            kind.name.lower(): deltas_of(offsets) for kind, offsets in kinds.items()
        }
    return topics


def _read(path: Path) -> Decided:
    # An unreadable file raises: to go on without it would accept records that it rejects.
    content = json.loads(path.read_bytes())
    if content["v"] != VERSION:
        raise ValueError(f"{path}: decisions of version {content['v']}; expected {VERSION}")
    return {
        (topic, int(partition)): {
            KINDS[kind]: OffsetSet(tuple(ranges_of(deltas))) for kind, deltas in kinds.items()
        }
        for topic, partitions in content["outcomes"].items()
        for partition, kinds in partitions.items()
    }


def _without_doubles(
    kinds: Mapping[AcknowledgeType, OffsetSet],
) -> dict[AcknowledgeType, OffsetSet]:
    distinct: dict[AcknowledgeType, OffsetSet] = {}
    assigned = EMPTY
    for kind in STRONGEST_FIRST:
        if offsets := kinds.get(kind, EMPTY) - assigned:
            distinct[kind] = offsets
            assigned = assigned | offsets
    return distinct
