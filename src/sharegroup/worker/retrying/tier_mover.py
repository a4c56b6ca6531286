"""Moves the records of a tier's partition to their next topics, while this process owns it.

    shelf --ready--> write --acknowledged--> done --> commit
                       `-refused: back on the shelf, with a backoff

The commit follows the acknowledgement.  So a crash loses no record; it duplicates at most the
``batch_records`` written since the last commit.  A record that cannot be written blocks the
committed offset and is retried without limit.  Records behind it are moved on, and the commit's
metadata lists them.

If a topic refuses writes, or does not acknowledge them, only the records that go there wait
(`targets`).  They are written in the order of their due times when it works again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from sharegroup.dead_letters.topics import own_topic
from sharegroup.errors import KafkaError
from sharegroup.worker.decisions.tiers import TIERS, Tiers
from sharegroup.worker.events import Event, Events
from sharegroup.worker.ports import Outbox, WorkerClock, WrittenRecord
from sharegroup.worker.retrying.shelf import Shelf
from sharegroup.worker.retrying.steering import Steering
from sharegroup.worker.retrying.targets import (
    BACKOFF_MS,
    ITS_OWN_FAULT,
    Targets,
)
from sharegroup.worker.retrying.tier_log import OwnershipLost, TierLog, TierPartition, TierRecord
from sharegroup.worker.retrying.tier_moves import MovesRefused, TierMoves
from sharegroup.worker.retrying.waiting import (
    Moment,
    ShelvedRecord,
    TierWrite,
    next_write,
    ready_ms,
    waiting_of,
)

log = logging.getLogger(__name__)


BATCH_RECORDS = 500
"""The maximum number of pending writes in one partition."""
AHEAD_RECORDS = 1_000
"""Limit of a shelf for a tier's partition; high enough that moving never waits for reading."""
DUE_RECORDS = 50_000
"""Limit of the shelves for all partitions of ``due`` together, where any record may be next."""
TIDY_MS = 10 * 60 * 1000
"""Interval at which the owner of a partition deletes the control records whose time is over."""
STUCK_SECONDS = 1.0
"""Time after which the records for other topics wait no longer for pending writes."""

Move = tuple[ShelvedRecord, TierWrite]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """The limits of the records that a scheduler holds and writes at a time."""

    ahead_records: int = AHEAD_RECORDS
    due_records: int = DUE_RECORDS
    batch_records: int = BATCH_RECORDS


LIMITS_DEFAULT = SchedulerLimits()


@dataclass(frozen=True, slots=True)
class Moving:
    """The objects that all movers of a group share."""

    group: str
    clock: WorkerClock
    outbox: Outbox
    tier_log: TierLog
    tiers: Tiers = TIERS
    events: Events = field(default_factory=Events)
    moves: TierMoves | None = None
    """None if the group's waiting records cannot be steered."""
    holder: Callable[[str], str | None] = lambda _: None
    """Returns the member that holds the record with this id in this process; None if none does."""
    limits: SchedulerLimits = LIMITS_DEFAULT


class TierMover:
    """Moves the records of one partition of a tier to the next tier or to the own topic.

    `run` ends after `stop`, or when this process no longer owns the partition.
    """

    __slots__ = (
        "_changed",
        "_commit_again_ms",
        "_moving",
        "_obey_again_ms",
        "_paused",
        "_steering",
        "_stopping",
        "_targets",
        "_tidy_ms",
        "partition",
        "shelf",
    )

    def __init__(
        self,
        moving: Moving,
        partition: TierPartition,
        shelf: Shelf,
        steering: Steering | None = None,
    ) -> None:
        self.partition = partition
        self.shelf = shelf
        self._moving = moving
        self._steering = steering
        """None if the records of the group cannot be steered; then writes are no transactions."""
        self._obey_again_ms: int | None = None  # None unless the latest commands have failed.
        self._changed = asyncio.Event()
        self._commit_again_ms: int | None = None  # None unless the latest commit has failed.
        self._stopping = False
        self._tidy_ms = 0  # The first time after this process has read the control topic.
        self._paused = False
        self._targets = Targets()

    def put(self, records: Sequence[TierRecord]) -> None:
        """Add records that were read to the shelf."""
        moving, topic = self._moving, self.partition.topic
        now = Moment.now(moving.clock)
        for record in records:
            waiting = waiting_of(record, now)
            if self._steering is not None and self._steering.is_marked(waiting):
                self.shelf.pass_over(record.offset)
            ready = ready_ms(waiting, topic, now=now, group=moving.group, tiers=moving.tiers)
            self.shelf.put(waiting, ready)
        if self.shelf.is_full and not self._paused:
            self._paused = True
            moving.tier_log.pause(self.partition)
        self._changed.set()

    def commit_soon(self) -> None:
        """Commit the offset that the shelf began with, although nothing was moved yet."""
        self.shelf.commit_again()
        self._commit_again_ms = Moment.now(self._moving.clock).steady_ms
        self._changed.set()

    def commanded(self) -> None:
        """Look for commands."""
        self._changed.set()

    def stop(self) -> None:
        """End `run` after the pending writes and their commit."""
        self._stopping = True
        self._changed.set()

    async def run(self) -> None:
        """Move each record when it is ready, until `stop` or until the partition is lost."""
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._move_ready(tasks)
            # The last chance: the next owner continues from what the group has.
            if self._commit_again_ms is not None:
                await self._commit()
        except* OwnershipLost as lost:
            # The new owner of the partition reads and moves the records.
            log.info("event=tier_lost %s reason=%s", self._place(), lost.exceptions[0])

    async def _move_ready(self, tasks: asyncio.TaskGroup) -> None:
        clock = self._moving.clock
        if self._steering is not None:
            await self._steering.begin()
        while not self._stopping:
            # Before the look at the shelf, so a record that is put after it ends the wait below.
            self._changed.clear()
            now_ms = Moment.now(clock).steady_ms
            if self._obeys(now_ms):
                await self._obey()
            elif taken := self.shelf.take(now_ms, self._moving.limits.batch_records):
                await self._move(taken, tasks)
                await self._commit()
                self._read_on()
            else:
                if (again_ms := self._commit_again_ms) is not None and again_ms <= now_ms:
                    # Nothing may be moved for long, and the next owner would move it again.
                    await self._commit()
                    self._read_on()
                    continue
                if self._steering is not None and self._tidy_ms <= now_ms:
                    # No timer: the scheduler looks for commands each second.
                    await self._tidy(self._steering, now_ms)
                    continue
                times = (self.shelf.ready_ms, again_ms, self._obey_again_ms)
                due = [at for at in times if at is not None]
                await until(clock, min(due) / 1000 if due else None, self._changed)

    def _read_on(self) -> None:
        if self._paused and self.shelf.has_room:
            self._paused = False
            self._moving.tier_log.resume(self.partition)

    async def _move(self, taken: Sequence[ShelvedRecord], writing: asyncio.TaskGroup) -> None:
        """Write these records; those that cannot be written go back to the shelf."""
        moving, now = self._moving, Moment.now(self._moving.clock)
        moves: dict[str, list[Move]] = {}
        for waiting in taken:
            write = next_write(waiting, now=now, group=moving.group, tiers=moving.tiers)
            again_ms = self._targets.again_ms(write.topic, now.steady_ms)
            if again_ms is None:
                moves.setdefault(write.topic, []).append((waiting, write))
            else:
                self._put_back(waiting, write.topic, again_ms, now.steady_ms)
        if not moves:
            return
        if self._steering is not None:
            await self._move_together(self._steering, [*itertools.chain(*moves.values())])
            return
        tasks = []
        for topic, group in moves.items():
            # All writes begin before the first is awaited, so that they are pending concurrently.
            results = [self._send(waiting.record, write) for waiting, write in group]
            self._targets.begin(topic, now.steady_ms)
            tasks.append(writing.create_task(self._write(topic, group, results)))
        until_seconds = moving.clock.now() + STUCK_SECONDS
        await first_of(asyncio.wait(tasks), moving.clock.sleep_until(until_seconds))

    async def _write(
        self,
        topic: str,
        moves: Sequence[Move],
        results: Sequence[Awaitable[WrittenRecord] | KafkaError],
    ) -> None:
        """Wait for the outcomes of pending writes to one topic."""
        moved, failed = [], []
        try:
            for (waiting, write), result in zip(moves, results, strict=True):
                outcome = result if isinstance(result, KafkaError) else await _outcome(result)
                if isinstance(outcome, KafkaError):
                    failed.append((waiting, write, outcome))
                else:
                    self._tell(write, outcome)
                    moved.append(waiting)
        finally:
            self._targets.end(topic)
        self.shelf.done(moved)
        if moved:
            self._succeeded(topic, [waiting.record.offset for waiting in moved])
        self._failed(failed)
        # `_move` may wait for this no longer.
        self._commit_again_ms = Moment.now(self._moving.clock).steady_ms
        self._changed.set()

    async def _move_together(self, steering: Steering, moves: Sequence[Move]) -> None:
        """Write these records in one transaction; those that are refused go back to the shelf."""
        try:
            written = await steering.move(
                [waiting for waiting, _ in moves], [write for _, write in moves]
            )
        except MovesRefused as refusal:
            errors = refusal.errors
            self._failed([(*moves[index], error) for index, error in errors.items()])
            left = [move for index, move in enumerate(moves) if index not in errors]
            if left:
                await self._move_together(steering, left)
        except KafkaError as error:
            self._failed([(*move, error) for move in moves])
        else:
            for (waiting, write), outcome in zip(moves, written, strict=True):
                self._succeeded(write.topic, [waiting.record.offset])
                self._tell(write, outcome)

    def _obeys(self, now_ms: int) -> bool:
        """Whether there are commands to carry out now."""
        again_ms = self._obey_again_ms
        if again_ms is not None and now_ms < again_ms:
            return False
        return self._steering is not None and self._steering.has_commands

    async def _obey(self) -> None:
        assert self._steering is not None, "only steered groups have commands"
        self._obey_again_ms = None
        try:
            await self._steering.obey()
        except KafkaError as error:
            self._obey_again_ms = Moment.now(self._moving.clock).steady_ms + BACKOFF_MS
            log.warning(
                'event=commands_failed %s error="%s: %s" action="they are carried out later"',
                self._place(),
                type(error).__name__,
                error,
            )
        else:
            await self._commit()
            self._read_on()

    async def _tidy(self, steering: Steering, now_ms: int) -> None:
        self._tidy_ms = now_ms + TIDY_MS
        try:
            if await steering.tidy():
                self._tidy_ms = now_ms
        except KafkaError as error:
            log.info("event=control_untidied %s error=%r", self._place(), error)

    def _send(self, record: TierRecord, write: TierWrite) -> Awaitable[WrittenRecord] | KafkaError:
        try:
            sent = self._moving.outbox.send(
                write.topic, record.value, key=record.key, headers=write.headers
            )
        except KafkaError as error:
            return error  # Raised before sending, for example if the record is too large.
        # A coroutine runs only while it is awaited, and all writes are to be pending at once.
        return asyncio.ensure_future(sent) if asyncio.iscoroutine(sent) else sent

    def _failed(self, failed: Sequence[tuple[ShelvedRecord, TierWrite, KafkaError]]) -> None:
        """Put the records of failed writes back on the shelf."""
        if not failed:
            return
        now_ms = Moment.now(self._moving.clock).steady_ms
        again_ms: dict[str, int] = {}
        for waiting, write, error in failed:
            if isinstance(error, ITS_OWN_FAULT):
                refused_ms = self._targets.refused(waiting.record.offset, now_ms)
                self.shelf.put_back(waiting, refused_ms)
                continue
            if write.topic not in again_ms:
                again_ms[write.topic] = self._targets.failed(write.topic, now_ms)
            self._put_back(waiting, write.topic, again_ms[write.topic], now_ms)
        error = failed[-1][2]
        log.warning(
            'event=tier_write_failed %s offset=%d records=%d error="%s: %s"',
            self._place(),
            failed[0][0].record.offset,
            len(failed),
            type(error).__name__,
            error,
        )

    def _succeeded(self, topic: str, offsets: Collection[int]) -> None:
        """Let the records that wait for this topic go on, because it takes writes."""
        if waited := self._targets.succeeded(topic, offsets):
            now_ms = Moment.now(self._moving.clock).steady_ms
            for _, waiting in self.shelf.take_at(waited):
                self.shelf.put_back(waiting, now_ms)

    def _put_back(self, waiting: ShelvedRecord, topic: str, again_ms: int, now_ms: int) -> None:
        """Look at a record again then, or when it is due: it goes to another topic then."""
        self._targets.wait(topic, waiting.record.offset)
        due_ms = waiting.due_ms
        if due_ms is not None and now_ms < due_ms < again_ms:
            again_ms = due_ms
        self.shelf.put_back(waiting, again_ms)

    async def _commit(self) -> None:
        self._commit_again_ms = None
        committed = self.shelf.to_commit()
        if committed is None:
            return
        try:
            await self._moving.tier_log.commit(self.partition, committed)
        except KafkaError as error:
            # The next commit, after the next move, includes this one.
            self._commit_again_ms = Moment.now(self._moving.clock).steady_ms + BACKOFF_MS
            log.warning(
                'event=tier_commit_failed %s offset=%d error="%s: %s"',
                self._place(),
                committed.offset,
                type(error).__name__,
                error,
            )
        else:
            self.shelf.keep(committed)

    def _tell(self, write: TierWrite, written: WrittenRecord) -> None:
        events, group = self._moving.events, self._moving.group
        if write.topic != own_topic(group) or not events.wants("record.due"):
            return
        details = {"tier": self.partition.topic}
        events.tell(
            Event(
                "record.due", group, "", written.topic, written.partition, written.offset,
                details=details,
            )
        )  # fmt: skip

    def _place(self) -> str:
        return (
            f"group={self._moving.group} topic={self.partition.topic} "
            f"partition={self.partition.partition}"
        )


async def _outcome(write: Awaitable[WrittenRecord]) -> WrittenRecord | KafkaError:
    try:
        return await write
    except KafkaError as error:
        return error


async def until(clock: WorkerClock, when: float | None, changed: asyncio.Event) -> None:
    """Return at ``when``, in seconds of the clock (None: never), or when ``changed`` is set."""
    if changed.is_set():
        return
    if when is None:
        await changed.wait()
        return
    await first_of(clock.sleep_until(when), changed.wait())


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of these returns; the others are cancelled, and errors are raised."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for task in ended:
        task.result()
