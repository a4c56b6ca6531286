"""Plans and executes the repair of a data directory; it sets files aside and deletes none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import uuid4

from sharegroup.broker.clock import wall_ms
from sharegroup.broker.cluster.catalog import CATALOG_FILE, Catalog, encode_event
from sharegroup.broker.cluster.catalog_part import Event
from sharegroup.broker.cluster.features import FIRST_LEVELS
from sharegroup.cli.broker.repairing.state import (
    PARTITIONS_MAX,
    DirectoryState,
    FoundFolder,
    JournalState,
)
from sharegroup.errors import InvalidRequest
from sharegroup.ids import TopicId, TopicName, topic_id_text
from sharegroup.storage.directory.journal import CLEAN_SHUTDOWN_FILE, journal_content
from sharegroup.storage.disk.checkpoint_files import replace_file
from sharegroup.storage.disk.files import Files
from sharegroup.storage.disk.folders import partition_of
from sharegroup.storage.disk.metadata_files import (
    META_PROPERTIES_FILE,
    MetaProperties,
    write_meta_properties,
)
from sharegroup.storage.disk.set_aside import SET_ASIDE_FOLDER, SetAside

REPAIR = "repair"
"""The reason in entries that the repair sets aside; the broker never removes such entries."""

KEEP_EVERYTHING = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic whose own settings are lost, so that none of its records are deleted."""

NODE_ID = 1
"""The node id in a new `meta.properties`; the broker replaces it with its own."""


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One change of the repair: its file, its description and the function that makes it."""

    file: str
    change: str
    execute: Callable[[], None]


class Repair:
    """The repair of one data directory; the caller holds the lock of the directory."""

    __slots__ = ("_files", "_root", "_set_aside", "_state")

    def __init__(self, files: Files, state: DirectoryState) -> None:
        self._files = files
        self._state = state
        self._root = state.root
        self._set_aside = SetAside(files, state.root, wall_ms=wall_ms, bytes_max=sys.maxsize)

    def steps(self) -> Iterator[RepairStep]:
        """Yield the steps of the repair in order; each can be repeated after a crash."""
        state = self._state
        for folder in state.folders:
            if _is_misplaced(state, folder):
                yield self._move(folder.name)
        yield from self._catalog_steps()

    def _catalog_steps(self) -> Iterator[RepairStep]:
        state = self._state
        is_theirs = state.is_foreign and not _has_folders_here(state)
        catalog = Catalog() if is_theirs else state.catalog
        added = list(_missing_events(state, catalog))
        is_rewritten = bool(added) or state.journal is JournalState.DAMAGED or is_theirs
        if self._files.exists(f"{self._root}/{CLEAN_SHUTDOWN_FILE}") and (
            is_rewritten or state.is_other_journal
        ):
            # Its mark is that of another catalog: the one with which the last broker stopped.
            yield self._move(CLEAN_SHUTDOWN_FILE)
        if is_rewritten:
            if state.journal not in (JournalState.MISSING, JournalState.EMPTY):
                yield RepairStep(
                    CATALOG_FILE,
                    f"is copied to {SET_ASIDE_FOLDER} and replaced",
                    lambda: self._keep_copy(CATALOG_FILE),
                )
            for event in added:
                # Only told: the step below writes the whole catalog, with all of them.
                yield RepairStep(CATALOG_FILE, _told(event), lambda: None)
                catalog.replay(event)
            events = [encode_event(event) for event in catalog.events()]
            yield RepairStep(
                CATALOG_FILE,
                f"is written with {len(events)} events",
                lambda: replace_file(
                    self._files, self._root, CATALOG_FILE, journal_content(events)
                ),
            )
        if state.is_foreign and not is_theirs:
            yield RepairStep(
                META_PROPERTIES_FILE,
                f"is copied to {SET_ASIDE_FOLDER} and replaced: cluster {catalog.cluster_id}",
                lambda: self._replace_properties(catalog.cluster_id),
            )

    def put_back(self, path: str) -> RepairStep:
        """Return the step that puts a partition folder back; InvalidRequest if impossible."""
        name = os.path.basename(os.path.abspath(path))
        folder = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(path))), name)
        # With the separator: a folder beside it may have a name that begins with the same letters.
        inside = os.path.join(self._root, SET_ASIDE_FOLDER) + os.sep
        if not folder.startswith(inside) or partition_of(name) is None:
            raise InvalidRequest(
                f"{path} is not a partition folder below {inside}: give one that was moved there"
            )
        if not self._files.exists(folder):
            raise InvalidRequest(f"{path} does not exist")
        if self._files.exists(f"{self._root}/{name}"):
            raise InvalidRequest(
                f"{self._root}/{name} exists: its offsets are in use. Print the records with "
                f"sharegroup logs {path} --records, and produce the missing ones again"
            )
        return RepairStep(
            name, f"is moved back from {folder}", lambda: self._move_back(folder, name)
        )

    def _move(self, name: str) -> RepairStep:
        return RepairStep(name, f"is moved to {SET_ASIDE_FOLDER}", lambda: self._moved(name))

    def _moved(self, name: str) -> None:
        self._set_aside.move(f"{self._root}/{name}", size=0, why=REPAIR, name=name)

    def _move_back(self, folder: str, name: str) -> None:
        self._files.rename(folder, f"{self._root}/{name}")
        self._files.sync_directory(self._root)
        self._files.sync_directory(os.path.dirname(folder))

    def _keep_copy(self, name: str) -> None:
        self._set_aside.copy_file(f"{self._root}/{name}", why=REPAIR, name=name)

    def _replace_properties(self, cluster_id: str) -> None:
        self._keep_copy(META_PROPERTIES_FILE)
        write_meta_properties(self._files, self._root, MetaProperties(cluster_id, NODE_ID))


def _is_misplaced(state: DirectoryState, folder: FoundFolder) -> bool:
    """Return whether a folder must be moved: it belongs to another or to a deleted topic."""
    if state.is_deleted(folder):
        return False
    if folder.is_doomed or folder.key.partition >= PARTITIONS_MAX:
        return True
    return folder.metadata is not None and folder.metadata.topic_id != folder.key.topic_id


def _has_folders_here(state: DirectoryState) -> bool:
    """Return whether the catalog knows a folder of this directory, or there are no folders."""
    return not state.folders or any(state.is_known(folder) for folder in state.folders)


def _missing_events(state: DirectoryState, catalog: Catalog) -> Iterator[Event]:
    """Yield the events that the catalog lacks to know all folders that stay."""
    if not catalog.cluster_id and (state.folders or state.properties is not None):
        if not catalog.features_epoch:
            yield {"event": "features", "levels": dict(FIRST_LEVELS), "epoch": 1}
        properties = state.properties
        new_cluster_id = topic_id_text(TopicId(uuid4()))
        yield {
            "event": "cluster",
            "id": new_cluster_id if properties is None else properties.cluster_id,
        }
    partitions: dict[TopicId, int] = {}
    names: dict[TopicId, TopicName] = {}
    for folder in state.folders:
        if state.is_deleted(folder) or _is_misplaced(state, folder) or not folder.has_files:
            continue
        topic_id, metadata = folder.key.topic_id, folder.metadata
        count = folder.key.partition + 1
        if metadata is not None:
            names[topic_id] = metadata.topic_name
            # The file may be damaged or come from elsewhere, so a large claim is not believed.
            if metadata.partition_count <= PARTITIONS_MAX:
                count = max(count, metadata.partition_count)
        partitions[topic_id] = max(count, partitions.get(topic_id, 0))
    if sum(partitions.values()) > PARTITIONS_MAX:
        largest = max(partitions, key=lambda topic_id: partitions[topic_id])
        raise InvalidRequest(
            f"the folders name {sum(partitions.values())} partitions, expected up to "
            f"{PARTITIONS_MAX}: the most of topic {topic_id_text(largest)}, "
            f"{partitions[largest]}; move folders away that do not belong here"
        )
    used_names = {topic.name for topic in catalog.topics()}
    for topic_id, count in partitions.items():
        topic = catalog.by_id(topic_id)
        if topic is not None:
            if count > topic.partition_count:
                yield {"event": "partitions_added", "name": topic.name, "partitions": count}
            continue
        name = names.get(topic_id) or TopicName("")
        # Clients may have made a new topic of this name while the catalog lacked the old one.
        if not name or name in used_names:
            name = TopicName(f"recovered-{topic_id_text(topic_id)}")
        used_names.add(name)
        yield {
            "event": "topic_created",
            "name": name,
            "id": topic_id.hex,
            "partitions": count,
            "settings": dict(KEEP_EVERYTHING),
        }


def _told(event: Event) -> str:
    match event["event"]:
        case "topic_created":
            return (
                f"gets the topic {event['name']} with {event['partitions']} partitions, which "
                "keeps its records forever, because its settings are lost"
            )
        case "partitions_added":
            return f"gives the topic {event['name']} {event['partitions']} partitions"
        case "cluster":
            return f"gets the cluster id {event['id']}"
        case other:
            return f"gets the event {other}"
