"""The share partitions in use: loads them, runs them, makes their changes durable.

`core.delivery.share_partition` makes the decisions.  This module provides the log to read from,
the clock, the coordinator that stores the state, and the requests to wake.

    handler ── acknowledge ──▶ core ── Delta ──▶ coordinator ── durable ──▶ reply
    handler ── fetch ────────▶ core ── ranges ─▶ log.read ────────────────▶ reply

A decision of core holds in memory at once, but is answered only when it is durable.  When a
write fails, the share partition is *fenced* (ADR 0004): it is dropped here, and the next request
loads it again from the coordinator's durable state.  Looking into the log, acquiring records and
reading them happen without an await in between, so two fetches never acquire the same record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.load.request_counters import Distribution
from sharegroup.broker.load.waiting import WaitingRoom
from sharegroup.broker.share.batch_checks import THIN_BATCH_RECORDS, BatchChecks
from sharegroup.broker.share.due_times import DueTimes
from sharegroup.broker.share.group_breakers import GroupBreakers
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.broker.share.lock_expiry import RUNS_AT_ONCE, LockExpiry
from sharegroup.broker.share.persister import Persister, for_clients
from sharegroup.broker.share.share_counters import ShareCounters
from sharegroup.broker.share.share_reading import (
    FetchedRecords,
    deliverable,
    limits_of_one,
    list_acquired,
    log_batches,
    read_acquired,
)
from sharegroup.core.delivery.delivery import (
    AckBatch,
    Acquired,
    AcquireRequest,
    Delta,
    LogBatches,
    RecordState,
    SharePartitionLimits,
)
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.errors import KafkaError, KafkaStorageError
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicId, TopicIdPartition
from sharegroup.storage.segment.boundaries import BatchSpans
from sharegroup.storage.sync.tickets import Ticket

if TYPE_CHECKING:
    from sharegroup.broker.share.key_orders import KeyOrders

log = logging.getLogger(__name__)


LOOKS_MAX = 16
"""Maximum number of looks of one fetch that finds only batches that members do not get."""


class SharePartitions:
    """The loaded share partitions: acquires, acknowledges, releases, and makes changes durable."""

    __slots__ = (
        "_archiving",
        "_clock",
        "_coordinator",
        "_due_times",
        "_expiry",
        "_live",
        "_settings",
        "_topics",
        "_unattended",
        "_waiting",
        "batch_checks",
        "breakers",
        "counters",
        "key_orders",
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
        self.batch_checks = BatchChecks(waiting.wake)
        self.breakers = GroupBreakers(clock, self._wake_group)
        # None until a group is ordered by key.
        self.key_orders: KeyOrders | None = None
        self._due_times = DueTimes(clock)
        self._expiry = LockExpiry(clock, self._expire)
        self.counters = ShareCounters(lambda topic_id: topics.catalog.by_id(topic_id) is not None)
        self._unattended: set[asyncio.Task[object]] = set()
        # Set by `on_archiving`: the dead letters are made later, because they need the share
        # partitions.
        self._archiving: Callable[[SharePartitionKey], None] = lambda _: None

    def __iter__(self) -> Iterator[LiveSharePartition]:
        # A copy: metrics and pages pause between share partitions, and members load others
        # meanwhile.
        yield from list(self._live.values())

    def __len__(self) -> int:
        return len(self._live)

    def stop(self) -> None:
        """Stop the timers of the acquisition locks and of the circuit breakers."""
        self._expiry.stop()
        self.breakers.stop()

    @property
    def lock_lateness(self) -> Distribution:
        """The delays from the expiry of the first lock to the check of its share partition."""
        return self._expiry.lateness

    def loaded(self, key: SharePartitionKey) -> LiveSharePartition | None:
        """Return the share partition if it is loaded, otherwise None."""
        return self._live.get(key)

    def get(self, key: SharePartitionKey) -> LiveSharePartition:
        """Return the share partition, loading it if necessary; raise why it cannot be used."""
        live = self._live.get(key)
        if live is None:
            began = self.counters.clock()
            topic, log_ = self._topics.identified(key.topic_id, key.partition)
            try:
                persisted = self._coordinator.read(key)
                check_writable = self._coordinator.writable_check(key)
            except KafkaError as error:
                raise for_clients(error) from error
            state = SharePartition.restore(
                persisted.start_offset,
                self._due_times.loaded(persisted.batches),
                log_end=log_.end_offset,
            )
            live = LiveSharePartition(
                key,
                topic.name,
                state=state,
                log=log_,
                state_epoch=persisted.state_epoch,
                # The state that was read may not be durable yet, so answers that rely on it wait
                # for this write (ADR 0005).
                last_write=self._coordinator.last_write(key),
                check_writable=check_writable,
            )
            self._live[key] = live
            self._expiry.schedule(live)  # Delays may have been stored.
            self.counters.load_seconds.observe(self.counters.clock() - began)
            log.debug("event=share_partition_loaded %s", live)
            # Otherwise `_append` reports such records, but these were written before the load.
            if state.snapshot().archiving_count:
                self._archiving(key)
        return live

    def fetch(
        self,
        live: LiveSharePartition,
        member_id: MemberId,
        wanted: AcquireRequest,
        *,
        bytes_max: int,
        sharers: int = 1,
    ) -> FetchedRecords | None:
        """Acquire and read available records; return None if there is nothing to acquire.

        While the group is at its limit of records in flight, none of its ``sharers`` acquires more
        than an equal part at once.  Otherwise members that acquire the rest of a log batch beyond
        their limit would leave one member only a few records forever: it settles a few and gets
        room for as few.
        """
        began = self.counters.clock()
        try:
            fetched = self._look(live, member_id, wanted, bytes_max=bytes_max, sharers=sharers)
        finally:
            live.look_count += 1
            live.look_seconds += self.counters.clock() - began
        if fetched is not None:
            live.delivered_batches += len(fetched.acquired)
            live.delivered_records += sum(
                acquired.end - acquired.first for acquired in fetched.acquired
            )
        return fetched

    def _look(
        self,
        live: LiveSharePartition,
        member_id: MemberId,
        request: AcquireRequest,
        *,
        bytes_max: int,
        sharers: int,
    ) -> FetchedRecords | None:
        """Look for records to acquire; look further if only withheld batches are found."""
        # First, because the log refuses a position below its start.
        self.follow_log_start(live)
        group_id = live.key.group_id
        limits = self._settings.limits(group_id)
        if limits.breaker is not None:
            permitted = self.breakers.permitted(group_id, request, limits.breaker)
            if permitted is None:
                return None
            request = permitted
        for _ in range(LOOKS_MAX):
            position = live.state.next_fetch_offset()
            end = self._readable_end(live)
            # Writes of this loop may fail, which fences the share partition.
            if live.fenced or position >= end or not self._can_take(live, limits):
                return None
            if limits.by_key:
                orders = self._key_orders()
                found = orders.look(live, request, limits, end=end, bytes_max=bytes_max)
                if found is None:
                    return None
                position, request, spans = found
            else:
                spans = log_batches(live, request, position=position, end=end, bytes_max=bytes_max)
            # If all batches together are not large, none is: the usual fetch pays one subtraction.
            if spans.ends[-1] - spans.firsts[0] > THIN_BATCH_RECORDS:
                known_spans = self.batch_checks.known(live, spans)
                if known_spans is None:
                    return None  # The check wakes the waiting fetches.
                spans = known_spans
            own_limits = limits_of_one(live, limits, sharers)
            fetched = self._acquire(
                live, member_id, request, limits=own_limits, position=position, found=spans
            )
            # The limits of the group, not the part of this member: it is crowded if nobody has
            # room.
            live.crowded = not live.state.can_acquire(limits)
            # Without progress another look would find the same.  Progress without records means
            # that only holes were archived, so records may follow.
            if fetched is not None or live.state.takeable_count(
                position, position + 1, count_max=1
            ):
                if fetched is not None and limits.breaker is not None:
                    self.breakers.acquired(group_id)
                return fetched
        # Many batches here are withheld from members: let other requests run, then continue.
        asyncio.get_running_loop().call_soon(self._waiting.wake, live.key)
        return None

    def _acquire(
        self,
        live: LiveSharePartition,
        member_id: MemberId,
        request: AcquireRequest,
        *,
        limits: SharePartitionLimits,
        position: int,
        found: BatchSpans,
    ) -> FetchedRecords | None:
        """Acquire and read the records for members in these batches."""
        committed = self._settings.reads_committed(live.key.group_id)
        if not found.firsts:
            # An unreadable batch (`BatchChecks.known`) is a hole of its whole length.
            batches = LogBatches(position, (), (), looked_until=found.ends[-1])
        elif committed:
            batches = deliverable(live, found, position=position)
        else:
            batches = LogBatches(position, found.firsts, found.ends, size_of=found.size_of)
        now_ms = self._clock.now_ms()
        acquisition = live.state.acquire(
            member_id, batches, request=request, limits=limits, now_ms=now_ms
        )
        if live.key_order is not None:
            live.key_order.order.acquired(acquisition.ranges)
        # The holes that the look has found.  Kafka writes them with the next acknowledgement, and
        # until then its lag includes them (docs/differences.md).
        self._append_unattended(live, acquisition.delta)
        if live.fenced or not acquisition.ranges:
            return None  # Fenced by the write above, or nothing to acquire.
        # Before the read, which may raise: the locks exist from now on.
        self._expiry.watch(live, now_ms + limits.lock_ms)
        if request.without_records:
            read = list_acquired(live, acquisition.ranges, found, committed=committed)
        else:
            read = read_acquired(live, acquisition.ranges, found)
        if read.unreadable:
            self._release_unreadable(live, member_id, read.unreadable)
        if not read.fetched.acquired:
            assert read.error is not None, "nothing could be read, so there is a reason"
            raise read.error
        return read.fetched

    def may_have_records(self, key: SharePartitionKey) -> bool:
        """Return whether another fetch must look: for records, or for the error to report."""
        live = self._live.get(key)
        if live is None or live.log.start_offset > live.state.start_offset:
            return True
        if not self.can_settle(live):
            return True
        # Records that are not free may be available; when more keys are known, that is an event.
        if live.key_order is not None and not live.key_order.order.free(1):
            return False
        limits = self._settings.limits(key.group_id)
        has_some = live.state.next_fetch_offset() < self._readable_end(live)
        return has_some and self._can_take(live, limits)

    def available_bytes(self, live: LiveSharePartition) -> int:
        """Return the size of the log from the next record to fetch on, at no cost for its length.

        As in Kafka, it includes records that other members hold (`DelayedShareFetch`).
        """
        self.follow_log_start(live)
        # After the start was followed: the log refuses an offset below its start, and the fetch
        # would fail for ever.
        position, end = live.state.next_fetch_offset(), self._readable_end(live)
        limits = self._settings.limits(live.key.group_id)
        if position >= end or not self._can_take(live, limits):
            return 0
        return live.log.bytes_from(position, end=end)

    def acknowledge(
        self, live: LiveSharePartition, member_id: MemberId, acks: Sequence[AckBatch]
    ) -> Awaitable[None] | None:
        """Apply acknowledgements now; return an awaitable of their durability, None if durable."""
        assert not live.fenced, f"{live}: nothing was awaited since it was looked up"
        began, now_ms = self.counters.clock(), self._clock.now_ms()
        limits = self._settings.limits(live.key.group_id)
        try:
            delta = live.state.acknowledge(member_id, acks, limits=limits, now_ms=now_ms)
        except KafkaError as error:
            # core knows neither the group nor the topic.
            raise type(error)(f"{live} member={member_id!r}: {error}") from error
        # With a shorter lock duration a renewed lock may expire sooner.
        self._expiry.watch(live, now_ms + limits.lock_ms)
        self._append(live, delta)
        if limits.breaker is not None:
            self.breakers.note(live, limits.breaker)
        # If the records had been settled before, nothing changed, but that earlier change may not
        # be durable yet.  A success that is answered before it could be lost with it.
        ticket = live.last_write
        # A failed ticket is awaited like a pending one, because `_durable` fences and raises.
        if ticket is None or (ticket.done and not ticket.failed):
            # None, because an awaitable would cost the reply a task and a turn of the event loop.
            self._count_acknowledged(acks, began)
            return None
        return self._acknowledged(live, ticket, acks, began=began)

    def release(self, key: SharePartitionKey, member_id: MemberId) -> None:
        """Release all records of a member whose session has ended."""
        live = self._live.get(key)
        if live is not None:
            limits = self._settings.limits(key.group_id)
            self._append_unattended(live, live.state.release_member(member_id, limits=limits))
            if limits.breaker is not None:
                self.breakers.note(live, limits.breaker)

    def on_archiving(self, callback: Callable[[SharePartitionKey], None]) -> None:
        """Call ``callback`` with each share partition whose records wait for dead letters."""
        self._archiving = callback

    def archived(self, key: SharePartitionKey, copied: Iterable[tuple[int, int]]) -> None:
        """Archive these offsets, whose dead letters are durable; load the share partition if
        needed.
        """
        live = self.get(key)
        self._append_unattended(live, live.state.archived(copied))

    def settings_changed(self, group_id: GroupId | None) -> None:
        """Wake the fetches of one group, or of all (None): new settings may make records
        available.
        """
        for key, live in self._live.items():
            if group_id in (None, key.group_id):
                # Learnt anew if the records are still ordered; the isolation may have changed.
                live.key_order = None
                # A breaker that is new knows nothing of what was before.
                live.noted_outcomes = live.state.outcomes
                if self._settings.limits(key.group_id).breaker is None:
                    self.breakers.forget(key.group_id)
                self._waiting.wake(key)

    def _wake_group(self, group_id: GroupId) -> None:
        for key in self._live:
            if key.group_id == group_id:
                self._waiting.wake(key)

    def unload(self, key: SharePartitionKey) -> None:
        """Unload one share partition that is not in use."""
        live = self._live.pop(key, None)
        if live is not None:
            # The lock timer and tasks that wait for a write may still refer to it.
            live.fenced = True

    def unload_group(self, group_id: GroupId) -> None:
        """Unload the share partitions of a group without connected members.

        If a member forgot a partition before it left, locks may remain; they end with the unload.
        """
        for key in [key for key in self._live if key.group_id == group_id]:
            self._live.pop(key).fenced = True  # So its lock timer does not act on the next object.
        self.breakers.forget(group_id)

    def drop_group(self, group_id: GroupId) -> None:
        """Unload and wake the share partitions of a group whose state was changed from outside."""
        self.counters.groups.pop(group_id, None)
        self.breakers.forget(group_id)
        for key in [key for key in self._live if key.group_id == group_id]:
            self._fence(self._live[key])

    def drop_partition(self, partition: TopicIdPartition) -> None:
        """Unload and wake the share partitions of a partition, as after a change of its leader."""
        for key in [key for key in self._live if key[1:] == partition]:
            self._fence(self._live[key])

    def drop_topic(self, topic_id: TopicId) -> Iterator[None]:
        """Unload the share partitions of a deleted topic, in steps."""
        self.counters.topics.pop(topic_id, None)
        for live in [live for key, live in self._live.items() if key.topic_id == topic_id]:
            self._fence(live)
            yield

    def follow_log_start(self, live: LiveSharePartition) -> None:
        """Settle the records below the log start offset, which can no longer be read.

        This waits until the disk accepts writes.  A failed write wakes the waiting fetches, which
        would come here again at once.
        """
        if live.log.start_offset <= live.state.start_offset or not self.can_settle(live):
            return
        archiving_before = live.state.snapshot().archiving_count
        self._append_unattended(live, live.state.move_log_start(live.log.start_offset))
        lost_count = archiving_before - live.state.snapshot().archiving_count
        if lost_count:
            log.warning(
                "event=dead_letters_lost %s records=%d log_start=%d reason='the log deleted the "
                "records while they waited for their dead letters'",
                live,
                lost_count,
                live.log.start_offset,
            )

    def _readable_end(self, live: LiveSharePartition) -> int:
        """Return the offset that the group may read to: high watermark or last stable offset."""
        if self._settings.reads_committed(live.key.group_id):
            return live.log.last_stable_offset
        return live.log.high_watermark

    def _key_orders(self) -> KeyOrders:
        if self.key_orders is None:
            # Imported at first use: few brokers have a group that is ordered by key.
            from sharegroup.broker.share.key_orders import KeyOrders

            settings = self._settings
            self.key_orders = KeyOrders(
                self.batch_checks,
                self._waiting.wake,
                lambda live: settings.reads_committed(live.key.group_id),
            )
        return self.key_orders

    def _can_take(self, live: LiveSharePartition, limits: SharePartitionLimits) -> bool:
        """Return whether there is room for more records, and the disk can store their state."""
        if not self.can_settle(live):
            return False
        self._report_fullness(live, limits)
        can_acquire = live.state.can_acquire(limits)
        # A paused group waits for its setting, so what its members settle wakes nobody.
        live.starved = not can_acquire and not limits.paused
        return can_acquire

    def _release_unreadable(
        self, live: LiveSharePartition, member_id: MemberId, unreadable: tuple[Acquired, ...]
    ) -> None:
        """Release records that cannot be read; the delivery counts, and the last archives them."""
        limits = self._settings.limits(live.key.group_id)
        delta = live.state.release_unreadable(
            member_id,
            [(acquired.first, acquired.end) for acquired in unreadable],
            limits=limits,
        )
        for first, end, delivery_count in unreadable:
            if delivery_count >= limits.delivery_count_max:
                reason = f"the log could not read them in {delivery_count} deliveries"
                self.batch_checks.note_archived(live, first, end, reason)
        self._append_unattended(live, delta)

    def can_settle(self, live: LiveSharePartition) -> bool:
        """Return whether acknowledgements could be stored now.

        While they cannot, no records are delivered.  Each failed acknowledgement would load the
        share partition again, and the next fetch would repeat the same work.
        """
        try:
            live.check_writable()
        except KafkaStorageError:
            return False
        return True

    def _append(self, live: LiveSharePartition, delta: Delta | None) -> Ticket | None:
        """Write a change, in the order in which it was decided."""
        if delta is None:
            return None
        states = {RecordState.DELAYED if batch.due_ms else batch.state for batch in delta.batches}
        if RecordState.DELAYED in states:
            delta = self._due_times.stored(delta)
            self._expiry.schedule(live)
        try:
            # core has changed already and has no undo, so a refused write leaves the state in
            # memory ahead of the log (ADR 0004).
            ticket = self._coordinator.write(live.key, live.state_epoch, delta)
        except KafkaError as error:
            self._fence(live)
            raise for_clients(error) from error
        live.last_write = ticket
        if live.key_order is not None:
            live.key_order.order.follow(delta)
            # What is settled frees the next record of its key, or makes room for more.
            self._waiting.wake(live.key)
        # Released records can be fetched from now on, and settled records make room.
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
        """Wait until an acknowledgement is durable, and count it."""
        await self._durable(live, ticket)
        self._count_acknowledged(acks, began)

    def _count_acknowledged(self, acks: Sequence[AckBatch], began: float) -> None:
        self.counters.write_seconds.observe(self.counters.clock() - began)
        self.counters.count(acks)

    async def _durable(self, live: LiveSharePartition, ticket: Ticket | None) -> None:
        """Wait for a write; fence the share partition if it fails."""
        if ticket is None:
            return
        try:
            await ticket
        except KafkaError:
            self._fence(live)
            raise

    def _append_unattended(self, live: LiveSharePartition, delta: Delta | None) -> None:
        """Write a change that no request waits for; a failure fences and is logged."""
        if delta is None:
            return
        try:
            ticket = self._append(live, delta)
        except KafkaError as error:
            _log_lost(live, error)
            return
        self.attend(self._watch(live, ticket))

    def attend(self, work: Coroutine[Any, Any, object]) -> None:
        """Run ``work``, which waits for a change that no request waits for, in a task."""
        # The event loop keeps only weak references to tasks, so the set keeps them alive.
        task = asyncio.get_running_loop().create_task(work)
        self._unattended.add(task)
        task.add_done_callback(self._unattended.discard)

    async def _watch(self, live: LiveSharePartition, ticket: Ticket | None) -> None:
        """Wait for a write that no request waits for, and log its failure."""
        try:
            await self._durable(live, ticket)
        except KafkaError as error:
            _log_lost(live, error)

    def _fence(self, live: LiveSharePartition) -> None:
        """Stop using the state in memory, so the next request loads the durable state.

        By now the loaded object may differ from ``live`` and may contain state that did not become
        durable, so both are fenced.
        """
        live.fenced = True
        current = self._live.pop(live.key, None)
        if current is not None:
            current.fenced = True
        # Fetches that wait load the share partition again, or report why that is not possible.
        self._waiting.wake(live.key)

    def _expire(self, live: LiveSharePartition, now_ms: int) -> None:
        """Release records whose locks have expired, and end delays, up to `RUNS_AT_ONCE` runs."""
        if due := live.state.end_delays(now_ms=now_ms, runs_max=RUNS_AT_ONCE):
            if live.key_order is not None:
                live.key_order.order.available(due)
            self._waiting.wake(live.key)
        limits = self._settings.limits(live.key.group_id)
        acquired_before = live.state.snapshot().acquired_count
        delta = live.state.expire(limits=limits, now_ms=now_ms, runs_max=RUNS_AT_ONCE)
        timed_out = acquired_before - live.state.snapshot().acquired_count
        live.timed_out_count += timed_out
        self.counters.timed_out_count += timed_out
        self._append_unattended(live, delta)
        if limits.breaker is not None:
            self.breakers.note(live, limits.breaker)

    def _report_fullness(self, live: LiveSharePartition, limits: SharePartitionLimits) -> None:
        """Log once when a share partition stops taking new records, and once when it continues."""
        full = live.state.is_full(limits)
        if full and not live.full:
            log.warning(
                "event=share_partition_full %s runs=%d delayed=%d action='settle records; no new "
                "ones are delivered until then'",
                live,
                live.state.snapshot().run_count,
                live.state.snapshot().delayed_count,
            )
        elif live.full and not full:
            log.info("event=share_partition_goes_on %s", live)
        live.full = full


def _log_lost(live: LiveSharePartition, error: KafkaError) -> None:
    log.error(
        "event=state_write_failed %s error=%r action='the share partition is loaded again'",
        live,
        str(error),
    )
