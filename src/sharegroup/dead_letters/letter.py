"""Dead letters as they are read, written by a worker or by a broker (KIP-1191).

A worker's letter has all information (`headers`).  A broker's letter has the record's place, the
group, the delivery count and one of three messages.  Apache Kafka 4.4 omits the record's own
headers, and also key and value unless the group is configured to copy them.  The missing parts can
be read from the record's log as long as it retains the record (`queue.completed`).

Every producer of a dead-letter topic can write such headers, so they are a claim.  Only the letters
that a broker of ours wrote are vouched for, by a mark of their batch (ADR 0036).  Then the broker's
headers count, and not those of the record, which its producer wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import NamedTuple

from sharegroup.client.records import Header
from sharegroup.dead_letters.letter_headers import (
    BATCH_BYTES,
    DEAD,
    DEAD_GROUP,
    DEAD_ID,
    DEAD_REASON,
    KAFKA_GROUP,
    KAFKA_TOPIC,
    LetterLayout,
    LetterLayouts,
)
from sharegroup.dead_letters.reasons import OF_THE_BROKER, DeadLetterReason
from sharegroup.dead_letters.story import RecordOrigin, Story
from sharegroup.dead_letters.story_headers import (
    NUMBER_MAX,
    REDRIVES,
    TEXT_BYTES_MAX,
    own_headers,
    story_of,
)
from sharegroup.dead_letters.topics import own_topic
from sharegroup.wire.batches.record_contents import record_content
from sharegroup.wire.batches.records import DecodedRecord
from sharegroup.wire.internal_topics.dead_letter_headers import KAFKA_PREFIX, NOT_COPIED

LETTER_BYTES_MAX = 16 * 1024 * 1024
"""Large enough for a record that its own topic accepted and the headers of its letter."""

ID_BYTES_MAX = TEXT_BYTES_MAX - 64
"""The rest is for what a repeated redrive appends."""
NO_TIME = -1
NUMBER_DIGITS_MAX = len(str(NUMBER_MAX))


class Death(NamedTuple):
    """Why a record is a dead letter.  Texts that the letter does not have are empty."""

    reason: DeadLetterReason
    group: str
    message: str
    """The content of the header `__dlq.errors.message`."""
    delivery_count: int | None
    by_broker: bool
    not_copied: str = ""
    """Why the broker did not copy the record although the group is configured for it."""
    error_class: str = ""
    error_message: str = ""
    traceback: str = ""
    handler: str = ""
    member: str = ""
    id: str = ""
    first_failure_ms: int | None = None
    """Times of the first and the last failed attempt; None in a letter of a broker."""
    last_failure_ms: int | None = None


class Letter:
    """One dead letter.  Its headers are parsed when they are first used."""

    __slots__ = (
        "_death", "_headers", "_layout", "_story", "_written", "all_headers", "by_worker", "found",
        "is_vouched", "key", "offset", "partition", "tells_story", "timestamp_ms", "topic", "value",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        record: DecodedRecord,
        *,
        layout: LetterLayout,
        is_vouched: bool = False,
    ) -> None:
        self.topic = topic
        """Topic, partition, offset and time of the letter; those of the record are in `story`."""
        self.partition = partition
        self.offset = record.offset
        self.timestamp_ms = time_of(record)
        self.key = record.key
        self.value = record.value
        self.all_headers: Sequence[Header] = record.headers
        self._layout = layout
        self._written = self.all_headers
        """The headers of the letter itself, which have the names of the layout."""
        self._headers: tuple[Header, ...] | None = None
        self.is_vouched = is_vouched
        """Whether the letter has the mark of a broker of ours; otherwise its content is a claim."""
        self.by_worker = not is_vouched and bool(self.content(DEAD_REASON))
        """Whether a worker wrote the letter, by its headers."""
        self.tells_story = self.by_worker and layout.has_origin
        """Whether the headers of a worker's story are present, valid or not."""
        self.found = False
        """Whether the letter was completed with the record from its original topic."""
        self._story: Story | None = None
        self._death: Death | None = None

    def content(self, name: str) -> bytes | None:
        """The content of one of the letter's own headers; None if it lacks it."""
        place = self._layout.places.get(name)
        return None if place is None else self._written[place][1]

    @property
    def headers(self) -> tuple[Header, ...]:
        """The application's headers."""
        if self._headers is None:
            self._headers = self._layout.own_of(self._written)
        return self._headers

    @property
    def told(self) -> Mapping[str, bytes | None]:
        """The other headers by name, not parsed."""
        return {name: self._written[place][1] for name, place in self._layout.places.items()}

    def content_of_copy(self, *added: bytes | None) -> bytes:
        """Return the content of a copy of a worker's letter, with the headers `ADDED`.

        It keeps the headers of the application, and those of the story but its counts.
        """
        written, layout = self._written, self._layout
        kept = [written[place][1] for place in layout.copied]
        names = layout.names_of_copy(written)
        return record_content(names, [self.key, self.value, *kept, *added])

    @property
    def story(self) -> Story:
        """The record's origin and attempts; its origin is None if the letter has none."""
        if self._story is None:
            self._story = self._completed(story_of(self.all_headers), _source(self.told))
        return self._story

    def _completed(self, story: Story, source: RecordOrigin | None) -> Story:
        """Complete the story of the record's own headers with the place of the record.

        In a broker's letter that place is the origin, and not the one that the record's producer
        wrote.  The group's own topic is the exception: its worker wrote the story there.
        """
        if self.by_broker and source is not None and source.topic != own_topic(self.group):
            return Story(origin=source, redrives=story.redrives, trace=story.trace)
        return story if story.origin is not None else replace(story, origin=source)

    @property
    def death(self) -> Death:
        """Why the record is a dead letter."""
        if self._death is None:
            self._death = _death(self.told, self.group, by_broker=self.by_broker)
        return self._death

    @property
    def group(self) -> str:
        """The share group of the record; empty if the letter does not have it."""
        names = (DEAD_GROUP, KAFKA_GROUP) if self.by_worker else (KAFKA_GROUP, DEAD_GROUP)
        first = self.content(names[0])
        # In a vouched letter the other header is that of the record, which its producer wrote.
        return _text(first if first or self.is_vouched else self.content(names[1]))

    @property
    def has_origin(self) -> bool:
        """Whether the letter has the origin of its record."""
        return self.tells_story or self.story.origin is not None

    @property
    def redrives(self) -> int:
        """The number of earlier redrives of its record."""
        # Hot path: a story is only parsed if it may have redrives. A broker's letter lacks the
        # header, but the record that completes the letter may have it.
        is_told = self.found or self.content(REDRIVES) is not None
        return self.story.redrives if is_told else 0

    @property
    def by_broker(self) -> bool:
        """Whether a broker wrote the letter; by its headers, unless `is_vouched` proves it."""
        return self.is_vouched or (not self.by_worker and KAFKA_TOPIC in self._layout.places)

    @property
    def is_origin_claimed(self) -> bool:
        """Whether the origin is from headers that a producer wrote."""
        origin, source = self.story.origin, _source(self.told)
        return not self.is_vouched or origin is None or origin[:3] != (source or ())[:3]

    @property
    def is_raw_batch(self) -> bool:
        """Whether the value is a record batch that could not be read, not a record's value."""
        return BATCH_BYTES in self._layout.places

    @property
    def lacks_its_record(self) -> bool:
        """Whether the record's headers, and maybe key and value, are only in its original topic."""
        if self.tells_story or self.found or self.by_worker:
            return False
        # A story in a broker's letter was in its record, so the letter has the record's headers.
        # A record that was sent with a delay has no other: it never was in its original topic.
        has_headers = bool(self.headers) or self._layout.has_origin
        bare = not has_headers or NOT_COPIED in self._layout.places
        return bare and self.story.origin is not None

    @property
    def has_payload(self) -> bool:
        """Whether the letter has the record's key or value."""
        return self.key is not None or self.value is not None

    @property
    def redrive_id(self) -> str:
        """The id of all copies that redrives send of this letter, or of a duplicate of it."""
        # A broker writes no such header, so in a vouched letter its content is a producer's.
        told = "" if self.is_vouched else _text(self.content(DEAD_ID))
        # A longer id would not be read back with what a repeated redrive appends to it.
        usable = told and len(told.encode()) <= ID_BYTES_MAX
        return told if usable else f"{self.topic}/{self.partition}/{self.offset}"

    def with_record(self, record: DecodedRecord) -> Letter:
        """A copy of this letter, completed with the record from its original topic."""
        origin = self.story.origin
        assert origin is not None, "a letter whose record was found has an origin"
        whole = copy(self)
        whole.key, whole.value = record.key, record.value
        whole._headers = own_headers(record.headers)
        whole.all_headers = (*record.headers, *self.all_headers)
        place = origin._replace(timestamp_ms=time_of(record))
        whole._story = whole._completed(story_of(record.headers), place)
        whole.found = True
        return whole

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, death={self.death!r})"
        )


_LAYOUTS = LetterLayouts()


def letter_of(
    topic: str, partition: int, record: DecodedRecord, *, is_vouched: bool = False
) -> Letter:
    """Read a record as a dead letter; never raises, whatever the record contains.

    ``is_vouched`` says whether its batch has the mark of the broker's letters.
    """
    layout = _LAYOUTS.of(record.headers)
    return Letter(topic, partition, record, layout=layout, is_vouched=is_vouched)


def time_of(record: DecodedRecord) -> int:
    """The timestamp in milliseconds since 1970; NO_TIME if the record has none."""
    return NO_TIME if record.timestamp is None else record.timestamp


def _death(told: Mapping[str, bytes | None], group: str, *, by_broker: bool) -> Death:
    def text(name: str) -> str:
        return _text(told.get(name))

    message = text(KAFKA_PREFIX + "message")
    count = _number(text(KAFKA_PREFIX + "delivery.count"))
    if by_broker or not told.get(DEAD_REASON):
        reason = OF_THE_BROKER.get(message, DeadLetterReason.UNKNOWN)
        return Death(reason, group, message, count, by_broker, not_copied=text(NOT_COPIED))
    return Death(
        DeadLetterReason.of(text(DEAD_REASON)), group, message, count, by_broker=False,
        error_class=text(DEAD + "error.class"), error_message=text(DEAD + "error.message"),
        traceback=text(DEAD + "error.traceback"), handler=text(DEAD + "handler"),
        member=text(DEAD + "member"), id=text(DEAD_ID),
        first_failure_ms=_number(text(DEAD + "first.failure")),
        last_failure_ms=_number(text(DEAD + "last.failure")),
    )  # fmt: skip


def _source(told: Mapping[str, bytes | None]) -> RecordOrigin | None:
    """The record's place by a broker's headers; None if they are missing or not numbers."""
    topic = _text(told.get(KAFKA_TOPIC))
    partition = _number(_text(told.get(KAFKA_PREFIX + "partition")))
    offset = _number(_text(told.get(KAFKA_PREFIX + "offset")))
    if partition is None or offset is None or not 0 < len(topic.encode()) <= TEXT_BYTES_MAX:
        return None
    return RecordOrigin(topic, partition, offset, NO_TIME)


def _text(content: bytes | None) -> str:
    return "" if content is None else content.decode(errors="replace")


def _number(text: str) -> int | None:
    if not text.isascii() or not text.isdecimal() or len(text) > NUMBER_DIGITS_MAX:
        return None
    number = int(text)
    return number if number <= NUMBER_MAX else None
