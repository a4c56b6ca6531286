"""Records that wait in retry topics: their two extra headers, and the next topic of each record.

    __sharegroup.delay      the total delay of the record, in milliseconds
    __sharegroup.written    when it was written to its current tier, by the writer's clock

A tier's record is ready at the time of its write plus the tier's delay.  Kafka's time of the
write (LogAppendTime) is from the broker's clock, but a worker sets the due time.  If these clocks
differed by five seconds, each tier would keep a record five seconds too long, or release it five
seconds early and get it back at once.  So the writer's time counts; the broker's time is only
used for records that were written by other programs.  The clocks of the workers must agree; the
broker's clock need not agree with them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from sharegroup.dead_letters.story_headers import DUE, PREFIX, MalformedStory, parsed_number
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.declarations.names import due_topic
from sharegroup.worker.durations import DELAY_DAYS_MAX
from sharegroup.worker.ports import Header
from sharegroup.worker.retrying.tier_log import TierRecord

log = logging.getLogger(__name__)

DELAY = PREFIX + "delay"
WRITTEN = PREFIX + "written"
TIERS_OWN = (DELAY, WRITTEN)
NUMBERS = frozenset({DUE, *TIERS_OWN})

_DAY_MS = 24 * 60 * 60 * 1000
WAIT_MS_MAX = 2 * DELAY_DAYS_MAX * _DAY_MS
"""The longest wait that is obeyed: of the longest delay, which jitter may double.

A header of another program may name any time; such a record is due at once."""

RECORD_BYTES = 400
"""The memory that a record takes in addition to its own bytes."""


class WaitingRecord(NamedTuple):
    """A waiting record with the values of its headers; None for a missing or malformed header."""

    record: TierRecord
    due_ms: int | None
    delay_ms: int
    written_ms: int | None
    size: int
    """The memory that the record takes, in bytes."""


class TierWrite(NamedTuple):
    """The write that moves a record on: to a retry topic, or to the group's own topic if due."""

    topic: str
    headers: tuple[Header, ...]


def first_write(
    headers: Sequence[Header], *, due_ms: int, now_ms: int, group: str, tiers: Tiers
) -> TierWrite:
    """Return the first write of a record with these headers, which include its story."""
    delay_ms = max(due_ms - now_ms, 0)
    topic = tiers.next_topic(group, delay_ms, delay_ms)
    if delay_ms == 0:
        return TierWrite(topic, tuple(headers))
    return TierWrite(topic, (*headers, *_tiers_own(delay_ms, now_ms)))


def waiting_of(record: TierRecord, now_ms: int) -> WaitingRecord:
    """Parse the headers of a record from a retry topic that is read at ``now_ms``."""
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
    due_ms = numbers.get(DUE)
    if due_ms is not None and due_ms - now_ms > WAIT_MS_MAX:
        log.warning(
            "event=header_refused offset=%d reason='%s: expected up to %d days from now, got %d' "
            "effect=due_now",
            record.offset, DUE, WAIT_MS_MAX // _DAY_MS, due_ms,
        )  # fmt: skip
        due_ms = None
    return WaitingRecord(record, due_ms, numbers.get(DELAY) or 0, numbers.get(WRITTEN), size)


def next_write(waiting: WaitingRecord, *, now_ms: int, group: str, tiers: Tiers) -> TierWrite:
    """Return the write of a record that is ready to leave its tier."""
    headers = tuple([header for header in waiting.record.headers if header[0] not in TIERS_OWN])
    left_ms = 0 if waiting.due_ms is None else waiting.due_ms - now_ms
    topic = tiers.next_topic(group, left_ms, waiting.delay_ms)
    if left_ms > 0:
        headers += _tiers_own(waiting.delay_ms, now_ms)
    return TierWrite(topic, headers)


def ready_ms(waiting: WaitingRecord, topic: str, *, now_ms: int, group: str, tiers: Tiers) -> int:
    """Return the time at which the record leaves the tier with this topic."""
    due_ms = waiting.due_ms
    if due_ms is None:
        return now_ms  # Another program wrote it; it goes to its group and is not lost.
    fixed_ms = tiers.delay_ms(group, topic)
    if fixed_ms is not None:
        written_ms = waiting.record.append_ms if waiting.written_ms is None else waiting.written_ms
        # At most twice the tier's delay from now, whatever time the header claims: a worker's
        # clock may be ahead.
        return min(due_ms, min(written_ms, now_ms + fixed_ms) + fixed_ms)
    belongs_here = tiers.next_topic(group, due_ms - now_ms, waiting.delay_ms) == due_topic(group)
    # A record with a longer delay goes to a tier at once and does not fill the heap for hours.
    return due_ms if belongs_here else now_ms


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
