"""Copies rejected and exhausted records to the dead-letter topic of their group, then archives
them.

    share partition      dead letters                                  dead-letter topic
        │ ARCHIVING, durable ──▶ │ take the lowest that wait               │
        │ ◀──────────────────────│                                         │
        │                        │ read the originals, append ────────────▶│
        │                        │ ◀────────────────────────────── durable │
        │ ◀──── ARCHIVED ────────│                                         │

Waiting records are not stored here: they are in the share partitions' own maps, bounded by
``runs_max``, durable, and in order.  This module only has the keys of their share partitions.
One task takes these in turn, one batch of letters each time.  So no group keeps another waiting,
and a million rejected records are many small steps.  A crash between the two writes makes a
second copy, but never loses one.

Kafka gives up after five attempts, or at once if the configuration does not fit, and archives
the record.  Here the record waits until the letter is written, or until an operator unsets the
group's dead-letter topic.  A configuration that does not fit is checked again each second; a
failing disk is tried again after 1 s, 2 s, and so on up to 30 s.

Letters count as the user who set the group's dead-letter topic (`dead_letter_topic`).  While this
user is over its produce quota they wait, and if it may not write to the topic, the records are
archived without letters: somebody took the right away, so waiting would have no end.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from sharegroup.backoff import Backoff, without_jitter
from sharegroup.broker.access.checks import READ_TOPICS
from sharegroup.broker.clock import Alarm, Clock
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.topics import LogSettings, Topics
from sharegroup.broker.load.record_jobs import RecordJobs
from sharegroup.broker.share.dead_letter_records import (
    LetterBatch,
    OriginalPartition,
    Originals,
    letter_batch,
)
from sharegroup.broker.share.dead_letter_topic import (
    DeadLetterAuthor,
    DeadLetterAuthors,
    DeadLetterTopics,
)
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.broker.share.persister import Persister
from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.core.delivery.delivery import DeadLetterRange, RecordState
from sharegroup.core.delivery.stored.share_states import NO_SUMMARY
from sharegroup.core.security.principal import Principal
from sharegroup.errors import AuthorizationException, InvalidConfig, KafkaError
from sharegroup.ids import GroupId, SharePartitionKey
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.wire.batches.batches import stamp_append_time
from sharegroup.wire.batches.recompression import repacked
from sharegroup.wire.batches.record_walk import finish

log = logging.getLogger(__name__)

RUNS_MAX = 1_000
"""Maximum number of runs that are searched for one batch of letters."""

KEYS_PER_TURN = 100
"""Number of share partitions that are checked before the event loop serves requests."""

RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 30_000

GROUPS_COUNTED_MAX = 10_000
"""Maximum number of groups with counts; the oldest counts are dropped, to bound memory."""

REASONS_MAX = 16
"""Maximum number of reasons that are logged for one stall; each change of settings can add one."""


NOT_READABLE = "the user who set the group's dead-letter topic may not read the topic of the record"


@dataclass(slots=True)
class DeadLetterCounts:
    """The numbers of dead letters and writes of one group since the broker started."""

    record_count: int = 0
    """Dead letters that are durable."""
    not_copied_count: int = 0
    """Durable dead letters without their record, although the group has records copied."""
    write_count: int = 0
    """Batches that were appended to the log."""
    failure_count: int = 0
    """Failed attempts to write dead letters, for any reason."""
    given_up_count: int = 0
    """Records that were archived without a letter, because the group's topic was unset."""
    refused_count: int = 0
    """Records that were archived without a letter, because its user may not write it."""
    throttled_count: int = 0
    """How often a batch had to wait for the produce quota of its user."""


class _Throttled(Exception):
    """The user of the letters is over its produce quota."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.delay_ms = delay_ms


@dataclass(slots=True)
class _Stall:
    """A share partition whose letters cannot be written now."""

    backoff: Backoff = field(
        default_factory=lambda: Backoff(RETRY_MS_MIN, RETRY_MS_MAX, chance=without_jitter)
    )
    """Grows with failed attempts in a row that were not caused by the configuration."""
    is_waiting: bool = False


@dataclass(slots=True)
class _Trouble:
    """The reasons of a group's stalls that were logged, and the stalled share partitions.

    There is one log line for each reason, and one when no share partition is stalled any more.
    """

    keys: set[SharePartitionKey] = field(default_factory=set)
    reasons: set[str] = field(default_factory=set)


class DeadLetters:
    """Writes the dead letters of all groups; ``is_attended`` tells whether a group has sessions."""

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
        "authors",
        "jobs",
        "owner_of",
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
        self.jobs: RecordJobs | None = None
        """Decompresses and walks the originals' batches; None while the broker starts."""
        self.authors: DeadLetterAuthors | None = None
        """Finds the users who pay for letters; None without an authorizer."""
        self.owner_of: Callable[[GroupId], Principal | None] = lambda _: None
        """Returns the user to whom a group belongs, whose turns the walks take."""
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
        # By group, because a wrong setting stalls all of its share partitions at once, and one line
        # is enough.
        self._troubles: defaultdict[GroupId, _Trouble] = defaultdict(_Trouble)
        self._counts: dict[GroupId, DeadLetterCounts] = {}
        self._wake = asyncio.Event()
        self._step = asyncio.Lock()
        self._is_stopping = False
        share_partitions.on_archiving(self.notify)

    @property
    def counts(self) -> dict[GroupId, DeadLetterCounts]:
        """The counts of each group that had a dead letter since the broker started."""
        return dict(self._counts)

    @property
    def pending_count(self) -> int:
        """The number of share partitions that have letters to write, including stalled ones."""
        return len(self._ready.keys() | self._stalls.keys())

    @property
    def stalled_count(self) -> int:
        """The number of share partitions whose letters cannot be written now."""
        return len(self._stalls)

    @property
    def is_idle(self) -> bool:
        """Whether no work is left until `notify` is called or a retry is due."""
        return not self._ready and not self._step.locked()

    def notify(self, key: SharePartitionKey) -> None:
        """Note that records of this share partition wait for their dead letters."""
        self._ready[key] = None
        self._wake.set()

    async def run(self) -> None:
        """Write letters until `stop`, beginning with those that waited when the broker stopped."""
        await self._find_waiting()
        while not self._is_stopping:
            if not self._ready:
                self._wake.clear()
                await self._wake.wait()
                continue
            key = next(iter(self._ready))
            # Before its turn: records that begin to wait during it must cause another turn.
            del self._ready[key]
            if key in self._stalls and self._stalls[key].is_waiting:
                continue  # Its retry is due later, and will include the new records.
            async with self._step:
                await self._attend(key)
            await asyncio.sleep(0)  # With durability=os no await above gives way to other tasks.

    async def stop(self) -> None:
        """Finish the letters that are being written, and begin no others."""
        # A step that is under way ends first: a letter that is durable before its record is
        # archived would be written again at the next start (ADR 0013).
        self._is_stopping = True
        self._wake.set()
        self._alarm.stop()
        async with self._step:
            return

    async def _find_waiting(self) -> None:
        """Find records that wait for their letters since before the start.

        They are written even if no member of their group comes back.
        """
        for number, key in enumerate(self._persister.known(), 1):
            if self._may_wait(key):
                self.notify(key)
            if number % KEYS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _may_wait(self, key: SharePartitionKey) -> bool:
        """Return whether records of a share partition wait, or its state cannot be read."""
        try:
            # The stored state is in memory already.  Loading the share partition would open its
            # log, too, even if nothing waits.
            batches = self._persister.read(key).batches
        except KafkaError:
            return True  # The error is reported when its turn comes.
        return any(batch.state is RecordState.ARCHIVING for batch in batches)

    async def _attend(self, key: SharePartitionKey) -> None:
        """Write one batch of letters of one share partition, and decide what to do with it next."""
        try:
            goes_on = await self._write_some(key)
        except _Throttled as throttled:
            self._counts_of(key.group_id).throttled_count += 1
            # Not a failure: the delay is that of the quota and does not grow.
            self._wait(key, self._stalls.setdefault(key, _Stall()), throttled.delay_ms)
            return
        except Exception as error:  # noqa: BLE001  An unexpected error must not end this task.
            self._stall(key, error)
            return
        self._over(key)
        if goes_on:
            self._ready[key] = None
        elif not self._is_attended(key.group_id):
            # It was loaded only for its letters.
            self._share_partitions.unload(key)

    async def _write_some(self, key: SharePartitionKey) -> bool:
        """Write one batch of letters; return whether there may be more."""
        if self._persister.summary(key) == NO_SUMMARY:
            return False  # The group or the topic was deleted.
        authors = self.authors
        author = None if authors is None else authors.of(key.group_id)
        refusal: AuthorizationException | None = None
        try:
            target = await self._targets.of(key, author)
        except AuthorizationException as error:
            target, refusal = None, error
        live = self._share_partitions.get(key)
        if live.last_write is not None:
            # No letter before ARCHIVING is durable: after a crash the record would be available
            # again, and a member might accept what a letter calls failed.
            await live.last_write
        # After an await another object may have been loaded for the key; it has its own turn.
        if live.fenced:
            return True
        self._share_partitions.follow_log_start(live)
        letters = live.state.dead_letters(
            limits=self._settings.limits(key.group_id), runs_max=RUNS_MAX
        )
        if not letters:
            return False
        if target is None:
            self._give_up(live, letters, refusal)
            return True
        if authors is not None and author is not None and (wait_ms := authors.throttle_ms(author)):
            raise _Throttled(wait_ms)
        batch = await self._batch(live, letters, target, author)
        # Making the batch took turns of the event loop, in which the share partition may have been
        # dropped.
        if live.fenced:
            return True
        counts = self._counts_of(key.group_id)
        counts.write_count += 1
        if authors is not None and author is not None:
            authors.wrote(author, len(batch.batch))
        await self._append(target, key.partition, batch)
        counts.record_count += batch.record_count
        counts.not_copied_count += batch.not_copied_count
        # By its key, because the share partition may have been loaded again while the letters were
        # written.  If archiving is lost in a crash, the letters are written twice (ADR 0013).
        self._share_partitions.archived(key, batch.ranges)
        return True

    async def _batch(
        self,
        live: LiveSharePartition,
        letters: list[DeadLetterRange],
        target: Topic,
        author: DeadLetterAuthor | None,
    ) -> LetterBatch:
        """Make a batch of letters, as many as fit."""
        originals: Originals | str | None = None
        if self._settings.copies_dead_letters(live.key.group_id):
            originals = Originals(live.log)
            if author is not None and not author.allows(READ_TOPICS, live.topic_name):
                originals = NOT_READABLE
        walk = letter_batch(
            letters,
            OriginalPartition(live.key.group_id, live.topic_name, live.key.partition),
            originals,
            bytes_max=self._topics.settings(target).message_bytes_max,
            wall_ms=self._clock.wall_ms(),
        )
        # The work takes the turns of the user on whose behalf the letter is written (ADR 0037).
        owner = self.owner_of(live.key.group_id) if author is None else author.limited_user
        made = finish(walk) if self.jobs is None else await self.jobs.complete(walk, owner)
        return await self._compressed(made, self._topics.settings(target), owner)

    async def _compressed(
        self, made: LetterBatch, settings: LogSettings, owner: Principal | None
    ) -> LetterBatch:
        """Return the batch in the codec of the topic, as a producer's batch is stored.

        A letter that is only small enough because it is compressed stays so.
        """
        if settings.target is None or self.jobs is None:
            return made
        walk = repacked(made.batch, settings.target, bytes_max=self.jobs.bytes_max)
        packed = await self.jobs.complete(walk, owner)
        if len(packed) > settings.message_bytes_max:
            return made
        return made._replace(batch=packed)

    def _append(self, target: Topic, partition: int, batch: LetterBatch) -> Ticket:
        # The same partition number as in Kafka (`ShareGroupDLQStateManager`), so letters of one
        # partition keep their order.
        log_ = self._topics.log_of(target, partition % target.partition_count)
        now_ms = self._clock.wall_ms()
        if self._topics.settings(target).append_time:
            stamp_append_time(batch.batch, now_ms)
        return log_.append(batch.batch, now_ms=now_ms)

    def _give_up(
        self,
        live: LiveSharePartition,
        letters: list[DeadLetterRange],
        refusal: AuthorizationException | None,
    ) -> None:
        """Archive the records without letters: the topic was unset, or its user may not write."""
        ranges = tuple((letter.first, letter.end) for letter in letters)
        record_count = sum(end - first for first, end in ranges)
        group_id = live.key.group_id
        if refusal is not None and self.authors is not None:
            self._counts_of(group_id).refused_count += record_count
            self.authors.report(group_id, refusal, record_count)
        else:
            self._counts_of(group_id).given_up_count += record_count
            log.warning(
                "event=dead_letters_given_up %s records=%d reason='the dead-letter topic of "
                "the group was unset'",
                live,
                record_count,
            )
        self._share_partitions.archived(live.key, ranges)

    def _stall(self, key: SharePartitionKey, error: Exception) -> None:
        """Schedule a retry, and log each reason once, with a traceback if it is unexpected."""
        is_config = isinstance(error, InvalidConfig)
        stall = self._stalls.setdefault(key, _Stall())
        if is_config:
            stall.backoff.reset()
        delay_ms = RETRY_MS_MIN if is_config else stall.backoff.next_ms()
        self._counts_of(key.group_id).failure_count += 1
        self._wait(key, stall, delay_ms)
        trouble = self._troubles[key.group_id]
        trouble.keys.add(key)
        # The texts of other errors name offsets, so each text would be a new reason.
        reason = str(error) if is_config else type(error).__name__
        if reason not in trouble.reasons and len(trouble.reasons) < REASONS_MAX:
            trouble.reasons.add(reason)
            log.warning(
                "event=dead_letters_stalled group=%r error=%r action='the records wait and the "
                "write is retried; to archive them without dead letters, unset "
                "errors.deadletterqueue.topic.name'",
                key.group_id,
                str(error),
                exc_info=None if isinstance(error, KafkaError) else error,
            )

    def _wait(self, key: SharePartitionKey, stall: _Stall, delay_ms: int) -> None:
        stall.is_waiting = True
        # The number keeps the order of arrival among equal times.
        heapq.heappush(self._due, (self._clock.now_ms() + delay_ms, next(self._order), key))
        self._set_alarm()

    def _over(self, key: SharePartitionKey) -> None:
        """Mark the share partition as not stalled; log that if it was the group's last one."""
        if self._stalls.pop(key, None) is None:
            return
        trouble = self._troubles.get(key.group_id)
        if trouble is None:
            return  # It waited for a quota only.
        trouble.keys.discard(key)
        if not trouble.keys:
            del self._troubles[key.group_id]
            log.info("event=dead_letters_go_on group=%r", key.group_id)

    def _counts_of(self, group_id: GroupId) -> DeadLetterCounts:
        counts = self._counts.get(group_id)
        if counts is None:
            if len(self._counts) >= GROUPS_COUNTED_MAX:
                del self._counts[next(iter(self._counts))]
            counts = self._counts[group_id] = DeadLetterCounts()
        return counts

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
