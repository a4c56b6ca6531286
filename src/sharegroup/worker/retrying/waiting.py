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

from collections.abc import Sequence
from typing import NamedTuple

from sharegroup.worker.decisions.story_headers import PREFIX, due_of, number_of
from sharegroup.worker.decisions.tiers import Tiers, due_topic
from sharegroup.worker.ports import Header
from sharegroup.worker.retrying.tier_log import TierRecord

DELAY = PREFIX + "delay"
WRITTEN = PREFIX + "written"
WAITING = (DELAY, WRITTEN)


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
    return Step(topic, (*headers, *_waiting(delay_ms, now_ms)))


def next_step(record: TierRecord, *, now_ms: int, group: str, tiers: Tiers) -> Step:
    """Where a record goes whose time in its tier is over."""
    headers = tuple(header for header in record.headers if header[0] not in WAITING)
    due_ms = due_of(record.headers)
    delay_ms = number_of(record.headers, DELAY) or 0
    left_ms = 0 if due_ms is None else due_ms - now_ms
    topic = tiers.next_topic(group, left_ms, delay_ms)
    if left_ms > 0:
        headers += _waiting(delay_ms, now_ms)
    return Step(topic, headers)


def ready_ms(record: TierRecord, topic: str, *, now_ms: int, group: str, tiers: Tiers) -> int:
    """When the record is to leave the tier with this topic."""
    due_ms = due_of(record.headers)
    if due_ms is None:
        return now_ms  # It was not written by us; its group shall see it and not lose it.
    fixed_ms = tiers.delay_ms(group, topic)
    if fixed_ms is not None:
        written_ms = number_of(record.headers, WRITTEN)
        return min(due_ms, (record.append_ms if written_ms is None else written_ms) + fixed_ms)
    delay_ms = number_of(record.headers, DELAY) or 0
    belongs_here = tiers.next_topic(group, due_ms - now_ms, delay_ms) == due_topic(group)
    # What would fill the heap for hours goes to a tier at once.
    return due_ms if belongs_here else now_ms


def _waiting(delay_ms: int, now_ms: int) -> tuple[Header, Header]:
    return (DELAY, str(delay_ms).encode("ascii")), (WRITTEN, str(now_ms).encode("ascii"))
