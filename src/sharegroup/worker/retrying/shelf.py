"""What the owner of a tier's partition has read of it and not yet moved on.

    log    | moved | moved | waits | moved | waits | waits | not read yet
                           ^ commit                        ^ next

Records leave when they are ready.  In a tier of one delay that is the order of the log; a heap
bears it when it isn't quite, because two workers' clocks differ, and in ``due`` it is any order.
Everything below the commit was moved; what was moved above it goes into its metadata.

Pure: no clock and no waiting.  Times are milliseconds since 1970.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable

from sharegroup.worker.retrying import done_offsets
from sharegroup.worker.retrying.tier_log import Committed
from sharegroup.worker.retrying.waiting import Waiting


class Shelf:
    """See the module's text.

    ``records_max`` and ``bytes_max`` end the reading; what one more answer of the broker holds
    may come on top.
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
        """What is read next."""
        self._committed = committed
        self._done = done_offsets.read(committed.offset, committed.metadata)
        self._outstanding: deque[int] = deque()  # As read; its first is the lowest not done.
        self._heap: list[tuple[int, int, Waiting]] = []
        self._read = 0  # On the shelf or taken from it, and not done.
        self._bytes = 0

    def __len__(self) -> int:
        """How many records are on it or were taken and are not done."""
        return self._read

    @property
    def committed(self) -> Committed:
        """What the last `to_commit` that was `keep`-ed said."""
        return self._committed

    @property
    def ready_ms(self) -> int | None:
        """When the first record is ready; None: there is none."""
        return self._heap[0][0] if self._heap else None

    @property
    def is_full(self) -> bool:
        """Whether no more should be read for now."""
        return self._read >= self.records_max or self._bytes >= self.bytes_max

    @property
    def has_room(self) -> bool:
        """Whether to read again: half of it is free, so that reading comes in long strides."""
        return self._read * 2 <= self.records_max and self._bytes * 2 <= self.bytes_max

    def put(self, waiting: Waiting, ready_ms: int) -> None:
        """Keep the next record of the log; one that was read before, or is done, is passed over."""
        offset = waiting.record.offset
        if offset < self.next_offset:
            return
        self.next_offset = offset + 1
        self._outstanding.append(offset)
        if offset in self._done:
            return
        self._read += 1
        self._bytes += waiting.size
        heapq.heappush(self._heap, (ready_ms, offset, waiting))

    def take(self, now_ms: int, records_max: int) -> list[Waiting]:
        """Up to so many records that are ready, the first first."""
        taken: list[Waiting] = []
        while self._heap and self._heap[0][0] <= now_ms and len(taken) < records_max:
            taken.append(heapq.heappop(self._heap)[2])
        return taken

    def put_back(self, waiting: Waiting, ready_ms: int) -> None:
        """A record that was taken could not be moved; it is ready again then."""
        heapq.heappush(self._heap, (ready_ms, waiting.record.offset, waiting))

    def done(self, taken: Iterable[Waiting]) -> None:
        """These were taken, and lie durable elsewhere."""
        for waiting in taken:
            self._done.add(waiting.record.offset)
            self._read -= 1
            self._bytes -= waiting.size
        assert self._read >= 0, "more records are done than were read"

    def to_commit(self) -> Committed | None:
        """What to leave to the next owner; None when it is what was committed last."""
        while self._outstanding and self._outstanding[0] in self._done:
            self._done.discard(self._outstanding.popleft())
        offset = self._outstanding[0] if self._outstanding else self.next_offset
        committed = Committed(offset, done_offsets.written(offset, self._done))
        return None if committed == self._committed else committed

    def keep(self, committed: Committed) -> None:
        """This was committed."""
        self._committed = committed
