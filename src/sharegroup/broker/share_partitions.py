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
from collections.abc import Awaitable, Iterator, Sequence

from sharegroup.broker.clock import Clock
from sharegroup.broker.group_settings import GroupSettings
from sharegroup.broker.live_share_partition import LiveSharePartition
from sharegroup.broker.lock_expiry import LockExpiry
from sharegroup.broker.persister import Persister
from sharegroup.broker.share_reading import Fetched, read_acquired
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
from sharegroup.storage.tickets import Ticket

log = logging.getLogger(__name__)


LOG_BATCHES_MAX = 2_000
"""Log batches that one fetch looks at; each holds at least one record."""


class SharePartitions:
    """See the module's text."""

    __slots__ = (
        "_clock",
        "_coordinator",
        "_expiry",
        "_live",
        "_settings",
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
            log.debug("event=share_partition_loaded %s", live)
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
        assert not live.fenced, f"{live}: nothing was awaited since it was looked up"
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

    def _release_unreadable(
        self, live: LiveSharePartition, member_id: MemberId, unreadable: tuple[Acquired, ...]
    ) -> None:
        """Give back what nobody can read; the attempt counts."""
        delta = live.state.acknowledge(
            member_id,
            [AckBatch(one.first, one.end, (Ack.RELEASE,)) for one in unreadable],
            limits=self._settings.limits(live.key.group_id),
            now_ms=self._clock.now_ms(),
        )
        self._append_unattended(live, delta)

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
        except KafkaError as error:
            self._fence(live)
            raise _for_clients(error) from error
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

    def _expire(self, live: LiveSharePartition, now_ms: int) -> None:
        limits = self._settings.limits(live.key.group_id)
        self._append_unattended(live, live.state.expire(limits=limits, now_ms=now_ms))

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
