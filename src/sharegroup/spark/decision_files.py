"""What a batch decided about its records, on its way from `foreachBatch` to the reader.

Both run on the driver's host, in processes that know nothing of each other; so a decision is a
file.  It is there before the batch is committed, and the reader looks when it acknowledges the
batch, which is after that.  A file also outlives a crash of both.

    <location>/<group>/<load>/5f2a....json             written by foreachBatch
    <location>/<group>/<load>/<query>.7.5f2a....json   belongs to the batch with seq 7

Which batch a file is about, its offsets say: the reader takes the files that have offsets of
the batch at hand, and marks them with the batch's number by renaming, so that a record that was
released in batch 7 and comes again in batch 8 is not released twice by the same file.  Marked
files are read again when batch 7 is acknowledged again, after a crash, and removed when batch
8 is.  ``load`` keeps queries apart, ``query`` those that share one `load()`.

A file's name is the hash of its content: a batch that is run again writes the same files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sharegroup.client.offset_set import EMPTY, OffsetSet
from sharegroup.client.records import AcknowledgeType
from sharegroup.ids import TopicPartition
from sharegroup.spark.carry import Outcomes, offsets_of
from sharegroup.spark.offsets import StreamOffset, deltas_of, ranges_of

VERSION = 1
KEPT_SECONDS = 7 * 24 * 3600
"""How long the files of a query that never came back are kept."""

STRONGEST_FIRST = (AcknowledgeType.REJECT, AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT)
"""Whose word counts when a record was given more than one outcome."""
KINDS = {kind.name.lower(): kind for kind in STRONGEST_FIRST}

Decided = Mapping[tuple[str, int], Mapping[AcknowledgeType, OffsetSet]]
"""By the topic's name and the partition, as rows have them."""


def default_location() -> str:
    """A directory of this user on this machine that survives a restart of both."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return str(Path(state) / "sharegroup" / "spark")


def folder_of(location: str, group: str, load: str) -> str:
    """Where the decisions of one `load()` are."""
    return str(Path(location) / quote(group, safe="") / load)


def write_decisions(folder: str, decided: Decided) -> Path:
    """Make decisions known to the reader, durably and all at once."""
    text = json.dumps({"v": VERSION, "outcomes": _said(decided)}, sort_keys=True).encode()
    path = Path(folder) / f"{hashlib.sha256(text).hexdigest()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    with open(unfinished, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(unfinished, path)
    return path


class DecisionFiles:
    """The reader's side of a query's decisions."""

    def __init__(self, location: str, group: str, load: str) -> None:
        self._location = location
        self._group = group
        self._load = load

    def outcomes(self, batch: StreamOffset) -> Outcomes:
        """What was decided about the records of this batch; the rest is to be accepted."""
        outcomes: dict[TopicPartition, dict[AcknowledgeType, OffsetSet]] = {}
        held = {
            (batch.names[key.topic_id], key.partition): (key, offsets_of(runs))
            for key, runs in batch.acquired.items()
        }
        for path in self._files(batch):
            found = False
            for where, kinds in _read(path).items():
                if where not in held:
                    continue
                key, here = held[where]
                for kind, offsets in kinds.items():
                    if part := offsets & here:
                        found = True
                        so_far = outcomes.setdefault(key, {})
                        so_far[kind] = so_far.get(kind, EMPTY) | part
            if found:
                _mark(path, batch)
        return {key: _without_doubles(kinds) for key, kinds in outcomes.items()}

    def remove_old(self) -> None:
        """Forget queries that have not been seen for long."""
        group = Path(self._location) / quote(self._group, safe="")
        limit = time.time() - KEPT_SECONDS
        for folder in group.iterdir() if group.is_dir() else ():
            if folder.stat().st_mtime < limit:
                shutil.rmtree(folder, ignore_errors=True)

    def _files(self, batch: StreamOffset) -> Iterator[Path]:
        """Those that may be about the batch; what is about an earlier one is removed."""
        for load in dict.fromkeys((batch.load, self._load)):
            folder = Path(folder_of(self._location, self._group, load))
            for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
                query, seq = _marked(path)
                if seq is None or (query, seq) == (batch.query, batch.seq):
                    yield path
                elif query == batch.query and seq < batch.seq:
                    path.unlink(missing_ok=True)


def _marked(path: Path) -> tuple[str, int | None]:
    """The query and batch that a file belongs to; None while nobody has claimed it."""
    parts = path.name.split(".")
    return (parts[0], int(parts[1])) if len(parts) == 4 else ("", None)


def _mark(path: Path, batch: StreamOffset) -> None:
    if _marked(path)[1] is None:
        os.rename(path, path.with_name(f"{batch.query}.{batch.seq}.{path.name}"))


def _said(decided: Decided) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for (topic, partition), kinds in decided.items():
        said.setdefault(topic, {})[str(partition)] = {
            kind.name.lower(): deltas_of(offsets) for kind, offsets in kinds.items()
        }
    return said


def _read(path: Path) -> Decided:
    said = json.loads(path.read_bytes())
    if said["v"] != VERSION:
        raise ValueError(f"{path}: decisions of version {said['v']}; expected {VERSION}")
    return {
        (topic, int(partition)): {
            KINDS[kind]: OffsetSet(tuple(ranges_of(deltas))) for kind, deltas in kinds.items()
        }
        for topic, partitions in said["outcomes"].items()
        for partition, kinds in partitions.items()
    }


def _without_doubles(
    kinds: Mapping[AcknowledgeType, OffsetSet],
) -> dict[AcknowledgeType, OffsetSet]:
    left: dict[AcknowledgeType, OffsetSet] = {}
    taken = EMPTY
    for kind in STRONGEST_FIRST:
        if offsets := kinds.get(kind, EMPTY) - taken:
            left[kind] = offsets
            taken = taken | offsets
    return left
