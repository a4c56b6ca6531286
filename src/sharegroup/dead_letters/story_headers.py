"""Converts the story of a record to headers, and headers to a story.

    the application's own headers      first, unchanged, with order and duplicates
    __sharegroup.origin.topic ...      the worker's: text in UTF-8, numbers in decimal

Every producer with access to a topic can write any header, so headers are validated.  A story that
is incomplete, duplicated, too large or out of range is ignored: the record is treated as new, and
the reason is logged.  Its attempts start again and its own place is its origin.  So a forged story
gains no more than a plain record has.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

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
TRACE = PREFIX + "trace"

ORIGIN = (ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_TIMESTAMP)
STORY = frozenset({*ORIGIN, FAILURES, ATTEMPTS, DUE, REDRIVES, REDRIVE_ID, TRACE})

ATTEMPTS_MAX = 20
ATTEMPTS_BYTES_MAX = 256 * 1024
"""The limit for reading; written attempts are far smaller, because messages are cut."""
TEXT_BYTES_MAX = 1024
NUMBER_MAX = 2**63 - 1
NOWHERE = -1
"""Partition and offset of a record that was sent with a delay and never was in its topic."""

T = TypeVar("T")


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
    if story.failures:
        headers.append((FAILURES, _number(story.failures)))
    if story.attempts:
        # ASCII, because a message may have lone surrogates, which UTF-8 cannot encode.
        text = json.dumps(story.attempts[-ATTEMPTS_MAX:], separators=(",", ":"))
        headers.append((ATTEMPTS, text.encode("ascii")))
    if story.due_ms is not None:
        headers.append((DUE, _number(story.due_ms)))
    if story.redrives:
        headers.append((REDRIVES, _number(story.redrives)))
    if story.redrive_id is not None:
        headers.append((REDRIVE_ID, story.redrive_id.encode()))
    if story.trace is not None:
        headers.append((TRACE, story.trace.encode()))
    return tuple(headers)


def redrive_headers(story: Story) -> tuple[Header, ...]:
    """The headers that another record needs to continue the number of redrives; maybe none."""
    return ((REDRIVES, _number(story.redrives)),) if story.redrives else ()


def story_of(headers: Sequence[Header]) -> Story:
    """Read the story from headers; `NEW` if they have none or it is not valid."""
    for name, _ in headers:
        if name.startswith(PREFIX):
            break
    else:
        return NEW
    try:
        return _story(_only_once(headers))
    except MalformedStory as error:
        log.warning("event=story_refused reason=%r effect=treated_as_new", str(error))
        return NEW


def _only_once(headers: Sequence[Header]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, value in headers:
        if name not in STORY:
            continue
        if name in found:
            raise MalformedStory(f"{name}: expected once, found twice")
        if value is None:
            raise MalformedStory(f"{name}: expected a value, got null")
        found[name] = value
    return found


def _story(found: Mapping[str, bytes]) -> Story:
    def read(name: str, parse: Callable[[str, bytes], T], otherwise: T) -> T:
        return parse(name, found[name]) if name in found else otherwise

    due_ms = found.get(DUE)
    redrive_id = found.get(REDRIVE_ID)
    trace = found.get(TRACE)
    return Story(
        origin=_origin(found),
        failures=read(FAILURES, parsed_number, 0),
        attempts=read(ATTEMPTS, _attempts, ()),
        due_ms=None if due_ms is None else parsed_number(DUE, due_ms),
        redrives=read(REDRIVES, parsed_number, 0),
        redrive_id=None if redrive_id is None else _text(REDRIVE_ID, redrive_id),
        trace=None if trace is None else _text(TRACE, trace),
    )


def _origin(found: Mapping[str, bytes]) -> RecordOrigin | None:
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
        parsed_number(ORIGIN_TIMESTAMP, found[ORIGIN_TIMESTAMP], least=NOWHERE),
    )


def _attempts(name: str, value: bytes) -> tuple[Attempt, ...]:
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


def parsed_number(name: str, value: bytes | None, *, least: int = 0) -> int:
    """Parse a decimal number; raises MalformedStory if it is invalid or out of range."""
    digits = (value or b"").removeprefix(b"-")
    # `int` alone would also accept spaces, underscores, and any number of digits.
    if value is None or not digits.isdigit() or len(digits) > len(str(NUMBER_MAX)):
        raise MalformedStory(f"{name}: expected a number, got {(value or b'')[:40]!r}")
    number = int(value)
    if not least <= number <= NUMBER_MAX:
        raise MalformedStory(f"{name}: expected {least} to {NUMBER_MAX}, got {number}")
    return number


def _text(name: str, value: bytes) -> str:
    if not 0 < len(value) <= TEXT_BYTES_MAX:
        raise MalformedStory(f"{name}: {len(value)} bytes; expected 1 to {TEXT_BYTES_MAX}")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise MalformedStory(f"{name}: expected UTF-8, got {value[:40]!r}") from error
