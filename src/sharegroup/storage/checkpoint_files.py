"""Kafka's checkpoint files: one offset per partition, as text, replaced as a whole.

    0                                   version
    2                                   entries
    f1Jt0p3kQ2iV1dQyK0mW3g 0 4711       topic, partition, offset

Where Kafka writes the topic's name we write its id, as in the names of folders.  A file is
written beside the old one, synced and renamed, so that there is always a whole one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from uuid import UUID

from sharegroup.ids import TopicId, TopicPartition, topic_id_text
from sharegroup.storage.files import Files

_VERSION = "0"


def write_checkpoint(
    files: Files, root: str, name: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Replace the file durably."""
    lines = [_VERSION, str(len(offsets))]
    lines += (
        f"{topic_id_text(key.topic_id)} {key.partition} {offset}" for key, offset in offsets.items()
    )
    replace_file(files, root, name, "".join(f"{line}\n" for line in lines).encode("ascii"))


def read_checkpoint(files: Files, root: str, name: str) -> dict[TopicPartition, int]:
    """The offsets in the file, none if there is none; ValueError if it can't be read."""
    path = f"{root}/{name}"
    if not files.exists(path):
        return {}
    text = read_file(files, path).decode("ascii", "replace")
    try:
        return _parse(*text.splitlines())
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def replace_file(files: Files, root: str, name: str, content: bytes) -> None:
    """Give a file new content, all or nothing, durably."""
    temporary = f"{root}/{name}.tmp"
    fd = files.open(temporary, create=True)
    try:
        files.truncate(fd, 0)
        files.write(fd, content, 0)
        files.sync(fd)
    finally:
        files.close(fd)
    files.rename(temporary, f"{root}/{name}")
    files.sync_directory(root)


def read_file(files: Files, path: str) -> bytes:
    fd = files.open(path)
    try:
        return files.read(fd, files.size(fd), 0)
    finally:
        files.close(fd)


def parse_topic_id(text: str) -> TopicId:
    """The id that `topic_id_text` wrote, or ValueError."""
    try:
        return TopicId(UUID(bytes=base64.urlsafe_b64decode(text + "==")))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a topic id") from error


def _parse(version: str, count: str, *lines: str) -> dict[TopicPartition, int]:
    if version != _VERSION or int(count) != len(lines):
        raise ValueError(
            f"expected version {_VERSION} and {count} entries, got version {version} "
            f"and {len(lines)} entries"
        )
    return dict(_entry(line) for line in lines)


def _entry(line: str) -> tuple[TopicPartition, int]:
    topic, partition, offset = line.split(" ")
    return TopicPartition(parse_topic_id(topic), int(partition)), int(offset)
