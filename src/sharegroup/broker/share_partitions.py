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
import heapq
import logging
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from sharegroup.broker.clock import Clock, Timer
from sharegroup.broker.group_settings import GroupSettings
from sharegroup.broker.share_coordinator import ShareCoordinator
from sharegroup.broker.topics import Topics
from sharegroup.broker.waiting import WaitingRoom
from sharegroup.core.delivery import (
    Ack,
    AckBatch,
    Acquired,
    Delta,
    Limits,
    LogBatches,
    RecordState,
    Wanted,
)
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import CorruptMessage, InvalidRecordState, KafkaError, KafkaStorageError
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicId, topic_id_text
from sharegroup.storage.boundaries import BatchSpans
from sharegroup.storage.partition_log import PartitionLog
from sharegroup.storage.tickets import Ticket

log = logging.getLogger(__name__)


LOG_BATCHES_MAX = 2_000
"""Log batches that one fetch looks at; each holds at least one record."""


class LiveSharePartition:
    """One loaded share partition; ``fenced`` once it must not be used any more."""

    __slots__ = (
        "expiry_ms",
        "fenced",
        "full_reported",
        "key",
        "last_write",
        "log",
        "starved",
        "state",
        "state_epoch",
    )

    def __init__(
        self,
        key: SharePartitionKey,
        state: SharePartition,
        log_: PartitionLog,
        *,
        state_epoch: int,
        last_write: Ticket | None,
    ) -> None:
        self.key = key
        self.state = state
        self.log = log_
        self.state_epoch = state_epoch
        self.fenced = False
        self.full_reported = False
        self.starved = False  # The last fetch found no room: whatever settles makes some.
        self.last_write = last_write  # None: all that is known of it is durable.
        self.expiry_ms: int | None = None  # When the broker's timer will look at the locks.


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records for one member: whole log batches, and which of their offsets are locked for it."""

    records: bytes
    acquired: tuple[Acquired, ...]


class SharePartitions:
    """See the module's text."""

    __slots__ = (
        "_clock",
        "_coordinator",
        "_due",
        "_live",
        "_order",
        "_settings",
        "_timer",
        "_topics",
        "_unattended",
        "_waiting",
    )

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        waiting: WaitingRoom,
        *,
        coordinator: ShareCoordinator,
        settings: GroupSettings,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._waiting = waiting
        self._coordinator = coordinator
        self._settings = settings
        self._live: dict[SharePartitionKey, LiveSharePartition] = {}
        self._due: list[tuple[int, int, LiveSharePartition]] = []
        self._order = count()
        self._timer: tuple[int, Timer] | None = None
        self._unattended: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[LiveSharePartition]:
        yield from list(self._live.values())

    def loaded(self, key: SharePartitionKey) -> LiveSharePartition | None:
        """The share partition, if somebody has fetched from it since it was last dropped."""
        return self._live.get(key)

    def get(self, key: SharePartitionKey) -> LiveSharePartition:
        """The share partition, loaded now if need be; raises what keeps it from being used."""
        live = self._live.get(key)
        if live is None:
            _, log_ = self._topics.identified(key.topic_id, key.partition)
            persisted = self._coordinator.read(key)
            state = SharePartition.restore(
                persisted.start_offset, persisted.batches, log_end=log_.end_offset
            )
            live = LiveSharePartition(
                key,
                state,
                log_,
                state_epoch=persisted.state_epoch,
                last_write=self._coordinator.last_write(key),
            )
            self._live[key] = live
            log.debug("event=share_partition_loaded %s", describe(key))
        return live

    def fetch(
        self, live: LiveSharePartition, member_id: MemberId, wanted: Wanted, *, bytes_max: int
    ) -> Fetched | None:
        """Lock and read what is available; None when there is nothing to take."""
        limits = self._settings.limits(live.key.group_id)
        log_ = live.log
        self._follow_log_start(live)
        position = live.state.next_fetch_offset()
        if live.fenced or position >= log_.high_watermark or not self._can_settle(live):
            return None
        self._report_fullness(live, limits)
        live.starved = not live.state.can_acquire(limits)
        if live.starved:
            return None
        found = log_.batches(
            position,
            end=log_.high_watermark,
            bytes_max=bytes_max,
            count_max=min(wanted.records_max, LOG_BATCHES_MAX),
        )
        acquisition = live.state.acquire(
            member_id,
            LogBatches(position, found.firsts, found.ends),
            wanted=wanted,
            limits=limits,
            now_ms=self._clock.now_ms(),
        )
        self._append_unattended(live, acquisition.delta)
        if self._live.get(live.key) is not live or not acquisition.ranges:
            return None  # Fenced by the write just now, or nothing to lock.
        self._watch_locks(live)
        return self._read(live, member_id, acquisition.ranges, found)

    def available_bytes(self, live: LiveSharePartition, *, bytes_max: int) -> int:
        """How many bytes of log batches a fetch would find, up to about ``bytes_max``."""
        self._follow_log_start(live)
        position = live.state.next_fetch_offset()
        limits = self._settings.limits(live.key.group_id)
        if position >= live.log.high_watermark or not live.state.can_acquire(limits):
            return 0
        found = live.log.batches(
            position, end=live.log.high_watermark, bytes_max=bytes_max, count_max=LOG_BATCHES_MAX
        )
        return found.total_bytes

    def acknowledge(
        self, live: LiveSharePartition, member_id: MemberId, acks: Sequence[AckBatch]
    ) -> Awaitable[None]:
        """Settle, give back or keep records: decided now, done when it is durable."""
        if live.fenced:
            raise InvalidRecordState(
                f"{describe(live.key)} was loaded again since these records were acquired"
            )
        try:
            delta = live.state.acknowledge(
                member_id,
                acks,
                limits=self._settings.limits(live.key.group_id),
                now_ms=self._clock.now_ms(),
            )
        except KafkaError as error:
            raise type(error)(f"{describe(live.key)} member={member_id}: {error}") from error
        self._watch_locks(live)  # With a shorter duration a renewed lock may end sooner.
        self._append(live, delta)
        # Where nothing changed, because the records had settled before, that may still be on
        # its way to the disk: a yes that comes sooner would be lost with it.
        return self._durable(live, live.last_write)

    def release(self, key: SharePartitionKey, member_id: MemberId) -> None:
        """The member's session ended: whatever it holds here goes back."""
        live = self._live.get(key)
        if live is not None:
            limits = self._settings.limits(key.group_id)
            self._append_unattended(live, live.state.release_member(member_id, limits=limits))

    def unload_group(self, group_id: GroupId) -> None:
        """Nobody of the group is connected: memory need not hold it.

        Locks can be left where a member forgot a partition before it went; they end with it.
        """
        for key in [key for key in self._live if key.group_id == group_id]:
            self._live.pop(key).fenced = True  # Its timer must not speak for the next one.

    def drop_group(self, group_id: GroupId) -> None:
        """Forget what is in memory of a group whose state was changed from outside."""
        for key in [key for key in self._live if key.group_id == group_id]:
            self._fence(self._live[key])

    def drop_topic(self, topic_id: TopicId) -> None:
        """Forget the share partitions of a topic that is gone."""
        for key in [key for key in self._live if key.topic_id == topic_id]:
            self._fence(self._live[key])

    def _follow_log_start(self, live: LiveSharePartition) -> None:
        """What the log no longer holds is settled; nothing below its start can be read."""
        if live.log.start_offset > live.state.start_offset:
            self._append_unattended(live, live.state.move_log_start(live.log.start_offset))

    def _read(
        self,
        live: LiveSharePartition,
        member_id: MemberId,
        ranges: tuple[Acquired, ...],
        found: BatchSpans,
    ) -> Fetched:
        """The log batches that cover ``ranges``; where some cannot be read, the others."""
        try:
            return Fetched(live.log.read_range(ranges[0].first, ranges[-1].end), ranges)
        except (CorruptMessage, KafkaStorageError) as error:
            return self._read_around(live, member_id, ranges, found, error)

    def _read_around(
        self,
        live: LiveSharePartition,
        member_id: MemberId,
        ranges: tuple[Acquired, ...],
        found: BatchSpans,
        error: KafkaError,
    ) -> Fetched:
        """Deliver the log batches that can be read and give back the records of the others.

        Those count as delivered and so are archived in the end: one damaged batch must not keep
        its partition from ever going on.
        """
        readable: list[Acquired] = []
        damaged: list[AckBatch] = []
        chunks: list[bytes] = []
        for first, end in zip(found.firsts, found.ends, strict=True):
            inside = [
                Acquired(max(one.first, first), min(one.end, end), one.delivery_count)
                for one in ranges
                if one.first < end and first < one.end
            ]
            if not inside:
                continue
            try:
                chunks.append(live.log.read_range(inside[0].first, inside[-1].end))
            except (CorruptMessage, KafkaStorageError) as reason:
                log.warning("event=batch_unreadable %s error=%r", describe(live.key), str(reason))
                damaged += [AckBatch(one.first, one.end, (Ack.RELEASE,)) for one in inside]
            else:
                readable += inside
        limits = self._settings.limits(live.key.group_id)
        delta = live.state.acknowledge(
            member_id, damaged, limits=limits, now_ms=self._clock.now_ms()
        )
        self._append_unattended(live, delta)
        if not readable:
            raise error
        return Fetched(b"".join(chunks), tuple(readable))

    def _can_settle(self, live: LiveSharePartition) -> bool:
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
        except KafkaError:
            self._fence(live)
            raise
        live.last_write = ticket
        # What was given back can be fetched from now on, and what settled makes room.
        if live.starved or any(batch.state is RecordState.AVAILABLE for batch in delta.batches):
            self._waiting.wake(live.key)
        return ticket

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

    def _watch_locks(self, live: LiveSharePartition) -> None:
        """See that the timer comes by when the first lock of ``live`` ends."""
        expiry_ms = live.state.next_expiry_ms()
        if expiry_ms is None or (live.expiry_ms is not None and live.expiry_ms <= expiry_ms):
            return
        live.expiry_ms = expiry_ms
        heapq.heappush(self._due, (expiry_ms, next(self._order), live))
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._due:
            return
        due_ms = self._due[0][0]
        if self._timer is not None:
            if self._timer[0] <= due_ms:
                return
            self._timer[1].cancel()
        self._timer = (due_ms, self._clock.call_at_ms(due_ms, self._on_timer))

    def _on_timer(self) -> None:
        """Expire what is due; one timer serves all share partitions."""
        self._timer = None
        now_ms = self._clock.now_ms()
        while self._due and self._due[0][0] <= now_ms:
            _, _, live = heapq.heappop(self._due)
            if not live.fenced:
                live.expiry_ms = None
                limits = self._settings.limits(live.key.group_id)
                self._append_unattended(live, live.state.expire(limits=limits, now_ms=now_ms))
                self._watch_locks(live)
        self._set_timer()

    def _report_fullness(self, live: LiveSharePartition, limits: Limits) -> None:
        """Say once when a share partition stops taking new records, and once when it goes on."""
        full = live.state.is_full(limits)
        if full and not live.full_reported:
            log.warning(
                "event=share_partition_full %s runs=%d action='settle records; no new ones are "
                "delivered until then'",
                describe(live.key),
                live.state.snapshot().run_count,
            )
        elif live.full_reported and not full:
            log.info("event=share_partition_goes_on %s", describe(live.key))
        live.full_reported = full


def describe(key: SharePartitionKey) -> str:
    """A share partition in a log line or an error."""
    return (
        f"group={key.group_id!r} topic_id={topic_id_text(key.topic_id)} partition={key.partition}"
    )


def _log_lost(live: LiveSharePartition, error: KafkaError) -> None:
    log.error(
        "event=state_write_failed %s error=%r action='the share partition is loaded again'",
        describe(live.key),
        str(error),
    )
