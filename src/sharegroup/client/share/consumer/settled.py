"""Acknowledgements of one partition under way, and the reaction to a refusal.

A refusal has no effect, so acknowledgements whose lock still lasts are sent again, as
`refused_acknowledgements` explains:

    NOT_NOW         sent again, after a pause
    LOCK_ENDED      those whose lock has ended by the clock are reported, the others sent again;
                    if all locks should still last, the two halves are sent apart from each other
    LOCKS_GONE      reported: the locks were lost with the leader
    SESSION_GONE    reported as failed or in doubt
    FOR_GOOD        reported

Renewals are treated alike, but they are not sent again after NOT_NOW.

Every acknowledgement is reported once: when it is durable, or when it is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

from sharegroup.client.records import AcknowledgementResult, TopicPartition
from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.session.acknowledgements import AckRun, Offsets
from sharegroup.client.share.session.offset_set import OffsetSet, Range
from sharegroup.client.share.session.refused_acknowledgements import (
    Refusal,
    divide,
    divide_at_locks,
    overlap_with,
    refusal_of,
)
from sharegroup.client.share.session.renewal_schedule import forbids_renewal
from sharegroup.errors import KafkaError
from sharegroup.ids import TopicIdPartition


class AcknowledgedPartition(Protocol):
    """The table of held records that acknowledgements were taken from.

    A protocol, because `HeldRecords` makes the acknowledgements and needs this module itself.
    """

    key: TopicIdPartition
    topic_partition: TopicPartition
    lost: KafkaError | None


class PendingResults:
    """Follows acknowledgements that were settled together until all of them are reported."""

    __slots__ = ("_pieces", "done", "results")

    def __init__(self) -> None:
        self.results: list[AcknowledgementResult] = []
        self.done = asyncio.Event()
        self._pieces = 1

    def split(self, more: int) -> None:
        """Note that the acknowledgements were split, so ``more`` additional results follow."""
        self._pieces += more

    def report(self, result: AcknowledgementResult) -> None:
        """Add the result of one part; set `done` after the last."""
        self.results.append(result)
        self._pieces -= 1
        if not self._pieces:
            self.done.set()


@dataclass(slots=True, eq=False)
class Settled:
    """Acknowledgements of one partition that are sent together."""

    held: AcknowledgedPartition
    runs: tuple[AckRun, ...]
    locks: Sequence[AcquisitionLock]
    """All locks that may cover one of the offsets; further locks do no harm."""
    error: KafkaError | None = None
    """Why the acknowledgements cannot be sent; None if they can."""
    renewals: tuple[tuple[AcquisitionLock, int | None], ...] | None = None
    """The locks to renew, with an offset if one record of the lock is renewed alone.

    None if these are no renewals.
    """
    unseen: Sequence[Range] = ()
    """Ascending ranges in ``runs`` that were not handed out; results leave them out."""
    is_automatic: bool = False
    """Whether it is an automatic renewal, whose result is not reported to the application."""
    pending: PendingResults = field(default_factory=PendingResults)

    def absorb(self, later: Settled) -> bool:
        """Add the acknowledgements of ``later``; return False if both settle the same offset.

        Then the offset's lock ended in between and the record was delivered here again, so they
        need two requests.  The `pending` of ``later`` must not be in use yet.
        """
        runs = sorted((*self.runs, *later.runs))
        if any(run.end > following.first for run, following in pairwise(runs)):
            return False
        self.runs = tuple(runs)
        self.unseen = sorted((*self.unseen, *later.unseen))
        return True

    @property
    def is_renewal(self) -> bool:
        """Whether these are renewals, which are never sent with other acknowledgements."""
        return self.renewals is not None

    def part(self, runs: tuple[AckRun, ...]) -> Settled:
        """Return the unit of these runs, which are a part of this one's and ascend."""
        return replace(self, runs=runs, renewals=self._renewals_of(runs))

    def _renewals_of(
        self, runs: Sequence[AckRun]
    ) -> tuple[tuple[AcquisitionLock, int | None], ...] | None:
        """Return the renewals of which all offsets are in ``runs``.

        Others are divided between two units, so their deadlines must not move with one of these.
        """
        if self.renewals is None:
            return None
        other_runs = divide(sorted(self.runs), [(run.first, run.end) for run in runs]).outside
        is_here, is_elsewhere = overlap_with(runs), overlap_with(other_runs)
        return tuple(
            (lock, offset)
            for lock, offset in self.renewals
            for offsets in ((lock.first, lock.end) if offset is None else (offset, offset + 1),)
            if is_here(offsets) and not is_elsewhere(offsets)
        )

    def report(self, error: KafkaError | None) -> AcknowledgementResult:
        """Report the final outcome to `pending`, and return it as a result."""
        runs = divide(sorted(self.runs), self.unseen).outside if self.unseen else self.runs
        result = AcknowledgementResult(
            self.held.topic_partition, Offsets(runs), error, is_renewal=self.is_renewal
        )
        self.pending.report(result)
        return result


def after_refusal(
    sent: Settled, error: KafkaError, now: float
) -> tuple[list[Settled], Settled | None]:
    """Split ``sent`` into units to send again and the part to report with ``error``, or None.

    A renewal that is refused for now is reported: it was sent long before the lock deadline, and
    the next one does not need it.
    """
    match refusal_of(error):
        case Refusal.LOCK_ENDED if not (sent.is_renewal and forbids_renewal(error)):
            return _without_the_ended(sent, now, or_halves=True)
        case Refusal.NOT_NOW if not sent.is_renewal:
            return _without_the_ended(sent, now, or_halves=False)
        case _:
            return [], sent


def _without_the_ended(
    sent: Settled, now: float, *, or_halves: bool
) -> tuple[list[Settled], Settled | None]:
    """Divide ``sent`` into parts to send again and the part whose locks have ended, or None.

    The locks may all be valid by this clock although the broker refused one.  ``or_halves`` divides
    them in two halves then, to find it.  A single lock cannot be divided, so it is reported.
    """
    runs = sorted(sent.runs)
    alive = sorted({(lock.first, lock.end) for lock in sent.locks if now < lock.latest_deadline})
    living, ended = divide(runs, OffsetSet.of(alive).ranges)
    if not living:
        return [], sent
    if ended:
        sent.pending.split(1)
        return [sent.part(living)], sent.part(ended)
    if not or_halves:
        return [sent], None
    low, high = divide_at_locks(runs, alive)
    if not low or not high:
        return [], sent
    sent.pending.split(1)
    return [sent.part(low), sent.part(high)], None
