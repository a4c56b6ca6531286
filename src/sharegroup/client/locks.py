"""The acquisition lock on one range of offsets, and which of its records are where.

A broker locks whole ranges; one object stands for what the records of a range share.  Each
record is in one of three places, and what is settled has left all of them:

    first ......... waiting_from ......... end
      handed out         waiting
      open: not settled  (in the inbox)

The deadline is a lower bound: the broker started the lock after the request that fetched it
was sent, and that moment is what is counted from.  A renewal moves it for the records that it
named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sharegroup.client.held_records import HeldRecords


class AcquisitionLock:
    """See the module's text."""

    __slots__ = (
        "_holes", "_renewed", "acquired_at", "deadline", "delivery_count", "end", "first", "held",
        "let_go", "open", "record_bytes", "waiting_from",
    )  # fmt: skip

    def __init__(
        self,
        held: HeldRecords,
        first: int,
        end: int,
        delivery_count: int,
        *,
        acquired_at: float,
        deadline: float,
        record_bytes: float,
    ) -> None:
        self.held = held
        self.first = first
        self.end = end
        self.delivery_count = delivery_count
        self.acquired_at = acquired_at
        self.deadline = deadline
        """In seconds of ``time.monotonic()``; of single records `deadline_of`."""
        self.record_bytes = record_bytes
        """What a record of it weighs on the wire, on average."""
        self.open = 0
        """How many of its records are handed out and not settled."""
        self.waiting_from = first
        self.let_go = False
        """Renewed no more: it became too old."""
        self._renewed: dict[int, float] | None = None
        self._holes: list[tuple[int, int]] = []

    @property
    def waiting(self) -> int:
        """How many of its offsets are not handed out yet."""
        return self.end - self.waiting_from

    @property
    def is_done(self) -> bool:
        """Whether nothing of it is waiting or open."""
        return not self.open and self.waiting_from >= self.end

    def hole(self, first: int, end: int) -> None:
        """``[first, end)`` was settled without being handed out: nobody will."""
        self._holes.append((first, end))

    def waiting_ranges(self) -> list[tuple[int, int]]:
        """The offsets that are locked and not handed out, without holes."""
        position, ranges = self.waiting_from, []
        for first, end in sorted(self._holes):
            if first > position:
                ranges.append((position, first))
            position = max(position, end)
        if position < self.end:
            ranges.append((position, self.end))
        return ranges

    @property
    def latest_deadline(self) -> float:
        """When the last lock on one of its records ends."""
        if self._renewed is None:
            return self.deadline
        return max(self.deadline, *self._renewed.values())

    def deadline_of(self, offset: int) -> float:
        """When the lock on this record ends."""
        return self.deadline if self._renewed is None else self._renewed.get(offset, self.deadline)

    def renewed(self, offset: int | None, deadline: float) -> None:
        """The broker confirmed a renewal: of one record, or with None of all not settled."""
        if offset is None:
            self.deadline, self._renewed = deadline, None
        elif self._renewed is None:
            self._renewed = {offset: deadline}
        else:
            self._renewed[offset] = deadline
