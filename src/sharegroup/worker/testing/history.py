"""What a test sees: each record that it sent, the runs of its handler, and how it stands.

    records of the log, in the order they were written        runs, as the events tell of them
        orders 0 ──▶ billing.retry.5s 0 ──▶ billing.retry 0        1 failed, 2 failed, 3 returned
        └──────────── all with the origin "orders 0" ───────┘

A retry is another record in Kafka's eyes.  All that belong together have one origin, so the last
of them, and how it stands with the group, says what became of the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sharegroup.worker.dead_letters.headers import DEAD
from sharegroup.worker.events import Event, Events, Listener
from sharegroup.worker.records.story import Origin
from sharegroup.worker.records.story_headers import story_of
from sharegroup.worker.transport.memory_clock import START_SECONDS, START_WALL_MS
from sharegroup.worker.transport.memory_group import MemoryGroup, Place, Standing
from sharegroup.worker.transport.memory_log import MemoryLog, MemoryRecord

Outcome = Literal[
    "queued",
    "running",
    "retrying",
    "accepted",
    "rejected",
    "dead_lettered",
    "exhausted",
]
"""How a record stands with a group.  ``rejected``: and there is no letter of the worker's;
``exhausted``: the broker gave up on it, and no handler saw that."""

STANDS_AS: Mapping[Standing, Outcome] = {
    Standing.ACCEPTED: "accepted",
    Standing.REJECTED: "rejected",
    Standing.EXHAUSTED: "exhausted",
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
    """What all records have in common that are the same one to the application.

    Key and value are in it for those that were sent with a delay: they never had a place of
    their own in the topic.
    """

    origin: Origin
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Run:
    """One call of a handler."""

    attempt: int
    started_at: float
    """Seconds of virtual time since the test began."""
    ended_at: float | None = None
    """None: it runs."""
    error: BaseException | None = None
    """None: it returned, or runs."""
    crashed: bool = False
    """Its process died."""


class GroupNames(NamedTuple):
    """The topics of a group, by what they are for."""

    group: str
    topics: frozenset[str]
    own: str
    letters: frozenset[str]

    def have(self, record: MemoryRecord) -> bool:
        """Whether a record of this topic concerns the group."""
        topic = record.topic
        if topic in self.letters:
            return (LETTER_GROUP, self.group.encode()) in record.headers
        return topic in self.topics or topic == self.own or topic.startswith(f"{self.own}.")


def lineage_of(record: MemoryRecord) -> Lineage:
    """What a record of any topic is to the application."""
    origin = story_of(record.headers).origin or Origin(*record[:4])
    return Lineage(origin, record.key, record.value)


class History:
    """Listens to the events of an application, and reads the log."""

    def __init__(
        self,
        events: Events,
        log: MemoryLog,
        groups: Mapping[str, MemoryGroup],
        names: Mapping[str, GroupNames],
    ) -> None:
        self._log = log
        self._groups = groups
        self._names = names
        self._read = 0
        self._copies: dict[Lineage, list[MemoryRecord]] = defaultdict(list)
        self._runs: dict[tuple[str, Lineage], list[Run]] = defaultdict(list)
        self._open: dict[tuple[str, Lineage, int], Run] = {}
        self._held: dict[tuple[str, Lineage], int] = {}
        self._events = events
        self._listeners: dict[str, Listener] = {
            "record.started": self._started,
            "record.unreadable": self._unread,
            "record.held": self._waits,
            **dict.fromkeys(ENDS_A_RUN, self._ended),
        }

    def listen(self) -> None:
        """Begin to hear of what happens."""
        for name, listener in self._listeners.items():
            self._events.on(name, listener)

    def listen_no_more(self) -> None:
        """The test is over; the next one of the same application has a history of its own."""
        for name, listener in self._listeners.items():
            self._events.off(name, listener)

    def groups_of(self, topic: str) -> list[str]:
        """The groups that read this topic."""
        return [group for group, names in self._names.items() if topic in names.topics]

    def runs(self, group: str, lineage: Lineage) -> tuple[Run, ...]:
        """The calls of the group's handler for this record, the first one first."""
        return tuple(self._runs.get((group, lineage), ()))

    def running(self) -> frozenset[tuple[str, Lineage, int]]:
        """The runs that have not ended."""
        return frozenset(self._open)

    def crashed(self) -> None:
        """The process is dead: what ran will never end."""
        for run in self._open.values():
            run.ended_at, run.crashed = self._seconds(), True
        self._open.clear()

    def outcome(self, group: str, lineage: Lineage) -> Outcome:
        """How this record stands with this group."""
        names = self._names[group]
        runs = self._runs.get((group, lineage))
        if runs and runs[-1].ended_at is None:
            return "running"
        last = self._last_copy(group, lineage)
        if last.topic in names.letters:
            return "dead_lettered"
        if last.topic not in names.topics and last.topic != names.own:
            return "retrying"  # In a tier.
        standing = self._groups[group].standing(Place(*last[:3]))
        if standing in STANDS_AS:
            return STANDS_AS[standing]
        return "retrying" if runs else "queued"

    def due_at(self, group: str, lineage: Lineage) -> float | None:
        """When the next run is due, of what waits for one; None: it doesn't."""
        if self.outcome(group, lineage) != "retrying":
            return None
        due_ms = self._held.get((group, lineage))
        if due_ms is None:
            due_ms = story_of(self._last_copy(group, lineage).headers).due_ms
        return None if due_ms is None else (due_ms - START_WALL_MS) / 1000

    def place(self, group: str, lineage: Lineage) -> Place:
        """Where its last copy lies."""
        return Place(*self._last_copy(group, lineage)[:3])

    def _last_copy(self, group: str, lineage: Lineage) -> MemoryRecord:
        for record in self._log.written[self._read :]:
            self._copies[lineage_of(record)].append(record)
        self._read = len(self._log.written)
        names = self._names[group]
        return next(one for one in reversed(self._copies[lineage]) if names.have(one))

    def _started(self, event: Event) -> None:
        group, lineage = where = self._where(event)
        self._held.pop(where, None)
        run = Run(event.attempt, self._seconds())
        self._open[group, lineage, len(self._runs[where])] = run
        self._runs[where].append(run)

    def _ended(self, event: Event) -> None:
        if (run := self._open.pop(self._last(event), None)) is not None:
            run.ended_at = self._seconds()
            run.error = event.error

    def _unread(self, event: Event) -> None:
        """Its handler was not called after all."""
        if self._open.pop(self._last(event), None) is not None:
            self._runs[self._where(event)].pop()

    def _last(self, event: Event) -> tuple[str, Lineage, int]:
        """The last run of this record."""
        group, lineage = where = self._where(event)
        return group, lineage, len(self._runs[where]) - 1

    def _waits(self, event: Event) -> None:
        self._held[self._where(event)] = event.details["due_ms"]

    def _where(self, event: Event) -> tuple[str, Lineage]:
        lying = self._log.partitions(event.topic)[event.partition]
        return event.group, lineage_of(lying[event.offset])

    def _seconds(self) -> float:
        return self._log.clock.now() - START_SECONDS
