"""Reads the batches of one segment file, and continues after damage.

    |  batch  |  batch  | xxxxxxx |  batch  |  ba
    0                   |         |         '- torn: the file ends in the middle
                        |         '- found again where a whole batch begins
                        '- damaged: the checksum is wrong, or there is no header

After damage, the next batch is searched for at the end that the damaged header says, and then at
the positions in the segment's index, where batches begin.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sharegroup.errors import CorruptMessage
from sharegroup.storage.segment.batch_scan import is_whole_at
from sharegroup.storage.segment.index_file import OFFSET_ENTRY
from sharegroup.wire.batches.batches import (
    HEADER_BYTES,
    LENGTH_MIN,
    MAGIC,
    BatchHeader,
    parse_header,
)
from sharegroup.wire.batches.compression import DECOMPRESSED_BYTES_MAX
from sharegroup.wire.batches.record_pieces import UnreadableRange, read_pieces
from sharegroup.wire.batches.records import DecodedRecord

INDEX_BYTES_MAX = 64 * 1024 * 1024
"""Maximum number of bytes that are read of an index; a sparse file can have any size."""


class FoundBatch(NamedTuple):
    """A whole batch: its position in the file and its header."""

    position: int
    header: BatchHeader


class Damage(NamedTuple):
    """Bytes from ``position`` to ``end`` that are not a whole batch."""

    position: int
    end: int
    offset: int
    """The first offset that may be lost."""
    reason: str
    reaches_end: bool
    """Whether no batch follows in the file: writing stopped here, or the rest is lost."""


class SegmentFile:
    """A segment's log file, open for reading; `size` is its size at the time of opening."""

    __slots__ = ("_base_offset", "_fd", "_path", "size")

    def __init__(self, path: Path, base_offset: int) -> None:
        self._path = path
        self._base_offset = base_offset
        self._fd = open_regular(path)
        # Once: a running broker appends, and a walk has to end.
        self.size = os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close the file; the object must not be used after that."""
        os.close(self._fd)

    def walk(self) -> Iterator[FoundBatch | Damage]:
        """Yield the batches and the damage of the whole file, in order."""
        position, offset = 0, self._base_offset
        while position < self.size:
            batch = self._batch_at(position, offset)
            if isinstance(batch, FoundBatch):
                yield batch
                position, offset = position + batch.header.size, batch.header.end_offset
            else:
                damage = self._damage(position, offset, batch)
                yield damage
                position = damage.end

    def records(self, batch: FoundBatch) -> Iterable[list[DecodedRecord] | UnreadableRange]:
        """Return the records of a batch in pieces, and the offsets that cannot be read."""
        data = self._read(batch.header.size, batch.position)
        if len(data) < batch.header.size:
            error = CorruptMessage(f"{self._path.name} was truncated while it was read")
            return (UnreadableRange(batch.header.base_offset, batch.header.end_offset, error),)
        return read_pieces(
            data,
            0,
            batch.header,
            list[DecodedRecord],
            decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
        )

    def _batch_at(self, position: int, offset: int) -> FoundBatch | str:
        """Return the batch at ``position``, or the reason why there is none."""
        bytes_left = self.size - position
        if bytes_left < HEADER_BYTES:
            return f"{bytes_left} bytes are left, which is less than a batch header"
        header = parse_header(self._read(HEADER_BYTES, position))
        if header.magic != MAGIC or header.length < LENGTH_MIN or header.last_offset_delta < 0:
            return "no batch header"
        if header.base_offset < offset:
            return f"expected base offset {offset} or more, found {header.base_offset}"
        if header.size > bytes_left:
            return f"expected a batch of {header.size} bytes, found {bytes_left} bytes"
        if not is_whole_at(self._read, position, header.size):
            return "the checksum does not match"
        return FoundBatch(position, header)

    def _read(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    def _damage(self, position: int, offset: int, reason: str) -> Damage:
        for candidate in self._candidates(position):
            if isinstance(self._batch_at(candidate, offset), FoundBatch):
                return Damage(position, candidate, offset, reason, reaches_end=False)
        return Damage(position, self.size, offset, reason, reaches_end=True)

    def _candidates(self, position: int) -> Iterator[int]:
        """Yield positions after ``position`` where a batch may begin."""
        if self.size - position >= HEADER_BYTES:
            header = parse_header(self._read(HEADER_BYTES, position))
            if header.length >= LENGTH_MIN and position + header.size < self.size:
                yield position + header.size
        index = self._path.with_suffix(".index")
        if index.is_file():
            data = read_beginning(index, INDEX_BYTES_MAX)
            entries = data[: len(data) - len(data) % OFFSET_ENTRY.size]
            for _, indexed in OFFSET_ENTRY.iter_unpack(entries):
                if position < indexed < self.size:
                    yield indexed


# Nobody has checked the files of such a directory, which may come from elsewhere. A link could lead
# out of it, a pipe would be waited for without an end, and a sparse file can have any size.


SMALL_FILE_BYTES_MAX = 256 * 1024 * 1024
"""Maximum size of a file that is read as a whole, as in the broker."""


def open_regular(path: Path) -> int:
    """Return a descriptor for reading; OSError for everything but a regular file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "expected a regular file", str(path))
    return fd


def read_beginning(path: Path, bytes_max: int) -> bytes:
    """Return the content of a file, or its first ``bytes_max`` bytes."""
    with open(open_regular(path), "rb") as file:
        return file.read(bytes_max)


def read_small(path: Path) -> bytes:
    """Return the whole content of a file; OSError if it is larger than `SMALL_FILE_BYTES_MAX`."""
    with open(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > SMALL_FILE_BYTES_MAX:
            text = f"expected up to {SMALL_FILE_BYTES_MAX} bytes"
            raise OSError(errno.EFBIG, text, str(path))
        return file.read()
