"""Decides what the owner of a partition does next: due runs, declarations and commands (pure).

    Board (schedules, declarations, commands) + time --> Step (runs, schedules, keys to delete)

A step is written in one transaction.  Then `Board.apply` makes it the state.  If the transaction
fails, its outcome is unknown, so the owner reads the state anew and does not use this board again.

Runs of a schedule that are due are made before its declaration or command is carried out, because
they were due earlier.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from sharegroup.schedules.schedule import (
    Missed,
    ScheduleDefinition,
    StoredSchedule,
    run_id,
)
from sharegroup.schedules.schedule_records import (
    Entry,
    Intent,
    Owner,
    ScheduleCommand,
    key_of,
    schedule_key,
)
from sharegroup.schedules.timing import instants, last_in

LATE_MS = 60_000
"""A run of a schedule with `Missed.SKIP` that is later than this is missed."""
RUNS_TOGETHER = 500
"""The maximum number of runs in one step."""
RUN_EXPIRES_MS = 3_600_000
"""A command to run a schedule is forgotten after this time, if no process owned the schedule."""


class DueRun(NamedTuple):
    """One run: the definition that it is of, and the instant for which it is."""

    definition: ScheduleDefinition
    due_ms: int
    id: str


class Step(NamedTuple):
    """What one transaction writes."""

    runs: tuple[DueRun, ...] = ()
    stored: tuple[StoredSchedule, ...] = ()
    """The schedules that change."""
    deleted: tuple[bytes, ...] = ()
    """The keys of declarations and commands that are done, and of schedules that are removed."""
    missed: tuple[tuple[str, int, int], ...] = ()
    """Schedules with runs that are passed over: name, and the range (after, until]."""
    forgotten: tuple[ScheduleCommand, ...] = ()
    """Commands that had no effect: they have expired, or there is no such schedule."""
    ignored: tuple[ScheduleDefinition, ...] = ()
    """Declarations that differ from the schedule and do not have a newer revision."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.runs or self.stored or self.deleted)


class Board:
    """The schedules of one partition, with the declarations and commands that are to be done."""

    __slots__ = ("_commands", "_declared", "_due_ms", "_unreadable", "schedules")

    def __init__(self, entries: Iterable[Entry] = (), unreadable: Collection[bytes] = ()) -> None:
        self.schedules: dict[str, StoredSchedule] = {}
        self._due_ms: dict[str, int] = {}
        """By name the next instant, which a cron expression computes slowly; none if paused."""
        self._declared: dict[bytes, ScheduleDefinition] = {}
        self._commands: dict[bytes, ScheduleCommand] = {}
        self._unreadable = frozenset(unreadable)
        """The keys of schedules that only another process can read; their records stay for it."""
        for entry in entries:
            self.put(entry)

    def put(self, entry: Entry) -> None:
        """Add what was read."""
        match entry:
            case ScheduleDefinition() | ScheduleCommand() if (
                schedule_key(entry.name) in self._unreadable
            ):
                pass
            case StoredSchedule():
                self._store(entry)
            case ScheduleDefinition():
                self._declared[key_of(entry)] = entry
            case ScheduleCommand():
                self._commands[key_of(entry)] = entry
            case Owner():
                pass

    def next_due_ms(self, blocked: Collection[str] = ()) -> int | None:
        """The first instant at which `step` has something to do; None if there is none.

        Topics of ``blocked`` get no runs.
        """
        if self._declared or self._ready(self.schedules, blocked):
            return 0
        return min(
            (
                due_ms
                for name, due_ms in self._due_ms.items()
                if self.schedules[name].definition.topic not in blocked
            ),
            default=None,
        )

    def due(self) -> Iterator[tuple[StoredSchedule, int | None]]:
        """Yield the schedules with their next instants; None for one that is paused."""
        for name, stored in self.schedules.items():
            yield stored, self._due_ms.get(name)

    def step(self, now_ms: int, blocked: Collection[str] = ()) -> Step:
        """Return what to do now; changes nothing."""
        runs: list[DueRun] = []
        missed: list[tuple[str, int, int]] = []
        changed: dict[str, StoredSchedule] = {}
        for name, due_ms in self._due_ms.items():
            stored = self.schedules[name]
            if due_ms > now_ms or stored.definition.topic in blocked:
                continue
            if len(runs) == RUNS_TOGETHER:
                break
            changed[name] = _caught_up(stored, now_ms, RUNS_TOGETHER - len(runs), runs, missed)
        if len(runs) == RUNS_TOGETHER:
            return Step(tuple(runs), tuple(changed.values()), missed=tuple(missed))
        intents = _Intents(self.schedules | changed, now_ms)
        for declared in sorted(self._declared.values(), key=lambda entry: entry.revision):
            intents.declare(declared)
        # By the definitions that are in force now: a declaration may have changed the topic.
        ready = self._ready(intents.schedules, blocked)
        for command in ready[: RUNS_TOGETHER - len(runs)]:
            intents.carry_out(command)
        changed |= intents.changed
        removed = {schedule_key(name) for name in intents.removed}
        return Step(
            (*runs, *intents.runs),
            tuple(stored for name, stored in changed.items() if name not in intents.removed),
            (*self._declared, *(key_of(done) for done in intents.done), *sorted(removed)),
            tuple(missed),
            tuple(intents.forgotten),
            tuple(intents.ignored),
        )

    def apply(self, step: Step) -> None:
        """Make a step the state, after it was written."""
        for stored in step.stored:
            self._store(stored)
        gone = {*step.deleted}
        for key in gone:
            self._declared.pop(key, None)
            self._commands.pop(key, None)
        for name in [name for name in self.schedules if schedule_key(name) in gone]:
            del self.schedules[name]
            self._due_ms.pop(name, None)

    def _ready(
        self, schedules: Mapping[str, StoredSchedule], blocked: Collection[str]
    ) -> list[ScheduleCommand]:
        """Return the commands without those that would write to these topics."""
        return [
            command
            for command in self._commands.values()
            if command.intent is not Intent.RUN
            or command.name not in schedules
            or schedules[command.name].definition.topic not in blocked
        ]

    def _store(self, stored: StoredSchedule) -> None:
        self.schedules[stored.name] = stored
        next_due_ms = stored.next_due_ms
        if next_due_ms is None:
            self._due_ms.pop(stored.name, None)
        else:
            self._due_ms[stored.name] = next_due_ms


def _caught_up(
    stored: StoredSchedule,
    now_ms: int,
    room: int,
    runs: list[DueRun],
    missed: list[tuple[str, int, int]],
) -> StoredSchedule:
    """Add the runs that are due, at most ``room``, and return the schedule after them."""
    definition, after_ms = stored.definition, stored.last_due_ms
    if definition.missed is Missed.ALL:
        due = list(islice(instants(definition.timing, after_ms, now_ms), room))
    else:
        last = last_in(definition.timing, after_ms, now_ms)
        assert last is not None, "the next instant has come"
        is_late = definition.missed is Missed.SKIP and now_ms - last > LATE_MS
        due = [] if is_late else [last]
        if is_late or last != definition.timing.next_after(after_ms):
            missed.append((stored.name, after_ms, last if is_late else last - 1))
        after_ms = last
    runs += [DueRun(definition, at, run_id(stored.name, at)) for at in due]
    return replace(
        stored,
        last_due_ms=due[-1] if due else after_ms,
        runs=stored.runs + len(due),
        last_run_ms=due[-1] if due else stored.last_run_ms,
    )


class _Intents:
    """Carries out declarations and commands, on the schedules of a step."""

    __slots__ = (
        "_now_ms",
        "changed",
        "done",
        "forgotten",
        "ignored",
        "removed",
        "runs",
        "schedules",
    )

    def __init__(self, schedules: dict[str, StoredSchedule], now_ms: int) -> None:
        self.schedules = schedules
        self._now_ms = now_ms
        self.changed: dict[str, StoredSchedule] = {}
        self.removed: set[str] = set()
        self.runs: list[DueRun] = []
        self.done: list[ScheduleCommand] = []
        self.forgotten: list[ScheduleCommand] = []
        self.ignored: list[ScheduleDefinition] = []

    def declare(self, declared: ScheduleDefinition) -> None:
        stored = self.schedules.get(declared.name)
        if stored is None:
            self._set(StoredSchedule(definition=declared, last_due_ms=self._now_ms))
        elif declared.revision > stored.definition.revision:
            is_same = declared.timing == stored.definition.timing
            # Instants of the new timing that have passed were never due.
            last_due_ms = stored.last_due_ms if is_same else self._passed(stored)
            self._set(replace(stored, definition=declared, last_due_ms=last_due_ms))
        elif declared.revision == stored.definition.revision and declared != stored.definition:
            self.ignored.append(declared)

    def carry_out(self, command: ScheduleCommand) -> None:
        self.done.append(command)
        stored = self.schedules.get(command.name)
        is_old = self._now_ms - command.asked_ms > RUN_EXPIRES_MS
        if stored is None or (command.intent is Intent.RUN and is_old):
            self.forgotten.append(command)
            return
        match command.intent:
            case Intent.PAUSE:
                self._set(replace(stored, paused_by=command.by))
            case Intent.RESUME:
                if stored.paused_by is not None:
                    # What was due during the pause was not missed: nobody wanted it.
                    self._set(replace(stored, paused_by=None, last_due_ms=self._passed(stored)))
            case Intent.RUN:
                named = run_id(stored.name, command.asked_ms, command.id)
                self.runs.append(DueRun(stored.definition, command.asked_ms, named))
                self._set(replace(stored, runs=stored.runs + 1, last_run_ms=command.asked_ms))
            case Intent.REMOVE:
                if stored.definition.revision <= command.revision:
                    self.removed.add(stored.name)
                    del self.schedules[stored.name]

    def _passed(self, stored: StoredSchedule) -> int:
        """Return the present, and never an instant before one that is done.

        The clock of the owner before may have been ahead of this one.
        """
        return max(stored.last_due_ms, self._now_ms)

    def _set(self, stored: StoredSchedule) -> None:
        self.schedules[stored.name] = stored
        self.changed[stored.name] = stored
        self.removed.discard(stored.name)
