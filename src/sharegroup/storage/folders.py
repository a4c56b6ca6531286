"""The folders of partitions: their names, and how they go.

A folder is named after the topic's id, which is made here, never after the topic's name,
which comes from outside.
"""

from __future__ import annotations

import logging

from sharegroup.ids import TopicPartition, topic_id_text
from sharegroup.storage.checkpoint_files import parse_topic_id
from sharegroup.storage.files import Files

log = logging.getLogger(__name__)


def folder_name(key: TopicPartition) -> str:
    return f"{topic_id_text(key.topic_id)}-{key.partition}"


def partition_of(name: str) -> TopicPartition | None:
    """The partition whose folder has this name, None for anything else."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not partition.isdigit():
        return None
    try:
        return TopicPartition(parse_topic_id(topic), int(partition))
    except ValueError:
        return None


def remove_folder(files: Files, folder: str) -> None:
    """Blocking: delete a folder of files; what can't be deleted is logged and left."""
    remove_files(files, [f"{folder}/{name}" for name in files.names(folder)])
    try:
        files.remove_directory(folder)
    except OSError as error:
        log.warning("event=remove_failed path=%s error=%r", folder, str(error))


def remove_old_files(files: Files, folder: str, paths: list[str]) -> None:
    """Blocking: delete files of a log, once the names of those that take their place stay."""
    try:
        files.sync_directory(folder)
    except OSError as error:
        log.warning("event=remove_postponed folder=%s error=%r", folder, str(error))
        return
    remove_files(files, paths)


def remove_files(files: Files, paths: list[str]) -> None:
    """Blocking: delete files that may be gone already; failures are logged."""
    for path in paths:
        try:
            if files.exists(path):
                files.remove(path)
        except OSError as error:
            log.warning("event=remove_failed path=%s error=%r", path, str(error))
