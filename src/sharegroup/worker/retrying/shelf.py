"""The records of a tier's partition that were read and not yet moved on, in memory.

    log    | moved | moved | waits | moved | waits | waits | not read yet
                           ^ commit                        ^ next

Records leave when they are ready.  In a tier of a fixed delay this is nearly log order; the clocks
of two workers may differ.  In ``due`` it is any order.  So the records are kept in a heap.  All
records below the committed offset were moved; the commit's metadata lists those moved above it.

Pure: no clock and no waiting.  Times are milliseconds of the process's monotonic clock.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Set

from sharegroup.waiting import done_offsets
from sharegroup.worker.retrying.tier_log import Committed
from sharegroup.worker.retrying.waiting import ShelvedRecord

NEVER = Committed(-1)
"""Equals no commit."""


class Shelf:
    """The records of one partition that were read and not yet moved on.

    Reading stops when ``records_max`` or ``bytes_max`` is reached.  One more response of the
    broker may exceed the limits.
    """

    __slots__ = (
        "_bytes",
        "_committed",
        "_done",
        "_heap",
        "_outstanding",
        "_read",
        "bytes_max",
        "next_offset",
        "records_max",
    )

    def __init__(self, committed: Committed, *, records_max: int, bytes_max: int) -> None:
        self.records_max = records_max
        self.bytes_max = bytes_max
        self.next_offset = committed.offset
        """The offset that is read next."""
        self._committed = committed
        self._done = done_offsets.read(committed.offset, committed.metadata)
        self._outstanding: deque[int] = deque()  # Offsets as read, from the lowest not done on.
        # By the times at which they are ready and due, then in log order (`_entry`).
        self._heap: list[tuple[int, int, int, ShelvedRecord]] = []
        self._read = 0  # The number of records read and not done.
        self._bytes = 0

    def __len__(self) -> int:
        """The number of records that were read and are not done, taken ones included."""
        return self._read

    @property
    def committed(self) -> Committed:
        """The last successful commit, as given to `keep`."""
        return self._committed

    @property
    def ready_ms(self) -> int | None:
        """The time at which the first record is ready; None if there are no records."""
        return self._heap[0][0] if self._heap else None

    @property
    def is_full(self) -> bool:
        """Whether reading should pause, because a limit is reached."""
        return self._read >= self.records_max or self._bytes >= self.bytes_max

    @property
    def has_room(self) -> bool:
        """Whether to resume reading: half of each limit is free, so reading resumes rarely."""
        return self._read * 2 <= self.records_max and self._bytes * 2 <= self.bytes_max

    def put(self, waiting: ShelvedRecord, ready_ms: int) -> None:
        """Add the next record of the log; records that were read before or are done are ignored."""
        offset = waiting.record.offset
        if offset < self.next_offset:
            return
        # Offsets may have holes, so the next one follows from the record and not from a count.
        self.next_offset = offset + 1
        # Also if the record is done: `to_commit` passes over the offsets in log order.
        self._outstanding.append(offset)
        if offset in self._done:
            return
        self._read += 1
        self._bytes += waiting.size
        heapq.heappush(self._heap, _entry(waiting, ready_ms))

    def take(self, now_ms: int, records_max: int) -> list[ShelvedRecord]:
        """Take up to ``records_max`` ready records, in the order in which they became ready."""
        taken: list[ShelvedRecord] = []
        while self._heap and self._heap[0][0] <= now_ms and len(taken) < records_max:
            taken.append(heapq.heappop(self._heap)[-1])
        return taken

    def put_back(self, waiting: ShelvedRecord, ready_ms: int) -> None:
        """Put back a taken record that could not be moved; it is ready again at ``ready_ms``."""
        heapq.heappush(self._heap, _entry(waiting, ready_ms))

    def done(self, taken: Iterable[ShelvedRecord]) -> None:
        """Mark taken records as done, because they are durable in their next topic."""
        for waiting in taken:
            self._done.add(waiting.record.offset)
            self._read -= 1
            self._bytes -= waiting.size
        assert self._read >= 0, "more records are done than were read"

    def to_commit(self) -> Committed | None:
        """Return the offset and metadata to commit; None if they equal the last commit."""
        while self._outstanding and self._outstanding[0] in self._done:
            self._done.discard(self._outstanding.popleft())
        committed = self.committed_with(())
        # Those below are of records that retention has deleted.
        self._done = {offset for offset in self._done if offset >= committed.offset}
        return None if committed == self._committed else committed

    def committed_with(self, moved: Iterable[int]) -> Committed:
        """Return what to commit if these offsets were done, too; changes nothing."""
        done = self._done.union(moved)
        offset = next((it for it in self._outstanding if it not in done), self.next_offset)
        return Committed(offset, done_offsets.written(offset, (it for it in done if it > offset)))

    # Commands for single records (`steering`).

    def not_moved(self, offsets: Iterable[int]) -> set[int]:
        """Return those of the offsets whose records were not moved; some may not be read yet."""
        outstanding = set(self._outstanding)
        return {
            offset
            for offset in offsets
            if offset not in self._done and (offset >= self.next_offset or offset in outstanding)
        }

    def take_at(self, offsets: Set[int]) -> list[tuple[int, ShelvedRecord]]:
        """Take the records with these offsets, ready or not, each with the time it is ready."""
        taken = [(ready, waiting) for ready, _, at, waiting in self._heap if at in offsets]
        if taken:
            self._heap = [entry for entry in self._heap if entry[2] not in offsets]
            heapq.heapify(self._heap)
        return taken

    def pass_over(self, offset: int) -> None:
        """Mark the record that is put next as done, because it was moved before."""
        self._done.add(offset)

    def commit_again(self) -> None:
        """Let `to_commit` return the commit even if the group has the same one."""
        self._committed = NEVER

    def keep(self, committed: Committed) -> None:
        """Note a successful commit."""
        self._committed = committed


def _entry(waiting: ShelvedRecord, ready_ms: int) -> tuple[int, int, int, ShelvedRecord]:
    # Records that were put back together are ready together, and leave in the order of their due
    # times, as they would have without the failure.
    due_ms = 0 if waiting.due_ms is None else waiting.due_ms
    return ready_ms, due_ms, waiting.record.offset, waiting
