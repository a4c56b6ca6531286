"""A waiting record as it is read, and conditions for such records, all of which must hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cached_property

from sharegroup.client.records import Header
from sharegroup.dead_letters.expression import Expression
from sharegroup.dead_letters.story import Story
from sharegroup.dead_letters.story_headers import own_headers, story_of
from sharegroup.waiting.control_records import Place


@dataclass(frozen=True)
class WaitingRecord:
    """A record that waits in a retry topic."""

    place: Place
    written_ms: int
    """When it was written there, in milliseconds since 1970."""
    key: bytes | None
    value: bytes | None
    raw_headers: Sequence[Header]

    @cached_property
    def story(self) -> Story:
        """Its origin, its failures, its due time and its id, from its headers."""
        return story_of(self.raw_headers)

    @property
    def id(self) -> str | None:
        """Its id; None if another program wrote it, or an older version."""
        return self.story.id

    @property
    def headers(self) -> Sequence[Header]:
        """The application's headers."""
        return own_headers(self.raw_headers)

    @property
    def error_class(self) -> str:
        """The class of its last failure; empty if it has not failed, as after a delay."""
        attempts = self.story.attempts
        return attempts[-1].error if attempts else ""

    @property
    def origin_topic(self) -> str:
        """The application's topic that it came from; empty if unknown."""
        return self.story.origin.topic if self.story.origin else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFilter:
    """Conditions for waiting records; one that is None or empty matches every record."""

    ids: frozenset[str] = frozenset()
    error_class: str | None = None
    """Of the last failure: ``TimeoutError``, also with its module, or a pattern."""
    topic: str | None = None
    """The application's topic that the record came from."""
    due_after_ms: int | None = None
    """Due at this time or later, in milliseconds since 1970."""
    due_before_ms: int | None = None
    """Due before this time, in milliseconds since 1970."""
    failures_min: int | None = None
    """With at least so many failed attempts."""
    key: bytes | None = None
    header: tuple[str, bytes] | None = None
    """With this header of the application, and this content of it."""
    where: Expression | None = None
    """On the value as JSON."""

    @property
    def is_everything(self) -> bool:
        """Whether there are no conditions, so every record matches."""
        return all(getattr(self, condition.name) == condition.default for condition in fields(self))

    def matches(self, record: WaitingRecord) -> bool:
        """Whether all conditions hold.  Cheap conditions are checked first."""
        story = record.story
        due_ms = story.due_ms or 0
        return (
            (not self.ids or story.id in self.ids)
            and (self.key is None or record.key == self.key)
            and (self.failures_min is None or story.failures >= self.failures_min)
            and (self.due_after_ms is None or due_ms >= self.due_after_ms)
            and (self.due_before_ms is None or due_ms < self.due_before_ms)
            and (self.topic is None or record.origin_topic == self.topic)
            and (self.error_class is None or _is_of_class(record.error_class, self.error_class))
            and (self.header is None or self.header in record.headers)
            and (self.where is None or self.where.holds(record.value))
        )


EVERY_RECORD = WaitingFilter()


def _is_of_class(name: str, pattern: str) -> bool:
    """Whether the pattern matches the full class name or its last part."""
    return fnmatchcase(name, pattern) or fnmatchcase(name.rpartition(".")[2], pattern)
