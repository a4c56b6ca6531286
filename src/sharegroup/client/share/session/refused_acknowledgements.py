"""Interprets refused acknowledgements and renewals, and divides them to send them again.

All acknowledgements of a partition in one request succeed or fail together, so one lock that has
ended fails hundreds of valid ones.  A refused request changes nothing at the broker.  The member
sends the acknowledgements again, without those whose lock is known to have ended.  If no such lock
is known, it sends the two halves in separate requests, until the ended lock is alone:

    [0, 1000) refused -> [0, 500) confirmed, [500, 1000) refused -> ...  -> [731, 732) refused

A member that knows each lock (`share`) divides between locks, because the records of a lock end
together.  A member that keeps offset ranges only (`share_ranges`) divides between offsets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from sharegroup.client.share.session.acknowledgements import AckRun
from sharegroup.client.share.session.offset_set import Range
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

AckRuns = tuple[AckRun, ...]


class Refusal(Enum):
    """The meaning of an error of acknowledgements, renewals or a fetched partition."""

    LOCK_ENDED = auto()
    """This member has no lock on at least one of the offsets; the other locks are valid."""
    LOCKS_GONE = auto()
    """No member holds locks of the partition at this broker: it does not lead the partition."""
    SESSION_GONE = auto()
    """The share session was lost, or the outcome of the request is unknown: sending it again could
    settle a later delivery."""
    NOT_NOW = auto()
    """The failure is temporary: nothing changed at the broker, and the locks are valid."""
    FOR_GOOD = auto()
    """The broker would refuse it again."""


_MEANINGS: tuple[tuple[Refusal, tuple[type[KafkaError], ...]], ...] = (
    # INVALID_REQUEST is the answer for offsets that the broker has forgotten.
    (Refusal.LOCK_ENDED, (InvalidRecordState, InvalidRequest)),
    (
        Refusal.LOCKS_GONE,
        (NotLeaderOrFollower, FencedLeaderEpoch, UnknownTopicId, UnknownTopicOrPartition),
    ),
    (
        Refusal.SESSION_GONE,
        (
            NetworkException,
            ShareSessionNotFound,
            InvalidShareSessionEpoch,
            ShareSessionLimitReached,
        ),
    ),
)


def refusal_of(error: KafkaError) -> Refusal:
    """Return the meaning of an error that a broker, or the session, gave for a partition."""
    for refusal, errors in _MEANINGS:
        if isinstance(error, errors):
            return refusal
    # After the table, because the errors of sessions are retriable classes, too.
    return Refusal.NOT_NOW if error.retriable else Refusal.FOR_GOOD


class Division(NamedTuple):
    """Refused runs, divided at ranges or at an offset; each part ascends and may be empty."""

    inside: AckRuns
    outside: AckRuns


def divide_at_locks(runs: Sequence[AckRun], locks: Sequence[Range]) -> Division:
    """Divide runs into two halves at the middle one of the locks that they overlap.

    Runs and locks ascend.  Runs under a single lock are not divided: one half is empty.
    """
    touched = [*filter(overlap_with(runs), locks)]
    return divide(runs, [(0, touched[len(touched) // 2][0])])


def divide_at_offset(runs: Sequence[AckRun]) -> Division:
    """Divide runs into two halves with equally many offsets, ``inside`` the first.

    At most one run is cut.  The first half of a single offset is empty.
    """
    remaining = count_offsets(runs) // 2
    for run in runs:
        if remaining < run.end - run.first:
            return divide(runs, [(0, run.first + remaining)])
        remaining -= run.end - run.first
    return Division((), tuple(runs))


def divide(runs: Iterable[AckRun], ranges: Sequence[Range]) -> Division:
    """Divide ascending runs into the parts inside and outside the ascending ranges."""
    inside: list[AckRun] = []
    outside: list[AckRun] = []
    index = 0
    for run in runs:
        position = run.first
        while position < run.end:
            while index < len(ranges) and ranges[index][1] <= position:
                index += 1
            first, end = ranges[index] if index < len(ranges) else (run.end, run.end)
            part, stop = (outside, first) if position < first else (inside, end)
            stop = min(stop, run.end)
            part.append(AckRun(position, stop, run.ack_type))
            position = stop
    return Division(tuple(inside), tuple(outside))


def count_offsets(runs: Iterable[AckRun]) -> int:
    """Return the number of offsets in disjoint runs."""
    return sum(run.end - run.first for run in runs)


def overlap_with(runs: Sequence[AckRun]) -> Callable[[Range], bool]:
    """Return a function that says whether a range overlaps one of the ascending, disjoint runs."""
    firsts = [run.first for run in runs]

    def overlaps(offsets: Range) -> bool:
        index = bisect_left(firsts, offsets[1]) - 1
        return index >= 0 and runs[index].end > offsets[0]

    return overlaps
