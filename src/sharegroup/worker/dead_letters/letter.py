"""A dead letter, read back: ours, or one that a broker wrote (KIP-1191).

The two differ in what they know.  A worker says everything (`headers`).  A broker knows the
place, the group, the count of deliveries and one of three sentences; Apache Kafka 4.4 leaves the
record's own headers out, and key and value as well unless the group is set to have them copied.
What is missing then is with the record itself, as long as its log keeps it (`originals`).

Names may stand there twice when a letter is itself the record of a letter.  The last one counts,
and only that one is taken off when the record is sent back: the others are the application's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sharegroup.wire.records import Record
from sharegroup.worker.dead_letters.headers import DEAD, DEAD_NAMES, KAFKA, KAFKA_NAMES, NOT_COPIED
from sharegroup.worker.decisions.reasons import OF_THE_BROKER, UNKNOWN
from sharegroup.worker.ports import Header
from sharegroup.worker.records.story import Origin, Story
from sharegroup.worker.records.story_headers import (
    ORIGIN,
    PREFIX,
    REDRIVES,
    STORY,
    TEXT_BYTES_MAX,
    own_headers,
    story_of,
)

NO_TIME = -1
DEAD_REASON = DEAD + "reason"
DEAD_GROUP = DEAD + "group"
DEAD_ID = DEAD + "id"
KAFKA_GROUP = KAFKA + "group"
ORIGIN_NAMES = frozenset(ORIGIN)
TOLD = STORY.union(
    (DEAD + name for name in DEAD_NAMES), (KAFKA + name for name in KAFKA_NAMES), (NOT_COPIED,)
)
"""Every name that a letter adds to its record's."""


class Death(NamedTuple):
    """Why a record is a dead letter; empty texts where the letter does not say."""

    reason: str
    """One of `decisions.reasons`."""
    group: str
    message: str
    """In the words of `__dlq.errors.message`."""
    delivery_count: int | None
    by_broker: bool
    not_copied: str = ""
    """Why the broker's letter has no record although it should."""
    error_class: str = ""
    error_message: str = ""
    traceback: str = ""
    handler: str = ""
    member: str = ""
    id: str = ""


class Letter:
    """One dead letter; what is told in its headers is read when somebody asks."""

    __slots__ = (
        "_death", "_story", "all_headers", "found", "headers", "key", "offset", "partition",
        "tells_story", "timestamp_ms", "told", "topic", "value",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        record: Record,
        *,
        headers: Sequence[Header],
        told: Mapping[str, bytes | None],
    ) -> None:
        self.topic = topic
        """Topic, partition, offset and time are the letter's own; the record's are in the story."""
        self.partition = partition
        self.offset = record.offset
        self.timestamp_ms = time_of(record)
        self.key = record.key
        self.value = record.value
        self.headers = headers
        """The application's own."""
        self.all_headers: Sequence[Header] = record.headers
        self.told = told
        """The others, by name, as they are."""
        self.tells_story = bool(told.get(DEAD_REASON)) and told.keys() >= ORIGIN_NAMES
        """Whether the headers of a worker's story are there, in whatever form."""
        self.found = False
        """Whether the record was found where it came from, and is in here."""
        self._story: Story | None = None
        self._death: Death | None = None

    @property
    def story(self) -> Story:
        """Where the record came from and what was tried; no origin: no letter says so."""
        if self._story is None:
            story = story_of(self.all_headers)
            if story.origin is None:
                story = replace(story, origin=_source(self.told))
            self._story = story
        return self._story

    @property
    def death(self) -> Death:
        """Why it is here."""
        if self._death is None:
            self._death = _death(self.told)
        return self._death

    @property
    def group(self) -> str:
        """Who gave it up; empty: it does not say."""
        told = self.told
        return _text(told.get(DEAD_GROUP) or told.get(KAFKA_GROUP))

    @property
    def has_origin(self) -> bool:
        """Whether it says where its record came from."""
        return self.tells_story or self.story.origin is not None

    @property
    def redrives(self) -> int:
        """How often its record was sent back before."""
        told = self.told.get(REDRIVES)
        return 0 if told is None else self.story.redrives

    @property
    def by_worker(self) -> bool:
        """Whether a worker wrote it, with all that it knew."""
        return bool(self.told.get(DEAD_REASON))

    @property
    def lacks_its_record(self) -> bool:
        """Whether only the original can say what its headers were, and maybe key and value."""
        if self.tells_story or self.found or self.by_worker:
            return False
        bare = not self.headers or NOT_COPIED in self.told
        return bare and self.story.origin is not None

    @property
    def has_payload(self) -> bool:
        """Whether there is anything of the record in it."""
        return self.key is not None or self.value is not None

    @property
    def redrive_id(self) -> str:
        """The same for each copy that is sent back of this letter, or of its double."""
        told = self.told.get(DEAD_ID)
        usable = told and len(told) <= TEXT_BYTES_MAX // 2
        return _text(told) if usable else f"{self.topic}/{self.partition}/{self.offset}"

    def with_record(self, record: Record) -> Letter:
        """The same letter with the record itself, which was found where it came from."""
        origin = self.story.origin
        assert origin is not None, "what was found was looked for somewhere"
        whole = Letter(
            self.topic, self.partition, record, headers=own_headers(record.headers), told=self.told
        )
        whole.offset, whole.timestamp_ms = self.offset, self.timestamp_ms
        whole.all_headers = (*record.headers, *self.all_headers)
        known = story_of(record.headers)
        where = known.origin or origin._replace(timestamp_ms=time_of(record))
        whole._story = replace(known, origin=where)
        whole.found = True
        return whole

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, death={self.death!r})"
        )


def letter_of(topic: str, partition: int, record: Record) -> Letter:
    """The letter that this record is; anything may be asked of a stranger, nothing raises."""
    # The hot path of a redrive: the headers of a letter are its record's, and then ours.
    every = record.headers
    for first, (name, _) in enumerate(every):
        if name in TOLD:
            ours = every[first:]
            told = dict(ours)
            if len(told) == len(ours) and told.keys() <= TOLD:
                return Letter(topic, partition, record, headers=tuple(every[:first]), told=told)
            break
    told, own = _sorted(every)
    return Letter(topic, partition, record, headers=own, told=told)


def time_of(record: Record) -> int:
    """Milliseconds since 1970; NO_TIME of a record whose producer set none."""
    return NO_TIME if record.timestamp is None else record.timestamp


def _sorted(headers: Sequence[Header]) -> tuple[dict[str, bytes | None], tuple[Header, ...]]:
    """What is said of the letter, by name, and the application's own headers."""
    told: dict[str, bytes | None] = {}
    own: list[Header] = []
    for name, content in reversed(headers):
        if name.startswith(PREFIX):
            told.setdefault(name, content)
        elif (name.startswith(KAFKA) or name == NOT_COPIED) and name not in told:
            told[name] = content
        else:
            own.append((name, content))
    own.reverse()
    return told, tuple(own)


def _death(told: Mapping[str, bytes | None]) -> Death:
    def text(name: str) -> str:
        return _text(told.get(name))

    message = text(KAFKA + "message")
    group = text(DEAD_GROUP) or text(KAFKA_GROUP)
    count = _number(text(KAFKA + "delivery.count"))
    if not told.get(DEAD_REASON):
        reason = OF_THE_BROKER.get(message, UNKNOWN)
        by_broker = KAFKA + "topic" in told
        return Death(reason, group, message, count, by_broker, not_copied=text(NOT_COPIED))
    return Death(
        text(DEAD_REASON), group, message, count, by_broker=False,
        error_class=text(DEAD + "error.class"), error_message=text(DEAD + "error.message"),
        traceback=text(DEAD + "error.traceback"), handler=text(DEAD + "handler"),
        member=text(DEAD + "member"), id=text(DEAD_ID),
    )  # fmt: skip


def _source(told: Mapping[str, bytes | None]) -> Origin | None:
    """Where a broker says that the record is; None when it does not, or not in numbers."""
    topic = _text(told.get(KAFKA + "topic"))
    partition = _number(_text(told.get(KAFKA + "partition")))
    offset = _number(_text(told.get(KAFKA + "offset")))
    if not topic or partition is None or offset is None:
        return None
    return Origin(topic, partition, offset, NO_TIME)


def _text(content: bytes | None) -> str:
    return "" if content is None else content.decode(errors="replace")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
