"""A schedule: as an application declares it, and as its owner stores it.

    ScheduleDefinition   when, and which record; declared, with a revision
    StoredSchedule       the definition that is in force, and how far it has run
    ScheduledRun         one run: what its record says

The definition contains all that a run needs, so each process of the application can be the owner,
also one of an older deployment, whose code has other schedules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from zlib import crc32

from sharegroup.errors import InvalidConfig
from sharegroup.schedules.timing import Timing

PARTITIONS = 4
"""The partitions of the topic that are used.

A schedule is in the one that its name gives.  So this number is a part of the format: with another
one, two owners would run a schedule.
"""
TOPIC_SUFFIX = ".schedules"
VALUE_BYTES_MAX = 64 * 1024
REVISION_MAX = 2**31 - 1
RUN_HEADER = "sharegroup-run"
"""The header with the id of the run.  It has no prefix of the worker, so retries keep it."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RUN_ID = re.compile(r"([A-Za-z0-9._-]{1,100})@([0-9T:.-]{19,23}Z)(/[A-Za-z0-9._-]{1,64})?")


def schedules_topic(app_name: str) -> str:
    """The compacted topic with the schedules of this application."""
    return f"{app_name}{TOPIC_SUFFIX}"


def owners_group(app_name: str) -> str:
    """The consumer group whose members own the partitions of the topic."""
    return f"{schedules_topic(app_name)}-scheduler"


def transactional_id(app_name: str, partition: int) -> str:
    """The transactional id of all owners of this partition, one after the other."""
    return f"{schedules_topic(app_name)}.{partition}"


def partition_of(name: str) -> int:
    """The partition of a schedule; all records about it are there, in order."""
    return crc32(name.encode()) % PARTITIONS


def checked_name(name: str) -> str:
    """Return the name of a schedule; raises InvalidConfig for one that is not allowed."""
    given: object = name  # At run time any value is accepted; only type checkers see the type.
    if not isinstance(given, str) or NAME.fullmatch(given) is None:
        raise InvalidConfig(
            f"schedule {name!r:.120}: expected a name of 1 to 100 of the characters "
            "a-z A-Z 0-9 . _ -"
        )
    return name


class Missed(StrEnum):
    """What happens to runs that were due while no process could make them."""

    SKIP = "skip"
    """Nothing: a run that is more than `due_runs.LATE_MS` late is not made."""
    LAST = "last"
    """Only the last of them is made."""
    ALL = "all"
    """Each of them is made, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDefinition:
    """When a schedule is due, and the record that each run is."""

    name: str
    revision: int
    timing: Timing
    topic: str
    key: bytes | None = None
    """None: the name of the schedule."""
    value: bytes | None = None
    sends_run: bool = True
    """Whether the value is the run itself, as JSON, and not ``value``."""
    missed: Missed = Missed.LAST

    @property
    def record_key(self) -> bytes:
        """The key of its records; the same for all, so that they are in one partition."""
        return self.name.encode() if self.key is None else self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """A schedule as its owner stores it."""

    definition: ScheduleDefinition
    last_due_ms: int
    """All instants up to this one are done: they were run, or passed over by policy."""
    paused_by: str | None = None
    """Who has paused it; None if it is not paused."""
    runs: int = 0
    """The runs since it was first declared."""
    last_run_ms: int | None = None
    """The due instant of the last run."""

    @property
    def name(self) -> str:
        """The name of the schedule."""
        return self.definition.name

    @property
    def next_due_ms(self) -> int | None:
        """The next instant; None while it is paused."""
        if self.paused_by is not None:
            return None
        return self.definition.timing.next_after(self.last_due_ms)


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """A run of a schedule: the payload of its record, if the schedule declares no other."""

    schedule: str
    due: datetime
    """The instant for which the run is, which is earlier than that at which it was made."""
    id: str
    """Names the run: the schedule and the instant, and the command if there was one."""


def moment(instant_ms: int) -> datetime:
    """Return an instant as a time in UTC."""
    return _EPOCH + timedelta(milliseconds=instant_ms)


def moment_text(instant_ms: int) -> str:
    """Return an instant as text, with milliseconds if there are any."""
    time = moment(instant_ms)
    spec = "milliseconds" if time.microsecond else "seconds"
    return time.isoformat(timespec=spec).replace("+00:00", "Z")


def run_id(name: str, due_ms: int, command_id: str | None = None) -> str:
    """Return the id of a run; ``command_id`` is that of the command that asked for it."""
    suffix = "" if command_id is None else f"/{command_id}"
    return f"{name}@{moment_text(due_ms)}{suffix}"


def parsed_run(text: str) -> ScheduledRun | None:
    """Return the run of an id; None if it is none, because everybody can write the header."""
    match = _RUN_ID.fullmatch(text)
    if match is None:
        return None
    try:
        due = datetime.fromisoformat(match[2])
    except ValueError:
        return None
    return ScheduledRun(match[1], due, text)
