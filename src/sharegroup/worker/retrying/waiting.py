"""A record while it waits: the two headers that only tiers have, and where its way goes on.

    __sharegroup.delay      how long it waits in all, in milliseconds
    __sharegroup.written    when it was written to the tier where it lies, by the writer's clock

A tier's records are ready when they were written plus the tier's delay.  Kafka's own time of
that (LogAppendTime) is the broker's, and what is due is said by a worker: if their clocks differ
by five seconds, each tier would hold a record five seconds too long, or let it go five seconds
early and have it back at once.  So the writer's time is what counts, and the broker's is for
records that somebody else put there.  Workers' clocks have to agree, the broker's need not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.declared.names import due_topic
from sharegroup.worker.ports import Header
from sharegroup.worker.records.story_headers import DUE, PREFIX, MalformedStory, parsed_number
from sharegroup.worker.retrying.tier_log import TierRecord

log = logging.getLogger(__name__)

DELAY = PREFIX + "delay"
WRITTEN = PREFIX + "written"
TIERS_OWN = (DELAY, WRITTEN)
NUMBERS = frozenset({DUE, *TIERS_OWN})

RECORD_BYTES = 400
"""What a record costs in memory beside its own bytes."""


class Waiting(NamedTuple):
    """A record that waits, with what its headers say of that; None: nothing, or nothing sound."""

    record: TierRecord
    due_ms: int | None
    delay_ms: int
    written_ms: int | None
    size: int
    """Bytes of memory."""


class Step(NamedTuple):
    """What is written next."""

    topic: str
    headers: tuple[Header, ...]


def first_step(
    headers: Sequence[Header], *, due_ms: int, now_ms: int, group: str, tiers: Tiers
) -> Step:
    """Where a record with these headers, its story among them, begins to wait."""
    delay_ms = max(due_ms - now_ms, 0)
    topic = tiers.next_topic(group, delay_ms, delay_ms)
    if delay_ms == 0:
        return Step(topic, tuple(headers))
    return Step(topic, (*headers, *_tiers_own(delay_ms, now_ms)))


def waiting_of(record: TierRecord) -> Waiting:
    """Read the headers, once for all that is asked of them."""
    found: dict[str, bytes | None] = {}
    size = RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    doubled = False
    for name, value in record.headers:
        size += len(name) + (len(value) if value else 0)
        if name in NUMBERS:
            doubled = doubled or name in found
            found[name] = value
    if doubled:
        log.warning("event=header_refused offset=%d reason=doubled effect=ignored", record.offset)
        found = {}
    numbers = {name: _number(record, name, value) for name, value in found.items()}
    return Waiting(record, numbers.get(DUE), numbers.get(DELAY) or 0, numbers.get(WRITTEN), size)


def next_step(waiting: Waiting, *, now_ms: int, group: str, tiers: Tiers) -> Step:
    """Where a record goes whose time in its tier is over."""
    headers = tuple([one for one in waiting.record.headers if one[0] not in TIERS_OWN])
    left_ms = 0 if waiting.due_ms is None else waiting.due_ms - now_ms
    topic = tiers.next_topic(group, left_ms, waiting.delay_ms)
    if left_ms > 0:
        headers += _tiers_own(waiting.delay_ms, now_ms)
    return Step(topic, headers)


def ready_ms(waiting: Waiting, topic: str, *, now_ms: int, group: str, tiers: Tiers) -> int:
    """When the record is to leave the tier with this topic."""
    due_ms = waiting.due_ms
    if due_ms is None:
        return now_ms  # It was not written by us; its group shall see it and not lose it.
    fixed_ms = tiers.delay_ms(group, topic)
    if fixed_ms is not None:
        written_ms = waiting.written_ms
        return min(
            due_ms, (waiting.record.append_ms if written_ms is None else written_ms) + fixed_ms
        )
    belongs_here = tiers.next_topic(group, due_ms - now_ms, waiting.delay_ms) == due_topic(group)
    # What would fill the heap for hours goes to a tier at once.
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
