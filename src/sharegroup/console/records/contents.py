"""What one user may see of the records of a topic: nothing, or all but what is masked.

A mask for the topic where a record was first written also applies to its copies: retries, dead
letters.  What a handler said about a record (messages, tracebacks) may quote it, so it is masked
where a part of the value is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sharegroup.console.access.masks import MASK, MASK_BYTES, Header, Masks, TopicMask
from sharegroup.console.records.preview import HIDDEN, Preview, preview, short
from sharegroup.console.records.registry_values import RegistryValues
from sharegroup.dead_letters import story_headers
from sharegroup.dead_letters.letter import Death, Letter
from sharegroup.dead_letters.story import Story
from sharegroup.dead_letters.story_headers import story_of
from sharegroup.wire.batches.records import DecodedRecord

PLAIN_HEADERS = frozenset({
    story_headers.ORIGIN_TOPIC, story_headers.ORIGIN_PARTITION, story_headers.ORIGIN_OFFSET,
    story_headers.ORIGIN_TIMESTAMP, story_headers.FAILURES, story_headers.DUE,
    story_headers.REDRIVES, story_headers.REDRIVE_ID, story_headers.AGE_FROM,
})  # fmt: skip
"""The headers of ours that quote nothing of a record."""
OUR_HEADERS = "__"


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A record without its masked parts."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    """As JSON if a schema of the registry decodes it."""
    headers: list[Header]
    undecoded: bytes | None
    """The value as it is in the topic, without its masked parts."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a user may see of a topic's records."""

    topic: str
    masks: Masks
    is_shown: bool
    """Whether anything is."""
    registry: RegistryValues | None = None
    """Decodes values; None: they are shown as they are."""

    async def prepare(self, values: Iterable[bytes | None]) -> None:
        """Fetch the schemas of values, before `record` and `letter` decode them."""
        if self.registry is not None:
            await self.registry.prepare(values)

    def note(self, value: bytes | None) -> str:
        """Return what decoded a value, or why nothing did; empty if nothing is to be said."""
        return "" if self.registry is None else self.registry.note(value)

    @property
    def registry_problem(self) -> str:
        """Why schemas cannot be fetched at the moment; empty if nothing is known to be wrong."""
        return "" if self.registry is None else self.registry.problem

    def _decoded(self, value: bytes | None) -> bytes | None:
        return value if self.registry is None else self.registry.decoded(value)

    def mask_of(self, origin_topic: str | None) -> TopicMask:
        """Return what is masked of a record that was first written to this topic."""
        return self.masks.of(self.topic, *([] if origin_topic is None else [origin_topic]))

    def record(self, record: DecodedRecord) -> DecodedRecord:
        """Return a record without its masked parts: the only form that is searched and shown."""
        decoded = self._decoded(record.value)
        if not self.masks.masks and decoded is record.value:
            return record
        origin = story_of(record.headers).origin
        mask = self.mask_of(None if origin is None else origin.topic)
        return ShownRecord(
            offset=record.offset,
            timestamp=record.timestamp,
            key=mask.key(record.key),
            value=mask.value(decoded),
            headers=_headers(mask, record.headers),
            undecoded=mask.value(record.value),
        )

    def letter(self, letter: Letter) -> ShownLetter:
        """Return what is shown of a dead letter."""
        origin = letter.story.origin
        mask = self.mask_of(None if origin is None else origin.topic)
        if not self.is_shown:
            mask = EVERYTHING
        return ShownLetter(
            key=mask.key(letter.key),
            value=mask.value(self._decoded(letter.value)),
            headers=_headers(mask, letter.headers),
            all_headers=_headers(mask, letter.all_headers),
            death=_death(mask, letter.death),
            story=_story(mask, letter.story),
            is_whole=mask == NOTHING,
        )

    def story(self, story: Story) -> Story:
        """Return a story, with the messages of its attempts hidden if a value would be."""
        mask = self.mask_of(None if story.origin is None else story.origin.topic)
        return _story(mask if self.is_shown else EVERYTHING, story)

    def line(self, content: bytes | None) -> Preview:
        """Return a content for a row."""
        return short(content) if self.is_shown else HIDDEN

    def whole(self, content: bytes | None) -> Preview:
        """Return a content for a page of its own."""
        return preview(content) if self.is_shown else HIDDEN


@dataclass(frozen=True, slots=True)
class ShownLetter:
    """A dead letter without its masked parts."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    all_headers: list[Header]
    death: Death
    story: Story
    is_whole: bool
    """Whether nothing is masked, so that it may be searched for by its content."""


NOTHING = TopicMask()
EVERYTHING = TopicMask(frozenset({()}), ("*",), keys=True)


def _headers(mask: TopicMask, headers: Sequence[Header]) -> list[Header]:
    shown = mask.shown_headers(headers)
    if not mask.paths:
        return shown
    return [
        (
            name,
            MASK_BYTES if name.startswith(OUR_HEADERS) and name not in PLAIN_HEADERS else content,
        )
        for name, content in shown
    ]


def _death(mask: TopicMask, death: Death) -> Death:
    if not mask.paths:
        return death
    return death._replace(
        message=MASK if death.message else "",
        error_message=MASK if death.error_message else "",
        traceback=MASK if death.traceback else "",
    )


def _story(mask: TopicMask, story: Story) -> Story:
    if not mask.paths or not story.attempts:
        return story
    attempts = tuple(attempt._replace(message=MASK) for attempt in story.attempts)
    return replace(story, attempts=attempts)


def undecoded(record: DecodedRecord) -> bytes | None:
    """Return the value of a record of `Contents.record` as it is in the topic, but for masks."""
    return record.undecoded if isinstance(record, ShownRecord) else record.value
