"""Moves the records of a tier's partition to their next topics, while this process owns it.

    shelf --ready--> write --acknowledged--> done --> commit
                       `-refused: back on the shelf, with a backoff

The commit follows the acknowledgement.  So a crash loses no record; it duplicates at most the
``batch_records`` written since the last commit.  A record that cannot be written blocks the
committed offset and is retried without limit.  Records behind it are moved on, and the commit's
metadata lists them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from sharegroup.dead_letters.topics import own_topic
from sharegroup.errors import KafkaError
from sharegroup.worker.decisions.tiers import TIERS, Tiers
from sharegroup.worker.events import Event, Events
from sharegroup.worker.ports import Outbox, WorkerClock, WrittenRecord
from sharegroup.worker.retrying.shelf import Shelf
from sharegroup.worker.retrying.steering import Steering
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
BACKOFF_MS = 500
BACKOFF_MS_MAX = 30_000
TIDY_MS = 10 * 60 * 1000
"""Interval at which the owner of a partition deletes the control records whose time is over."""


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
        "_failing_since_ms",
        "_moving",
        "_obey_again_ms",
        "_paused",
        "_steering",
        "_stopping",
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
        self._failing_since_ms: int | None = None  # The first failed write since a success.

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
        clock = self._moving.clock
        try:
            if self._steering is not None:
                await self._steering.begin()
            while not self._stopping:
                # Before the look at the shelf, so a record that is put after it ends the wait
                # below.
                self._changed.clear()
                now_ms = Moment.now(clock).steady_ms
                if self._obeys(now_ms):
                    await self._obey()
                elif taken := self.shelf.take(now_ms, self._moving.limits.batch_records):
                    await self._move(taken)
                    await self._commit()
                    self._read_on()
                else:
                    if (again_ms := self._commit_again_ms) is not None and again_ms <= now_ms:
                        # Nothing may be moved for long, and the next owner would move it again.
                        await self._commit()
                        continue
                    if self._steering is not None and self._tidy_ms <= now_ms:
                        # No timer: the scheduler looks for commands each second.
                        await self._tidy(self._steering, now_ms)
                        continue
                    times = (self.shelf.ready_ms, again_ms, self._obey_again_ms)
                    due = [at for at in times if at is not None]
                    await until(clock, min(due) / 1000 if due else None, self._changed)
            # The last chance: the next owner continues from what the group has.
            if self._commit_again_ms is not None:
                await self._commit()
        except OwnershipLost as lost:
            # The new owner of the partition reads and moves the records.
            log.info("event=tier_lost %s reason=%s", self._place(), lost)

    def _read_on(self) -> None:
        if self._paused and self.shelf.has_room:
            self._paused = False
            self._moving.tier_log.resume(self.partition)

    async def _move(self, taken: Sequence[ShelvedRecord]) -> None:
        """Write these records; those that cannot be written go back to the shelf."""
        moving = self._moving
        now = Moment.now(moving.clock)
        writes = [
            next_write(waiting, now=now, group=moving.group, tiers=moving.tiers)
            for waiting in taken
        ]
        if self._steering is not None:
            await self._move_together(self._steering, taken, writes)
            return
        # All writes begin before the first is awaited, so that they are pending concurrently.
        pending = [
            self._begin(waiting.record, write) for waiting, write in zip(taken, writes, strict=True)
        ]
        moved, failed = [], []
        error: KafkaError | None = None
        for waiting, write, result in zip(taken, writes, pending, strict=True):
            outcome = result if isinstance(result, KafkaError) else await _outcome(result)
            if isinstance(outcome, KafkaError):
                error = outcome
                failed.append(waiting)
            else:
                self._tell(write, outcome)
                moved.append(waiting)
        self.shelf.done(moved)
        if moved:
            self._failing_since_ms = None
        if error is not None:
            self._put_back(failed, error)

    async def _move_together(
        self, steering: Steering, taken: Sequence[ShelvedRecord], writes: Sequence[TierWrite]
    ) -> None:
        """Write these records in one transaction; those that are refused go back to the shelf."""
        try:
            written = await steering.move(taken, writes)
        except MovesRefused as refusal:
            refused = refusal.errors.keys()
            first = next(iter(refusal.errors.values()))
            self._put_back([taken[index] for index in refused], first)
            left = [index for index in range(len(taken)) if index not in refused]
            if left:
                await self._move_together(
                    steering, [taken[index] for index in left], [writes[index] for index in left]
                )
        except KafkaError as error:
            self._put_back(taken, error)
        else:
            self._failing_since_ms = None
            for write, outcome in zip(writes, written, strict=True):
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

    def _begin(self, record: TierRecord, write: TierWrite) -> Awaitable[WrittenRecord] | KafkaError:
        try:
            sent = self._moving.outbox.send(
                write.topic, record.value, key=record.key, headers=write.headers
            )
        except KafkaError as error:
            return error  # Raised before sending, for example if the record is too large.
        # A coroutine runs only while it is awaited, and all writes are to be pending at once.
        return asyncio.ensure_future(sent) if asyncio.iscoroutine(sent) else sent

    def _put_back(self, taken: Sequence[ShelvedRecord], error: KafkaError) -> None:
        now_ms = Moment.now(self._moving.clock).steady_ms
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        # The pause is as long as the writes have failed so far.  So it doubles each time,
        # independent of how many records fail at once.  A `Backoff` counts failures, and many
        # batches of records that are due one after the other may fail in the same moment.
        failing_ms = now_ms - self._failing_since_ms
        again_ms = now_ms + max(BACKOFF_MS, min(failing_ms, BACKOFF_MS_MAX))
        for waiting in taken:
            self.shelf.put_back(waiting, again_ms)
        log.warning(
            'event=tier_write_failed %s offset=%d records=%d error="%s: %s"',
            self._place(),
            taken[0].record.offset,
            len(taken),
            type(error).__name__,
            error,
        )

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
