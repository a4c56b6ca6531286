"""Limits how many records are taken together when some of them were delivered before.

A broker counts every delivery, also of records that no handler began.  If a record ends its process
each time, all records taken with it are delivered again, and their delivery counts grow with its
own.  So the more often a record was delivered, the fewer records are taken with it (docs/adr/0035):

    start, or a lock was lost     one record, and more with each take that has only first deliveries
    second delivery               64, and more with each take
    third delivery                8, and more with each take, up to 64
    fourth delivery, or suspects  one; its handler runs alone in the process (`alone`)

These are the numbers for groups whose records are suspected at the fifth delivery.  First
deliveries are taken without a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sharegroup.worker.parts import ShareGroupLimits
from sharegroup.worker.ports import DeliveredRecord
from sharegroup.worker.running.taken_record import TakenRecord

GROWTH_FIRST = 4
"""Each take of first deliveries alone may be this many times as large as the one before."""
GROWTH_AGAIN = 2
FEW = 8
MANY = 64
UNLIMITED_FROM = 512


class Caution:
    """The number of records of one topic that this process may take together."""

    __slots__ = ("_records_max", "suspects")

    def __init__(self) -> None:
        self._records_max: int | None = 1
        self.suspects: list[TakenRecord] | None = []
        """Taken records with an earlier delivery, or put aside before, that are not settled.

        None without a limit.
        """

    def room(self, room: int, held: Iterable[TakenRecord]) -> int:
        """Return how many of ``room`` records to take now; ``held`` records count as settled."""
        if self._records_max is None or self.suspects is None:
            return room
        if self.suspects:
            waiting = set(map(id, held))
            self.suspects = [
                record
                for record in self.suspects
                if not record.is_done and id(record) not in waiting
            ]
        return max(0, min(room, self._records_max - len(self.suspects)))

    def took(self, deliveries: Sequence[DeliveredRecord], limits: ShareGroupLimits) -> None:
        """Adapt the limit to the delivery counts of a take; called if there is a limit."""
        records_max = self._records_max
        assert records_max is not None, "without a limit, no delivery counts are looked at"
        count = max(delivery.delivery_count for delivery in deliveries)
        alone_from = limits.alone_from
        suspects = self.suspects or ()
        if count >= alone_from or any(record.story.suspicions for record in suspects):
            records_max = 1
        elif count == 1:
            records_max *= GROWTH_FIRST
        elif count == alone_from - 1:
            records_max = min(max(FEW, records_max * GROWTH_AGAIN), MANY)
        else:
            records_max = max(MANY, records_max * GROWTH_AGAIN)
        if records_max >= UNLIMITED_FROM:
            self._records_max = self.suspects = None
        else:
            self._records_max = records_max

    def saw(self, record: TakenRecord, limits: ShareGroupLimits) -> None:
        """Set a limit if a record that is about to run must run alone, or at its next delivery."""
        if self._records_max is not None:
            return
        if record.runs_alone(limits.alone_from):
            self._records_max, self.suspects = 1, []
        # `> 1`: if so few deliveries are allowed that the second one runs alone, the one before is
        # the first delivery, which has no limit.
        elif record.delivery.delivery_count >= limits.alone_from - 1 > 1:
            self._records_max, self.suspects = FEW, []

    def start_again(self) -> None:
        """Take one record next, as at the start, because locks were lost."""
        self._records_max = 1
        self.suspects = self.suspects or []
