"""The records of a batch, kept by the driver for executors on its own machine.

A ShareFetch brings the records along with the locks, whether one wants them or not.  So the
driver has read every byte of the batch before the first task runs, and an executor on the same
machine need not have the broker send them again.  They lie in memory that has no name in any
directory (memfd), and another process of the same user finds it by the driver's process id::

    driver    memfd  |mark|   partition 0 ...  |   partition 1 ...  |      sparse, one region each
                        ^          ^
    executor         /proc/PID/fd/N, mapped: the slices of its task, and nothing copied

What is kept is a shortcut and never the only way.  A task whose executor is elsewhere, belongs
to another user, or runs again after the batch is over fetches from the broker; the records are
the same, because the log is.  The name of the memory is drawn at random and compared, so neither
a number that was used again nor another machine's process can be taken for the driver's.

Nothing is left behind: the system frees the memory when the driver and its readers are gone,
however they end.  It is given up at every batch and made anew, never written over, because a
task that is late may still be reading.  It grows up to a limit, and to a part of what memory is
free; what goes beyond is fetched.  Readers leave a mark, and a driver that never sees one works
for executors on other machines and stops keeping.
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
from typing import NamedTuple

from sharegroup.client.offset_set import EMPTY, OffsetSet, Range
from sharegroup.client.share_session import FetchedPartition
from sharegroup.errors import CorruptMessage
from sharegroup.ids import TopicPartition
from sharegroup.wire.batches import parse_header
from sharegroup.wire.columns import batch_positions

log = logging.getLogger(__name__)

FREE_PART = 4
"""One in so many bytes of free memory, at most."""
SLICE_BYTES = 8 * 1024 * 1024
"""About what is mapped at a time."""
WRITES_MAX = 8
"""Parts of answers that wait to be written; they are in memory twice."""
UNREAD_BATCHES_MAX = 3
"""So many batches in a row that nobody read here are read elsewhere."""

REGION_BYTES = 1 << 40
"""Of addresses, not of memory; more than any batch has, so that a partition's slices adjoin."""
MARK_AT = 0
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_MEMORY_USED = Path("/sys/fs/cgroup/memory.current")
_FREE_MEMORY = Path("/proc/meminfo")


class Slice(NamedTuple):
    """Whole record batches next to each other."""

    first: int
    end: int
    """Offsets [first, end) are read from here; what the batches hold besides is not."""
    position: int
    size: int


class KeptRecords(NamedTuple):
    """Where a partition's records of one batch are; goes to the executors."""

    path: str
    name: str
    slices: tuple[Slice, ...]
    """Ascending, and apart from each other."""


class _Partition:
    """What is kept of one partition."""

    __slots__ = ("covered", "log_end", "position", "reached", "slices")

    def __init__(self, position: int) -> None:
        self.position = position
        """Where the next bytes go."""
        self.reached = self.log_end = 0
        """The offset after what is acquired, and after what the batches hold."""
        self.slices: list[Slice] = []
        self.covered: list[Range] = []

    def add(self, kept: Slice, log_first: int, log_end: int) -> None:
        """Remember what was written; one batch that came twice must not be in one slice."""
        last = self.slices[-1] if self.slices else None
        if last is not None and last.size < SLICE_BYTES and log_first >= self.log_end:
            last = last._replace(end=kept.end, size=last.size + kept.size)
            self.slices[-1] = last
        else:
            self.slices.append(kept)
        self.position += kept.size
        self.reached, self.log_end = kept.end, log_end


class Keeper:
    """The driver's side: keeps what comes until the next batch begins."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max if hasattr(os, "memfd_create") else 0
        self._unread_batches = 0
        self._file: int | None = None
        self._name = ""
        self._room = 0
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._thread = ThreadPoolExecutor(1, "kafka-share-keep")
        self._writes: deque[Future[bool]] = deque()

    def begin(self) -> None:
        """A new batch: what was kept of the last one is given up."""
        if self._file is not None:
            is_read = os.pread(self._file, 1, MARK_AT) != b"\0"
            self._unread_batches = 0 if is_read else self._unread_batches + 1
            if self._unread_batches == UNREAD_BATCHES_MAX:
                log.info("records.not_kept reason=no executor on this machine reads them")
                self._bytes_max = 0
        self.close()
        self._room = min(self._bytes_max, free_memory_bytes() // FREE_PART)

    def close(self) -> None:
        """Keep nothing."""
        self._wait_for_writes(0)
        if self._file is not None:
            os.close(self._file)
        self._file, self._room, self._partitions = None, 0, {}

    def keep(self, fetched: FetchedPartition) -> None:
        """Keep what an answer brought, if it can be kept."""
        if not self._room or not fetched.acquired:
            return
        try:
            positions = batch_positions(fetched.records)
        except CorruptMessage:
            return  # The executors meet it too, and it is theirs to say.
        if not positions.size:
            return
        last_at = int(positions[-1])
        last = parse_header(fetched.records, last_at)
        log_first = parse_header(fetched.records).base_offset
        first, end = fetched.acquired[0].first, min(fetched.acquired[-1].end, last.end_offset)
        size = last_at + last.size
        partition = self._partition(fetched.key)
        if first >= end or first < partition.reached or size > self._room:
            return
        if not self._write(fetched.records[:size], partition.position):
            return
        kept = Slice(first, end, partition.position, size)
        partition.add(kept, log_first, last.end_offset)
        ranges = ((one.first, min(one.end, end)) for one in fetched.acquired)
        partition.covered += [one for one in ranges if one[0] < one[1]]

    def covered(self, key: TopicPartition) -> OffsetSet:
        """The acquired offsets whose records are kept, or known not to exist."""
        self._wait_for_writes(0)
        kept = self._partitions.get(key)
        return EMPTY if kept is None else OffsetSet.of(kept.covered)

    def records(self, key: TopicPartition) -> KeptRecords:
        """Where they are; something of the partition must be covered."""
        path = f"/proc/{os.getpid()}/fd/{self._file}"
        return KeptRecords(path, self._name, tuple(self._partitions[key].slices))

    def _partition(self, key: TopicPartition) -> _Partition:
        kept = self._partitions.get(key)
        if kept is None:
            kept = _Partition((len(self._partitions) + 1) * REGION_BYTES)
            self._partitions[key] = kept
        return kept

    def _write(self, records: bytes | memoryview, position: int) -> bool:
        """Begin to write; whether there is memory for it as far as one knows.

        The kernel takes longer to find the pages than to fill them, so a thread does it, while
        the broker sends the next answer.
        """
        try:
            if self._file is None:
                self._name = f"kafka-share-{uuid.uuid4().hex}"
                self._file = os.memfd_create(self._name)
                os.pwrite(self._file, b"\0", MARK_AT)
        except OSError as error:
            log.info("records.not_kept error=%r (executors fetch them)", error)
            self._room = 0
            return False
        self._room -= len(records)
        self._writes.append(self._thread.submit(_written, self._file, records, position))
        self._wait_for_writes(WRITES_MAX)
        return True

    def _wait_for_writes(self, left_max: int) -> None:
        """Until no more than so many are under way.  When one failed, nothing was kept."""
        while len(self._writes) > left_max:
            if not self._writes.popleft().result():
                self._room, self._partitions = 0, {}


def _written(file: int, records: bytes | memoryview, position: int) -> bool:
    """Write all of it; whether that went well."""
    try:
        return os.pwrite(file, records, position) == len(records)
    except OSError as error:
        log.info("records.not_kept error=%r (executors fetch them)", error)
        return False


class Reader:
    """An executor's side: what `opened` found, to be closed."""

    def __init__(self, file: int, kept: KeptRecords) -> None:
        self._file = file
        self._slices = kept.slices

    def between(self, first: int, end: int) -> Iterator[tuple[Slice, memoryview]]:
        """The slices with something of [first, end), mapped one after the other."""
        for one in self._slices:
            if one.first < end and one.end > first:
                before = one.position % mmap.ALLOCATIONGRANULARITY
                mapped = mmap.mmap(
                    self._file,
                    before + one.size,
                    flags=mmap.MAP_SHARED | mmap.MAP_POPULATE,
                    prot=mmap.PROT_READ,
                    offset=one.position - before,
                )
                # The mapping ends with the last view of it.
                yield one, memoryview(mapped)[before:]

    def close(self) -> None:
        os.close(self._file)


def opened(kept: KeptRecords) -> Reader | None:
    """The driver's memory; None when it is not here, or not for this user, or no more."""
    expected = f"/memfd:{kept.name} (deleted)"
    try:
        if os.readlink(kept.path) != expected:
            return None  # Somebody else's file; opening it might have consequences.
        file = os.open(kept.path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    if os.readlink(f"/proc/self/fd/{file}") != expected:
        os.close(file)
        return None
    os.pwrite(file, b"\1", MARK_AT)
    return Reader(file, kept)


def free_memory_bytes() -> int:
    """What processes could still use, of the machine and of the container; 0: nobody knows."""
    free = 0
    with suppress(OSError):
        for line in _FREE_MEMORY.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    with suppress(OSError, ValueError):  # No container, or one without a limit: "max".
        free = min(free, int(_MEMORY_LIMIT.read_text()) - int(_MEMORY_USED.read_text()))
    return max(0, free)
