"""A dead letter, read back: ours, or one that a broker wrote (KIP-1191).

The two differ in what they know.  A worker says everything (`headers`).  A broker knows the
place, the group, the count of deliveries and one of three sentences; Apache Kafka 4.4 leaves the
record's own headers out, and key and value as well unless the group is set to have them copied.
What is missing then is with the record itself, as long as its log keeps it (`originals`).

Names may stand there twice when a letter is itself the record of a letter.  The last one counts,
and only that one is taken off when the record is sent back: the others are the application's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from sharegroup.wire.records import Record
from sharegroup.worker.dead_letters.headers import DEAD, KAFKA, NOT_COPIED
from sharegroup.worker.dead_letters.reasons import OF_THE_BROKER, UNKNOWN
from sharegroup.worker.decisions.story import Origin, Story
from sharegroup.worker.decisions.story_headers import PREFIX, TEXT_BYTES_MAX, story_of
from sharegroup.worker.ports import Header

NO_TIME = -1


class Death(NamedTuple):
    """Why a record is a dead letter; empty texts where the letter does not say."""

    reason: str
    """One of `reasons`."""
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


class Letter(NamedTuple):
    """One dead letter."""

    topic: str
    """Topic, partition, offset and time are the letter's own; the record's are in the story."""
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    """The application's own."""
    all_headers: tuple[Header, ...]
    story: Story
    death: Death
    found: bool = False
    """Whether the record was found where it came from, and is in here."""

    @property
    def lacks_its_record(self) -> bool:
        """Whether only the original can say what its headers were, and maybe key and value."""
        bare = not self.headers or bool(self.death.not_copied)
        return bare and self.death.by_broker and self.story.origin is not None and not self.found

    @property
    def has_payload(self) -> bool:
        """Whether there is anything of the record in it."""
        return self.key is not None or self.value is not None

    @property
    def redrive_id(self) -> str:
        """The same for each copy that is sent back of this letter, or of its double."""
        told = self.death.id
        usable = told and len(told.encode(errors="replace")) <= TEXT_BYTES_MAX // 2
        return told if usable else f"{self.topic}/{self.partition}/{self.offset}"

    def named(self) -> str:
        """For messages."""
        return f"topic {self.topic!r} partition {self.partition} offset {self.offset}"


def letter_of(topic: str, partition: int, record: Record) -> Letter:
    """The letter that this record is; anything may be asked of a stranger, nothing raises."""
    every = tuple(record.headers)
    about, own = _sorted(every)
    story = story_of(every)
    if story.origin is None:
        story = replace(story, origin=_source(about))
    return Letter(
        topic, partition, record.offset, time_of(record), record.key, record.value,
        own, every, story, _death(about),
    )  # fmt: skip


def time_of(record: Record) -> int:
    """Milliseconds since 1970; NO_TIME of a record whose producer set none."""
    return NO_TIME if record.timestamp is None else record.timestamp


def _sorted(headers: Iterable[Header]) -> tuple[dict[str, str], tuple[Header, ...]]:
    """What is said of the letter, by name, and the application's own headers."""
    about: dict[str, str] = {}
    own: list[Header] = []
    for header in reversed(tuple(headers)):
        name, content = header
        if name.startswith(PREFIX):
            if name.startswith(DEAD) and name not in about:
                about[name] = _text(content)
        elif (name.startswith(KAFKA) or name == NOT_COPIED) and name not in about:
            about[name] = _text(content)
        else:
            own.append(header)
    own.reverse()
    return about, tuple(own)


def _death(about: dict[str, str]) -> Death:
    message = about.get(KAFKA + "message", "")
    count = _number(about.get(KAFKA + "delivery.count", ""))
    group = about.get(DEAD + "group") or about.get(KAFKA + "group", "")
    reason = about.get(DEAD + "reason")
    if reason is None:
        return Death(
            OF_THE_BROKER.get(message, UNKNOWN), group, message, count,
            by_broker=KAFKA + "topic" in about, not_copied=about.get(NOT_COPIED, ""),
        )  # fmt: skip
    return Death(
        reason, group, message, count, by_broker=False,
        error_class=about.get(DEAD + "error.class", ""),
        error_message=about.get(DEAD + "error.message", ""),
        traceback=about.get(DEAD + "error.traceback", ""),
        handler=about.get(DEAD + "handler", ""),
        member=about.get(DEAD + "member", ""),
        id=about.get(DEAD + "id", ""),
    )  # fmt: skip


def _source(about: dict[str, str]) -> Origin | None:
    """Where a broker says that the record is; None when it does not, or not in numbers."""
    topic = about.get(KAFKA + "topic")
    partition = _number(about.get(KAFKA + "partition", ""))
    offset = _number(about.get(KAFKA + "offset", ""))
    if not topic or partition is None or offset is None:
        return None
    return Origin(topic, partition, offset, NO_TIME)


def _text(content: bytes | None) -> str:
    return "" if content is None else content.decode(errors="replace")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
