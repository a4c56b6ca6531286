"""Keeps the records of a batch in the driver's memory for executors on the same machine.

A ShareFetch response of Apache Kafka contains the records together with the locks.  So the driver
has received every byte of the batch before the first task runs.  An executor on the same machine
does not have to fetch them again.  The records are in anonymous memory (memfd), and another process
of the same user finds it by the driver's process id::

    driver    memfd  |mark|   partition 0 ...  |   partition 1 ...  |      sparse, one region each
                        ^          ^
    executor         /proc/PID/fd/N, mapped: the slices of its task, and nothing copied

Kept records only save a fetch.  A task on another machine, of another user, or after the end of the
batch fetches the same records from the broker.  The memory has a random name that is compared, so a
reused process id or a process on another machine cannot be mistaken for the driver.

Our own broker sends no records to the driver (ADR 0059), so nothing is kept.

The system frees the memory when the driver and its readers have ended, even if they were killed.
Every batch uses new memory, because a late task may still read the old one, and because records of
the next batch may come while one runs.  Its size is limited by
a setting and by a part of the free memory; records beyond the limit are fetched.  Readers set a
mark.  A driver that never sees the mark stops keeping records: its executors are on other machines.
"""

from __future__ import annotations

import logging
import mmap
import os
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet, Range
from sharegroup.ids import TopicIdPartition

if TYPE_CHECKING:
    from sharegroup.client.share.session.acquired_records import AcquiredBatches
    from sharegroup.wire.batches.batches import Buffer

log = logging.getLogger(__name__)

FREE_PART = 4
"""Divisor of the free memory that gives the maximum size of the kept records."""
SLICE_BYTES = 8 * 1024 * 1024
"""Approximate number of bytes that are mapped at a time."""
WRITES_MAX = 8
"""Maximum number of parts of responses that wait to be written; they are in memory twice."""
UNREAD_BATCHES_MAX = 3
"""Number of consecutive unread batches after which the driver stops keeping records."""

REGION_BYTES = 1 << 40
"""Address space for each partition, not memory. No batch is larger, so slices are adjacent."""
MARK_AT = 0
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_MEMORY_USED = Path("/sys/fs/cgroup/memory.current")
_FREE_MEMORY = Path("/proc/meminfo")


class Slice(NamedTuple):
    """Adjacent whole record batches in the kept memory."""

    first: int
    end: int
    """Only the offsets [first, end) are read from here; the batches may hold others."""
    position: int
    size: int


class KeptRecords(NamedTuple):
    """The place of a partition's records of one batch; the driver sends it to the executors."""

    path: str
    name: str
    slices: tuple[Slice, ...]
    """Slices in ascending order, without overlap."""


class _Partition:
    """The kept records of one partition."""

    __slots__ = ("covered", "log_end", "position", "reached", "slice_bytes", "slices")

    def __init__(self, position: int, slice_bytes: int) -> None:
        self.slice_bytes = slice_bytes
        self.position = position
        """The position for the next bytes."""
        self.reached = self.log_end = 0
        """The offsets after the last acquired record, and after the last record batch."""
        self.slices: list[Slice] = []
        self.covered: list[Range] = []

    def add(self, kept: Slice, log_first: int, log_end: int) -> None:
        """Add written batches; a batch that was received twice must not be in one slice twice."""
        last = self.slices[-1] if self.slices else None
        if last is not None and last.size < self.slice_bytes and log_first >= self.log_end:
            last = last._replace(end=kept.end, size=last.size + kept.size)
            self.slices[-1] = last
        else:
            self.slices.append(kept)
        self.position += kept.size
        self.reached, self.log_end = kept.end, log_end


class _Memory:
    """The memory with the records of one batch; the system provides it at the first write."""

    __slots__ = ("file", "name", "partitions", "room", "writes")

    def __init__(self, room: int = 0) -> None:
        self.room = room
        """Number of bytes that may still be written."""
        self.file: int | None = None
        self.name = f"kafka-share-{uuid.uuid4().hex}"
        self.partitions: dict[TopicIdPartition, _Partition] = {}
        self.writes: deque[Future[bool]] = deque()

    def create(self) -> int:
        """Return the file of the memory, created if necessary.  OSError if that is impossible."""
        if self.file is None:
            self.file = os.memfd_create(self.name)
            os.pwrite(self.file, b"\0", MARK_AT)
        return self.file

    def wait_for_writes(self, left_max: int = 0) -> None:
        """Wait until at most ``left_max`` writes are pending.  If one failed, forget everything."""
        while len(self.writes) > left_max:
            if not self.writes.popleft().result():
                self.forget()

    def forget(self) -> None:
        """Keep nothing of what was written, and write no more."""
        self.room, self.partitions = 0, {}

    def release(self) -> bool | None:
        """Release the memory; return whether a reader has opened it, None if nothing was kept."""
        self.wait_for_writes()
        file, self.file = self.file, None
        self.forget()
        if file is None:
            return None
        is_read = os.pread(file, 1, MARK_AT) != b"\0"
        # A late reader may still have it mapped; the system frees the pages with the last mapping.
        os.close(file)
        return is_read


class Keeper:
    """The driver's side: keeps received records while their batch runs.

    Records that come while a batch runs are kept for the next one, see `publish`.  Only `keep` is
    called by another thread than the other methods.
    """

    def __init__(self, bytes_max: int, *, slice_bytes: int = SLICE_BYTES) -> None:
        self._bytes_max = bytes_max if hasattr(os, "memfd_create") else 0
        self._slice_bytes = slice_bytes
        self._unread_batches = 0
        self._published = _Memory()
        """The records of the batch that runs."""
        self._coming = _Memory(self._room())
        """The records of the next batch."""
        self._thread = ThreadPoolExecutor(1, "kafka-share-keep")
        self.receives_records = False
        """Whether a broker has sent records, which our own does not."""

    def release(self) -> None:
        """Release the records of the batch that has ended."""
        is_read = self._published.release()
        if is_read is not None:
            self._unread_batches = 0 if is_read else self._unread_batches + 1
            if self._unread_batches == UNREAD_BATCHES_MAX:
                log.info("event=records.not_kept reason='no executor on this machine reads them'")
                self._bytes_max = 0
        # Nothing is kept for the next batch yet, so its room can follow the free memory.
        if self._coming.file is None:
            self._coming.room = self._room()

    def publish(self) -> None:
        """Begin a batch: it has the records that were kept since the last call."""
        self.release()
        self._published, self._coming = self._coming, _Memory(self._room())

    def close(self) -> None:
        """Release all kept records and keep no more."""
        self._bytes_max = 0
        self._published.release()
        self._coming.release()

    def keep(self, batches: AcquiredBatches) -> None:
        """Keep the log batches of a response for the next batch, if there is room."""
        self.receives_records = True
        # Read once, because `publish` replaces it in another thread.
        memory = self._coming
        first = batches.acquired[0].first_offset
        end = min(batches.acquired[-1].end_offset, batches.end_offset)
        size = len(batches.records)
        if not size or size > memory.room or first >= end:
            return
        partition = self._partition(memory, batches.key)
        # Slices must ascend without overlap.  Records that come a second time are fetched.
        if first < partition.reached or not self._write(
            memory, batches.records, partition.position
        ):
            return
        new_slice = Slice(first, end, partition.position, size)
        partition.add(new_slice, batches.first_offset, batches.end_offset)
        ranges = ((run.first_offset, min(run.end_offset, end)) for run in batches.acquired)
        partition.covered += [kept_range for kept_range in ranges if kept_range[0] < kept_range[1]]

    def covered(self, key: TopicIdPartition) -> OffsetSet:
        """Return the offsets of the batch whose records are kept, or known not to exist."""
        self._published.wait_for_writes()
        partition = self._published.partitions.get(key)
        return EMPTY if partition is None else OffsetSet.of(partition.covered)

    def records(self, key: TopicIdPartition) -> KeptRecords:
        """Return the place of a partition's records; `covered` must not be empty for it."""
        memory = self._published
        path = f"/proc/{os.getpid()}/fd/{memory.file}"
        return KeptRecords(path, memory.name, tuple(memory.partitions[key].slices))

    def _room(self) -> int:
        return min(self._bytes_max, free_memory_bytes() // FREE_PART)

    def _partition(self, memory: _Memory, key: TopicIdPartition) -> _Partition:
        partition = memory.partitions.get(key)
        if partition is None:
            position = (len(memory.partitions) + 1) * REGION_BYTES
            partition = memory.partitions[key] = _Partition(position, self._slice_bytes)
        return partition

    def _write(self, memory: _Memory, records: Buffer, position: int) -> bool:
        """Begin to write the records. False if there is no memory for them.

        The kernel takes longer to allocate the pages than to fill them, so a thread writes them
        while the broker sends the next response.
        """
        try:
            file = memory.create()
        except OSError as error:
            log.info(
                "event=records.not_kept error=%r action='the executors fetch the records'", error
            )
            memory.forget()
            return False
        memory.room -= len(records)
        memory.writes.append(self._thread.submit(_written, file, records, position))
        memory.wait_for_writes(WRITES_MAX)
        return True


def _written(file: int, records: Buffer, position: int) -> bool:
    """Write all records and return whether that succeeded."""
    try:
        return os.pwrite(file, records, position) == len(records)
    except OSError as error:
        log.info("event=records.not_kept error=%r action='the executors fetch the records'", error)
        return False


class Reader:
    """The executor's side: reads the kept records of a partition. It must be closed."""

    def __init__(self, file: int, kept: KeptRecords) -> None:
        self._file = file
        self._slices = kept.slices

    def between(self, first: int, end: int) -> Iterator[tuple[Slice, memoryview]]:
        """Map the slices that overlap [first, end), one after the other."""
        for kept_slice in self._slices:
            if kept_slice.first < end and kept_slice.end > first:
                padding = kept_slice.position % mmap.ALLOCATIONGRANULARITY
                mapped = mmap.mmap(
                    self._file,
                    padding + kept_slice.size,
                    flags=mmap.MAP_SHARED | mmap.MAP_POPULATE,
                    prot=mmap.PROT_READ,
                    offset=kept_slice.position - padding,
                )
                # The mapping is released with the last view of it.
                yield kept_slice, memoryview(mapped)[padding:]

    def close(self) -> None:
        """Close the file of the kept records."""
        os.close(self._file)


def opened(kept: KeptRecords) -> Reader | None:
    """Open the driver's memory.

    None if it is on another machine, belongs to another user, or was released.
    """
    expected = f"/memfd:{kept.name} (deleted)"
    try:
        if os.readlink(kept.path) != expected:
            return None  # Another process's file; opening it might have side effects.
        # Writable for the mark, and without waiting, because it may be another process's pipe by
        # now.
        file = os.open(kept.path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    # The process id, or its file number, may be another's since the look above.
    if os.readlink(f"/proc/self/fd/{file}") != expected:
        os.close(file)
        return None
    os.pwrite(file, b"\1", MARK_AT)
    return Reader(file, kept)


def free_memory_bytes() -> int:
    """Return the free memory within the limits of machine and container; 0 if it is unknown."""
    free = 0
    with suppress(OSError):
        for line in _FREE_MEMORY.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    with suppress(OSError, ValueError):  # No container, or one without a limit: "max".
        free = min(free, int(_MEMORY_LIMIT.read_text()) - int(_MEMORY_USED.read_text()))
    return max(0, free)
