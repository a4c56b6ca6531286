"""The share partitions that are in use: loads them, runs them, makes their changes durable.

The decisions are `sharegroup.core.SharePartition`'s.  This module gives it what it lacks: the
log to read from, the clock, the coordinator that keeps its state, and other requests to wake.

    handler ── acknowledge ──▶ core ── Delta ──▶ coordinator ── durable ──▶ reply
    handler ── fetch ────────▶ core ── ranges ─▶ log.read ────────────────▶ reply

What core decides is final in memory at once and is answered only when it is durable.  When a
write fails the share partition is *fenced*: dropped here, and loaded again from what the
coordinator has durable by whoever asks next.  Looking into the log, locking records and
reading them happen without an await in between, so two fetches never take the same record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.distribution import Distribution
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.broker.share.lock_expiry import RUNS_AT_ONCE, LockExpiry
from sharegroup.broker.share.persister import Persister
from sharegroup.broker.share.share_counters import ShareCounters
from sharegroup.broker.share.share_reading import (
    LOG_BATCHES_MAX,
    Fetched,
    deliverable,
    log_batches,
    read_acquired,
)
from sharegroup.broker.waiting import WaitingRoom
from sharegroup.core.delivery import (
    AckBatch,
    Acquired,
    Delta,
    Limits,
    LogBatches,
    RecordState,
    Wanted,
)
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import (
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownServerError,
)
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicId
from sharegroup.storage.boundaries import BatchSpans
from sharegroup.storage.tickets import Ticket

log = logging.getLogger(__name__)


LOOKS_MAX = 16
"""How often one fetch looks further where what it found was for no member."""


class SharePartitions:
    """See the module's text."""

    __slots__ = (
        "_archiving",
        "_clock",
        "_coordinator",
        "_expiry",
        "_live",
        "_settings",
        "_topics",
        "_unattended",
        "_waiting",
        "counters",
    )

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        waiting: WaitingRoom,
        *,
        coordinator: Persister,
        settings: GroupSettings,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._waiting = waiting
        self._coordinator = coordinator
        self._settings = settings
        self._live: dict[SharePartitionKey, LiveSharePartition] = {}
        self._expiry = LockExpiry(clock, self._expire)
        self.counters = ShareCounters(lambda topic_id: topics.catalog.by_id(topic_id) is not None)
        self._unattended: set[asyncio.Task[None]] = set()
        self._archiving: Callable[[SharePartitionKey], None] = lambda _: None

    def __iter__(self) -> Iterator[LiveSharePartition]:
        yield from list(self._live.values())

    def __len__(self) -> int:
        return len(self._live)

    @property
    def lock_lateness(self) -> Distribution:
        """By how much the first lock of a share partition had ended when somebody came by."""
        return self._expiry.lateness

    def loaded(self, key: SharePartitionKey) -> LiveSharePartition | None:
        """The share partition, if somebody has fetched from it since it was last dropped."""
        return self._live.get(key)

    def get(self, key: SharePartitionKey) -> LiveSharePartition:
        """The share partition, loaded now if need be; raises what keeps it from being used."""
        live = self._live.get(key)
        if live is None:
            began = self.counters.clock()
            topic, log_ = self._topics.identified(key.topic_id, key.partition)
            try:
                persisted = self._coordinator.read(key)
            except KafkaError as error:
                raise _for_clients(error) from error
            state = SharePartition.restore(
                persisted.start_offset, persisted.batches, log_end=log_.end_offset
            )
            live = LiveSharePartition(
                key,
                topic.name,
                state=state,
                log=log_,
                state_epoch=persisted.state_epoch,
                last_write=self._coordinator.last_write(key),
            )
            self._live[key] = live
            self.counters.load_seconds.observe(self.counters.clock() - began)
            log.debug("event=share_partition_loaded %s", live)
            if state.snapshot().archiving_count:
                self._archiving(key)
        return live

    def fetch(
        self,
        live: LiveSharePartition,
        member_id: MemberId,
        wanted: Wanted,
        *,
        bytes_max: int,
        sharers: int = 1,
    ) -> Fetched | None:
        """Lock and read what is available; None when there is nothing to take.

        While the group holds as many records as it may, none of its ``sharers`` takes more than
        an equal part at once.  Otherwise those who finish a log batch beyond what they asked for
        leave one of them only crumbs, for ever: it settles a few and finds room for as few.
        """
        began = self.counters.clock()
        try:
            fetched = self._look(live, member_id, wanted, bytes_max=bytes_max, sharers=sharers)
        finally:
            live.look_count += 1
            live.look_seconds += self.counters.clock() - began
        if fetched is not None:
            live.delivered_batches += len(fetched.acquired)
            live.delivered_records += sum(one.end - one.first for one in fetched.acquired)
        return fetched

    def _look(
        self,
        live: LiveSharePartition,
        member_id: MemberId,
        wanted: Wanted,
        *,
        bytes_max: int,
        sharers: int,
    ) -> Fetched | None:
        self.follow_log_start(live)
        limits = self._settings.limits(live.key.group_id)
        for _ in range(LOOKS_MAX):
            position = live.state.next_fetch_offset()
            end = self._readable_end(live)
            if live.fenced or position >= end or not self._can_take(live, limits):
                return None
            found = log_batches(live, wanted, position=position, end=end, bytes_max=bytes_max)
            own = _limits_of_one(live, limits, sharers)
            fetched = self._acquire(
                live, member_id, wanted, limits=own, position=position, found=found
            )
            live.crowded = not live.state.can_acquire(limits)
            if fetched is not None or live.state.next_fetch_offset() <= position:
                return fetched
        # So much lies here that is for no member: let others have their turn, then go on.
        asyncio.get_running_loop().call_soon(self._waiting.wake, live.key)
        return None

    def _acquire(
        self,
        live: LiveSharePartition,
        member_id: MemberId,
        wanted: Wanted,
        *,
        limits: Limits,
        position: int,
        found: BatchSpans,
    ) -> Fetched | None:
        """Lock and read of these batches what there is for members."""
        if self._settings.reads_committed(live.key.group_id):
            batches = deliverable(live, found, position=position)
        else:
            batches = LogBatches(position, found.firsts, found.ends)
        acquisition = live.state.acquire(
            member_id,
            batches,
            wanted=wanted,
            limits=limits,
            now_ms=self._clock.now_ms(),
        )
        self._append_unattended(live, acquisition.delta)
        if live.fenced or not acquisition.ranges:
            return None  # Fenced by the write just now, or nothing to lock.
        self._expiry.watch(live)
        read = read_acquired(live, acquisition.ranges, found)
        if read.unreadable:
            self._release_unreadable(live, member_id, read.unreadable)
        if not read.fetched.acquired:
            assert read.error is not None, "nothing could be read, so there is a reason"
            raise read.error
        return read.fetched

    def available_bytes(self, live: LiveSharePartition, *, bytes_max: int) -> int:
        """How many bytes of log batches a fetch would find, up to about ``bytes_max``."""
        self.follow_log_start(live)
        position, end = live.state.next_fetch_offset(), self._readable_end(live)
        limits = self._settings.limits(live.key.group_id)
        if position >= end or not self._can_take(live, limits):
            return 0
        found = live.log.batches(position, end=end, bytes_max=bytes_max, count_max=LOG_BATCHES_MAX)
        return found.total_bytes

    def acknowledge(
        self, live: LiveSharePartition, member_id: MemberId, acks: Sequence[AckBatch]
    ) -> Awaitable[None] | None:
        """Settle, give back or keep records: decided now, done when it is durable (None: it is)."""
        assert not live.fenced, f"{live}: nothing was awaited since it was looked up"
        began = self.counters.clock()
        try:
            delta = live.state.acknowledge(
                member_id,
                acks,
                limits=self._settings.limits(live.key.group_id),
                now_ms=self._clock.now_ms(),
            )
        except KafkaError as error:
            raise type(error)(f"{live} member={member_id!r}: {error}") from error
        self._expiry.watch(live)  # With a shorter duration a renewed lock may end sooner.
        self._append(live, delta)
        # Where nothing changed, because the records had settled before, that may still be on
        # its way to the disk: a yes that comes sooner would be lost with it.
        ticket = live.last_write
        if ticket is None or (ticket.done and not ticket.failed):
            self._count_acknowledged(acks, began)
            return None
        return self._acknowledged(live, ticket, acks, began=began)

    def release(self, key: SharePartitionKey, member_id: MemberId) -> None:
        """The member's session ended: whatever it holds here goes back."""
        live = self._live.get(key)
        if live is not None:
            limits = self._settings.limits(key.group_id)
            self._append_unattended(live, live.state.release_member(member_id, limits=limits))

    def on_archiving(self, callback: Callable[[SharePartitionKey], None]) -> None:
        """Call ``callback`` for a share partition of which records wait for their dead letter."""
        self._archiving = callback

    def archived(self, key: SharePartitionKey, copied: Iterable[tuple[int, int]]) -> None:
        """The dead letters of these offsets are durable, whatever was loaded again meanwhile."""
        live = self.get(key)
        self._append_unattended(live, live.state.archived(copied))

    def settings_changed(self, group_id: GroupId | None) -> None:
        """Of one group, or (None) of all: whoever waits for records may find some now."""
        for key in self._live:
            if group_id in (None, key.group_id):
                self._waiting.wake(key)

    def unload(self, key: SharePartitionKey) -> None:
        """Forget what is in memory of one share partition that nobody uses."""
        live = self._live.pop(key, None)
        if live is not None:
            live.fenced = True

    def unload_group(self, group_id: GroupId) -> None:
        """Nobody of the group is connected: memory need not hold it.

        Locks can be left where a member forgot a partition before it went; they end with it.
        """
        for key in [key for key in self._live if key.group_id == group_id]:
            self._live.pop(key).fenced = True  # Its timer must not speak for the next one.

    def drop_group(self, group_id: GroupId) -> None:
        """Forget what is in memory of a group whose state was changed from outside."""
        self.counters.groups.pop(group_id, None)
        for key in [key for key in self._live if key.group_id == group_id]:
            self._fence(self._live[key])

    def drop_topic(self, topic_id: TopicId) -> None:
        """Forget the share partitions of a topic that is gone."""
        self.counters.topics.pop(topic_id, None)
        for key in [key for key in self._live if key.topic_id == topic_id]:
            self._fence(self._live[key])

    def follow_log_start(self, live: LiveSharePartition) -> None:
        """What the log no longer holds is settled; nothing below its start can be read.

        It waits for a disk that takes writes: a failed write wakes those who wait for records, and
        they would come here again at once.
        """
        if live.log.start_offset <= live.state.start_offset or not self.can_settle(live):
            return
        waited = live.state.snapshot().archiving_count
        self._append_unattended(live, live.state.move_log_start(live.log.start_offset))
        lost = waited - live.state.snapshot().archiving_count
        if lost:
            log.warning(
                "event=dead_letters_lost %s records=%d log_start=%d reason='the log deleted the "
                "records while their dead letters waited'",
                live,
                lost,
                live.log.start_offset,
            )

    def _readable_end(self, live: LiveSharePartition) -> int:
        """Up to where the group may read: to what is durable, or to what is decided, too."""
        if self._settings.reads_committed(live.key.group_id):
            return live.log.last_stable_offset
        return live.log.high_watermark

    def _can_take(self, live: LiveSharePartition, limits: Limits) -> bool:
        """Whether there is room for more, and a disk to write down what becomes of it."""
        if not self.can_settle(live):
            return False
        self._report_fullness(live, limits)
        live.starved = not live.state.can_acquire(limits)
        return not live.starved

    def _release_unreadable(
        self, live: LiveSharePartition, member_id: MemberId, unreadable: tuple[Acquired, ...]
    ) -> None:
        """Give back what nobody can read; the attempt counts."""
        delta = live.state.release_unreadable(
            member_id,
            [(one.first, one.end) for one in unreadable],
            limits=self._settings.limits(live.key.group_id),
        )
        self._append_unattended(live, delta)

    def can_settle(self, live: LiveSharePartition) -> bool:
        """Whether acknowledgements could be kept now.

        While they cannot, records stay where they are: each failed acknowledgement loads the
        share partition again, and whoever fetched next would do the same work once more.
        """
        try:
            self._coordinator.check_writable(live.key)
        except KafkaStorageError:
            return False
        return True

    def _append(self, live: LiveSharePartition, delta: Delta | None) -> Ticket | None:
        """Hand a change to the coordinator, in the order in which it was decided."""
        if delta is None:
            return None
        try:
            ticket = self._coordinator.write(live.key, live.state_epoch, delta)
        except KafkaError as error:
            self._fence(live)
            raise _for_clients(error) from error
        live.last_write = ticket
        # What was given back can be fetched from now on, and what settled makes room.
        states = {batch.state for batch in delta.batches}
        if live.starved or RecordState.AVAILABLE in states:
            self._waiting.wake(live.key)
        if RecordState.ARCHIVING in states:
            self._archiving(live.key)
        return ticket

    async def _acknowledged(
        self,
        live: LiveSharePartition,
        ticket: Ticket,
        acks: Sequence[AckBatch],
        *,
        began: float,
    ) -> None:
        await self._durable(live, ticket)
        self._count_acknowledged(acks, began)

    def _count_acknowledged(self, acks: Sequence[AckBatch], began: float) -> None:
        self.counters.write_seconds.observe(self.counters.clock() - began)
        self.counters.count(acks)

    async def _durable(self, live: LiveSharePartition, ticket: Ticket | None) -> None:
        if ticket is None:
            return
        try:
            await ticket
        except KafkaError:
            self._fence(live)
            raise

    def _append_unattended(self, live: LiveSharePartition, delta: Delta | None) -> None:
        """A change that no request waits for; a failure fences and is logged."""
        if delta is None:
            return
        try:
            ticket = self._append(live, delta)
        except KafkaError as error:
            _log_lost(live, error)
            return
        task = asyncio.ensure_future(self._watch(live, ticket))
        self._unattended.add(task)
        task.add_done_callback(self._unattended.discard)

    async def _watch(self, live: LiveSharePartition, ticket: Ticket | None) -> None:
        try:
            await self._durable(live, ticket)
        except KafkaError as error:
            _log_lost(live, error)

    def _fence(self, live: LiveSharePartition) -> None:
        """Stop using what is in memory; who comes next loads what is durable.

        That may be another object than ``live`` by now, loaded from what was not durable yet.
        """
        live.fenced = True
        current = self._live.pop(live.key, None)
        if current is not None:
            current.fenced = True
        self._waiting.wake(live.key)

    def _expire(self, live: LiveSharePartition, now_ms: int) -> None:
        limits = self._settings.limits(live.key.group_id)
        held = live.state.snapshot().acquired_count
        delta = live.state.expire(limits=limits, now_ms=now_ms, runs_max=RUNS_AT_ONCE)
        timed_out = held - live.state.snapshot().acquired_count
        live.timed_out_count += timed_out
        self.counters.timed_out_count += timed_out
        self._append_unattended(live, delta)

    def _report_fullness(self, live: LiveSharePartition, limits: Limits) -> None:
        """Say once when a share partition stops taking new records, and once when it goes on."""
        full = live.state.is_full(limits)
        if full and not live.full:
            log.warning(
                "event=share_partition_full %s runs=%d action='settle records; no new ones are "
                "delivered until then'",
                live,
                live.state.snapshot().run_count,
            )
        elif live.full and not full:
            log.info("event=share_partition_goes_on %s", live)
        live.full = full


def _limits_of_one(live: LiveSharePartition, limits: Limits, sharers: int) -> Limits:
    """What holds for one fetch: all room, or an equal part while there is not enough."""
    if not live.crowded or sharers <= 1:
        return limits
    part = max(1, limits.in_flight_max // sharers)
    held = live.state.snapshot().acquired_count
    if held <= part:
        return limits  # Hardly anybody holds anything any more.
    return replace(limits, in_flight_max=min(limits.in_flight_max, held + part))


def _for_clients(error: KafkaError) -> KafkaError:
    """What a client is told that the persister refused, as Kafka's leader does it.

    State epochs and initialization are between brokers.  To a client, a leader that was fenced
    is none, and one whose state was never initialized is broken.
    """
    if isinstance(error, FencedStateEpoch | FencedLeaderEpoch):
        return NotLeaderOrFollower(str(error))
    if isinstance(error, InvalidRequest):
        return UnknownServerError(str(error))
    return error


def _log_lost(live: LiveSharePartition, error: KafkaError) -> None:
    log.error(
        "event=state_write_failed %s error=%r action='the share partition is loaded again'",
        live,
        str(error),
    )
