"""Moves waiting records down the tiers, and to the group's own topic when they are due.

    tiers, `due`   --read--> a shelf for each partition --ready, written--> next tier, own topic
     consumer group              bounded                                     then: commit

Each worker process runs one scheduler for each of its groups.  The schedulers of a group are
members of an ordinary consumer group, so each partition has one owner.  A scheduler commits a
partition before it gives it up.  When a process dies, its partitions are reassigned after the
session timeout (2 s if the broker allows it), which is the longest extra delay of a record.
Waiting records hold no lock and use no delivery, because for the share group they are accepted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from sharegroup.backoff import Backoff, without_jitter
from sharegroup.errors import KafkaError
from sharegroup.waiting.control_records import Answer, Reply, encoded
from sharegroup.waiting.retry_topics import CONTROL_PARTITION, control_topic, due_topic
from sharegroup.worker.retrying.control_state import ControlState
from sharegroup.worker.retrying.shelf import Shelf
from sharegroup.worker.retrying.steering import Steering
from sharegroup.worker.retrying.tier_log import Committed, TierPartition, TierRecord
from sharegroup.worker.retrying.tier_mover import Moving, TierMover, first_of
from sharegroup.worker.retrying.tier_moves import TierMoves

log = logging.getLogger(__name__)

AHEAD_BYTES = 1024 * 1024
DUE_BYTES = 64 * 1024 * 1024
"""Limits of the same shelves as ``ahead_records`` and ``due_records`` of `SchedulerLimits`."""

READ_SECONDS = 1.0
CONTROL_SECONDS = 1.0
"""How soon a command is seen."""
BACKOFF_MS_MIN = 1_000
BACKOFF_MS_MAX = 30_000
REVOKE_SECONDS_MAX = 3.0
"""Maximum time that a revocation waits for pending writes; later ones may cause duplicates."""


class TierState(NamedTuple):
    """The state of a tier's partition, as its owner knows it."""

    partition: TierPartition
    committed: Committed
    held: int
    """Records in memory."""
    waiting: int | None
    """Records that wait, in memory or not; None while the end offset is unknown."""
    ready_ms: int | None
    """When the first record in memory is ready, by the monotonic clock; None if there is none."""


class Scheduler:
    """The retry scheduler of one group in this process; a `TierOwner`."""

    __slots__ = ("_control", "_ended", "_movers", "_moving", "_stopping", "_tasks", "_tasks_of")

    def __init__(self, moving: Moving) -> None:
        self._moving = moving
        self._control = ControlState()
        self._movers: dict[TierPartition, TierMover] = {}
        self._tasks_of: dict[TierPartition, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()

    async def run(self) -> None:
        """Join the consumer group and move the records of owned partitions until `stop`."""
        self._ended.clear()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                working = [tasks.create_task(self._read())]
                if self._moving.moves is not None:
                    working.append(tasks.create_task(self._read_control(self._moving.moves)))
                await self._stopping.wait()
                # The control topic as long as movers may wait for it (`revoked` limits that).
                working[0].cancel()
                # Before the group is left: the next owner continues from these commits.
                await self.revoked(tuple(self._movers))
                for task in working:
                    task.cancel()
        finally:
            self._tasks = None
            try:
                if self._moving.moves is not None:
                    await self._moving.moves.close()
                await self._moving.tier_log.close()
            finally:
                # `stop` waits for this, also if the close has failed.
                self._ended.set()

    async def stop(self) -> None:
        """Finish pending writes, commit them, and leave the group."""
        self._stopping.set()
        await self._ended.wait()

    def snapshot(self) -> tuple[TierState, ...]:
        """The states of the partitions that this process owns."""
        return tuple(self._state(mover) for mover in self._movers.values())

    async def assigned(self, partitions: Mapping[TierPartition, Committed]) -> None:
        """Start a mover for each partition, from the offset that its last owner committed."""
        # `run` stops the movers that it sees; one that starts afterwards would never end.
        if self._tasks is None or self._stopping.is_set():
            return
        due = due_topic(self._moving.group)
        # The rebalance of round robin is eager, so this call has all partitions of ``due`` of this
        # process.
        due_count = sum(assigned_partition.topic == due for assigned_partition in partitions) or 1
        for partition, committed in partitions.items():
            assert partition not in self._movers, (
                f"{partition} was assigned again without being revoked"
            )
            if partition.topic == due:
                records_max = self._moving.limits.due_records // due_count
                bytes_max = DUE_BYTES // due_count
            else:
                records_max, bytes_max = self._moving.limits.ahead_records, AHEAD_BYTES
            shelf = Shelf(committed, records_max=records_max, bytes_max=bytes_max)
            self._begin(self._mover(partition, shelf))
        log.debug("event=tiers_owned group=%s partitions=%d", self._moving.group, len(partitions))

    async def revoked(self, partitions: Iterable[TierPartition]) -> None:
        """Stop the movers after their pending writes; the next owner reads the other records."""
        ending = []
        for partition in partitions:
            if partition in self._movers:
                self._movers.pop(partition).stop()
                ending.append(self._tasks_of.pop(partition))
        if not ending:
            return
        # Limited, because the group waits for this member: no partition of it moves meanwhile.
        if late := await ended(ending, REVOKE_SECONDS_MAX):
            log.warning(
                "event=tiers_cut_off group=%s partitions=%d action='the next owner may move some "
                "records twice'",
                self._moving.group,
                late,
            )

    async def _read(self) -> None:
        """Pass the records that are read to the movers; start again after each failure."""
        tier_log, clock = self._moving.tier_log, self._moving.clock
        topics = self._moving.tiers.topics(self._moving.group)
        backoff = Backoff(BACKOFF_MS_MIN, BACKOFF_MS_MAX, chance=without_jitter)
        while True:
            try:
                await tier_log.start(topics, self)
                while True:
                    records_by_partition = await tier_log.read(READ_SECONDS)
                    # Also after an empty answer: the group and its coordinator work again.
                    backoff.reset()
                    for partition, records in records_by_partition.items():
                        await self._put(partition, records)
            except KafkaError as error:
                log.warning(
                    'event=tiers_unreadable group=%s error="%s: %s"',
                    self._moving.group,
                    type(error).__name__,
                    error,
                )
            # The group may give the partitions to others during the pause.
            await self.revoked(tuple(self._movers))
            await clock.sleep_until(clock.now() + backoff.next_ms() / 1000)

    async def _put(self, partition: TierPartition, records: Sequence[TierRecord]) -> None:
        mover = self._movers.get(partition)
        if mover is not None and records[0].offset < mover.shelf.next_offset:
            await self._begin_again(mover, records[0].offset)
            mover = self._movers.get(partition)
        if mover is not None:
            mover.put(records)

    async def _read_control(self, moves: TierMoves) -> None:
        """Read commands and answers, and tell the movers, until cancelled."""
        clock, control = self._moving.clock, self._control
        backoff = Backoff(BACKOFF_MS_MIN, BACKOFF_MS_MAX, chance=without_jitter)
        while True:
            number = control.reading()
            try:
                control.read(await moves.read_control(), number, clock.wall_ms())
            except KafkaError as error:
                log.warning(
                    'event=control_unreadable group=%s error="%s: %s" action="commands wait"',
                    self._moving.group,
                    type(error).__name__,
                    error,
                )
                await clock.sleep_until(clock.now() + backoff.next_ms() / 1000)
                continue
            backoff.reset()
            for mover in self._movers.values():
                mover.commanded()
            await self._answer_questions()
            await first_of(moves.wait_control(CONTROL_SECONDS), control.hurry.wait())

    async def _answer_questions(self) -> None:
        """Say which records this process holds, of those that somebody has asked for."""
        moving = self._moving
        for record_id, question in tuple(self._control.questions.items()):
            member = moving.holder(record_id)
            if member is None:
                continue  # Another process may hold it.
            reply = Reply(
                record_id=record_id, answer=Answer.HELD, place=None, ask=question.ask,
                at_ms=moving.clock.wall_ms(), member=member,
            )  # fmt: skip
            key, value = encoded(reply)
            try:
                await moving.outbox.send(
                    control_topic(moving.group), value, key=key, partition=CONTROL_PARTITION
                )
            except KafkaError as error:
                # The program that asked waits for a few seconds, and may ask again.
                log.info("event=question_unanswered id=%s error=%r", record_id, error)
        self._control.questions.clear()

    def _mover(self, partition: TierPartition, shelf: Shelf) -> TierMover:
        moving = self._moving
        steering = None
        if moving.moves is not None:
            steering = Steering(
                moving.group, partition, shelf,
                moves=moving.moves, control=self._control, clock=moving.clock,
            )  # fmt: skip
        return TierMover(moving, partition, shelf, steering)

    def _begin(self, mover: TierMover) -> None:
        assert self._tasks is not None, "movers begin only while the scheduler runs"
        self._movers[mover.partition] = mover
        self._tasks_of[mover.partition] = self._tasks.create_task(mover.run())

    async def _begin_again(self, mover: TierMover, first: int) -> None:
        """Move a partition's records anew: the topic was made anew, or its log was cut.

        Nothing tells which records below the old position are new ones.  Without this they would
        wait until the log has as many records as before, and then be passed over.
        """
        partition, shelf = mover.partition, mover.shelf
        log.error(
            "event=tier_begun_again group=%s topic=%s partition=%d position=%d first=%d "
            "action='records were lost there, or the topic was made anew: retries may run again'",
            self._moving.group, *partition, shelf.next_offset, first,
        )  # fmt: skip
        await self.revoked([partition])
        if self._stopping.is_set():
            return
        limits = {"records_max": shelf.records_max, "bytes_max": shelf.bytes_max}
        again = self._mover(partition, Shelf(Committed(first), **limits))
        again.commit_soon()
        self._begin(again)
        self._moving.tier_log.resume(partition)  # The former mover may have paused it.

    def _state(self, mover: TierMover) -> TierState:
        shelf = mover.shelf
        end = self._moving.tier_log.end_offset(mover.partition)
        waiting = None if end is None else max(end - shelf.next_offset, 0) + len(shelf)
        return TierState(mover.partition, shelf.committed, len(shelf), waiting, shelf.ready_ms)


async def ended(tasks: Collection[asyncio.Task[None]], seconds: float) -> int:
    """Wait until these tasks end, cancel those that do not in time, and return their number."""
    _, late = await asyncio.wait(tasks, timeout=seconds)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late)
    return len(late)
