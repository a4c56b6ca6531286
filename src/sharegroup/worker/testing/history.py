"""The history of a test: sent records, the runs of their handlers, and their outcomes.

    records of the log, in the order they were written        runs, as reported by events
        orders 0 ──▶ billing.retry.5s 0 ──▶ billing.retry 0        1 failed, 2 failed, 3 returned
        └──────────── all with the origin "orders 0" ───────┘

For Kafka, a retry is a new record.  All copies of a record have the same origin.  So the state of
the last copy in the group determines the outcome of the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sharegroup.dead_letters.letter_headers import DEAD
from sharegroup.dead_letters.story import RecordOrigin
from sharegroup.dead_letters.story_headers import story_of
from sharegroup.worker.events import Event, Events, Listener
from sharegroup.worker.ports import Header
from sharegroup.worker.transport.memory_clock import START_SECONDS, START_WALL_MS
from sharegroup.worker.transport.memory_log import MemoryLog, MemoryRecord
from sharegroup.worker.transport.memory_source import Place, Standing


class Outcome(StrEnum):
    """The outcome of a record in a group, so far."""

    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    """The record was rejected, without a dead letter of the worker."""
    DEAD_LETTERED = "dead_lettered"
    EXHAUSTED = "exhausted"
    """The broker archived the record at the delivery count limit; no handler noticed."""


STANDS_AS: Mapping[Standing, Outcome] = {
    Standing.ACCEPTED: Outcome.ACCEPTED,
    Standing.REJECTED: Outcome.REJECTED,
    Standing.EXHAUSTED: Outcome.EXHAUSTED,
}
LETTER_GROUP = f"{DEAD}group"
ENDS_A_RUN = (
    "record.succeeded",
    "record.failed",
    "record.rejected",
    "record.released",
    "record.lock_lost",
)


class Lineage(NamedTuple):
    """Identifies a record and all its copies.

    It includes key and value, because records that were sent with a delay have no own partition and
    offset in the topic.
    """

    origin: RecordOrigin
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class HandlerRun:
    """One call of a handler."""

    attempt: int
    started_at: float
    """Seconds of virtual time since the test began."""
    ended_at: float | None = None
    """None while the handler runs."""
    error: BaseException | None = None
    """None if the handler returned or still runs."""
    crashed: bool = False
    """Whether its process died."""


class GroupNames(NamedTuple):
    """The topics of a group by purpose."""

    group: str
    topics: frozenset[str]
    own: str
    letters: frozenset[str]

    def have(self, record: MemoryRecord) -> bool:
        """Whether this record belongs to the group."""
        topic = record.topic
        if topic in self.letters:
            return (LETTER_GROUP, self.group.encode()) in record.headers
        return topic in self.topics or topic == self.own or topic.startswith(f"{self.own}.")


def lineage_of(record: MemoryRecord) -> Lineage:
    """The lineage of a record of any topic."""
    origin = story_of(record.headers).origin or RecordOrigin(*record[:4])
    return Lineage(origin, record.key, record.value)


class History:
    """Derives runs and outcomes from the events of an application and the log."""

    def __init__(
        self,
        events: Events,
        log: MemoryLog,
        standing: Callable[[str, Place], Standing],
        names: Mapping[str, GroupNames],
    ) -> None:
        self._log = log
        self._standing = standing
        self._names = names
        self._read = 0
        self._copies: dict[Lineage, list[MemoryRecord]] = defaultdict(list)
        self._runs: dict[tuple[str, Lineage], list[HandlerRun]] = defaultdict(list)
        self._open: dict[tuple[str, Lineage, int], HandlerRun] = {}
        self._rejected: set[tuple[str, Lineage]] = set()
        self._held: dict[tuple[str, Lineage], int] = {}
        self._events = events
        self._listeners: dict[str, Listener] = {
            "record.started": self._started,
            "record.unreadable": self._unread,
            "record.held": self._waits,
            **dict.fromkeys(ENDS_A_RUN, self._ended),
            "record.rejected": self._note_rejected,
        }

    def listen(self) -> None:
        """Register the listeners."""
        for name, listener in self._listeners.items():
            self._events.on(name, listener)

    def listen_no_more(self) -> None:
        """Unregister the listeners; the next test of the application has its own history."""
        for name, listener in self._listeners.items():
            self._events.off(name, listener)

    def groups_of(self, topic: str) -> list[str]:
        """The groups that read this topic."""
        return [group for group, names in self._names.items() if topic in names.topics]

    def runs(self, group: str, lineage: Lineage) -> tuple[HandlerRun, ...]:
        """The calls of the group's handler for this record, in order."""
        return tuple(self._runs.get((group, lineage), ()))

    def running(self) -> frozenset[tuple[str, Lineage, int]]:
        """The runs that have not ended."""
        return frozenset(self._open)

    def crashed(self) -> None:
        """Mark the open runs as crashed, after the process died."""
        for run in self._open.values():
            run.ended_at, run.crashed = self._seconds(), True
        self._open.clear()

    def outcome(self, group: str, lineage: Lineage) -> Outcome:
        """The outcome of this record in this group."""
        names = self._names[group]
        runs = self._runs.get((group, lineage))
        if runs and runs[-1].ended_at is None:
            return Outcome.RUNNING
        last = self._last_copy(group, lineage)
        if last.topic in names.letters:
            return Outcome.DEAD_LETTERED
        if last.topic not in names.topics and last.topic != names.own:
            return Outcome.RETRYING  # In a tier.
        standing = self._standing(group, Place(*last[:3]))
        if standing is Standing.ACCEPTED and (group, lineage) in self._rejected:
            return Outcome.REJECTED  # A consumer group finishes both in the same way.
        if standing in STANDS_AS:
            return STANDS_AS[standing]
        return Outcome.RETRYING if runs else Outcome.QUEUED

    def due_at(self, group: str, lineage: Lineage) -> float | None:
        """The due time of the next run of a waiting record; None if it does not wait."""
        if self.outcome(group, lineage) is not Outcome.RETRYING:
            return None
        due_ms = self._held.get((group, lineage))
        if due_ms is None:
            due_ms = story_of(self._last_copy(group, lineage).headers).due_ms
        return None if due_ms is None else (due_ms - START_WALL_MS) / 1000

    def place(self, group: str, lineage: Lineage) -> Place:
        """The place of the record's last copy."""
        return Place(*self._last_copy(group, lineage)[:3])

    def _last_copy(self, group: str, lineage: Lineage) -> MemoryRecord:
        for record in self._log.written[self._read :]:
            self._copies[lineage_of(record)].append(record)
        self._read = len(self._log.written)
        names = self._names[group]
        return next(copied for copied in reversed(self._copies[lineage]) if names.have(copied))

    def _started(self, event: Event) -> None:
        group, lineage = key = self._where(event)
        self._held.pop(key, None)
        self._rejected.discard(key)
        run = HandlerRun(event.attempt, self._seconds())
        self._open[group, lineage, len(self._runs[key])] = run
        self._runs[key].append(run)

    def _ended(self, event: Event) -> None:
        if (run := self._open.pop(self._last(event), None)) is not None:
            run.ended_at = self._seconds()
            run.error = event.error

    def _note_rejected(self, event: Event) -> None:
        self._rejected.add(self._where(event))
        self._ended(event)

    def _unread(self, event: Event) -> None:
        """Remove the last run, because the handler was not called."""
        if self._open.pop(self._last(event), None) is not None:
            self._runs[self._where(event)].pop()

    def _last(self, event: Event) -> tuple[str, Lineage, int]:
        """The key of the last run of this record."""
        group, lineage = key = self._where(event)
        return group, lineage, len(self._runs[key]) - 1

    def _waits(self, event: Event) -> None:
        self._held[self._where(event)] = event.details["due_ms"]

    def _where(self, event: Event) -> tuple[str, Lineage]:
        records = self._log.partitions(event.topic)[event.partition]
        return event.group, lineage_of(records[event.offset])

    def _seconds(self) -> float:
        return self._log.clock.now() - START_SECONDS


class SentRecord:
    """A record that a test sent: its content, and its outcome in each group that reads its topic.

    If one group reads the topic, `outcome`, `runs` and `times` are those of that group.  With
    several groups, use `outcomes` and `runs_in`.
    """

    __slots__ = ("_history", "headers", "key", "lineage", "topic", "value")

    def __init__(self, lineage: Lineage, headers: tuple[Header, ...], history: History) -> None:
        self.lineage = lineage
        self.topic = lineage.origin.topic
        self.key = lineage.key
        self.value = lineage.value
        self.headers = headers
        self._history = history

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """The outcome of the record, by group."""
        groups = self._history.groups_of(self.topic)
        return {group: self._history.outcome(group, self.lineage) for group in groups}

    @property
    def outcome(self) -> Outcome:
        """The outcome of the record in the only group that reads its topic."""
        return self._history.outcome(self._only_group(), self.lineage)

    @property
    def runs(self) -> tuple[HandlerRun, ...]:
        """The calls of its handler, in order."""
        return self.runs_in(self._only_group())

    @property
    def times(self) -> tuple[float, ...]:
        """The time of its handler's call, in seconds of virtual time since the test began."""
        return tuple(run.started_at for run in self.runs)

    @property
    def errors(self) -> tuple[BaseException | None, ...]:
        """The exception of each call; None if it returned or still runs."""
        return tuple(run.error for run in self.runs)

    @property
    def due_at(self) -> float | None:
        """The time at which a waiting record runs again; None if it does not wait for a retry."""
        return self._history.due_at(self._only_group(), self.lineage)

    def runs_in(self, group: str) -> tuple[HandlerRun, ...]:
        """The calls of this group's handler, in order."""
        return self._history.runs(group, self.lineage)

    def _only_group(self) -> str:
        groups = self._history.groups_of(self.topic)
        if len(groups) != 1:
            raise LookupError(
                f"topic {self.topic!r} is read by {len(groups)} groups ({', '.join(groups)}), "
                "expected one: use `outcomes` and `runs_in`"
            )
        return groups[0]

    def __repr__(self) -> str:
        topic, partition, offset, _ = self.lineage.origin
        return f"SentRecord({topic} {partition} {offset}, key={self.key!r}, {dict(self.outcomes)})"
