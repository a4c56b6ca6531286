"""The records of the topic ``<app>.schedules``: JSON, with a key for each thing that is kept.

    key                          value
    schedule/nightly             the schedule: written by the owner of the partition alone
    declare/nightly/3            a definition with its revision: written by processes that start
    command/nightly/5f0c2a91     pause, resume, run or remove: written by anybody
    owner                        who owns the partition: written by the owner when it takes over

The owner carries out declarations and commands, and deletes their records in the transaction that
stores the result.  A declaration has the revision in its key, so one of an older process cannot
hide a newer one.  Everybody with access to the topic can write any record, so records are
validated, and those that are not valid are left out.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from sharegroup.dead_letters.topics import is_topic_name
from sharegroup.errors import InvalidConfig, MissingExtra
from sharegroup.schedules.schedule import (
    NAME,
    REVISION_MAX,
    VALUE_BYTES_MAX,
    Missed,
    ScheduleDefinition,
    StoredSchedule,
)
from sharegroup.schedules.timing import Cron, Interval, Timing

T = TypeVar("T")
FORMAT = 1
"""The version of the format; a record with a higher one is not read."""
BY_CHARACTERS_MAX = 200
TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999."""
LAST_DUE_MS_MAX = TIME_MS_MAX - 100 * 366 * 86_400_000
"""Each timing has a next instant after this one, and a date can still express it."""
COUNT_MAX = 2**63 - 1
SCHEDULE, DECLARE, COMMAND, OWNER = "schedule", "declare", "command", "owner"


class Intent(StrEnum):
    """What a command asks for."""

    PAUSE = "pause"
    RESUME = "resume"
    RUN = "run"
    """One run now, also while the schedule is paused."""
    REMOVE = "remove"
    """Delete a schedule that is no longer declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleCommand:
    """A command for a schedule, which its owner carries out."""

    name: str
    intent: Intent
    id: str
    by: str
    asked_ms: int
    revision: int = REVISION_MAX
    """`Intent.REMOVE` is for this revision and older ones; others have been declared since."""


class Owner(NamedTuple):
    """The process that owns a partition."""

    process: str
    since_ms: int


Entry = StoredSchedule | ScheduleDefinition | ScheduleCommand | Owner
"""What a record of the topic has; a definition is a declaration."""


def key_of(entry: Entry) -> bytes:
    """Return the key of a record."""
    match entry:
        case StoredSchedule():
            text = f"{SCHEDULE}/{entry.name}"
        case ScheduleDefinition():
            text = f"{DECLARE}/{entry.name}/{entry.revision}"
        case ScheduleCommand():
            text = f"{COMMAND}/{entry.name}/{entry.id}"
        case Owner():
            text = OWNER
    return text.encode()


def schedule_key(name: str) -> bytes:
    """Return the key of a stored schedule."""
    return f"{SCHEDULE}/{name}".encode()


def encoded(entry: Entry) -> bytes:
    """Return the value of a record."""
    match entry:
        case StoredSchedule():
            document = {
                "definition": _definition_document(entry.definition),
                "last_due_ms": entry.last_due_ms,
                "paused_by": entry.paused_by,
                "runs": entry.runs,
                "last_run_ms": entry.last_run_ms,
            }
        case ScheduleDefinition():
            document = _definition_document(entry)
        case ScheduleCommand():
            document = {
                "name": entry.name,
                "intent": entry.intent,
                "id": entry.id,
                "by": entry.by[:BY_CHARACTERS_MAX],
                "asked_ms": entry.asked_ms,
                "revision": entry.revision,
            }
        case Owner():
            document = entry._asdict()
    return json.dumps({"format": FORMAT, **document}, separators=(",", ":")).encode("ascii")


def parsed(key: bytes, value: bytes) -> Entry:
    """Return what a record has; raises ValueError if it is not valid."""
    kind = key.split(b"/", 1)[0].decode("utf-8", "replace")
    if kind not in PARSERS:
        raise ValueError(f"key {key!r:.200}: expected one that begins with {', '.join(PARSERS)}")
    try:
        document = json.loads(value)
        if _whole(document["format"], 1, COUNT_MAX) > FORMAT:
            raise ValueError(f"format {document['format']}, expected up to {FORMAT}")
        entry = PARSERS[kind](document)
    except (
        *(AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError),
        *(InvalidConfig, MissingExtra),
    ) as error:
        raise ValueError(f"expected a {kind} record, found {value!r:.200}: {error!r}") from error
    if key != key_of(entry):
        raise ValueError(f"expected the key {key_of(entry)!r}, found {key!r:.200}")
    return entry


def _definition_document(definition: ScheduleDefinition) -> dict[str, Any]:
    timing = definition.timing
    return {
        "name": definition.name,
        "revision": definition.revision,
        "timing": (
            {"every_ms": timing.every_ms}
            if isinstance(timing, Interval)
            else {"cron": timing.expression, "timezone": timing.timezone}
        ),
        "topic": definition.topic,
        "key": _text_of(definition.key),
        "value": _text_of(definition.value),
        "sends_run": definition.sends_run,
        "missed": definition.missed,
    }


def _definition(document: Mapping[str, Any]) -> ScheduleDefinition:
    topic = document["topic"]
    if not is_topic_name(topic):
        raise ValueError(f"topic {topic!r:.100}")
    return ScheduleDefinition(
        name=_name(document["name"]),
        revision=_whole(document["revision"], 1, REVISION_MAX),
        timing=_timing(document["timing"]),
        topic=topic,
        key=_bytes_of(document["key"]),
        value=_bytes_of(document["value"]),
        sends_run=bool(document["sends_run"]),
        missed=Missed(document["missed"]),
    )


def _timing(document: Mapping[str, Any]) -> Timing:
    if "every_ms" in document:
        return Interval(_whole(document["every_ms"], 1, COUNT_MAX))
    return Cron(str(document["cron"]), str(document["timezone"]))


def _stored(document: Mapping[str, Any]) -> StoredSchedule:
    return StoredSchedule(
        definition=_definition(document["definition"]),
        last_due_ms=_whole(document["last_due_ms"], 0, LAST_DUE_MS_MAX),
        paused_by=_optional(_by, document["paused_by"]),
        runs=_whole(document["runs"], 0, COUNT_MAX),
        last_run_ms=_optional(_time, document["last_run_ms"]),
    )


def _command(document: Mapping[str, Any]) -> ScheduleCommand:
    return ScheduleCommand(
        name=_name(document["name"]),
        intent=Intent(document["intent"]),
        id=_name(document["id"]),
        by=_by(document["by"]),
        asked_ms=_time(document["asked_ms"]),
        revision=_whole(document["revision"], 1, REVISION_MAX),
    )


def _owner(document: Mapping[str, Any]) -> Owner:
    return Owner(_by(document["process"]), _time(document["since_ms"]))


PARSERS: Mapping[str, Callable[[Mapping[str, Any]], Entry]] = {
    SCHEDULE: _stored,
    DECLARE: _definition,
    COMMAND: _command,
    OWNER: _owner,
}


def _name(value: Any) -> str:
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        raise ValueError(f"name {value!r:.100}")
    return value


def _by(value: Any) -> str:
    return str(value)[:BY_CHARACTERS_MAX]


def _time(value: Any) -> int:
    return _whole(value, 0, TIME_MS_MAX)


def _whole(value: Any, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{value!r:.40}, expected a whole number from {low} to {high}")
    return value


def _optional(parse: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else parse(value)


def _text_of(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode("ascii")


def _bytes_of(text: Any) -> bytes | None:
    if text is None:
        return None
    data = b64decode(text, validate=True)
    if len(data) > VALUE_BYTES_MAX:
        raise ValueError(f"{len(data)} bytes, expected at most {VALUE_BYTES_MAX}")
    return data
