"""Records that wait in retry topics: their two extra headers, and the next topic of each record.

    __sharegroup.delay      the total delay of the record, in milliseconds
    __sharegroup.written    when it was written to its current tier, by the writer's clock

A record waits, in all, for its due time minus the time of the write, which are both of one clock.
It leaves its tier when it has waited for the tier's delay.  The part of both that was over when
this process first saw the record is its age then (`_age_ms`); the rest is measured by the monotonic
clock.  So no clock can make a record wait longer than it was to wait when it was written, counted
from when its process first saw it, and a step of this process's clock changes nothing later.

The age needs two clocks that agree.  Kafka's time of the write (LogAppendTime) is from the broker's
clock; if that differed by five seconds, each tier would keep a record five seconds too long, or
release it five seconds early and get it back at once.  So the writer's time counts, unless it
differs from the broker's by more than a minute.  When the record is moved on, its due time becomes
one of the clock of this process.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from sharegroup.dead_letters.story_headers import DUE, PREFIX, MalformedStory, parsed_number
from sharegroup.durations import DELAY_DAYS_MAX
from sharegroup.waiting.retry_topics import due_topic
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.ports import Header, WorkerClock
from sharegroup.worker.retrying.tier_log import TierRecord

log = logging.getLogger(__name__)

DELAY = PREFIX + "delay"
WRITTEN = PREFIX + "written"
TIERS_OWN = (DELAY, WRITTEN)
NUMBERS = frozenset({DUE, *TIERS_OWN})

_DAY_MS = 24 * 60 * 60 * 1000
CLOCKS_MS_MAX = 60_000
"""Maximum difference between the clocks of writer and broker at which the writer's counts alone."""
ROUNDING_MS = 2
"""Two readings of two clocks that agree."""
WAIT_MS_MAX = 2 * DELAY_DAYS_MAX * _DAY_MS
"""The longest wait that is obeyed: of the longest delay, which jitter may double.

A header of another program may name any time; such a record is due at once."""

RECORD_BYTES = 400
"""The memory that a record takes in addition to its own bytes."""


class Moment(NamedTuple):
    """The time by the two clocks of this process, in milliseconds."""

    wall_ms: int
    steady_ms: int
    """Of the monotonic clock, which is never set."""

    @staticmethod
    def now(clock: WorkerClock) -> Moment:
        """Read both clocks."""
        return Moment(clock.wall_ms(), round(clock.now() * 1000))

    def stepped_ms(self, earlier: Moment) -> int:
        """Return by how much the wall clock was set since an earlier moment; 0 for rounding."""
        step_ms = (self.wall_ms - earlier.wall_ms) - (self.steady_ms - earlier.steady_ms)
        return 0 if abs(step_ms) <= ROUNDING_MS else step_ms


class ShelvedRecord(NamedTuple):
    """A waiting record with what its headers say, in the time of this process."""

    record: TierRecord
    due_ms: int | None
    """When it is due, by the monotonic clock; None if its header is missing or malformed."""
    delay_ms: int
    """Its total delay; 0 if unknown."""
    age_ms: int
    """The time from its write until it was read."""
    size: int
    """The memory that the record takes, in bytes."""


class TierWrite(NamedTuple):
    """The write that moves a record on: to a retry topic, or to the group's own topic if due."""

    topic: str
    headers: tuple[Header, ...]


def first_topic(*, due_ms: int, now_ms: int, group: str, tiers: Tiers) -> str:
    """Return the topic of the first write of a record."""
    delay_ms = max(due_ms - now_ms, 0)
    return tiers.next_topic(group, delay_ms, delay_ms)


def first_write(
    headers: Sequence[Header], *, due_ms: int, now_ms: int, group: str, tiers: Tiers
) -> TierWrite:
    """Return the first write of a record with these headers, which include its story."""
    topic = first_topic(due_ms=due_ms, now_ms=now_ms, group=group, tiers=tiers)
    delay_ms = max(due_ms - now_ms, 0)
    if delay_ms == 0:
        return TierWrite(topic, tuple(headers))
    return TierWrite(topic, (*headers, *_tiers_own(delay_ms, now_ms)))


def waiting_of(record: TierRecord, now: Moment) -> ShelvedRecord:
    """Parse the headers of a record from a retry topic that is read now."""
    number_headers: dict[str, bytes | None] = {}
    size = RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    doubled = False
    for name, value in record.headers:
        size += len(name) + (len(value) if value else 0)
        if name in NUMBERS:
            doubled = doubled or name in number_headers
            number_headers[name] = value
    if doubled:
        log.warning("event=header_refused offset=%d reason=doubled effect=ignored", record.offset)
        number_headers = {}
    numbers = {name: _number(record, name, value) for name, value in number_headers.items()}
    written_ms = numbers.get(WRITTEN)
    if written_ms is None:  # Another program wrote it.
        written_ms = record.append_ms
    age_ms = _age_ms(written_ms, record.append_ms, now.wall_ms)
    due_ms = numbers.get(DUE)
    if due_ms is not None and due_ms - written_ms > WAIT_MS_MAX:
        log.warning(
            "event=header_refused offset=%d reason='%s: expected up to %d days from the write at "
            "%d, got %d' effect=due_now",
            record.offset, DUE, WAIT_MS_MAX // _DAY_MS, written_ms, due_ms,
        )  # fmt: skip
        due_ms = None
    if due_ms is not None:
        due_ms = now.steady_ms + due_ms - written_ms - age_ms
    return ShelvedRecord(record, due_ms, numbers.get(DELAY) or 0, age_ms, size)


def next_write(waiting: ShelvedRecord, *, now: Moment, group: str, tiers: Tiers) -> TierWrite:
    """Return the write of a record that is ready to leave its tier."""
    headers = [header for header in waiting.record.headers if header[0] not in TIERS_OWN]
    left_ms = 0
    if waiting.due_ms is not None:
        left_ms = waiting.due_ms - now.steady_ms
        headers = [_due_in(left_ms, now, header) for header in headers]
    topic = tiers.next_topic(group, left_ms, waiting.delay_ms)
    if left_ms > 0:
        headers += _tiers_own(waiting.delay_ms, now.wall_ms)
    return TierWrite(topic, tuple(headers))


def ready_ms(waiting: ShelvedRecord, topic: str, *, now: Moment, group: str, tiers: Tiers) -> int:
    """Return the time, by the monotonic clock, at which the record leaves the tier."""
    due_ms = waiting.due_ms
    if due_ms is None:
        return now.steady_ms  # Another program wrote it; it goes to its group and is not lost.
    fixed_ms = tiers.delay_ms(group, topic)
    if fixed_ms is not None:
        return min(due_ms, now.steady_ms + fixed_ms - waiting.age_ms)
    left_ms = due_ms - now.steady_ms
    belongs_here = tiers.next_topic(group, left_ms, waiting.delay_ms) == due_topic(group)
    # A record with a longer delay goes to a tier at once and does not fill the heap for hours.
    return due_ms if belongs_here else now.steady_ms


def _age_ms(written_ms: int, append_ms: int, now_ms: int) -> int:
    """Return how long ago the record was written, by its writer's clock and the broker's.

    If these differ too much, one of the two is wrong.  A record of the future has no age; of two
    ages the lower one counts, so the record is not early.
    """
    ages_ms = [now_ms - written_ms]
    if abs(written_ms - append_ms) > CLOCKS_MS_MAX:
        ages_ms.append(now_ms - append_ms)
    return min((max(age_ms, 0) for age_ms in ages_ms if age_ms >= -CLOCKS_MS_MAX), default=0)


def _due_in(left_ms: int, now: Moment, header: Header) -> Header:
    """Return a due time by the clock of this process, if the header differs from it."""
    name, value = header
    if name != DUE or abs(int(value or 0) - now.wall_ms - left_ms) <= ROUNDING_MS:
        return header
    return name, str(max(now.wall_ms + left_ms, 0)).encode("ascii")


def _tiers_own(delay_ms: int, now_ms: int) -> tuple[Header, Header]:
    return (DELAY, str(delay_ms).encode("ascii")), (WRITTEN, str(now_ms).encode("ascii"))


def _number(record: TierRecord, name: str, value: bytes | None) -> int | None:
    try:
        return parsed_number(name, value)
    except MalformedStory as error:
        log.warning(
            "event=header_refused offset=%d reason=%r effect=ignored", record.offset, str(error)
        )
        return None
