"""Commands for waiting records and their answers: JSON, in the topic ``<group>.retry.control``.

    key                                    value
    command/billing.retry.1h/0/17          what to do with the record there, written by anybody
    answer/billing.retry.1h/0/17           what became of it, written by the partition's owner
    command/f00d                           a question: which process holds the record of this id?
    answer/f00d                            written by the process that holds it

An answer that is final (`Answer.is_final`) is also the mark by which the next owner passes the
record over.  There are two keys, so an answer to an earlier command cannot hide a later one.
Everybody with access to the topic can write any record, so records are validated.  A record without
a value forgets its key: a mark that the offset has passed, and what is older than a day.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from sharegroup.dead_letters.topics import is_topic_name
from sharegroup.json_documents import NUMBER_MAX, count_of, object_of, text_of

FORMAT = 1
"""The version of the format; a record with a higher one is not read."""
VALUE_BYTES_MAX = 4_096
BY_CHARACTERS_MAX = 200
WHY_CHARACTERS_MAX = 300
COMMAND, ANSWER = "command", "answer"
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PLACE = re.compile(r"([^/]+)/(\d{1,10})/(\d{1,19})")


class Intent(StrEnum):
    """What a command asks for."""

    RUN = "run"
    """Give the record to its handler now."""
    CANCEL = "cancel"
    """Make the record a dead letter; it does not run."""


class Answer(StrEnum):
    """What became of a command."""

    DONE = "done"
    GONE = "gone"
    """No record of this id is there: it was due, or went on to the next tier, since."""
    MOVED = "moved"
    """No answer, but the mark of a record that went on without a command."""
    REFUSED = "refused"
    """The broker refuses the record, for example because it is too large; it still waits."""
    HELD = "held"
    """A process holds the record, locked and in memory, for a retry within seconds."""

    @property
    def is_final(self) -> bool:
        """Whether the record at this place was moved on, so the next owner passes it over."""
        return self in (Answer.DONE, Answer.MOVED)


class Place(NamedTuple):
    """Where a record waits."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command for a waiting record."""

    record_id: str
    intent: Intent
    place: Place | None
    """None asks which process holds the record."""
    ask: str
    """Names this command, so its answer is not taken for that of another."""
    by: str
    """Who gave it."""
    asked_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a command, or the mark of a record that was moved without one."""

    record_id: str
    answer: Answer
    place: Place | None
    ask: str
    """Of the command; empty for a mark without a command."""
    at_ms: int
    member: str = ""
    """The process that holds the record."""
    why: str = ""
    """The broker's reason for a refusal; what is longer than `WHY_CHARACTERS_MAX` is cut."""


class Forgotten(NamedTuple):
    """The key of a command or an answer that is of no use any more."""

    kind: str
    subject: Place | str


ControlRecord = Command | Reply | Forgotten


def key_of(kind: str, subject: Place | str) -> bytes:
    """Return the key of a command or an answer about a place, or about the id of a record."""
    name = subject if isinstance(subject, str) else "/".join(map(str, subject))
    return f"{kind}/{name}".encode()


def encoded(record: Command | Reply) -> tuple[bytes, bytes]:
    """Return key and value of a record."""
    kind = COMMAND if isinstance(record, Command) else ANSWER
    document: dict[str, Any] = {"format": FORMAT, "id": record.record_id, "ask": record.ask}
    if isinstance(record, Command):
        by = record.by[:BY_CHARACTERS_MAX]
        document |= {"intent": record.intent, "by": by, "asked_ms": record.asked_ms}
    else:
        document |= {"answer": record.answer, "at_ms": record.at_ms, "member": record.member}
        if record.why:
            document["why"] = record.why[:WHY_CHARACTERS_MAX]
    value = json.dumps(document, separators=(",", ":")).encode("ascii")
    assert len(value) <= VALUE_BYTES_MAX, "all texts of a control record are short"
    return key_of(kind, record.place or record.record_id), value


def parsed(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Return the record with this key and value; raises ValueError if it is none."""
    kind, subject = _subject(key)
    if value is None:
        return Forgotten(kind, subject)
    document = object_of(value, bytes_max=VALUE_BYTES_MAX)
    place = subject if isinstance(subject, Place) else None
    try:
        if count_of(document["format"]) > FORMAT:
            raise ValueError(f"format {document['format']}, expected up to {FORMAT}")  # noqa: TRY301  One text.
        record_id, ask = (
            _id(document["id"]),
            text_of(document["ask"], characters_max=BY_CHARACTERS_MAX),
        )
        if place is None and record_id != subject:
            raise ValueError(f"id {record_id!r} with key {key!r:.100}")  # noqa: TRY301  One text.
        if kind == ANSWER:
            return Reply(
                record_id=record_id,
                answer=Answer(document["answer"]),
                place=place,
                ask=ask,
                at_ms=count_of(document["at_ms"]),
                member=text_of(document["member"], characters_max=BY_CHARACTERS_MAX),
                # Records of earlier versions have no such field.
                why=text_of(document.get("why", ""), characters_max=WHY_CHARACTERS_MAX),
            )
        return Command(
            record_id=record_id,
            intent=Intent(document["intent"]),
            place=place,
            ask=ask,
            by=text_of(document["by"], characters_max=BY_CHARACTERS_MAX),
            asked_ms=count_of(document["asked_ms"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected a {kind}, found {value!r:.200}: {error!r}") from error


def _subject(key: bytes | None) -> tuple[str, Place | str]:
    kind, _, name = (key or b"").decode("ascii", "replace").partition("/")
    if kind in (COMMAND, ANSWER):
        if _ID.fullmatch(name):
            return kind, name
        match = _PLACE.fullmatch(name)
        if match is not None and is_topic_name(match[1]) and int(match[3]) <= NUMBER_MAX:
            return kind, Place(match[1], int(match[2]), int(match[3]))
    raise ValueError(f"expected the key of a command or an answer, found {key!r:.200}")


def _id(value: Any) -> str:
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise ValueError(f"id {value!r:.100}")
    return value
