"""Makes the runs of the schedules in one partition, while this process owns it.

    take over --> claim --> step, step, ... --stop--> ended
        ^                     |
        '------ backoff ------'  any failure: the outcome of the last step is unknown

The present is that of the broker, as the last write told it, so owners with other clocks agree.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sharegroup.backoff import Backoff
from sharegroup.client.records import TopicPartition
from sharegroup.errors import InvalidTimestamp, KafkaError
from sharegroup.schedules.due_runs import Board, DueRun, Step
from sharegroup.schedules.schedule import (
    RUN_HEADER,
    ScheduleDefinition,
    ScheduledRun,
    moment,
    moment_text,
)
from sharegroup.schedules.schedule_log import entries_of
from sharegroup.schedules.schedule_records import (
    Owner,
    ScheduleCommand,
    encoded,
    key_of,
)
from sharegroup.worker.declarations.schedules import run_value
from sharegroup.worker.events import Event, Events
from sharegroup.worker.ports import Header, WorkerClock
from sharegroup.worker.retrying.tier_log import TierPartition, TierRecord
from sharegroup.worker.retrying.tier_mover import until
from sharegroup.worker.retrying.tier_moves import MovedRecord
from sharegroup.worker.scheduling.schedule_store import RunRefused, ScheduleStore

log = logging.getLogger(__name__)

BACKOFF_MS_MIN = 500
BACKOFF_MS_MAX = 30_000
BLOCKED_SECONDS = 30.0
"""Time for which a topic that takes no runs gets none; its runs are made later, by their policy."""
CLOCKS_DIFFER_MS_MAX = 3_600_000
"""If the clocks of process and broker differ by more, one of them is wrong."""


@dataclass(frozen=True, slots=True)
class SchedulingParts:
    """The objects that all owners of an application in this process share."""

    app_name: str
    clock: WorkerClock
    open_store: Callable[[int], ScheduleStore]
    """Opens the store of a partition."""
    add_headers: Callable[[str, list[Header]], None] = lambda _topic, _headers: None
    """Called with the topic and the headers of each run; may add headers."""
    events: Events = field(default_factory=Events)
    runs: Counter[str] = field(default_factory=Counter)
    """The runs that this process has made, by schedule."""
    missed: Counter[str] = field(default_factory=Counter)
    """How often runs of a schedule were passed over by its policy."""


class ScheduleFigures(NamedTuple):
    """What this process knows of a schedule, for metrics."""

    schedule: str
    runs: int
    missed: int
    overdue_seconds: float | None
    """The time since a run is due that was not made; None if another process owns the schedule."""


class Present:
    """The present by the broker's clock, as the last write told it."""

    __slots__ = ("_at", "_clock", "_ms")

    def __init__(self, clock: WorkerClock) -> None:
        self._clock = clock
        self._at = clock.now()
        self._ms = clock.wall_ms()

    def told(self, broker_ms: int) -> None:
        """Take the broker's time; raises InvalidTimestamp if one of the clocks is wrong."""
        differs_ms = broker_ms - self._clock.wall_ms()
        if abs(differs_ms) > CLOCKS_DIFFER_MS_MAX:
            raise InvalidTimestamp(
                f"the broker's clock says {moment_text(broker_ms)}, and that of this process "
                f"differs by {abs(differs_ms) // 1000} s; expected at most "
                f"{CLOCKS_DIFFER_MS_MAX // 1000} s. Set the clock that is wrong; until then this "
                "process makes no runs"
            )
        self._at, self._ms = self._clock.now(), broker_ms

    def ms(self) -> int:
        """Milliseconds since 1970."""
        return self._ms + round((self._clock.now() - self._at) * 1000)

    def when(self, instant_ms: int) -> float:
        """The time of an instant, in seconds of `WorkerClock.now`."""
        return self._at + (instant_ms - self._ms) / 1000


class PartitionOwner:
    """Makes the runs of the schedules in one partition; `run` ends after `stop`."""

    __slots__ = (
        "_blocked",
        "_board",
        "_changed",
        "_end",
        "_parts",
        "_present",
        "_stopping",
        "_unread",
        "next_offset",
        "partition",
        "taken",
    )

    def __init__(self, parts: SchedulingParts, partition: TierPartition) -> None:
        self.partition = partition
        self._board: Board | None = None  # As it was taken over last.
        self.taken = asyncio.Event()
        """Set while the schedules are taken over, so that records of the topic can be put."""
        self.next_offset = 0
        """The offset after the last record that was read."""
        self._parts = parts
        self._present = Present(parts.clock)
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._blocked: dict[str, float] = {}
        """Topics that take no runs: when they are tried again."""
        self._unread: list[TierRecord] = []
        self._end = 0

    def put(self, records: Sequence[TierRecord]) -> None:
        """Add records of the topic that were read after the takeover."""
        self.next_offset = records[-1].offset + 1
        self._unread += records
        self._changed.set()

    def stop(self) -> None:
        """End `run` after the transaction that is under way."""
        self._stopping.set()
        self._changed.set()

    async def run(self) -> None:
        """Take the partition over and make the runs that are due, until `stop`."""
        backoff = Backoff(BACKOFF_MS_MIN, BACKOFF_MS_MAX, chance=random.random)
        clock = self._parts.clock
        while not self._stopping.is_set():
            store = self._parts.open_store(self.partition.partition)
            try:
                board = await self._take_over(store)
                backoff.reset()
                await self._work(store, board)
            except RunRefused as refused:
                self._block(refused)
            except KafkaError as error:
                log.warning(
                    'event=schedules.owner_failed %s error="%s: %s" action="it is read anew"',
                    self._place(),
                    type(error).__name__,
                    error,
                )
            except Exception:
                # The worker and the other partitions go on without these schedules.
                log.exception(
                    'event=schedules.owner_failed %s action="it is read anew" do="report the error '
                    'if it comes again; a function of before_send may raise it, too"',
                    self._place(),
                )
            finally:
                await store.close()
            pause = clock.now() + backoff.next_ms() / 1000
            await until(clock, pause, self._stopping)

    def overdue_seconds(self) -> dict[str, float]:
        """The time since each schedule here has a run that is due and not made; mostly 0."""
        now_ms = self._present.ms()
        board = self._board
        return {
            stored.name: max(0, now_ms - (now_ms if due_ms is None else due_ms)) / 1000
            for stored, due_ms in (() if board is None else board.due())
        }

    async def _take_over(self, store: ScheduleStore) -> Board:
        read = await store.take_over()
        self._end = read.end
        board = Board(read.entries, read.unreadable)
        owner = Owner(f"{socket.gethostname()}/{os.getpid()}", self._parts.clock.wall_ms())
        claim = self._kept(key_of(owner), encoded(owner))
        self._present.told(await store.write([claim]))
        self._board = board
        self.taken.set()
        log.debug("event=schedules.owned %s schedules=%d", self._place(), len(board.schedules))
        return board

    async def _work(self, store: ScheduleStore, board: Board) -> None:
        clock = self._parts.clock
        while not self._stopping.is_set():
            # Before the look at the records, so one that is put after it ends the wait below.
            self._changed.clear()
            self._read(board)
            blocked = self._blocked_now()
            step = board.step(self._present.ms(), blocked)
            if not step.is_empty:
                self._present.told(await store.write(list(self._writes(step))))
                board.apply(step)
                self._tell(step)
                continue
            due_ms = board.next_due_ms(blocked)
            times = [*self._blocked.values()]
            if due_ms is not None:
                times.append(self._present.when(due_ms))
            await until(clock, min(times, default=None), self._changed)

    def _read(self, board: Board) -> None:
        """Take the declarations and commands of the records that were put.

        Those below the end at the takeover are on the board, or were carried out before.
        """
        unread, self._unread = self._unread, []
        fresh = (
            (record.key, record.value)
            for record in unread
            if record.offset >= self._end and record.key is not None and record.value is not None
        )
        for entry in entries_of(fresh, TopicPartition(*self.partition)):
            # The rest are records of this owner, or of one that was fenced.
            if isinstance(entry, ScheduleDefinition | ScheduleCommand):
                board.put(entry)

    def _writes(self, step: Step) -> Iterator[MovedRecord]:
        for run in step.runs:
            yield self._record(run)
        for stored in step.stored:
            yield self._kept(key_of(stored), encoded(stored))
        for key in step.deleted:
            yield self._kept(key, None)

    def _record(self, run: DueRun) -> MovedRecord:
        definition = run.definition
        value = definition.value
        if definition.sends_run:
            value = run_value(ScheduledRun(definition.name, moment(run.due_ms), run.id))
        headers: list[Header] = [(RUN_HEADER, run.id.encode())]
        self._parts.add_headers(definition.topic, headers)
        return MovedRecord(definition.topic, definition.record_key, value, headers)

    def _kept(self, key: bytes, value: bytes | None) -> MovedRecord:
        topic, partition = self.partition
        return MovedRecord(topic, key, value, partition=partition)

    def _block(self, refused: RunRefused) -> None:
        until_then = self._parts.clock.now() + BLOCKED_SECONDS
        self._blocked |= dict.fromkeys(refused.topics, until_then)
        log.error(
            "event=schedules.topic_refused %s error=%r action='its runs are tried again in %d "
            "seconds; the other schedules go on'",
            self._place(),
            str(refused),
            BLOCKED_SECONDS,
        )

    def _blocked_now(self) -> frozenset[str]:
        now = self._parts.clock.now()
        self._blocked = {topic: at for topic, at in self._blocked.items() if at > now}
        return frozenset(self._blocked)

    def _tell(self, step: Step) -> None:
        events = self._parts.events
        self._parts.runs.update(run.definition.name for run in step.runs)
        self._parts.missed.update(name for name, _, _ in step.missed)
        for run in step.runs if events.wants("schedule.run") else ():
            details = {"schedule": run.definition.name, "run": run.id}
            events.tell(Event("schedule.run", topic=run.definition.topic, details=details))
        for name, after_ms, until_ms in step.missed if events.wants("schedule.missed") else ():
            details = {
                "schedule": name,
                "after": moment_text(after_ms),
                "until": moment_text(until_ms),
            }
            events.tell(Event("schedule.missed", details=details))
        for ignored in step.ignored:
            log.warning(
                "event=schedules.declaration_ignored %s schedule=%s revision=%d "
                "reason='it differs from the stored one, whose revision is the same' "
                "do='declare it with a higher revision'",
                self._place(), ignored.name, ignored.revision,
            )  # fmt: skip
        for command in step.forgotten:
            log.warning(
                "event=schedules.command_forgotten %s schedule=%s command=%s by=%r "
                "reason='there is no such schedule, or the command is too old' "
                "do='list the schedules, check the clock of who gave it, and give it again'",
                self._place(), command.name, command.intent, command.by,
            )  # fmt: skip

    def _place(self) -> str:
        return f"app={self._parts.app_name} partition={self.partition.partition}"
