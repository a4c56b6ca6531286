"""Files that carry the decisions about a batch's records from `foreachBatch` to the reader.

Both run on the driver's host in processes that cannot reach each other, so a decision is a file.
It is written before the batch is committed; the reader reads it after that, when it acknowledges
the batch.  A file also survives a crash of both.

    <location>/<group>/<load>/5f2a....json             written by foreachBatch
    <location>/<group>/<load>/<query>.7.5f2a....json   belongs to the batch with seq 7
    <location>/<group>/<load>/<query>.reader           the checkpoint of the query names this folder

``<group>`` and ``<load>`` are hashes, because a group may have any name, even `..` or `/`, and a
checkpoint may contain any text.

The offsets in a file tell its batch.  The reader uses the files with offsets of the current batch
and renames them to mark them with the batch's number.  So a record that is released in batch 7 and
delivered again in batch 8 is not released twice by the same file.  If batch 7 is acknowledged again
after a crash, its marked files are read again; they are removed when batch 8 is acknowledged.
``load`` separates queries, ``query`` separates those that share one `load()`.  Such queries may
hold the same record one after the other, if a lock has ended.  So a file that is also about records
outside of the batch stays for the other query, and the mark is a second name of it (a link).

Spark logs a batch once, with the ``load`` of that run.  If the driver dies during the batch, each
restart runs it again, with decisions in a folder of its own, until one run commits it.  So each of
these runs announces its folder, and the reader looks into all folders that its query announced.

A file is named after the hash of its content, so a batch that runs again writes the same files.

A missing file means "accept", so a query that has ever decided expects its `.reader` file.  Without
that the folder is lost, and the query ends instead of accepting what it had released or rejected.
A query removes its files when its checkpoint no longer names them.  Nothing else removes files: the
checkpoint of a query that stands still for a year names the same files after it (ADR 0043).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sharegroup.client.share.session.acknowledgements import (
    TYPE_MASK,
    delay_ms_of,
    delay_of,
    released_after,
)
from sharegroup.client.share.session.acquired_records import acquired_offsets
from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet
from sharegroup.errors import InvalidConfig
from sharegroup.ids import TopicIdPartition
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark.carry import DecidedOffsets
from sharegroup.spark.offsets import StreamOffset, deltas_of, ranges_of
from sharegroup.state_folder import state_folder

log = logging.getLogger(__name__)

VERSION = 1
MADE_FOLDERS = 3
"""A folder of decisions may be new with that of its group and the location."""

STRONGEST_FIRST = (
    *(AcknowledgeType.GAP, AcknowledgeType.REJECT),
    *(AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT),
)
"""Acknowledgement types by precedence, for a record with more than one outcome."""
_RANK = {int(kind): rank for rank, kind in enumerate(STRONGEST_FIRST)}
KINDS = {kind.name.lower(): kind for kind in STRONGEST_FIRST if kind is not AcknowledgeType.GAP}
"""The outcomes that a query may choose, by name."""
_STORED = {"gap": AcknowledgeType.GAP, **KINDS}
"""All decisions, by their name in a file."""

Decided = Mapping[tuple[str, int], Mapping[int, OffsetSet]]
"""Decisions by topic name and partition, as in the rows."""


def default_location() -> str:
    """Return the default directory, one per user, which survives a restart of the machine.

    InvalidConfig if the user has no home directory.
    """
    try:
        return str(state_folder() / "spark")
    except RuntimeError as error:  # A user id that no user has, as in some containers.
        raise InvalidConfig(
            f"no default for the option outcomesLocation: {error} Set the option to a "
            "directory that the driver's machine keeps"
        ) from error


def folder_of(location: str, group: str, load: str) -> str:
    """Return the folder for the decisions of one `load()`.

    ValueError if a symbolic link leads out of ``location``.
    """
    return str(_inside(location, _group_folder(location, group) / _component(load)))


def write_decisions(folder: str, decided: Decided) -> Path:
    """Write decisions for the reader, atomically and durably."""
    # Sorted, so equal decisions are equal bytes and have one name, however often a batch is
    # decided.
    text = json.dumps({"v": VERSION, "outcomes": _as_json(decided)}, sort_keys=True).encode()
    path = Path(folder) / f"{hashlib.sha256(text).hexdigest()}.json"
    _write(path, text)
    return path


def _write(path: Path, content: bytes) -> None:
    if is_new := not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    # The reader looks for ``*.json``, so it never reads an incomplete file.
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    with open(unfinished, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(unfinished, path)
    # A file that is gone after a loss of power would let its records be accepted.
    made = path.parent.parents[:MADE_FOLDERS] if is_new else ()
    for changed in (path.parent, *made):
        _sync_directory(changed)


def _sync_directory(folder: Path) -> None:
    """Make the names in a folder durable; a folder that is not ours to read had no change."""
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class DecisionsMissing(Exception):
    """The decisions about a batch are lost, so its records must not be accepted."""


class DecisionsUnreadable(ValueError):
    """A file is not one of decisions, or has a version that is not supported."""


class DecisionFiles:
    """The reader's side of a query's decisions."""

    def __init__(
        self, location: str, group: str, load: str, *, fail_on_missing: bool = True
    ) -> None:
        """Without ``fail_on_missing`` the records of a batch without its folder are accepted."""
        self._location = location
        self._group = group
        self._load = load
        self._fail_on_missing = fail_on_missing
        self._has_removed_earlier = False

    def announce(self, query: str) -> None:
        """Store that this query has, or may have, decisions in the folder of this `load()`."""
        # Called for each batch, and durable once: the offsets of all later batches rely on it.
        path = self._announcement(self._load, query)
        if not path.exists():
            _write(path, b"")

    def outcomes(self, batch: StreamOffset) -> DecidedOffsets:
        """Return the decisions about the records of this batch; all others are to be accepted.

        DecisionsMissing if the query has decided before, and the folder of this batch is gone.
        """
        outcomes: dict[TopicIdPartition, dict[int, OffsetSet]] = {}
        held = {
            (batch.names[key.topic_id], key.partition): (key, acquired_offsets(runs))
            for key, runs in batch.acquired.items()
        }
        for path, decided in self._files(batch):
            is_about_batch, is_about_others = False, False
            for place, kinds in decided.items():
                # The file is about other partitions, or its batch is that of another query of this
                # `load()`.
                if place not in held:
                    is_about_others = True
                    continue
                key, batch_offsets = held[place]
                for kind, offsets in kinds.items():
                    is_about_others |= bool(offsets - batch_offsets)
                    if part := offsets & batch_offsets:
                        is_about_batch = True
                        so_far = outcomes.setdefault(key, {})
                        so_far[kind] = so_far.get(kind, EMPTY) | part
            if is_about_batch:
                # Before the acknowledgement: a record that it releases may be in the next batch,
                # which must not find this file (the module's text).
                _mark(path, batch, is_shared=is_about_others)
        # Last, because the folder may disappear while its files are read.
        self._check_presence(batch)
        # Spark has logged and committed this batch, so a restart names this `load()` or a later
        # one.
        if batch.load == self._load and not self._has_removed_earlier:
            self._remove_earlier(batch.query)
            self._has_removed_earlier = True
        return {key: _without_doubles(kinds) for key, kinds in outcomes.items()}

    def _files(self, batch: StreamOffset) -> Iterator[tuple[Path, Decided]]:
        """Iterate over the files that may be about the batch; remove those of earlier batches."""
        for folder in self._folders(batch):
            paths = [folder / name for name in _names(folder) if name.endswith(".json")]
            unmarked = _inodes(path for path in paths if _marked(path)[1] is None)
            earlier = _inodes(path for path in paths if _is_earlier(path, batch))
            for path in paths:
                query, seq = _marked(path)
                if (query, seq) == (batch.query, batch.seq):
                    yield path, _read(path)
                elif seq is None:
                    try:
                        if _inodes([path]) <= earlier:
                            continue  # An earlier batch has taken its part, and shares the rest.
                        decided = _read(path)
                    except FileNotFoundError:
                        continue  # Another query of the same `load()` has marked it as its own.
                    yield path, decided
                elif _is_earlier(path, batch) and not _inodes([path]) & unmarked:
                    # While the file has its first name, the mark says that it was read.
                    path.unlink(missing_ok=True)

    def _folders(self, batch: StreamOffset) -> Iterable[Path]:
        """Return the folders that may have decisions about the batch."""
        # A batch that runs again after a restart is decided under the new `load`, and may have
        # been decided under its old one before the crash.
        folders = [
            Path(folder_of(self._location, self._group, load)) for load in (batch.load, self._load)
        ]
        if batch.load != self._load:
            # Runs in between may have decided about the batch, too, and one of them committed it.
            folders += self._announced(batch.query)
        return dict.fromkeys(folders)

    def _announced(self, query: str) -> Iterator[Path]:
        """Iterate over the folders of the group that have files of this query."""
        group = _inside(self._location, _group_folder(self._location, self._group))
        for folder in (group / name for name in _names(group)):
            if any(name.startswith(f"{query}.") for name in _names(folder)):
                yield folder

    def _announcement(self, load: str, query: str) -> Path:
        return Path(folder_of(self._location, self._group, load)) / f"{query}.reader"

    def _check_presence(self, batch: StreamOffset) -> None:
        if not batch.decides or (path := self._announcement(batch.load, batch.query)).exists():
            return
        text = (
            f"the decisions about batch {batch.seq} of query {batch.query} of share group "
            f"{self._group!r} are missing: expected the file {path}, which does not exist"
        )
        if self._fail_on_missing:
            raise DecisionsMissing(
                f"{text}; bring the directory back, or set the option outcomesLocation to its new "
                "place. To accept all records of the batch, also those that the query has released "
                "or rejected, set the option failOnDataLoss=false"
            )
        log.warning("event=decisions.missing action='the records are accepted' text=%r", text)

    def _remove_earlier(self, query: str) -> None:
        """Remove the files of this query from the folders of its earlier `load()` calls.

        Its checkpoint names the present one, and their files are not about later batches.
        """
        present = _component(self._load)
        for folder in [*self._announced(query)]:
            if folder.name == present:
                continue
            for name in _names(folder):
                if name.startswith(f"{query}."):
                    (folder / name).unlink(missing_ok=True)
            # It fails if another query has files there, or has just removed the folder.
            with suppress(OSError):
                folder.rmdir()


def _names(folder: Path) -> list[str]:
    """Return the names in a folder; none if there is no folder."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _group_folder(location: str, group: str) -> Path:
    return Path(location) / _component(group)


def _component(name: str) -> str:
    """Return a safe file name for any text: its hash."""
    # Not escaped: a group may have 32,767 characters, and a file name 255 bytes.
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()


def _inside(location: str, path: Path) -> Path:
    """Return the path. ValueError if a symbolic link leads out of the location."""
    if not path.resolve().is_relative_to(Path(location).resolve()):
        raise ValueError(f"{path}: is outside of {location}; remove the symbolic link")
    return path


def _marked(path: Path) -> tuple[str, int | None]:
    """Return the query and batch number that a file is marked with; None if it is not marked."""
    parts = path.name.split(".")
    # Marked: query, seq, hash and `json`. No part has a dot of its own (`offsets._NAME`).
    return (parts[0], int(parts[1])) if len(parts) == 4 else ("", None)


def _mark(path: Path, batch: StreamOffset, *, is_shared: bool) -> None:
    if _marked(path)[1] is not None:
        return
    marked = path.with_name(f"{batch.query}.{batch.seq}.{path.name}")
    if is_shared:
        # Without links in the file system, the file is taken from the other query, as a whole one.
        with suppress(OSError):
            # The batch may have been decided again, with the same content in another file.
            marked.unlink(missing_ok=True)
            os.link(path, marked)
            return
    # Another query may mark it at the same moment; this batch has read it by then.
    with suppress(FileNotFoundError):
        os.rename(path, marked)


def _is_earlier(path: Path, batch: StreamOffset) -> bool:
    """Return whether an earlier batch of the query has marked the file."""
    query, seq = _marked(path)
    return query == batch.query and seq is not None and seq < batch.seq


def _inodes(paths: Iterable[Path]) -> set[int]:
    """Return the inode numbers of files, which several names may share; none of lost files."""
    numbers: set[int] = set()
    for path in paths:
        with suppress(FileNotFoundError):
            numbers.add(path.stat().st_ino)
    return numbers


def _as_json(decided: Decided) -> dict[str, Any]:
    topics: dict[str, Any] = {}
    for (topic, partition), kinds in decided.items():
        topics.setdefault(topic, {})[str(partition)] = {
            _kind_text(kind): deltas_of(offsets) for kind, offsets in kinds.items()
        }
    return topics


def _kind_text(kind: int) -> str:
    """Return the name of a decision in a file: ``release``, or with a delay ``release 500ms``."""
    name = AcknowledgeType(kind & TYPE_MASK).name.lower()
    return name if kind <= TYPE_MASK else f"{name} {delay_of(kind)}ms"


def _kind_of(text: str) -> int:
    name, _, delay = text.partition(" ")
    return released_after(delay_ms_of(delay)) if delay and name == "release" else _STORED[text]


def _read(path: Path) -> Decided:
    # An unreadable file raises: to go on without it would accept records that it rejects.
    try:
        content = json.loads(path.read_bytes())
        if (version := content["v"]) == VERSION:
            return {
                (topic, int(partition)): {
                    _kind_of(kind): OffsetSet(tuple(ranges_of(deltas)))
                    for kind, deltas in kinds.items()
                }
                for topic, partitions in content["outcomes"].items()
                for partition, kinds in partitions.items()
            }
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise DecisionsUnreadable(
            f"{path}: is no file of decisions: {error!r:.200}; restore it, or remove it to accept "
            "the records that it releases or rejects"
        ) from error
    raise DecisionsUnreadable(f"{path}: decisions of version {version}; expected {VERSION}")


def _without_doubles(
    kinds: Mapping[int, OffsetSet],
) -> dict[int, OffsetSet]:
    distinct: dict[int, OffsetSet] = {}
    assigned = EMPTY
    # Of several releases, that with the longest delay.
    for kind in sorted(kinds, key=lambda kind: (_RANK[kind & TYPE_MASK], -kind)):
        if offsets := kinds[kind] - assigned:
            distinct[kind] = offsets
            assigned = assigned | offsets
    return distinct
