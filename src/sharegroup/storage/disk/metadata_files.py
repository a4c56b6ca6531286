"""Reads and writes the text files that identify a data directory and its partition folders.

    meta.properties        in the data directory: the cluster id and the node id
    partition.metadata     in each partition folder: the topic's id, name and partition count

Both files have Kafka's format with additional lines.  The broker does not need them to serve
records, because the catalog has the same facts.  It reads them when the catalog and the folders
disagree, for example when ``catalog.journal`` is lost or was replaced by that of another broker.
The last line of each file is a checksum of the lines before it, so a damaged file is never mistaken
for a file of another broker.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import crc32c

from sharegroup.errors import KafkaStorageError
from sharegroup.ids import TopicId, TopicName, topic_id_text
from sharegroup.storage.disk.checkpoint_files import parse_topic_id, read_file, replace_file
from sharegroup.storage.disk.files import NO_SPACE, Files

log = logging.getLogger(__name__)

META_PROPERTIES_FILE = "meta.properties"
PARTITION_METADATA_FILE = "partition.metadata"

_META_CHECKSUM = "sharegroup.crc32c="
_PARTITION_CHECKSUM = "crc32c: "


class MetaProperties(NamedTuple):
    """The content of ``meta.properties``."""

    cluster_id: str
    node_id: int


class PartitionMetadata(NamedTuple):
    """The content of ``partition.metadata``."""

    topic_id: TopicId
    topic_name: TopicName
    partition_count: int = 1
    """Number of partitions of the topic when the folder was created or last opened."""


class Metadata(NamedTuple):
    """The bytes of the ``partition.metadata`` file of a log's folder."""

    content: bytes
    is_new: bool
    """Whether the file was just written and may not be durable yet."""


def read_meta_properties(files: Files, root: str) -> MetaProperties | None:
    """Return the content of the file, or None if there is no file. ValueError if it is damaged."""
    path = f"{root}/{META_PROPERTIES_FILE}"
    if not files.exists(path):
        return None
    lines = _checked_lines(read_file(files, path), _META_CHECKSUM)
    pairs = dict(line.split("=", 1) for line in lines)
    try:
        return MetaProperties(pairs["cluster.id"], int(pairs["node.id"]))
    except KeyError as error:
        raise ValueError(f"the property {error} is missing") from error


def write_meta_properties(files: Files, root: str, properties: MetaProperties) -> None:
    """Replace ``meta.properties`` durably."""
    lines = (f"cluster.id={properties.cluster_id}", f"node.id={properties.node_id}", "version=1")
    replace_file(files, root, META_PROPERTIES_FILE, _with_checksum(lines, _META_CHECKSUM))


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Return the bytes of a ``partition.metadata`` file."""
    lines = (
        "version: 0",
        f"topic_id: {topic_id_text(metadata.topic_id)}",
        f"topic_name: {metadata.topic_name}",
        f"partitions: {metadata.partition_count}",
    )
    return _with_checksum(lines, _PARTITION_CHECKSUM)


def decode_partition_metadata(data: bytes) -> PartitionMetadata:
    """Decode the bytes of a ``partition.metadata`` file. ValueError if they are damaged."""
    pairs = dict(line.split(": ", 1) for line in _checked_lines(data, _PARTITION_CHECKSUM))
    try:
        return PartitionMetadata(
            parse_topic_id(pairs["topic_id"]),
            TopicName(pairs.get("topic_name", "")),
            int(pairs.get("partitions", 1)),
        )
    except KeyError as error:
        raise ValueError(f"the line {error} is missing") from error


def read_partition_metadata(files: Files, folder: str) -> PartitionMetadata | None:
    """Return the content of a folder's ``partition.metadata``, or None if there is no file.

    ValueError if it is damaged.
    """
    path = f"{folder}/{PARTITION_METADATA_FILE}"
    return decode_partition_metadata(read_file(files, path)) if files.exists(path) else None


def write_partition_metadata(files: Files, folder: str, content: bytes) -> None:
    """Write ``partition.metadata`` into a folder.

    The file becomes durable with the next checkpoint of the log.
    """
    fd = files.open(f"{folder}/{PARTITION_METADATA_FILE}", create=True)
    try:
        # In this order, so that a file of the same size can be written on a full disk.
        files.write(fd, content, 0)
        files.truncate(fd, len(content))
    finally:
        files.close(fd)


def sync_partition_metadata(files: Files, folder: str) -> None:
    """Sync the content of ``partition.metadata``. Its name is durable when the folder is synced."""
    fd = files.open(f"{folder}/{PARTITION_METADATA_FILE}")
    try:
        files.sync(fd)
    finally:
        files.close(fd)


def kept_metadata(files: Files, folder: str, metadata: PartitionMetadata) -> Metadata:
    """Return the metadata for a folder; write the file if it is missing, damaged or out of date.

    If the folder does not exist, nothing is written. KafkaStorageError if the file is sound and
    names another topic: the folder was put here by mistake and holds the records of another
    partition.
    """
    content, path = encode_partition_metadata(metadata), f"{folder}/{PARTITION_METADATA_FILE}"
    if not files.exists(folder):
        return Metadata(content, is_new=False)
    try:
        stored = read_file(files, path)
    except FileNotFoundError:
        stored = (
            b""  # Created by an older version, or the power failed before the first checkpoint.
        )
    if stored == content:
        return Metadata(content, is_new=False)
    try:
        topic_id, topic_name, _ = decode_partition_metadata(stored)
    except ValueError as error:
        if stored:
            log.warning("event=partition_metadata_replaced file=%s reason=%r", path, str(error))
    else:
        if topic_id != metadata.topic_id:
            raise KafkaStorageError(
                f"{path} names topic {topic_name!r} with the id {topic_id_text(topic_id)}, not "
                f"{topic_id_text(metadata.topic_id)}: the folder of another partition was put in "
                "its place; restore the right one"
            )
    files.names(folder)  # Nothing is written through a link.
    try:
        write_partition_metadata(files, folder, content)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        # A broker starts on a full disk (ADR 0019), and the next start tries again.
        log.warning("event=partition_metadata_not_written file=%s error=%r", path, str(error))
        return Metadata(content, is_new=False)
    return Metadata(content, is_new=True)


def _with_checksum(lines: tuple[str, ...], prefix: str) -> bytes:
    content = "".join(f"{line}\n" for line in lines).encode()
    return content + f"{prefix}{crc32c.crc32c(content):08x}\n".encode("ascii")


def _checked_lines(data: bytes, prefix: str) -> list[str]:
    """Return the lines before the checksum. ValueError if the checksum does not match."""
    content, separator, checksum = data.rpartition(prefix.encode("ascii"))
    if not separator or checksum != f"{crc32c.crc32c(content):08x}\n".encode("ascii"):
        raise ValueError(f"the checksum of {len(data)} bytes does not match")
    return content.decode().splitlines()
