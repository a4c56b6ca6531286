"""Converts the story of a record to headers, and headers to a story.

    the application's own headers      first, unchanged, with order and duplicates
    __sharegroup.origin.topic ...      the worker's: text in UTF-8, numbers in decimal

Every producer with access to a topic can write any header, so headers are validated.  A field that
is duplicated, too large or out of range is ignored, as if it were missing, and the reason is
logged; the other fields count.  The four headers of the origin are one field.  So a forged story
gains no more than a plain record has, and every story that `story_headers` writes is read back
(`tests/unit/test_written_and_read.py`).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sharegroup.dead_letters.story import NEW, Attempt, RecordOrigin, Story

if TYPE_CHECKING:
    # A program that only declares handlers loads no client.
    from sharegroup.client.records import Header

log = logging.getLogger(__name__)

PREFIX = "__sharegroup."
"""Prefix of all headers that the worker writes; applications must not use it."""

ORIGIN_TOPIC = PREFIX + "origin.topic"
ORIGIN_PARTITION = PREFIX + "origin.partition"
ORIGIN_OFFSET = PREFIX + "origin.offset"
ORIGIN_TIMESTAMP = PREFIX + "origin.timestamp"
FAILURES = PREFIX + "failures"
ATTEMPTS = PREFIX + "attempts"
DUE = PREFIX + "due"
REDRIVES = PREFIX + "redrives"
REDRIVE_ID = PREFIX + "redrive.id"
UNROUTED = PREFIX + "unrouted"
SUSPICIONS = PREFIX + "suspicions"
TRACE = PREFIX + "trace"
ID = PREFIX + "id"
CANCELLED_BY = PREFIX + "cancelled.by"
AGE_FROM = PREFIX + "age.from"

ORIGIN = (ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_TIMESTAMP)

ATTEMPTS_MAX = 20
ATTEMPTS_BYTES_MAX = 256 * 1024
"""The limit for reading; written attempts are far smaller, because messages are cut."""
TEXT_BYTES_MAX = 1024
NUMBER_MAX = 2**63 - 1
WAITING_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
"""The id of a waiting record; operators type it, and it is part of a key of a topic."""
TIME_MIN = -(2**63)
"""The smallest timestamp of a record; negative ones are before 1970."""
NOWHERE = -1
"""Partition and offset of a record that was sent with a delay and never was in its topic."""


class MalformedStory(Exception):
    """The headers of a story are not valid."""


def own_headers(headers: Sequence[Header]) -> tuple[Header, ...]:
    """The application's headers, without those of the worker."""
    return tuple(header for header in headers if not header[0].startswith(PREFIX))


def story_headers(story: Story, origin: RecordOrigin) -> tuple[Header, ...]:
    """The headers of a story, to write after `own_headers`; omits values equal to `NEW`."""
    headers: list[Header] = [
        (ORIGIN_TOPIC, origin.topic.encode()),
        (ORIGIN_PARTITION, _number(origin.partition)),
        (ORIGIN_OFFSET, _number(origin.offset)),
        (ORIGIN_TIMESTAMP, _number(origin.timestamp_ms)),
    ]
    for field in FIELDS:
        value = getattr(story, field.name)
        if value != getattr(NEW, field.name):
            headers.append((field.header, field.write(value)))
    return tuple(headers)


def redrive_headers(story: Story) -> tuple[Header, ...]:
    """The headers that another record needs to continue the number of redrives; maybe none."""
    return (redrives_header(story.redrives),) if story.redrives else ()


@lru_cache(maxsize=64)
def redrives_header(count: int) -> Header:
    """The header with the number of redrives."""
    return REDRIVES, _count(count)


def story_of(headers: Sequence[Header]) -> Story:
    """Read the story from headers, without the fields that are not valid; `NEW` without any."""
    for name, _ in headers:
        if name.startswith(PREFIX):
            break
    else:
        return NEW
    refused: list[str] = []
    story = _story(_only_once(headers, refused), refused)
    if refused:
        log.warning("event=story_refused reason=%r effect=fields_ignored", "; ".join(refused))
    return story


def _only_once(headers: Sequence[Header], refused: list[str]) -> dict[str, bytes | None]:
    """The headers of a story by name; one that occurs twice is refused."""
    found: dict[str, bytes | None] = {}
    doubled: set[str] = set()
    for name, value in headers:
        if name in STORY:
            if name in found:
                doubled.add(name)
            found[name] = value
    for name in sorted(doubled):
        # Neither counts: which of the two a worker wrote cannot be told.
        refused.append(f"{name}: expected once, found twice")
        del found[name]
    return found


def _story(found: Mapping[str, bytes | None], refused: list[str]) -> Story:
    values: dict[str, Any] = {}
    try:
        values["origin"] = _origin(found)
    except MalformedStory as error:
        refused.append(str(error))
    for field in FIELDS:
        if field.header in found:
            try:
                values[field.name] = field.read(field.header, found[field.header])
            except MalformedStory as error:
                refused.append(str(error))
    story = Story(**values)
    return NEW if story == NEW else story


def _origin(found: Mapping[str, bytes | None]) -> RecordOrigin | None:
    missing = [name for name in ORIGIN if name not in found]
    if len(missing) == len(ORIGIN):
        return None
    if missing:
        raise MalformedStory(
            f"{', '.join(missing)}: missing, although other headers of the origin are present"
        )
    return RecordOrigin(
        _text(ORIGIN_TOPIC, found[ORIGIN_TOPIC]),
        parsed_number(ORIGIN_PARTITION, found[ORIGIN_PARTITION], least=NOWHERE),
        parsed_number(ORIGIN_OFFSET, found[ORIGIN_OFFSET], least=NOWHERE),
        parsed_number(ORIGIN_TIMESTAMP, found[ORIGIN_TIMESTAMP], least=TIME_MIN),
    )


def _written_attempts(attempts: tuple[Attempt, ...]) -> bytes:
    """The latest of the attempts as JSON, as many as the reader takes."""
    attempts = attempts[-ATTEMPTS_MAX:]
    while True:
        entries = [(_clamped(attempt.number), *attempt[1:]) for attempt in attempts]
        # ASCII, because a message may have lone surrogates, which UTF-8 cannot encode.
        text = json.dumps(entries, separators=(",", ":")).encode("ascii")
        if len(text) <= ATTEMPTS_BYTES_MAX:
            return text
        attempts = attempts[1:]  # The name of an application's class has no limit.


def _attempts(name: str, value: bytes | None) -> tuple[Attempt, ...]:
    value = _present(name, value)
    if len(value) > ATTEMPTS_BYTES_MAX:
        raise MalformedStory(f"{name}: {len(value)} bytes; expected up to {ATTEMPTS_BYTES_MAX}")
    try:
        entries = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise MalformedStory(f"{name}: expected JSON, got {value[:40]!r}") from error
    if not isinstance(entries, list) or len(entries) > ATTEMPTS_MAX:
        raise MalformedStory(f"{name}: expected a list of up to {ATTEMPTS_MAX}")
    return tuple(_attempt(name, entry) for entry in entries)


def _attempt(name: str, entry: Any) -> Attempt:
    kinds = (int, int, str, str, str)
    if (
        not isinstance(entry, list)
        or [type(part) for part in entry] != list(kinds)
        or not all(0 <= number <= NUMBER_MAX for number in entry[:2])
    ):
        raise MalformedStory(
            f"{name}: expected [number, at_ms, error, message, member] in each entry"
        )
    return Attempt(*entry)


def _number(value: int) -> bytes:
    return str(value).encode("ascii")


def _count(value: int) -> bytes:
    """A count; one that a producer claimed may be `NUMBER_MAX`, and stays there."""
    return _number(_clamped(value))


def _clamped(value: int) -> int:
    return min(value, NUMBER_MAX)


def parsed_number(name: str, value: bytes | None, *, least: int = 0) -> int:
    """Parse a decimal number; raises MalformedStory if it is invalid or out of range."""
    value = _present(name, value)
    digits = value.removeprefix(b"-")
    # `int` alone would also accept spaces, underscores, and any number of digits.
    if not digits.isdigit() or len(digits) > len(str(NUMBER_MAX)):
        raise MalformedStory(f"{name}: expected a number, got {value[:40]!r}")
    number = int(value)
    if not least <= number <= NUMBER_MAX:
        raise MalformedStory(f"{name}: expected {least} to {NUMBER_MAX}, got {number}")
    return number


def _text(name: str, value: bytes | None) -> str:
    value = _present(name, value)
    if not 0 < len(value) <= TEXT_BYTES_MAX:
        raise MalformedStory(f"{name}: {len(value)} bytes; expected 1 to {TEXT_BYTES_MAX}")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise MalformedStory(f"{name}: expected UTF-8, got {value[:40]!r}") from error


def _id(name: str, value: bytes | None) -> str:
    value = _present(name, value)
    if WAITING_ID.fullmatch(value) is None:
        raise MalformedStory(
            f"{name}: expected 1 to 64 letters, digits, '-', '_' or '.', got {value[:80]!r}"
        )
    return value.decode("ascii")


def _present(name: str, value: bytes | None) -> bytes:
    if value is None:
        raise MalformedStory(f"{name}: expected a value, got null")
    return value


class StoryField(NamedTuple):
    """A field of a story with its header."""

    header: str
    name: str
    write: Callable[[Any], bytes]
    read: Callable[[str, bytes | None], Any]


FIELDS = (
    StoryField(FAILURES, "failures", _count, parsed_number),
    StoryField(ATTEMPTS, "attempts", _written_attempts, _attempts),
    StoryField(DUE, "due_ms", _number, parsed_number),
    StoryField(REDRIVES, "redrives", _count, parsed_number),
    StoryField(REDRIVE_ID, "redrive_id", str.encode, _text),
    StoryField(UNROUTED, "unrouted", _count, parsed_number),
    StoryField(SUSPICIONS, "suspicions", _count, parsed_number),
    StoryField(TRACE, "trace", str.encode, _text),
    StoryField(ID, "id", str.encode, _id),
    StoryField(CANCELLED_BY, "cancelled_by", str.encode, _text),
    StoryField(AGE_FROM, "age_from_ms", _number, parsed_number),
)
"""The fields that have a header of their own, in the order in which they are written.

A value equal to that of `NEW` is not written, and a header that is missing or not valid leaves it.
"""

STORY = frozenset((*ORIGIN, *(field.header for field in FIELDS)))
"""The names of all headers of a story."""
