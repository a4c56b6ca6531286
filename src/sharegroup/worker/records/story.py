"""What is known of a record beside its content: where it came from, and what was tried.

A record that waits for a retry, lies with the dead letters, or was sent back from there is
another record in Kafka's eyes: another topic, another offset, a delivery count of 1.  Its story
goes with it, in headers (`story_headers`), so that a budget of attempts is the record's own and
not that of one delivery.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from sharegroup.worker.ports import Delivery


class Origin(NamedTuple):
    """Where the application's own record lies."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Attempt(NamedTuple):
    """One failed run of the handler."""

    number: int
    at_ms: int
    error: str
    """The class of the exception with its module, as ``builtins.TimeoutError``."""
    message: str
    member: str


@dataclass(frozen=True, slots=True)
class Story:
    """See the module's text."""

    origin: Origin | None = None
    """None: it is the original, and its own place is its origin."""
    failures: int = 0
    """Failed runs so far; deliveries without a run, or that a crash ended, don't count."""
    attempts: tuple[Attempt, ...] = ()
    """The last of the failed runs."""
    due_ms: int | None = None
    """When it is to be run, in milliseconds since 1970; None: now."""
    redrives: int = 0
    """How often it was sent back from the dead letters."""
    redrive_id: str | None = None
    """The same for each copy of one redrive of one dead letter."""
    trace: str | None = None
    """The span of the last failed run, as a W3C ``traceparent``; None: nobody traced it."""


NEW = Story()
"""Of a record that the application itself sent."""


def from_elsewhere(story: Story) -> Story:
    """What counts of a story that came with a record of a topic that others write to.

    It may be of another group: a dead letter that somebody works on, a record that was sent back
    to its topic.  Such a record is a new one there, with its own place and all its attempts.
    """
    return story if story is NEW else replace(story, origin=None, failures=0, due_ms=None)


def origin_of(delivery: Delivery, story: Story) -> Origin:
    """Where the application's own record lies: elsewhere than the delivery after a retry."""
    return story.origin or Origin(
        delivery.topic, delivery.partition, delivery.offset, delivery.timestamp_ms
    )
