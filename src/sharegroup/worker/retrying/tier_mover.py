"""Moves the records of one tier's partition on, as long as this process owns it.

    shelf --ready--> write --acknowledged--> done --> commit
                       `-refused: back on the shelf, for a while

The commit follows the acknowledgement, so a crash doubles what was written since the last one,
at most `BATCH_RECORDS`, and loses nothing.  A record that can't be written holds the commit, and
is tried again for ever; those behind it go on, and the commit's metadata says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from sharegroup.errors import KafkaError
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.declared.names import own_topic
from sharegroup.worker.events import Event, Events
from sharegroup.worker.ports import Clock, Outbox, Written
from sharegroup.worker.retrying.shelf import Shelf
from sharegroup.worker.retrying.tier_log import OwnershipLost, TierLog, TierPartition, TierRecord
from sharegroup.worker.retrying.waiting import Step, Waiting, next_step, ready_ms, waiting_of
from sharegroup.worker.retrying.waits import until

log = logging.getLogger(__name__)

BATCH_RECORDS = 500
"""Under way at once in one partition."""
BACKOFF_MS = 500
BACKOFF_MS_MAX = 30_000


@dataclass(frozen=True, slots=True)
class Moving:
    """What all movers of a group share."""

    group: str
    tiers: Tiers
    outbox: Outbox
    clock: Clock
    tier_log: TierLog
    events: Events


class TierMover:
    """See the module's text; `run` ends after `stop`, or when the partition is lost."""

    __slots__ = (
        "_changed",
        "_failing_since_ms",
        "_moving",
        "_paused",
        "_stopping",
        "partition",
        "shelf",
    )

    def __init__(self, moving: Moving, partition: TierPartition, shelf: Shelf) -> None:
        self.partition = partition
        self.shelf = shelf
        self._moving = moving
        self._changed = asyncio.Event()
        self._stopping = False
        self._paused = False
        self._failing_since_ms: int | None = None  # Nothing could be written since then.

    def put(self, records: Sequence[TierRecord]) -> None:
        """Take what was read."""
        moving, topic = self._moving, self.partition.topic
        now_ms = moving.clock.wall_ms()
        for record in records:
            waiting = waiting_of(record)
            ready = ready_ms(
                waiting, topic, now_ms=now_ms, group=moving.group, tiers=moving.tiers
            )  # fmt: skip
            self.shelf.put(waiting, ready)
        if self.shelf.is_full and not self._paused:
            self._paused = True
            moving.tier_log.pause(self.partition)
        self._changed.set()

    def stop(self) -> None:
        """End after what is being written now, and its commit."""
        self._stopping = True
        self._changed.set()

    async def run(self) -> None:
        """Move what is ready, when it is ready."""
        clock = self._moving.clock
        try:
            while not self._stopping:
                self._changed.clear()
                if taken := self.shelf.take(clock.wall_ms(), BATCH_RECORDS):
                    await self._move(taken)
                    await self._commit()
                    self._read_on()
                else:
                    await until(clock, self.shelf.ready_ms, self._changed)
        except OwnershipLost as lost:
            # The records go with their partition to whoever owns it now.
            log.info("event=tier_lost %s reason=%s", self._place(), lost)

    def _read_on(self) -> None:
        if self._paused and self.shelf.has_room:
            self._paused = False
            self._moving.tier_log.resume(self.partition)

    async def _move(self, taken: Sequence[Waiting]) -> None:
        """Write all of them; what can't be written goes back on the shelf."""
        moving = self._moving
        now_ms = moving.clock.wall_ms()
        steps = [
            next_step(waiting, now_ms=now_ms, group=moving.group, tiers=moving.tiers)
            for waiting in taken
        ]
        # All are under way before the first is waited for.
        writes = [
            self._begin(waiting.record, step) for waiting, step in zip(taken, steps, strict=True)
        ]
        moved, failed = [], []
        error: KafkaError | None = None
        for waiting, step, write in zip(taken, steps, writes, strict=True):
            outcome = write if isinstance(write, KafkaError) else await _outcome(write)
            if isinstance(outcome, KafkaError):
                error = outcome
                failed.append(waiting)
            else:
                self._tell(step, outcome)
                moved.append(waiting)
        self.shelf.done(moved)
        if moved:
            self._failing_since_ms = None
        if error is not None:
            self._put_back(failed, error)

    def _begin(self, record: TierRecord, step: Step) -> Awaitable[Written] | KafkaError:
        try:
            write = self._moving.outbox.send(
                step.topic, record.value, key=record.key, headers=step.headers
            )
        except KafkaError as error:
            return error  # Known without asking anybody, as of a record that is too large.
        return asyncio.ensure_future(write) if asyncio.iscoroutine(write) else write

    def _put_back(self, taken: Sequence[Waiting], error: KafkaError) -> None:
        now_ms = self._moving.clock.wall_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        # As long again as it has been failing: doubling, however many records fail at once.
        failing_ms = now_ms - self._failing_since_ms
        again_ms = now_ms + max(BACKOFF_MS, min(failing_ms, BACKOFF_MS_MAX))
        for waiting in taken:
            self.shelf.put_back(waiting, again_ms)
        log.warning(
            "event=tier_write_failed %s offset=%d records=%d error=%s: %s",
            self._place(),
            taken[0].record.offset,
            len(taken),
            type(error).__name__,
            error,
        )

    async def _commit(self) -> None:
        committed = self.shelf.to_commit()
        if committed is None:
            return
        try:
            await self._moving.tier_log.commit(self.partition, committed)
        except KafkaError as error:
            # The next commit says all that this one would have said.
            log.warning(
                "event=tier_commit_failed %s offset=%d error=%s: %s",
                self._place(),
                committed.offset,
                type(error).__name__,
                error,
            )
        else:
            self.shelf.keep(committed)

    def _tell(self, step: Step, written: Written) -> None:
        events, group = self._moving.events, self._moving.group
        if step.topic != own_topic(group) or not events.wants("record.due"):
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


async def _outcome(write: Awaitable[Written]) -> Written | KafkaError:
    try:
        return await write
    except KafkaError as error:
        return error
