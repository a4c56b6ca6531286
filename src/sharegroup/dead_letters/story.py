"""The story of a record: its origin and its attempts.

For Kafka, a retry, a dead letter or a redriven record is a new record with another topic, another
offset and a delivery count of 1.  Its story is kept in headers (`story_headers`), so attempts are
counted for the application's record, not for one of its copies.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol


class RecordOrigin(NamedTuple):
    """The place and the timestamp of the application's own record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class PlacedRecord(Protocol):
    """A record with its place and time, such as a delivery to a worker."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...


class Attempt(NamedTuple):
    """One failed attempt: a run of the handler that failed."""

    number: int
    at_ms: int
    error: str
    """The class of the exception with its module, such as ``builtins.TimeoutError``."""
    message: str
    member: str


@dataclass(frozen=True, slots=True)
class Story:
    """The origin of a record and what happened to it before this delivery."""

    origin: RecordOrigin | None = None
    """None if this is the application's own record, whose place is its origin."""
    failures: int = 0
    """Failed attempts; deliveries without a run, or ended by a crash, do not count."""
    attempts: tuple[Attempt, ...] = ()
    """The latest failed attempts."""
    due_ms: int | None = None
    """The due time of its next attempt, in milliseconds since 1970; None for now."""
    redrives: int = 0
    """The number of times that the record was redriven from the dead letters."""
    redrive_id: str | None = None
    """The id that all copies of one dead letter in one redrive have."""
    unrouted: int = 0
    """The number of times that a process without a handler for the record postponed it."""
    suspicions: int = 0
    """Whether its process may have ended because of it: 0, or 1 and the times it did so alone."""
    trace: str | None = None
    """The span of the last failed attempt as a W3C ``traceparent``; None without tracing."""
    id: str | None = None
    """Names the record while it waits, the same in all tiers and attempts; None before that."""
    cancelled_by: str | None = None
    """Who cancelled the record while it waited, so that it becomes a dead letter; None: nobody."""
    age_from_ms: int | None = None
    """The time from which the age of a record counts that was sent with a delay, or redriven.

    None if it is that of the record that was delivered, or of its origin.
    """


NEW = Story()
"""The story of a record that the application itself sent."""


def from_elsewhere(story: Story) -> Story:
    """The part of a story that is valid for a record in a topic that others write to.

    The story may be of another group, for example in a dead letter that a handler reads or in a
    record that was sent back to its topic.  Such a record counts as new: its origin is its own
    place, and it has no failures.
    """
    if story is NEW:
        return story
    return replace(
        story,
        origin=None,
        failures=0,
        due_ms=None,
        unrouted=0,
        suspicions=0,
        id=None,
        cancelled_by=None,
        age_from_ms=None,
    )


def identified(story: Story) -> Story:
    """The story of a record that is about to wait: with its id, or with a new one."""
    # 64 random bits: of a million waiting records, two have the same id once in 40 million times.
    return story if story.id is not None else replace(story, id=secrets.token_hex(8))


def origin_of(delivery: PlacedRecord, story: Story) -> RecordOrigin:
    """The origin of the record; the place of the delivery if the story has none."""
    return story.origin or RecordOrigin(
        delivery.topic, delivery.partition, delivery.offset, delivery.timestamp_ms
    )
