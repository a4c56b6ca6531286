"""The headers that make a record a dead letter, in the order in which they stand.

    the application's own          as they came, byte for byte, doubles and order too
    __sharegroup.origin. ...       the story: where it came from, what was tried, how often it
                                   was sent back (`records.story_headers`)
    __sharegroup.dead. ...         why it is here, in full
    __dlq.errors. ...              the same in Kafka's words (KIP-1191), for tools that know no more

All are text in UTF-8.  `letter` reads them, and also a letter that a broker wrote, which has the
last part alone.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from sharegroup.worker.decisions.messages import class_name, message_of
from sharegroup.worker.decisions.reasons import REASONS
from sharegroup.worker.decisions.steps import Bury
from sharegroup.worker.ports import Delivery, Header
from sharegroup.worker.records.story import NEW, Origin, Story, origin_of
from sharegroup.worker.records.story_headers import own_headers, story_headers

KAFKA = "__dlq.errors."
DEAD = "__sharegroup.dead."
NOT_COPIED = "sharegroup.dlq.not.copied"
"""In letters of our broker: why the record itself is missing."""

DEAD_NAMES = (
    "id", "reason", "error.class", "error.message", "error.traceback", "handler", "group",
    "member", "first.failure", "last.failure",
)  # fmt: skip
KAFKA_NAMES = ("topic", "partition", "offset", "group", "delivery.count", "message")

MESSAGE_CHARACTERS_MAX = 4_000
TRACEBACK_BYTES_MAX = 16 * 1024
CUT = "...\n"
"""In front of a traceback whose beginning was left out: its end says what was raised."""


class Buried(NamedTuple):
    """Who buries, for whom."""

    group: str
    handler: str
    member: str


def dead_id(group: str, delivery: Delivery, story: Story) -> str:
    """The name of one death of one record: the same when its letter is written twice."""
    place = origin_of(delivery, story)
    if place.offset < 0:  # It was sent with a delay, and never lay in its topic.
        place = origin_of(delivery, NEW)
    return f"{group}/{place.topic}/{place.partition}/{place.offset}/{story.redrives}"


def letter_headers(
    delivery: Delivery, step: Bury, by: Buried, *, now_ms: int, shrunk: bool
) -> tuple[Header, ...]:
    """All headers of the letter of this delivery; ``shrunk``: without traceback and history."""
    origin = origin_of(delivery, step.story)
    story = replace(step.story, due_ms=None, attempts=() if shrunk else step.story.attempts)
    return (
        *own_headers(delivery.headers),
        *story_headers(story, origin),
        *_ours(delivery, step, by, now_ms=now_ms, shrunk=shrunk),
        *_kafkas(delivery, step, by, origin),
    )


def _ours(
    delivery: Delivery, step: Bury, by: Buried, *, now_ms: int, shrunk: bool
) -> Iterator[Header]:
    attempts = step.story.attempts
    yield _text("id", dead_id(by.group, delivery, step.story))
    yield _text("reason", step.reason)
    if step.error is not None:
        yield _text("error.class", class_name(step.error))
        yield _text("error.message", message_of(step.error, MESSAGE_CHARACTERS_MAX))
        if not shrunk:
            yield _text("error.traceback", traceback_text(step.error))
    yield _text("handler", by.handler)
    yield _text("group", by.group)
    yield _text("member", by.member)
    yield _text("first.failure", str(attempts[0].at_ms if attempts else now_ms))
    yield _text("last.failure", str(attempts[-1].at_ms if attempts else now_ms))


def _kafkas(delivery: Delivery, step: Bury, by: Buried, origin: Origin) -> Iterator[Header]:
    """As a broker would write them, save that the message says more."""
    message = REASONS.get(step.reason, step.reason)
    if step.error is not None:
        said = message_of(step.error, MESSAGE_CHARACTERS_MAX)
        message = f"{message} {class_name(step.error)}: {said}"
    for name, text in (
        ("topic", origin.topic),
        ("partition", str(origin.partition)),
        ("offset", str(origin.offset)),
        ("group", by.group),
        ("delivery.count", str(delivery.delivery_count)),
        ("message", message),
    ):
        yield KAFKA + name, encoded(text)


def traceback_text(error: BaseException) -> str:
    """The traceback with all causes; of a long one the end, which is nearest to what happened."""
    try:
        lines = traceback.format_exception(error)
    except Exception as broken:  # noqa: BLE001  An application's exception may do anything.
        return f"(its traceback can't be had: {type(broken).__qualname__})\n"
    whole = "".join(lines).encode(errors="backslashreplace")
    if len(whole) <= TRACEBACK_BYTES_MAX:
        return whole.decode()
    return CUT + whole[-TRACEBACK_BYTES_MAX:].decode(errors="ignore")


def encoded(text: str) -> bytes:
    """UTF-8; what has no form in it, a lone surrogate of an odd file name, is written out."""
    return text.encode(errors="backslashreplace")


def _text(name: str, text: str) -> Header:
    return DEAD + name, encoded(text)
