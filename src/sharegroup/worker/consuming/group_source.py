"""The records of one topic for a consumer group; a `ports.RecordSource`.

    GroupLog --read--> OwnedPartition --take--> handlers --accept--> PartitionProgress --commit-->

The handlers of a group run the same way for both kinds of groups; this source makes the difference.
A record has no lock.  It belongs to this process while its partition does, and is finished when it
is accepted or rejected.

Two tasks run from the first `take` to `close`.  One reads, also while no handler has room, because
the group gives and takes partitions only then.  The other commits, at most every `COMMIT_SECONDS`.

    assigned    the committed offset and its metadata say what to skip, and what was delivered
    revoked     records not begun are given up, handlers end for up to `REVOKE_SECONDS`, commit
    lost        handlers are interrupted; others may run the same records already
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from sharegroup.errors import KafkaError, OffsetMetadataTooLarge, UnreadableBatch
from sharegroup.worker.consuming.commit_metadata import (
    CHARACTERS_MAX,
    NOTHING,
    CommitState,
    UnreadableMetadata,
    read,
)
from sharegroup.worker.consuming.group_log import GroupLog, GroupReading
from sharegroup.worker.consuming.owned_partition import OwnedPartition
from sharegroup.worker.consuming.partition_progress import PartitionProgress
from sharegroup.worker.ports import BufferedRecord, DeliveredRecord, WorkerClock
from sharegroup.worker.records.unreadable_range import UnreadableRange
from sharegroup.worker.retrying.tier_log import Committed, OwnershipLost
from sharegroup.worker.retrying.tier_moves import MovesRefused

log = logging.getLogger(__name__)

T = TypeVar("T")
COMMIT_SECONDS = 1.0
TRANSACTION_SECONDS = 0.1
"""The same for a group with ``exactly_once``, because its outputs are visible only then."""
READ_SECONDS = 1.0
"""The wait of a read without records."""
READ_RECORDS = 500
"""The least number of records of a read: a take of few would cost as much as one of many.

Those that were read and not taken wait here.  They count as not delivered.
"""
PAUSE_SECONDS = 0.5
"""The pause after an error that may be transient."""
REVOKE_SECONDS = 30.0
"""Maximum time for which a revocation waits for handlers."""
LAST_COMMIT_SECONDS = 20.0
"""Maximum time for which a revocation waits for the commit: for one under way, and its own.

A transaction may be in doubt for longer.  Then its outcome holds for the next owner, too.
"""
TRANSACTION_BYTES = 32 * 1024 * 1024
"""Outputs above which each partition gets a transaction of its own.

A transaction that is too large for its time would be repeated as it is.
"""
CHARACTERS_MIN = 32
"""Below this limit of metadata none is written."""


class Rebalances(Protocol):
    """Is told of the partitions that the group gives and takes, to end their handlers."""

    def assigned(self, topic: str, partitions: Collection[int]) -> None:
        """These partitions are owned from now on."""

    async def revoke(self, topic: str, partitions: Collection[int], within_seconds: float) -> None:
        """Give up the records not begun, and wait for the handlers of the others."""

    def gone(self, topic: str, partitions: Collection[int], *, is_lost: bool) -> None:
        """Interrupt what is left: others may own the partitions."""


class GroupSource:
    """The records of one topic, as a member of a consumer group."""

    renews = True
    """Whether a record may be held for as long as it takes."""
    lock_seconds = None
    look_seconds = 1.0

    def __init__(
        self,
        reading: GroupReading,
        group_log: GroupLog,
        clock: WorkerClock,
        changes: Rebalances,
    ) -> None:
        self.topic = reading.topic
        self._group = reading.group
        self._commit_seconds = TRANSACTION_SECONDS if reading.exactly_once else COMMIT_SECONDS
        self._log = group_log
        self._clock = clock
        self._changes = changes
        self._owned: dict[int, OwnedPartition] = {}
        self._room = 0
        """The number of records that a `take` waits for."""
        self._is_reading = False
        """Whether the read under way returns records."""
        self._is_quiet = False
        self._arrived = asyncio.Event()
        self._changed = asyncio.Event()
        """Set while there is something to commit."""
        self._commit_turn = asyncio.Lock()
        self._committing: asyncio.Task[Any] | None = None
        """The last commit; kept, because a task without a reference may vanish."""
        self._characters_max = CHARACTERS_MAX
        self._reserves = 0
        """The number of records that the last takes had, to reserve as many ahead."""
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    # State.

    @property
    def member_id(self) -> str:
        """The member id; a member of the classic protocol has none before it has joined."""
        return self._log.member_id

    @property
    def is_joined(self) -> bool:
        """Whether this is a member of the group."""
        return self._log.is_joined

    def is_finished(self, partition: int, offset: int) -> bool:
        """Whether a record of an owned partition is finished."""
        owned = self._owned.get(partition)
        return owned is not None and owned.progress.has_finished(offset)

    @property
    def owned(self) -> Collection[int]:
        """The partitions that this member owns, without those that it is giving up."""
        return [number for number, owned in self._owned.items() if not owned.is_leaving]

    # Steering.

    def is_held(self, partition: int) -> bool:
        """Whether the application has paused an owned partition."""
        return self._owned[partition].is_held

    def hold(self, partition: int, *, is_held: bool) -> None:
        """Take no more records of an owned partition, or take them again."""
        owned = self._owned[partition]
        owned.is_held = is_held
        self._pause_full(owned)

    async def seek(self, partition: int, offset: int) -> None:
        """Give an owned partition up, and own it again from another offset on."""
        owned = self._owned[partition]
        owned.is_leaving = True
        try:
            await self._changes.revoke(self.topic, (partition,), REVOKE_SECONDS)
            await self._in_turn(lambda: self._commit_seek(owned, offset))
        except BaseException:
            owned.is_leaving = False
            owned.change()  # The offset may be committed, and records below it are not finished.
            raise
        self._check_owned(owned)
        owned.is_gone = True
        self._changes.gone(self.topic, (partition,), is_lost=False)
        self._log.seek(partition, offset)
        await self.assigned({partition: Committed(offset)})
        self._owned[partition].is_held = owned.is_held
        self._owned[partition].is_paused = owned.is_paused
        self._pause_full(self._owned[partition])

    async def _commit_seek(self, owned: OwnedPartition, offset: int) -> None:
        self._check_owned(owned)  # Otherwise another owner may have committed since.
        # Before the position moves, so that a commit that fails has changed nothing.  With the
        # outputs: their records are finished, and may not run again.
        await self._log.commit({owned.partition: Committed(offset)}, owned.outputs.begin())
        owned.written()

    def _check_owned(self, owned: OwnedPartition) -> None:
        if owned.is_gone:
            raise OwnershipLost(
                f"group {self._group!r} topic {self.topic!r} partition {owned.partition} was taken "
                "away"
            )

    # Records.

    async def take(self, room: int, wait_seconds: float) -> Sequence[DeliveredRecord]:  # noqa: ARG002
        """Take up to ``room`` records; waits for one read of the log if there are none.

        Raises KafkaError if this member can never take any.
        """
        self._begin()
        self._room = room
        try:
            if not (taken := self._take(room)):
                self._arrived.clear()
                if not self._is_reading:  # It waits for changes of the assignment only.
                    self._log.wake()
                await self._arrived.wait()
                self._raise_failure()
                taken = self._take(room)
        finally:
            self._room = 0
        return await self._reserved(taken)

    def _take(self, room: int) -> list[DeliveredRecord]:
        if self._is_quiet:
            return []
        taken: list[DeliveredRecord] = []
        for partition, owned in list(self._owned.items()):
            if len(taken) >= room:
                break
            more = owned.take(room - len(taken), is_first=not taken)
            if owned.outputs.is_full:
                self._pause_full(owned)
            if owned.is_rewound:
                self._begin_anew(owned)
            elif more:
                taken += more
                # The next take begins with the others, so that no partition waits for one.
                self._owned[partition] = self._owned.pop(partition)
                if isinstance(more[0], UnreadableRange):
                    break  # It is delivered alone.
        self._reserves += len(taken)
        return taken

    def _begin_anew(self, old: OwnedPartition) -> None:
        """Go on in a partition whose log was truncated or made anew, as a new owner.

            finished | runs | finished | other records
            low ------^                 ^ first
        From ``first`` on, its offsets name other records now.  What is not finished below runs
        again, so reading goes on there, and those that run are given up.
        """
        first = old.read[0].offset
        progress = old.progress.below(first)
        assert progress.next_offset is not None, "it has an offset"
        log.warning(
            "event=partition.rewound group=%s topic=%s partition=%s expected=%s found=%s next=%s "
            "action='the log was truncated or made anew; reading goes on at the lowest offset that "
            "is not finished'",
            *(self._group, self.topic, old.partition, old.progress.next_offset, first),
            progress.next_offset,
        )
        old.is_gone = True
        self._changes.gone(self.topic, (old.partition,), is_lost=True)
        new = OwnedPartition(self.topic, old.partition, progress, self._changed.set)
        self._owned[old.partition] = new
        # The same object: a commit under way removes from it what it has written.
        new.outputs = old.outputs
        new.is_held, new.is_paused, new.was_full = old.is_held, old.is_paused, old.was_full
        self._log.seek(old.partition, progress.next_offset)
        new.change()
        self._changes.assigned(self.topic, (old.partition,))

    async def _reserved(self, taken: list[DeliveredRecord]) -> list[DeliveredRecord]:
        """Commit that these records are delivered, if no commit says so; returns those to run."""
        if not taken:
            return taken
        partitions = {delivery.partition for delivery in taken}
        owned = [owned for number in partitions if (owned := self._owned.get(number)) is not None]
        missing = [entry for entry in owned if not entry.progress.is_reserved]
        if not missing:
            return taken
        due = [entry for entry in missing if entry.commit_at <= self._clock.now()]
        is_committed = await self._commit(due) and len(due) == len(missing)
        kept = []
        for delivery in taken:
            entry = self._owned.get(delivery.partition)
            if entry is None or delivery.is_lost:
                continue
            if not entry.is_leaving and (is_committed or entry.progress.is_reserved):
                kept.append(delivery)
            else:  # A seek that fails ends the leaving.
                delivery.release()
        if not kept:
            await self._clock.sleep_until(self._clock.now() + PAUSE_SECONDS)
        return kept

    def quiet(self, *, delivered_below: int) -> tuple[()]:  # noqa: ARG002  None are ahead.
        """Stop taking records; those that were read stay here, and count as not delivered."""
        self._is_quiet = True
        self._arrived.set()
        return ()

    def resume(self) -> None:
        """Take records again."""
        self._is_quiet = False

    def flush(self) -> None:
        """Do nothing, because commits have their own task."""

    async def fetches_ended(self, within_seconds: float) -> None:
        """Do nothing, because records that were read count as not delivered."""

    async def acknowledged(self, within_seconds: float) -> None:
        """Commit what is finished, and wait for it at most this long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                await self._commit(self._to_commit())

    async def close(self, within_seconds: float) -> int:
        """Commit, and leave the group."""
        self._is_quiet = True
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._log.close(within_seconds)
        return 0

    # The partitions; a `PartitionOwner`.

    async def assigned(self, partitions: Mapping[int, Committed | None]) -> None:
        """Own these partitions from their committed offsets on."""
        for number, committed in partitions.items():
            self._own(number, committed)
        self._changes.assigned(self.topic, partitions.keys())

    def _own(self, number: int, committed: Committed | None) -> OwnedPartition:
        offset, state = None, NOTHING
        if committed is not None:
            offset, state = committed.offset, self._state_of(number, committed)
        progress = PartitionProgress(offset, state)
        owned = OwnedPartition(self.topic, number, progress, self._changed.set)
        self._owned[number] = owned
        return owned

    async def revoked(self, partitions: Collection[int]) -> None:
        """Let the handlers of these partitions end, and commit for the next owner."""
        leaving = [self._owned[number] for number in partitions if number in self._owned]
        for owned in leaving:
            owned.is_leaving = True
        try:
            await self._changes.revoke(self.topic, partitions, REVOKE_SECONDS)
            async with asyncio.timeout(LAST_COMMIT_SECONDS):
                await self._commit(leaving, is_open=False)
        except TimeoutError:
            # Later changes of the assignment, such as a loss, are told only after this one.
            log.warning(
                "event=commit.unanswered group=%s topic=%s partitions=%s seconds=%s action='they "
                "are given up; the next owner goes on at the last commit that succeeds'",
                *(self._group, self.topic, sorted(partitions), LAST_COMMIT_SECONDS),
            )
        finally:
            self._forget(partitions, is_lost=False)

    async def lost(self, partitions: Collection[int]) -> None:
        """Interrupt the handlers of these partitions."""
        self._forget(partitions, is_lost=True)

    def _forget(self, partitions: Collection[int], *, is_lost: bool) -> None:
        for number in partitions:
            if (owned := self._owned.pop(number, None)) is not None:
                owned.is_gone = True
        self._changes.gone(self.topic, partitions, is_lost=is_lost)

    def _state_of(self, partition: int, committed: Committed) -> CommitState:
        try:
            state = read(*committed)
        except UnreadableMetadata as error:
            log.warning(
                "event=commit_metadata.ignored group=%s topic=%s partition=%s offset=%s "
                "reason='%s' action='records above the offset run, also those finished before'",
                *(self._group, self.topic, partition, committed.offset, error),
            )
            return NOTHING
        if state.is_open:
            log.warning(
                "event=partition.unclean_end group=%s topic=%s partition=%s offset=%s "
                "action='records of its last owner are delivered again'",
                *(self._group, self.topic, partition, committed.offset),
            )
        return state

    # Tasks.

    def _begin(self) -> None:
        if not self._tasks:
            self._tasks = (
                asyncio.create_task(self._read(), name=f"read-{self.topic}"),
                asyncio.create_task(self._commit_regularly(), name=f"commit-{self.topic}"),
            )
            for task in self._tasks:
                task.add_done_callback(lambda _: self._arrived.set())
        self._raise_failure()

    def _raise_failure(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def _read(self) -> None:
        await self._log.start(self)
        while True:
            room = 0 if self._is_quiet or not self._room else max(self._room, READ_RECORDS)
            self._is_reading = room > 0
            try:
                records = await self._log.read(room, READ_SECONDS)
            except UnreadableBatch as error:
                if (owned := self._owned.get(error.partition)) is not None:
                    owned.add_unreadable(error)
                    self._arrived.set()
                    self._log.seek(error.partition, error.end)
                records = ()
            except KafkaError as error:
                if not error.retriable:
                    raise
                log.warning(
                    "event=take.failed group=%s topic=%s error=%r action='the read is retried'",
                    *(self._group, self.topic, error),
                )
                await self._clock.sleep_until(self._clock.now() + PAUSE_SECONDS)
                continue
            for record in records:
                # None if the membership ended before the committed offset was known: then the next
                # read tells of the loss.
                if (owned := self._owned.get(record.partition)) is not None:
                    owned.read.append(record)
            if room:
                self._arrived.set()

    async def _commit_regularly(self) -> None:
        while True:
            await self._changed.wait()
            await self._clock.sleep_until(self._clock.now() + self._commit_seconds)
            await self._commit(self._to_commit())

    def _to_commit(self) -> list[OwnedPartition]:
        self._changed.clear()
        changed = [owned for owned in self._owned.values() if owned.is_changed]
        now = self._clock.now()
        due = [owned for owned in changed if owned.commit_at <= now]
        if len(due) < len(changed):
            self._changed.set()
        return due

    async def _commit(self, partitions: Iterable[OwnedPartition], *, is_open: bool = True) -> bool:
        """Commit the progress of partitions; False if it failed, and is tried again later."""
        return await self._in_turn(lambda: self._commit_now(partitions, is_open=is_open))

    async def _in_turn(self, commit: Callable[[], Awaitable[T]]) -> T:
        """Commit when no other commit is under way.

        A commit that has begun goes on after a cancellation, and keeps its turn until its outcome
        is known: outputs that it has written must not be written again by the next one.  One that
        waits for its turn is not begun any more.
        """
        await self._commit_turn.acquire()

        async def begun() -> T:
            try:
                return await commit()
            finally:
                self._commit_turn.release()

        committing = asyncio.create_task(begun(), name=f"commit-once-{self.topic}")
        self._committing = committing
        return await asyncio.shield(committing)

    async def _commit_now(self, partitions: Iterable[OwnedPartition], *, is_open: bool) -> bool:
        while True:
            # Those revoked meanwhile are committed by `revoked`, as not open.
            owned = [
                entry
                for entry in partitions
                if not entry.is_gone and not (is_open and entry.is_leaving)
            ]
            if len(owned) > 1 and sum(entry.outputs.size for entry in owned) > TRANSACTION_BYTES:
                return await self._commit_each(owned, is_open=is_open)
            offsets: dict[int, Committed] = {}
            outputs: list[BufferedRecord] = []
            for entry in owned:
                entry.is_changed = False
                # In the same step as the progress: what is finished later has outputs later.
                outputs += entry.outputs.begin()
                committed = entry.progress.to_commit(
                    reserves=self._reserves,
                    is_open=is_open,
                    characters_max=self._characters_max,
                )
                if committed is not None:
                    offsets[entry.partition] = committed
            if not offsets:
                return True
            try:
                await self._log.commit(offsets, outputs)
            except OffsetMetadataTooLarge:
                if self._characters_max == 0:
                    raise
                self._shrink()
            except (KafkaError, OwnershipLost) as error:
                if isinstance(error, MovesRefused) and len(owned) > 1:
                    # An output that its topic refuses holds up its own partition alone.
                    return await self._commit_each(owned, is_open=is_open)
                self._note_failed(owned, offsets, error)
                return False
            else:
                self._note_committed(owned, is_open=is_open)
                return True

    def _note_failed(
        self, owned: Iterable[OwnedPartition], offsets: Mapping[int, Committed], error: Exception
    ) -> None:
        log.warning(
            "event=commit.failed group=%s topic=%s partitions=%s error='%s' action='the commit is "
            "repeated; after a rebalance, finished records may run again'",
            *(self._group, self.topic, sorted(offsets), error),
        )
        for entry in owned:
            if isinstance(error, MovesRefused):
                entry.refused(self._clock.now())
            entry.change()

    def _note_committed(self, owned: Iterable[OwnedPartition], *, is_open: bool) -> None:
        self._reserves //= 2
        for entry in owned:
            if entry.outputs.is_full:
                self._arrived.set()  # Its records are delivered again.
            entry.written()
            entry.progress.committed()
            self._pause_full(entry)
            if is_open and entry.progress.is_ahead:
                entry.change()

    async def _commit_each(self, owned: Sequence[OwnedPartition], *, is_open: bool) -> bool:
        """Commit these partitions one after the other, each in a transaction of its own."""
        done = [await self._commit_now([alone], is_open=is_open) for alone in owned]
        return all(done)

    def _shrink(self) -> None:
        """Write less metadata, because the broker accepts no more."""
        smaller = self._characters_max // 2
        self._characters_max = smaller if smaller >= CHARACTERS_MIN else 0
        log.warning(
            "event=commit_metadata.too_large group=%s topic=%s characters=%s "
            "action='raise offset.metadata.max.bytes of the broker to 4096; until then, more "
            "finished records run again after a rebalance'",
            *(self._group, self.topic, self._characters_max),
        )

    def _pause_full(self, owned: OwnedPartition) -> None:
        """Pause a partition whose metadata is nearly full or that is held, or resume it."""
        is_full = owned.progress.ceiling is not None
        is_behind = owned.outputs.is_full and len(owned.read) >= READ_RECORDS
        if owned.is_gone or (is_full or is_behind or owned.is_held) == owned.is_paused:
            return
        owned.is_paused = not owned.is_paused
        if owned.is_paused:
            self._log.pause(owned.partition)
        else:
            self._log.resume(owned.partition)
        if not is_full and not owned.was_full:
            return
        owned.was_full = is_full
        log.log(
            logging.WARNING if owned.is_paused else logging.INFO,
            "event=partition.%s group=%s topic=%s partition=%s reason='the finished records above "
            "the committed offset nearly fill its metadata; an unfinished record holds them up'",
            *("paused" if owned.is_paused else "resumed", self._group, self.topic),
            owned.partition,
        )
