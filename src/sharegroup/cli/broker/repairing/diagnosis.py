"""Lists the problems of a data directory, with the broker's reaction and the repair of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sharegroup.broker.cluster.catalog import CATALOG_FILE
from sharegroup.cli.broker.inspecting.data_directory import FoundLog, find_logs
from sharegroup.cli.broker.inspecting.segment_file import Damage
from sharegroup.cli.broker.inspecting.survey import (
    LogSelection,
    Segment,
    open_segment,
    segments,
    state_of,
)
from sharegroup.cli.broker.repairing.state import (
    PARTITIONS_MAX,
    DirectoryState,
    FoundFolder,
    JournalState,
    Problem,
)
from sharegroup.storage.disk.files import RealFiles
from sharegroup.storage.disk.metadata_files import META_PROPERTIES_FILE, PARTITION_METADATA_FILE
from sharegroup.storage.disk.set_aside import SET_ASIDE_FOLDER
from sharegroup.storage.segment.swap import damaged_swaps

REFUSES = "refuses to start"
WRITES_AGAIN = "writes it again"
NOTHING = "nothing"
LEAVES = "leaves it"
DOES_NOT_SERVE = "does not serve the partition"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a data directory, or a fact that the operator should know."""

    file: str
    """The path inside of the data directory."""
    problem: str
    at_start: str
    """The broker's reaction at start."""
    repair: str
    """The action of ``data repair``; empty if there is none."""

    @property
    def stops_broker(self) -> bool:
        """Whether the broker refuses to start because of this problem."""
        return self.at_start == REFUSES

    def row(self) -> dict[str, Any]:
        """Return the finding as a JSON document."""
        return asdict(self)


def findings(state: DirectoryState) -> Iterator[Finding]:
    """Yield all problems but damage in segments; those of the catalog first."""
    yield from _of_catalog(state)
    yield from _of_properties(state)
    for folder in state.folders:
        yield from _of_folder(state, folder)
    for name, problem in state.damaged_checkpoints:
        yield _of_file(name, problem, "sets it aside, and reads all segments")


def segment_findings(state: DirectoryState) -> Iterator[Finding]:
    """Yield the damage in the segments: reads every batch and verifies its checksum."""
    for log in find_logs(Path(state.root), warn=lambda _: None):
        for path in log.no_segments():
            name = f"{log.folder.name}/{path.name}"
            yield Finding(name, "it is no regular file", DOES_NOT_SERVE, "")
        yield from _of_swaps(log)
        for segment in segments(log, LogSelection()):
            with closing(open_segment(segment)) as file:
                for piece in file.walk():
                    if isinstance(piece, Damage):
                        yield _of_damage(segment, piece)


def _of_catalog(state: DirectoryState) -> Iterator[Finding]:
    is_new = not state.folders and state.properties is None
    make = "makes a catalog from the folders"
    match state.journal:
        case JournalState.MISSING | JournalState.EMPTY if not is_new:
            yield Finding(CATALOG_FILE, f"it is {state.journal.value}", REFUSES, make)
        case JournalState.DAMAGED:
            problem = f"damaged at byte {state.journal_end}, with complete events after it"
            repair = "keeps the complete events, and adds topics from the folders"
            yield Finding(CATALOG_FILE, problem, REFUSES, repair)
        case JournalState.TORN if not state.catalog.cluster_id and not is_new:
            yield Finding(CATALOG_FILE, "its first events are missing", REFUSES, make)
        case JournalState.TORN:
            problem = f"the bytes from {state.journal_end} on are not a complete event"
            yield Finding(CATALOG_FILE, problem, "sets the bytes aside", "")
        case JournalState.SOUND if not state.catalog.cluster_id:
            yield Finding(CATALOG_FILE, "its first events are missing", REFUSES, make)
        case JournalState.SOUND if state.is_other_journal and not state.is_foreign:
            problem = "it is not the one with which the last broker stopped; perhaps an older copy"
            yield Finding(CATALOG_FILE, problem, REFUSES, "uses the present file")
        case _:
            pass
    if state.is_foreign:
        assert state.properties is not None
        yield Finding(
            CATALOG_FILE,
            f"it belongs to cluster {state.catalog.cluster_id}, {META_PROPERTIES_FILE} to "
            f"cluster {state.properties.cluster_id}",
            REFUSES,
            "keeps the one whose topics have folders here, and moves the other one aside",
        )


def _of_properties(state: DirectoryState) -> Iterator[Finding]:
    if not state.catalog.cluster_id:
        return
    if state.properties_problem is not None:
        yield _of_file(META_PROPERTIES_FILE, state.properties_problem, WRITES_AGAIN)
    elif state.properties is None:
        yield Finding(META_PROPERTIES_FILE, "it is missing", WRITES_AGAIN, "")


def _of_folder(state: DirectoryState, folder: FoundFolder) -> Iterator[Finding]:
    metadata = folder.metadata
    if folder.problem is not None and not folder.is_folder:
        yield Finding(folder.name, folder.problem.text, LEAVES, "")
        return
    if folder.key.partition >= PARTITIONS_MAX:
        problem = f"its partition is not below {PARTITIONS_MAX}"
        yield Finding(folder.name, problem, REFUSES, "moves the folder aside")
        return
    if state.is_deleted(folder):
        yield Finding(folder.name, "its topic was deleted", "removes it", "")
        return
    if metadata is not None and metadata.topic_id != folder.key.topic_id:
        problem = f"{PARTITION_METADATA_FILE} names another topic, {metadata.topic_name!r}"
        at_start = LEAVES if folder.is_doomed else REFUSES
        yield Finding(folder.name, problem, at_start, "moves the folder aside")
        return
    if folder.is_doomed:
        problem = "its topic was deleted, but the catalog has no event for the deletion"
        yield Finding(folder.name, problem, LEAVES, "moves the folder aside")
        return
    if not state.is_known(folder) and folder.has_files and not state.is_foreign:
        name = metadata.topic_name if metadata is not None else "unknown"
        if state.catalog.cluster_id:
            problem = f"the catalog does not contain this partition of topic {name!r}"
            yield Finding(folder.name, problem, REFUSES, "adds it to the catalog")
        elif metadata is None:
            problem = "the name of its topic is not known"
            yield Finding(folder.name, problem, REFUSES, "gives the topic a name from its id")
    elif folder.problem is not None and folder.has_files:
        path = f"{folder.name}/{PARTITION_METADATA_FILE}"
        yield _of_file(path, folder.problem, WRITES_AGAIN)


def _of_file(file: str, problem: Problem, if_damaged: str) -> Finding:
    """Return the finding of a file; the broker does not start with one that cannot be read."""
    return Finding(file, problem.text, REFUSES if problem.is_unreadable else if_damaged, "")


def _of_swaps(log: FoundLog) -> Iterator[Finding]:
    """Yield the damage in new segments of compaction that had not replaced the old ones yet."""
    swaps = damaged_swaps(RealFiles(), str(log.folder), recovery_point=log.recovery_point)
    for file, reason, is_undone in swaps:
        at_start = f"sets it aside, in {SET_ASIDE_FOLDER}" if is_undone else DOES_NOT_SERVE
        yield Finding(f"{log.folder.name}/{file}", str(reason), at_start, "")


def _of_damage(segment: Segment, damage: Damage) -> Finding:
    path = f"{segment.log.folder.name}/{segment.path.name}"
    problem = f"bytes {damage.position} to {damage.end}: {damage.reason}"
    if damage.offset < segment.log.recovery_point or state_of(segment, damage) == "damaged":
        below = damage.offset < segment.log.recovery_point
        at_start = (
            f"answers CORRUPT_MESSAGE for offset {damage.offset}, serves the rest"
            if below
            else f"ends the log at offset {damage.offset}, sets aside what follows"
        )
        return Finding(path, problem, at_start, "")
    return Finding(path, problem, f"sets aside the bytes, in {SET_ASIDE_FOLDER}", "")
