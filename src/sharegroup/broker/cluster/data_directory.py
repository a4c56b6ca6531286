"""Checks that the catalog and the partition folders of a data directory belong together.

The catalog (`catalog.journal`) lists the topics, and the folders hold their records.  Both can be
lost, damaged, or replaced by an older copy or by files of another broker.  A broker with a catalog
that lacks topics would not serve their records.  It would create new topics under their names and
drop the offsets and the delivery state that groups have in them.  So the broker refuses to start
and changes nothing if

- there are partition folders or `meta.properties`, but no catalog;
- the catalog belongs to another cluster than `meta.properties` says;
- a folder with files belongs to no partition that the catalog knows;
- the last broker stopped in order and had another catalog then;
- a folder of an internal topic that had records is missing.

A folder is removed only if the catalog has the event of its topic's deletion.
"""

from __future__ import annotations

import logging
from functools import partial

from sharegroup.broker.cluster.catalog import CATALOG_FILE, Catalog
from sharegroup.errors import KafkaStorageError
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.storage.directory.journal import Journal
from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.storage.disk.files import NO_SPACE
from sharegroup.storage.disk.folders import DELETED_SUFFIX, folder_name
from sharegroup.storage.disk.metadata_files import (
    META_PROPERTIES_FILE,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from sharegroup.storage.recovery.checkpoint import RECOVERY_POINTS_FILE

log = logging.getLogger(__name__)

FOLDERS_NAMED_MAX = 5
"""Folders that an error names; `sharegroup data check` names all of them."""


def check_identity(catalog: Catalog, directory: LogDirectory) -> bool:
    """Return whether the directory is new; raise KafkaStorageError if it lost its catalog.

    A new directory has no catalog, no partition folders and no `meta.properties`.  The error is
    also raised if catalog and `meta.properties` belong to different clusters.
    """
    properties = _meta_properties(directory)
    if catalog.cluster_id:
        if properties is not None and properties.cluster_id != catalog.cluster_id:
            raise _refusal(
                directory,
                f"{CATALOG_FILE} belongs to cluster {catalog.cluster_id} and "
                f"{META_PROPERTIES_FILE} to cluster {properties.cluster_id}: one of them comes "
                "from another broker",
            )
        return False
    folders = [folder_name(key) for key in directory.partitions()]
    if folders:
        raise _refusal(
            directory,
            f"{CATALOG_FILE} is missing or its first events are missing, but there are "
            f"{len(folders)} partition folders ({_some(folders)})",
        )
    if properties is not None:
        raise _refusal(
            directory,
            f"{CATALOG_FILE} is missing or its first events are missing, but "
            f"{META_PROPERTIES_FILE} says that the directory belongs to cluster "
            f"{properties.cluster_id}",
        )
    return True


def keep_meta_properties(catalog: Catalog, directory: LogDirectory, *, node_id: int) -> None:
    """Write `meta.properties` if it is missing or damaged, or names another node id."""
    properties = MetaProperties(catalog.cluster_id, node_id)
    if _meta_properties(directory) != properties:
        try:
            write_meta_properties(directory.files, directory.path, properties)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            # A broker starts on a full disk (ADR 0019), and the next start tries again.
            log.warning("event=meta_properties_not_written error=%r", str(error))


def check_folders(catalog: Catalog, directory: LogDirectory) -> None:
    """Raise KafkaStorageError if there are folders with files that the catalog does not know."""
    deleted = frozenset(catalog.deleted_topics)
    unknown = []
    for key in directory.partitions():
        if key.topic_id in deleted or _is_known(catalog, key):
            continue
        try:
            has_files = bool(directory.files.names(f"{directory.path}/{folder_name(key)}"))
        except NotADirectoryError as error:  # A file or a link, so it has no records here.
            log.warning("event=no_folder folder=%s error=%r", folder_name(key), str(error))
            continue
        if has_files:
            unknown.append(folder_name(key))
        else:
            log.warning("event=unknown_folder folder=%s files=0", folder_name(key))
    for key in directory.doomed_partitions():
        if key.topic_id not in deleted:
            # Folders are renamed after a durable deletion, so nobody needs it.  The event is gone.
            log.warning("event=unknown_folder folder=%s%s", folder_name(key), DELETED_SUFFIX)
    if unknown:
        raise _refusal(
            directory,
            f"{len(unknown)} folders belong to partitions that are not in {CATALOG_FILE} "
            f"({_some(unknown)}); the catalog may be an older copy, or damaged",
        )


def check_journal(directory: LogDirectory, journal: Journal) -> None:
    """Raise KafkaStorageError if the catalog differs from that at the last orderly stop.

    An older copy may lack settings; with another ``retention.ms``, records would be deleted.
    """
    expected, current = directory.closed_journals.get(CATALOG_FILE), journal.found
    if expected is not None and current is not None and current != expected:
        raise _refusal(
            directory,
            f"{CATALOG_FILE} is not the one with which the last broker stopped (it had "
            f"{expected[0]} bytes, this one has {current[0]}): it may be an older copy, without "
            "the newest topics and settings",
        )


def check_internal_folders(catalog: Catalog, directory: LogDirectory) -> None:
    """Raise KafkaStorageError if folders of internal topics that had records are missing.

    Without their offsets and delivery state, groups would skip records or receive them again.
    """
    existing = set(directory.partitions())
    missing = [
        (topic, folder_name(key))
        for topic in catalog.topics()
        if topic.is_internal
        for key in (TopicIdPartition(topic.topic_id, n) for n in range(topic.partition_count))
        if directory.had_records(key) and key not in existing
    ]
    if missing:
        topic, folder = missing[0]
        raise KafkaStorageError(
            f"data directory {directory.path}: {len(missing)} folders of internal topics are "
            f"missing ({folder} of {topic.name}), which contained the offsets or the delivery "
            "state of groups. The broker does not start, and nothing was changed. Restore them "
            "from a copy; to start without this data, remove "
            f"{directory.path}/{RECOVERY_POINTS_FILE}"
        )


def remove_deleted(catalog: Catalog, directory: LogDirectory) -> None:
    """Remove the remaining folders of deleted topics, and forget deleted topics without folders."""
    partition_counts: dict[TopicId, int] = {}
    for key in (*directory.partitions(), *directory.doomed_partitions()):
        partition_count = partition_counts.get(key.topic_id, 0)
        partition_counts[key.topic_id] = max(partition_count, key.partition + 1)
    directory.forget_offsets(frozenset(catalog.deleted_topics))
    for topic_id in catalog.deleted_topics:
        if topic_id in partition_counts:
            log.info("event=deleted_topic_removed topic_id=%s", topic_id)
            directory.delete(
                topic_id,
                partition_count=partition_counts[topic_id],
                removed=partial(catalog.forget_deleted, topic_id),
            )
        else:
            catalog.forget_deleted(topic_id)


def _is_known(catalog: Catalog, key: TopicIdPartition) -> bool:
    topic = catalog.by_id(key.topic_id)
    return topic is not None and key.partition < topic.partition_count


def _meta_properties(directory: LogDirectory) -> MetaProperties | None:
    """Return the content of `meta.properties`, or None if the file is missing or damaged.

    A damaged file is no error, because the catalog has the cluster id, too.
    """
    try:
        return read_meta_properties(directory.files, directory.path)
    except ValueError as error:
        log.warning("event=meta_properties_damaged path=%s reason=%r", directory.path, str(error))
        return None


def _refusal(directory: LogDirectory, problem: str) -> KafkaStorageError:
    return KafkaStorageError(
        f"data directory {directory.path}: {problem}. The broker does not start, and nothing was "
        "changed. Restore what is missing from a copy, or check what can be repaired: sharegroup "
        f"data check --data {directory.path}"
    )


def _some(names: list[str]) -> str:
    more = ", ..." if len(names) > FOLDERS_NAMED_MAX else ""
    return ", ".join(names[:FOLDERS_NAMED_MAX]) + more
