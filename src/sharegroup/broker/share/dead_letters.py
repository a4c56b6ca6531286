"""Copies what failed for good to its group's dead-letter queue, then lets it be archived.

    share partition      dead letters                                  dead-letter topic
        │ ARCHIVING, durable ──▶ │ take the lowest that wait               │
        │ ◀──────────────────────│                                         │
        │                        │ read the originals, append ────────────▶│
        │                        │ ◀────────────────────────────── durable │
        │ ◀──── ARCHIVED ────────│                                         │

What waits is not kept here: it is in the share partitions' own maps, bounded by their
``runs_max``, durable, and in order.  Here are only the keys of share partitions that have some.
One task takes them in turn, a batch of letters each time, so no group keeps another one waiting
and a million rejected records are many small steps.  A crash between the two writes makes a
second copy, never none.

Kafka gives up after five attempts, or at once where the configuration does not fit, and archives
the record.  Here it waits until the letter is written, or until the group's dead-letter topic is
unset: that is its operator giving up.  A configuration that does not fit is looked at again each
second; a disk that fails is tried again after 1 s, 2 s, and so on up to 30 s.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from sharegroup.broker.clock import Alarm, Clock
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.share.dead_letter_records import LetterBatch, Origin, Originals, letter_batch
from sharegroup.broker.share.dead_letter_topic import DeadLetterTopics
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.broker.share.persister import Persister
from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.core.delivery import DeadLetter, RecordState
from sharegroup.core.share_state import NO_SUMMARY
from sharegroup.errors import InvalidConfig, KafkaError
from sharegroup.ids import GroupId, SharePartitionKey
from sharegroup.storage.tickets import Ticket
from sharegroup.wire.batches import stamp_append_time

log = logging.getLogger(__name__)

RUNS_MAX = 1_000
"""Runs of a share partition that are looked at for one batch of letters."""

KEYS_PER_TURN = 100
"""Share partitions that are looked at before others of this process have a turn."""

RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 30_000
DOUBLINGS_MAX = 10


@dataclass(slots=True)
class DeadLetterCounts:
    """What was done for one group since the broker started."""

    record_count: int = 0
    """Letters that are durable."""
    not_copied_count: int = 0
    """Those of them without their record, though the group has records copied."""
    write_count: int = 0
    """Batches that were handed to the log."""
    failure_count: int = 0
    """Attempts that led to nothing, whatever for."""
    given_up_count: int = 0
    """Records that were archived without a letter, the topic being unset."""


@dataclass(slots=True)
class _Stall:
    """A share partition whose letters cannot be written now."""

    attempts: int = 0
    """Failed ones in a row, of those that found the configuration fit."""
    is_waiting: bool = False


@dataclass(slots=True)
class _Trouble:
    """What a group's log lines are about: one for each reason, one when it is over."""

    keys: set[SharePartitionKey] = field(default_factory=set)
    reasons: set[str] = field(default_factory=set)


class DeadLetters:
    """See the module's text.  ``is_attended``: whether anybody of the group is connected."""

    __slots__ = (
        "_alarm",
        "_clock",
        "_counts",
        "_due",
        "_is_attended",
        "_is_stopping",
        "_order",
        "_persister",
        "_ready",
        "_settings",
        "_share_partitions",
        "_stalls",
        "_step",
        "_targets",
        "_topics",
        "_troubles",
        "_wake",
    )

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        targets: DeadLetterTopics,
        *,
        settings: GroupSettings,
        share_partitions: SharePartitions,
        persister: Persister,
        is_attended: Callable[[GroupId], bool],
    ) -> None:
        self._alarm = Alarm(clock, self._try_again)
        self._clock = clock
        self._topics = topics
        self._targets = targets
        self._settings = settings
        self._share_partitions = share_partitions
        self._persister = persister
        self._is_attended = is_attended
        self._ready: dict[SharePartitionKey, None] = {}  # In the order of their turns.
        self._stalls: dict[SharePartitionKey, _Stall] = {}
        self._due: list[tuple[int, int, SharePartitionKey]] = []
        self._order = count()
        self._troubles: defaultdict[GroupId, _Trouble] = defaultdict(_Trouble)
        self._counts: defaultdict[GroupId, DeadLetterCounts] = defaultdict(DeadLetterCounts)
        self._wake = asyncio.Event()
        self._step = asyncio.Lock()
        self._is_stopping = False
        share_partitions.on_archiving(self.notify)

    @property
    def counts(self) -> dict[GroupId, DeadLetterCounts]:
        """By group; of those that had a dead letter since the broker started."""
        return dict(self._counts)

    @property
    def pending_count(self) -> int:
        """Share partitions that have letters to write, stalled ones included."""
        return len(self._ready.keys() | self._stalls.keys())

    @property
    def stalled_count(self) -> int:
        """Share partitions whose letters cannot be written now."""
        return len(self._stalls)

    @property
    def is_idle(self) -> bool:
        """Whether nothing can be done before something happens, or a second try is due."""
        return not self._ready and not self._step.locked()

    def notify(self, key: SharePartitionKey) -> None:
        """Something of this share partition waits for its letter."""
        self._ready[key] = None
        self._wake.set()

    async def run(self) -> None:
        """Write letters until `stop`; first those that waited when the broker stopped."""
        await self._find_waiting()
        while not self._is_stopping:
            if not self._ready:
                self._wake.clear()
                await self._wake.wait()
                continue
            key = next(iter(self._ready))
            del self._ready[key]
            if key in self._stalls and self._stalls[key].is_waiting:
                continue  # Its next try is due some other time, and finds what is new, too.
            async with self._step:
                await self._attend(key)
            await asyncio.sleep(0)  # With an easy-going disk nothing else gives way to others.

    async def stop(self) -> None:
        """Let the letters in hand become durable and archived, and begin no others."""
        self._is_stopping = True
        self._wake.set()
        self._alarm.cancel()
        async with self._step:
            return

    async def _find_waiting(self) -> None:
        """Nobody of its group may come back, and a letter that waits is written all the same."""
        for index, key in enumerate(self._persister.known()):
            try:
                batches = self._persister.read(key).batches
            except KafkaError:
                self.notify(key)  # Whoever attends to it says what is wrong.
                continue
            if any(batch.state is RecordState.ARCHIVING for batch in batches):
                self.notify(key)
            if index % KEYS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _attend(self, key: SharePartitionKey) -> None:
        """One batch of letters of one share partition, and what to do with it next."""
        try:
            goes_on = await self._write_some(key)
        except Exception as error:  # noqa: BLE001  What syncs the disk runs beside this task.
            self._stall(key, error)
            return
        self._over(key)
        if goes_on:
            self._ready[key] = None
        elif not self._is_attended(key.group_id):
            self._share_partitions.unload(key)

    async def _write_some(self, key: SharePartitionKey) -> bool:
        """Whether there may be more."""
        if self._persister.summary(key) == NO_SUMMARY:
            return False  # The group or the topic was deleted, whatever its queue is like.
        target = await self._targets.of(key)
        live = self._share_partitions.get(key)
        if live.last_write is not None:
            await live.last_write
        if live.fenced:
            return True
        self._share_partitions.follow_log_start(live)
        letters = live.state.dead_letters(
            limits=self._settings.limits(key.group_id), runs_max=RUNS_MAX
        )
        if not letters:
            return False
        if target is None:
            self._give_up(live, letters)
            return True
        batch = self._batch(live, letters, target)
        counts = self._counts[key.group_id]
        counts.write_count += 1
        await self._append(target, key.partition, batch)
        counts.record_count += batch.record_count
        counts.not_copied_count += batch.not_copied_count
        self._share_partitions.archived(key, batch.ranges)
        return True

    def _batch(
        self, live: LiveSharePartition, letters: list[DeadLetter], target: Topic
    ) -> LetterBatch:
        copies = self._settings.copies_dead_letters(live.key.group_id)
        return letter_batch(
            letters,
            Origin(live.key.group_id, live.topic_name, live.key.partition),
            Originals(live.log) if copies else None,
            bytes_max=self._topics.settings(target).message_bytes_max,
            wall_ms=self._clock.wall_ms(),
        )

    def _append(self, target: Topic, partition: int, batch: LetterBatch) -> Ticket:
        log_ = self._topics.log_of(target, partition % target.partition_count)
        now_ms = self._clock.wall_ms()
        if self._topics.settings(target).append_time:
            stamp_append_time(batch.batch, now_ms)
        return log_.append(batch.batch, now_ms=now_ms)

    def _give_up(self, live: LiveSharePartition, letters: list[DeadLetter]) -> None:
        """The group wants no letters any more: archive without."""
        ranges = tuple((letter.first, letter.end) for letter in letters)
        records = sum(end - first for first, end in ranges)
        self._counts[live.key.group_id].given_up_count += records
        log.warning(
            "event=dead_letters_given_up %s records=%d reason='the group has no dead-letter topic "
            "any more'",
            live,
            records,
        )
        self._share_partitions.archived(live.key, ranges)

    def _stall(self, key: SharePartitionKey, error: Exception) -> None:
        """Try again later; say why once, and where if nobody thought of it."""
        is_config = isinstance(error, InvalidConfig)
        stall = self._stalls.setdefault(key, _Stall())
        doublings = 0 if is_config else min(stall.attempts, DOUBLINGS_MAX)
        delay_ms = min(RETRY_MS_MIN << doublings, RETRY_MS_MAX)
        stall.attempts = 0 if is_config else stall.attempts + 1
        stall.is_waiting = True
        self._counts[key.group_id].failure_count += 1
        heapq.heappush(self._due, (self._clock.now_ms() + delay_ms, next(self._order), key))
        self._set_alarm()
        trouble = self._troubles[key.group_id]
        trouble.keys.add(key)
        reason = str(error) if is_config else type(error).__name__
        if reason not in trouble.reasons:
            trouble.reasons.add(reason)
            log.warning(
                "event=dead_letters_stalled group=%r error=%r action='the records wait; it is "
                "tried again; unset errors.deadletterqueue.topic.name to archive them without'",
                key.group_id,
                str(error),
                exc_info=None if isinstance(error, KafkaError) else error,
            )

    def _over(self, key: SharePartitionKey) -> None:
        """The share partition is not stalled, or not any more."""
        if self._stalls.pop(key, None) is None:
            return
        trouble = self._troubles[key.group_id]
        trouble.keys.discard(key)
        if not trouble.keys:
            del self._troubles[key.group_id]
            log.info("event=dead_letters_go_on group=%r", key.group_id)

    def _set_alarm(self) -> None:
        if self._due and not self._is_stopping:
            self._alarm.set(self._due[0][0])

    def _try_again(self) -> None:
        now_ms = self._clock.now_ms()
        while self._due and self._due[0][0] <= now_ms:
            _, _, key = heapq.heappop(self._due)
            stall = self._stalls.get(key)
            if stall is not None:
                stall.is_waiting = False
                self._ready[key] = None
        self._wake.set()
        self._set_alarm()
