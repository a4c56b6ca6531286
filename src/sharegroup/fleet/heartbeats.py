"""Heartbeats of worker processes: JSON, in the topic ``<app>.workers``.

    key                          value
    web-3.4711.9f86d081          the process, its phase, its records, and its last answers
    web-3.4711.9f86d081          none: the process has stopped cleanly

The key is the worker id, which no two processes share: containers have the same process id again
and again.  Everybody with access to the topic can write any record, so records are validated.
"""

from __future__ import annotations

import json
import os
import re
import socket
from dataclasses import dataclass
from enum import StrEnum
from secrets import token_hex
from typing import Any, NamedTuple

from sharegroup.fleet.fleet_topics import APP_NAME
from sharegroup.json_documents import count_of, object_of, text_of

FORMAT = 1
"""The version of the format; a record with a higher one is not read."""
VALUE_BYTES_MAX = 16 * 1024
BEAT_SECONDS = 10.0
LOST_SECONDS = 30.0
"""A process that was not heard for this time is lost: killed, frozen, or cut off."""
GROUPS_MAX = 20
"""The number of groups that a heartbeat names; it has their number, too."""
ANSWERS_MAX = 10
"""The number of last answers in a heartbeat."""
TEXT_CHARACTERS_MAX = 249
HOST_CHARACTERS_MAX = 100
_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_WORD = re.compile(r"[a-z-]{1,20}")


class Answer(StrEnum):
    """What a process did with a command."""

    TAKEN = "taken"
    """It carries the command out; its phase shows how far it is."""
    EXPIRED = "expired"
    """It read the command too late, and did nothing."""


class Answered(NamedTuple):
    """The answer to one command."""

    command_id: str
    answer: Answer


class Versions(NamedTuple):
    """The versions that a process runs."""

    sharegroup: str
    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What stays the same while a process runs."""

    app: str
    worker_id: str
    host: str
    pid: int
    since_ms: int
    groups: tuple[str, ...]
    """The first groups, up to `GROUPS_MAX`."""
    group_count: int
    versions: Versions

    @classmethod
    def of_this_process(
        cls, app: str, groups: tuple[str, ...], versions: Versions, since_ms: int
    ) -> Identity:
        """Return the identity of a worker that starts in this process now."""
        host = _UNSAFE.sub("_", socket.gethostname())[:HOST_CHARACTERS_MAX] or "unknown"
        pid = os.getpid()
        return cls(
            app=app, worker_id=f"{host}.{pid}.{token_hex(4)}", host=host, pid=pid,
            since_ms=since_ms, groups=groups[:GROUPS_MAX], group_count=len(groups),
            versions=versions,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The state of one process."""

    identity: Identity
    phase: str
    running: int
    waiting: int
    held: int
    answers: tuple[Answered, ...] = ()
    """The last answers, the newest last."""


class Departed(NamedTuple):
    """A process that has stopped cleanly."""

    worker_id: str


def encoded(beat: Heartbeat) -> tuple[bytes, bytes]:
    """Return key and value of a heartbeat."""
    who = beat.identity
    document: dict[str, Any] = {
        "format": FORMAT,
        "app": who.app,
        "id": who.worker_id,
        "host": who.host,
        "pid": who.pid,
        "since_ms": who.since_ms,
        "groups": who.groups,
        "group_count": who.group_count,
        "versions": who.versions._asdict(),
        "phase": beat.phase,
        "running": beat.running,
        "waiting": beat.waiting,
        "held": beat.held,
        "answers": [answered._asdict() for answered in beat.answers[-ANSWERS_MAX:]],
    }
    value = json.dumps(document, separators=(",", ":")).encode("ascii")
    assert len(value) <= VALUE_BYTES_MAX, "all texts of a heartbeat are short"
    return key_of(who.worker_id), value


def key_of(worker_id: str) -> bytes:
    """Return the key of a process's heartbeats; without a value it says that it has stopped."""
    return worker_id.encode("ascii")


def parsed(key: bytes | None, value: bytes | None) -> Heartbeat | Departed:
    """Return the heartbeat with this key and value; raises ValueError if it is none."""
    worker_id = checked_id((key or b"").decode("ascii", "replace"))
    if value is None:
        return Departed(worker_id)
    document = object_of(value, bytes_max=VALUE_BYTES_MAX)
    try:
        check_format(document)
        if document["id"] != worker_id:
            raise ValueError(f"id {document['id']!r:.100} with key {key!r:.100}")  # noqa: TRY301  One text.
        return Heartbeat(
            identity=_identity(document, worker_id),
            phase=_word(document["phase"]),
            running=count_of(document["running"]),
            waiting=count_of(document["waiting"]),
            held=count_of(document["held"]),
            answers=tuple(
                Answered(checked_id(answered["command_id"]), Answer(answered["answer"]))
                for answered in document["answers"][-ANSWERS_MAX:]
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected a heartbeat, found {value!r:.200}: {error!r}") from error


def check_format(document: dict[str, Any]) -> None:
    """Raise ValueError if a document was written in a newer format."""
    if count_of(document["format"]) > FORMAT:
        raise ValueError(f"format {document['format']}, expected up to {FORMAT}")


def checked_id(value: object) -> str:
    """Return the id of a process or of a command; raises ValueError if it is none."""
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise ValueError(f"id {value!r:.100}")
    return value


def checked_app(value: object) -> str:
    """Return the name of an application; raises ValueError if it is none."""
    if not isinstance(value, str) or APP_NAME.fullmatch(value) is None:
        raise ValueError(f"app {value!r:.100}")
    return value


def _identity(document: dict[str, Any], worker_id: str) -> Identity:
    versions = document["versions"]
    return Identity(
        app=checked_app(document["app"]),
        worker_id=worker_id,
        host=checked_id(document["host"]),
        pid=count_of(document["pid"]),
        since_ms=count_of(document["since_ms"]),
        groups=tuple(_text(group) for group in document["groups"][:GROUPS_MAX]),
        group_count=count_of(document["group_count"]),
        versions=Versions(_text(versions["sharegroup"]), _text(versions["python"])),
    )


def _text(value: object) -> str:
    return text_of(value, characters_max=TEXT_CHARACTERS_MAX)


def _word(value: object) -> str:
    if not isinstance(value, str) or _WORD.fullmatch(value) is None:
        raise ValueError(f"phase {value!r:.100}")
    return value
