"""Reads and writes Kafka's checkpoint files: one offset per partition, as text.

    0                                   version
    2                                   entries
    f1Jt0p3kQ2iV1dQyK0mW3g 0 4711       topic, partition, offset
    crc32c 1a2b3c4d                     checksum of the lines before it

Two things differ from Kafka.  The files have the topic id in place of the topic name, as in the
names of folders.  They have a checksum, because one flipped bit in a start offset would hide
records.  A new file is written beside the old one, synced and renamed, so there is always a
complete one.
"""

from __future__ import annotations

import base64
import binascii
import errno
from collections.abc import Mapping
from uuid import UUID

import crc32c

from sharegroup.ids import OFFSET_MAX, TopicId, TopicIdPartition, topic_id_text
from sharegroup.storage.disk.files import Files

SMALL_FILE_BYTES_MAX = 256 * 1024 * 1024
"""Maximum size of a file that is read as a whole: checkpoints, metadata, and the catalog."""

_VERSION = "0"
_CHECKSUM = "crc32c "


def write_checkpoint(
    files: Files, root: str, name: str, offsets: Mapping[TopicIdPartition, int]
) -> None:
    """Replace a checkpoint file durably."""
    lines = [_VERSION, str(len(offsets))]
    lines += (
        f"{topic_id_text(key.topic_id)} {key.partition} {offset}" for key, offset in offsets.items()
    )
    content = "".join(f"{line}\n" for line in lines).encode("ascii")
    checksum = f"{_CHECKSUM}{crc32c.crc32c(content):08x}\n".encode("ascii")
    replace_file(files, root, name, content + checksum)


def read_checkpoint(files: Files, root: str, name: str) -> dict[TopicIdPartition, int]:
    """Return the offsets in a checkpoint file, none if it does not exist.

    ValueError if it is damaged.
    """
    path = f"{root}/{name}"
    if not files.exists(path):
        return {}
    try:
        return _parse(_checked(read_file(files, path)).splitlines())
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def replace_file(files: Files, root: str, name: str, content: bytes) -> None:
    """Replace the content of a file, which may be new, atomically and durably."""
    path = f"{root}/{name}"
    _write_beside(files, path, content, sync=True)
    files.rename(f"{path}.tmp", path)
    files.sync_directory(root)


def replace_many(files: Files, root: str, contents: Mapping[str, bytes]) -> None:
    """Replace many files below ``root``, given by path, and sync the whole file system.

    Each file is replaced atomically and durably.
    """
    for path, content in contents.items():
        _write_beside(files, path, content, sync=False)
    # The contents before the names: a name that is durable first would lead to an empty file.
    files.sync_tree(root)
    for path in contents:
        files.rename(f"{path}.tmp", path)
    files.sync_tree(root)


def _write_beside(files: Files, path: str, content: bytes, *, sync: bool) -> None:
    fd = files.open(f"{path}.tmp", create=True)
    try:
        # A crash may have left a longer file of this name.
        files.truncate(fd, 0)
        files.write(fd, content, 0)
        # Before the file gets its name, for the reason that `replace_many` gives.
        if sync:
            files.sync(fd)
    finally:
        files.close(fd)


def read_file(files: Files, path: str) -> bytes:
    """Return the whole content of a small file; raise OSError if it cannot be read."""
    fd = files.open(path)
    try:
        size = files.size(fd)
        # A sparse file can have any size.
        if size > SMALL_FILE_BYTES_MAX:
            text = f"it has {size} bytes, expected up to {SMALL_FILE_BYTES_MAX}"
            raise OSError(errno.EFBIG, text, path)
        return files.read(fd, size, 0)
    finally:
        files.close(fd)


def parse_topic_id(text: str) -> TopicId:
    """Parse a topic id in the form of `topic_id_text`. ValueError if it is none."""
    try:
        return TopicId(UUID(bytes=base64.urlsafe_b64decode(text + "==")))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a topic id") from error


def _checked(data: bytes) -> str:
    """Return the lines before the checksum. ValueError if it does not match.

    Files of older versions have no checksum.
    """
    content, separator, checksum = data.rpartition(_CHECKSUM.encode("ascii"))
    if not separator:
        return data.decode("ascii")
    if checksum != f"{crc32c.crc32c(content):08x}\n".encode("ascii"):
        raise ValueError("the checksum does not match")
    return content.decode("ascii")


def _parse(content: list[str]) -> dict[TopicIdPartition, int]:
    if len(content) < 2:
        raise ValueError(f"expected a version and a number of entries, got {len(content)} lines")
    version, count, *lines = content
    if version != _VERSION or int(count) != len(lines):
        raise ValueError(
            f"expected version {_VERSION} and {count} entries, got version {version} "
            f"and {len(lines)} entries"
        )
    return dict(_entry(line) for line in lines)


def _entry(line: str) -> tuple[TopicIdPartition, int]:
    topic, partition, text = line.split(" ")
    offset = int(text)
    # A file without a checksum, of an older version, may have any number.
    if not 0 <= offset <= OFFSET_MAX:
        raise ValueError(f"expected an offset of 0 to {OFFSET_MAX}, found {offset}")
    return TopicIdPartition(parse_topic_id(topic), int(partition)), offset
