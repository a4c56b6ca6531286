"""Names and deletion of the partition folders.

A folder is named after the topic id, which the broker generates, and never after the topic name,
which a client chooses.
"""

from __future__ import annotations

import logging

from sharegroup.ids import TopicId, TopicIdPartition, topic_id_text
from sharegroup.storage.disk.checkpoint_files import parse_topic_id
from sharegroup.storage.disk.files import Files

log = logging.getLogger(__name__)

DELETED_SUFFIX = "-delete"
"""Suffix of the name of a folder that belonged to a deleted topic and is to be removed."""


def folder_name(key: TopicIdPartition) -> str:
    """Return the name of a partition's folder: its topic id as text, a hyphen, and its number."""
    return f"{topic_id_text(key.topic_id)}-{key.partition}"


def partition_of(name: str) -> TopicIdPartition | None:
    """Return the partition whose folder has this name, or None if it names no partition folder."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not partition.isdigit():
        return None
    try:
        return TopicIdPartition(parse_topic_id(topic), int(partition))
    except ValueError:
        return None


def is_doomed(name: str) -> bool:
    """Return whether the folder with this name is to be removed."""
    return name.endswith(DELETED_SUFFIX)


def doom_folder(files: Files, root: str, key: TopicIdPartition) -> None:
    """Rename the folder of a deleted partition, if it exists, so that it will be removed.

    If the new name is already taken, both folders keep their names: both will be removed.
    """
    path = f"{root}/{folder_name(key)}"
    doomed = f"{path}{DELETED_SUFFIX}"
    if files.exists(path) and not files.exists(doomed):
        files.rename(path, doomed)


def folders_of(files: Files, root: str, topic_id: TopicId) -> list[str]:
    """Return the paths of a topic's folders, including those that are to be removed."""
    prefix = f"{topic_id_text(topic_id)}-"  # There may be 20,000 folders of other topics.
    return [
        f"{root}/{name}"
        for name in files.names(root)
        if name.startswith(prefix) and partition_of(name.removesuffix(DELETED_SUFFIX)) is not None
    ]


def check_removed(files: Files, root: str, topic_id: TopicId) -> None:
    """Blocking: make the removal of a topic's folders durable. OSError if one still exists."""
    files.sync_directory(root)
    remaining = folders_of(files, root, topic_id)
    if remaining:
        raise OSError(f"{len(remaining)} folders are still there, the first is {remaining[0]}")


def remove_folder(files: Files, folder: str) -> None:
    """Blocking: delete a folder with its files, but only the link if it is one.

    Failures are logged.
    """
    try:
        remove_files(files, [f"{folder}/{name}" for name in files.names(folder)])
        files.remove_directory(folder)
    except NotADirectoryError:
        remove_files(files, [folder])
    except OSError as error:
        log.warning("event=remove_failed path=%s error=%r", folder, str(error))


def remove_old_files(files: Files, folder: str, paths: list[str]) -> None:
    """Blocking: delete old files of a log after making the names of the other files durable."""
    try:
        files.sync_directory(folder)
    except OSError as error:
        log.warning("event=remove_postponed folder=%s error=%r", folder, str(error))
        return
    remove_files(files, paths)


def remove_files(files: Files, paths: list[str]) -> None:
    """Blocking: delete the files that still exist. Failures are logged."""
    for path in paths:
        try:
            if files.exists(path):
                files.remove(path)
        except OSError as error:
            log.warning("event=remove_failed path=%s error=%r", path, str(error))
