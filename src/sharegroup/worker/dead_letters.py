"""The dead letters of a worker: writes the records that its handlers could not process.

The caller rejects a record after its dead letter is durable.  If a write fails, the caller repeats
it under the record's lock, so no record is lost while the topic cannot be written.

If the broker writes the letters (`BrokerDeadLetter`), or if there are none, nothing is written and
the caller only rejects.  Reading, redriving and purging need no application:
`sharegroup.dead_letters`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from sharegroup.dead_letters.letter import LETTER_BYTES_MAX
from sharegroup.dead_letters.letter_headers import DEAD
from sharegroup.dead_letters.reasons import REASONS
from sharegroup.dead_letters.story import NEW, RecordOrigin, Story, origin_of
from sharegroup.dead_letters.story_headers import own_headers, story_headers
from sharegroup.wire.internal_topics.dead_letter_headers import KAFKA_PREFIX
from sharegroup.worker.decisions.decide import Bury
from sharegroup.worker.decisions.messages import class_name, message_of, trace_of
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.declarations.topics import (
    BrokerDeadLetter,
    DeadLetter,
    Replication,
    TopicDeclaration,
    topic_of,
)
from sharegroup.worker.ports import DeliveredRecord, Header, Outbox, WorkerClock, WrittenRecord
from sharegroup.worker.records.unreadable_range import UnreadableRange
from sharegroup.worker.redaction import Redaction

RETENTION_FOR_EVER = "-1"


def letters_topic(route: Route) -> str | None:
    """The topic to which the worker writes this route's letters; None if it writes none."""
    letters = route.dead_letter
    return topic_of(letters, route.group) if isinstance(letters, DeadLetter) else None


def dead_letter_topics(route: Route) -> list[TopicDeclaration]:
    """The topics that the dead letters of this route require."""
    match route.dead_letter:
        case None:
            return []
        case BrokerDeadLetter(topic):
            return [TopicDeclaration(topic, 1, {"errors.deadletterqueue.group.enable": "true"})]
        case DeadLetter() as letters:
            name = letters_topic(route)
            assert name is not None, "a DeadLetter always has a topic"
            kept = letters.retention_seconds
            configs = {
                "cleanup.policy": "delete",
                "max.message.bytes": str(LETTER_BYTES_MAX),
                "retention.ms": RETENTION_FOR_EVER if kept is None else str(round(kept * 1000)),
            }
            replication = Replication(letters.replication_factor, letters.min_insync_replicas)
            return [TopicDeclaration(name, letters.partitions, configs, replication)]


def group_configs_of(route: Route) -> dict[str, str]:
    """The group settings with which the broker writes letters that include the records."""
    if isinstance(route.dead_letter, BrokerDeadLetter):
        return {
            "errors.deadletterqueue.topic.name": route.dead_letter.topic,
            "errors.deadletterqueue.copy.record.enable": "true",
        }
    return {}


class Burier:
    """Writes the dead letters of one route."""

    __slots__ = ("_by", "_clock", "_outbox", "topic")

    def __init__(self, outbox: Outbox, clock: WorkerClock, route: Route, member_id: str) -> None:
        self._outbox = outbox
        self._clock = clock
        self._by = Buried(route.group, route.shape.name, member_id, route.redaction)
        self.topic = letters_topic(route)
        """The topic that it writes to; None if the worker writes no letters for this route."""

    async def bury(
        self,
        delivery: DeliveredRecord,
        step: Bury,
        *,
        shrunk: bool = False,
        outbox: Outbox | None = None,
    ) -> WrittenRecord | None:
        """Write the dead letter and return where it was written, once it is durable.

        Returns None if the worker writes no letters for this route.  Raises KafkaError.
        ``shrunk`` omits traceback and history, for a letter that is too large with them.
        ``outbox`` replaces that of the process.
        """
        if self.topic is None:
            return None
        headers = letter_headers(
            delivery, step, self._by, now_ms=self._clock.wall_ms(), shrunk=shrunk
        )
        # Without the record's timestamp, so that retention does not delete an old record's letter.
        return await (outbox or self._outbox).send(
            self.topic, delivery.value, key=delivery.key, headers=headers
        )


# The headers of a dead letter, in the order in which they are written.
#
#     the application's own          unchanged, in their order, with duplicates
#     __sharegroup.origin. ...       the story: origin, attempts and number of redrives
#                                    (`sharegroup.dead_letters.story_headers`)
#     __sharegroup.dead. ...         the full reason
#     __dlq.errors. ...              the reason in Kafka's headers (KIP-1191), for other tools
#
# The worker's headers are text in UTF-8. `letter` reads them. It also reads letters that a broker
# wrote, which have only the last part.


MESSAGE_CHARACTERS_MAX = 4_000
TRACEBACK_BYTES_MAX = 16 * 1024
CUT = "...\n"
"""Prefix of a traceback whose beginning was cut; its end names the exception."""


class Buried(NamedTuple):
    """Group, handler and member that a letter names, and the redaction of its texts."""

    group: str
    handler: str
    member: str
    redaction: Redaction | None = None


def dead_id(group: str, delivery: DeliveredRecord, story: Story) -> str:
    """An id of one failure of one record; the same if its letter is written twice."""
    # The origin, not the place in the own topic, which is another one after each retry.
    place = origin_of(delivery, story)
    if place.offset < 0:  # Sent with a delay, so it was never in its topic.
        place = origin_of(delivery, NEW)
    return f"{group}/{place.topic}/{place.partition}/{place.offset}/{story.redrives}"


def letter_headers(
    delivery: DeliveredRecord, step: Bury, by: Buried, *, now_ms: int, shrunk: bool
) -> tuple[Header, ...]:
    """All headers of the dead letter; ``shrunk`` omits traceback and history."""
    origin = origin_of(delivery, step.story)
    attempts = () if shrunk else step.story.attempts
    story = replace(step.story, due_ms=None, age_from_ms=None, attempts=attempts)
    return (
        *own_headers(delivery.headers),
        *story_headers(story, origin),
        *_ours(delivery, step, by, now_ms=now_ms, shrunk=shrunk),
        *_kafkas(delivery, step, by, origin),
    )


def _ours(
    delivery: DeliveredRecord, step: Bury, by: Buried, *, now_ms: int, shrunk: bool
) -> Iterator[Header]:
    attempts = step.story.attempts
    yield _text("id", dead_id(by.group, delivery, step.story))
    yield _text("reason", step.reason)
    if step.error is not None:
        yield _text("error.class", class_name(step.error))
        yield _text("error.message", message_of(step.error, MESSAGE_CHARACTERS_MAX, by.redaction))
        if not shrunk:
            yield _text("error.traceback", traceback_text(step.error, by.redaction))
    if isinstance(delivery, UnreadableRange):
        yield _text("last.offset", str(delivery.end - 1))
        yield _text("batch.offset", str(delivery.batch_offset))
        yield _text("batch.bytes", str(delivery.batch_bytes))
    yield _text("handler", by.handler)
    yield _text("group", by.group)
    yield _text("member", by.member)
    yield _text("first.failure", str(attempts[0].at_ms if attempts else now_ms))
    yield _text("last.failure", str(attempts[-1].at_ms if attempts else now_ms))


def _kafkas(
    delivery: DeliveredRecord, step: Bury, by: Buried, origin: RecordOrigin
) -> Iterator[Header]:
    """The headers that a broker would write (KIP-1191), with a more detailed message."""
    message = REASONS[step.reason]
    if step.error is not None:
        details = message_of(step.error, MESSAGE_CHARACTERS_MAX, by.redaction)
        message = f"{message} {class_name(step.error)}{f': {details}' if details else ''}"
    for name, text in (
        ("topic", origin.topic),
        ("partition", str(origin.partition)),
        ("offset", str(origin.offset)),
        ("group", by.group),
        ("delivery.count", str(delivery.delivery_count)),
        ("message", message),
    ):
        yield KAFKA_PREFIX + name, encoded(text)


def traceback_text(error: BaseException, redaction: Redaction | None = None) -> str:
    """The traceback with all causes; a long one is cut to its end, where the error is."""
    whole = trace_of(error, redaction).encode(errors="backslashreplace")
    if len(whole) <= TRACEBACK_BYTES_MAX:
        return whole.decode()
    return CUT + whole[-TRACEBACK_BYTES_MAX:].decode(errors="ignore")


def encoded(text: str) -> bytes:
    """Encode as UTF-8; lone surrogates, as from odd file names, become escape sequences."""
    return text.encode(errors="backslashreplace")


def _text(name: str, text: str) -> Header:
    return DEAD + name, encoded(text)
