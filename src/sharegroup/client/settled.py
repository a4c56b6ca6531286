"""Acknowledgements of one partition on their way, and what to do when they are refused.

Those of one partition in one request hold or fail together, so one lock that has ended takes
hundreds that stand with it.  A refusal has no effect, so what still has its lock is tried again:

    the broker can't, for now          again, after a pause
    not acquired by this member        what has no lock any more is reported, the rest goes again;
                                       if by our reckoning all have theirs, the halves go again
                                       apart from each other, until the guilty lock is alone
    leader moved, topic gone           reported: the locks went with the leader
    sent and no answer                 reported: in doubt; sending again could hit a new delivery

Every acknowledgement is reported once: when it is durable, or when its story is over.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from sharegroup.client.acknowledgements import AckRun, Offsets
from sharegroup.client.locks import AcquisitionLock
from sharegroup.client.offset_set import OffsetSet, Range
from sharegroup.client.records import AcknowledgementResult
from sharegroup.errors import (
    FencedLeaderEpoch,
    InvalidRecordState,
    InvalidRequest,
    InvalidShareSessionEpoch,
    KafkaError,
    NetworkException,
    NotLeaderOrFollower,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from sharegroup.client.held_records import HeldRecords

LOCKS_GONE = (NotLeaderOrFollower, FencedLeaderEpoch, UnknownTopicId, UnknownTopicOrPartition)
"""After these nobody holds anything of the partition at this broker."""

FINAL = (
    *LOCKS_GONE,
    NetworkException,
    ShareSessionNotFound,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
)
"""Retriable as requests, but not for acknowledgements: their locks are gone, or in doubt."""


class Ticket:
    """Follows acknowledgements that were settled together until all of them are reported."""

    __slots__ = ("_pieces", "done", "results")

    def __init__(self) -> None:
        self.results: list[AcknowledgementResult] = []
        self.done = asyncio.Event()
        self._pieces = 1

    def split(self, more: int) -> None:
        """They went apart: so many results more will come."""
        self._pieces += more

    def report(self, result: AcknowledgementResult) -> None:
        """One of the pieces is over."""
        self.results.append(result)
        self._pieces -= 1
        if not self._pieces:
            self.done.set()


@dataclass(slots=True, eq=False)
class Settled:
    """Acknowledgements of one partition that are sent together."""

    held: HeldRecords
    runs: tuple[AckRun, ...]
    locks: Sequence[AcquisitionLock]
    """Every lock that one of the offsets may be under; more don't harm."""
    error: KafkaError | None = None
    """Why they can't be sent; None: they can."""
    renewals: tuple[tuple[AcquisitionLock, int | None], ...] = ()
    """For renewals: the locks, and the offset if it is about one record of the lock."""
    unseen: Sequence[Range] = ()
    """Ascending offsets of ``runs`` that nobody was handed: results leave them out."""
    is_automatic: bool = False
    """Nobody asked for it, so nobody is told how it went."""
    ticket: Ticket = field(default_factory=Ticket)

    def absorb(self, later: Settled) -> bool:
        """Take in what was settled after it, unless both settle an offset; nobody follows it yet.

        The offset's lock ended in between and it was delivered here again: two requests then.
        """
        runs = sorted((*self.runs, *later.runs))
        if any(one.end > following.first for one, following in pairwise(runs)):
            return False
        self.runs = tuple(runs)
        self.unseen = sorted((*self.unseen, *later.unseen))
        return True

    @property
    def is_renewal(self) -> bool:
        """Whether it is renewals, which never travel with other acknowledgements."""
        return bool(self.renewals)

    def report(self, error: KafkaError | None) -> AcknowledgementResult:
        """Its story is over."""
        runs = _cut(sorted(self.runs), self.unseen)[1] if self.unseen else self.runs
        result = AcknowledgementResult(
            self.held.topic_partition, Offsets(runs), error, is_renewal=self.is_renewal
        )
        self.ticket.report(result)
        return result


def after_refusal(
    sent: Settled, error: KafkaError, now: float
) -> tuple[list[Settled], Settled | None]:
    """What of ``sent`` is to be sent again, and what is to be reported with ``error``."""
    if sent.is_renewal or isinstance(error, FINAL):
        return [], sent
    if isinstance(error, InvalidRecordState | InvalidRequest):
        return _without_the_ended(sent, now, or_halves=True)
    if error.retriable:
        return _without_the_ended(sent, now, or_halves=False)
    return [], sent


def _without_the_ended(
    sent: Settled, now: float, *, or_halves: bool
) -> tuple[list[Settled], Settled | None]:
    runs = sorted(sent.runs)
    firsts = [run.first for run in runs]
    alive = sorted({(lock.first, lock.end) for lock in sent.locks if now < lock.latest_deadline})
    living, ended = _cut(runs, OffsetSet.of(alive).ranges)
    if not living:
        return [], sent
    if ended:
        sent.ticket.split(1)
        return [replace(sent, runs=living)], replace(sent, runs=ended)
    if not or_halves:
        return [sent], None
    touched = [one for one in alive if _touches(one, runs, firsts)]
    low, high = _cut(runs, [(0, touched[len(touched) // 2][0])])
    if not low or not high:
        return [], sent
    sent.ticket.split(1)
    return [replace(sent, runs=low), replace(sent, runs=high)], None


def _touches(interval: Range, runs: Sequence[AckRun], firsts: Sequence[int]) -> bool:
    """Whether one of the ascending, disjoint runs overlaps the interval."""
    index = bisect_left(firsts, interval[1]) - 1
    return index >= 0 and runs[index].end > interval[0]


def _cut(
    runs: Iterable[AckRun], intervals: Sequence[Range]
) -> tuple[tuple[AckRun, ...], tuple[AckRun, ...]]:
    """What of ascending runs lies within the ascending intervals, and what outside."""
    inside: list[AckRun] = []
    outside: list[AckRun] = []
    index = 0
    for run in runs:
        position = run.first
        while position < run.end:
            while index < len(intervals) and intervals[index][1] <= position:
                index += 1
            first, end = intervals[index] if index < len(intervals) else (run.end, run.end)
            part, stop = (outside, first) if position < first else (inside, end)
            stop = min(stop, run.end)
            part.append(AckRun(position, stop, run.ack_type))
            position = stop
    return tuple(inside), tuple(outside)
