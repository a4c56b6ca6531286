"""Commands for worker processes: JSON, in the topic ``<app>.control``.

A command names its target and the time at which it expires, by the clock of its sender: the
clocks of machines must agree within seconds.  A process reads the commands that are written after
its start, so an old one cannot stop a new process.  It carries each id out once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from sharegroup.fleet.heartbeats import FORMAT, Identity, check_format, checked_id
from sharegroup.json_documents import count_of, object_of, text_of

VALUE_BYTES_MAX = 4_096
BY_CHARACTERS_MAX = 200
LIFE_SECONDS_MAX = 3_600.0
"""The longest time that a command is valid."""


class Intent(StrEnum):
    """What a command asks for."""

    QUIET = "quiet"
    RESUME = "resume"
    STOP = "stop"


class TargetKind(StrEnum):
    """What a target names."""

    ALL = "all"
    HOST = "host"
    WORKER = "worker"


class Target(NamedTuple):
    """The processes that a command is for."""

    kind: TargetKind = TargetKind.ALL
    name: str = ""
    """The host or the worker id; empty for all."""

    def includes(self, who: Identity) -> bool:
        """Whether the command is for this process."""
        match self.kind:
            case TargetKind.ALL:
                return True
            case TargetKind.HOST:
                return who.host == self.name
            case TargetKind.WORKER:
                return who.worker_id == self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


EVERYBODY = Target()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """A command for the processes of an application."""

    command_id: str
    intent: Intent
    target: Target
    by: str
    """Who gave it."""
    asked_ms: int
    expires_ms: int


def encoded(command: WorkerCommand) -> tuple[bytes, bytes]:
    """Return key and value of a command."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "id": command.command_id,
        "intent": command.intent,
        "target": command.target.kind,
        "name": command.target.name,
        "by": command.by[:BY_CHARACTERS_MAX],
        "asked_ms": command.asked_ms,
        "expires_ms": command.expires_ms,
    }
    value = json.dumps(document, separators=(",", ":")).encode("ascii")
    assert len(value) <= VALUE_BYTES_MAX, "all texts of a command are short"
    return command.command_id.encode("ascii"), value


def parsed(key: bytes | None, value: bytes | None) -> WorkerCommand:
    """Return the command with this key and value; raises ValueError if it is none."""
    document = object_of(value or b"", bytes_max=VALUE_BYTES_MAX)
    try:
        check_format(document)
        command_id = checked_id(document["id"])
        if command_id.encode() != key:
            raise ValueError(f"id {command_id!r} with key {key!r:.100}")  # noqa: TRY301  One text.
        kind = TargetKind(document["target"])
        command = WorkerCommand(
            command_id=command_id,
            intent=Intent(document["intent"]),
            target=Target(kind, "" if kind is TargetKind.ALL else checked_id(document["name"])),
            by=text_of(document["by"], characters_max=BY_CHARACTERS_MAX),
            asked_ms=count_of(document["asked_ms"]),
            expires_ms=count_of(document["expires_ms"]),
        )
        life_ms = command.expires_ms - command.asked_ms
        if not 0 < life_ms <= LIFE_SECONDS_MAX * 1000:
            raise ValueError(  # noqa: TRY301  One text.
                f"a life of {life_ms} ms, expected up to {LIFE_SECONDS_MAX:g} s"
            )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected a command, found {value!r:.200}: {error!r}") from error
    return command
