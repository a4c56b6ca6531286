"""Locks end when they should: all of them, on the monotonic clock, without stopping the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from weakref import ref

from sharegroup.broker import app
from sharegroup.broker.clock import TimerHandle
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.broker.share.lock_expiry import ENTRIES_MIN, PAUSE_MS, LockExpiry
from sharegroup.core.delivery.delivery import (
    AcquireRequest,
    LogBatches,
    RecordState,
    SharePartitionLimits,
)
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.faults.running_clock import ClockTimer
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicName
from sharegroup.protocol_enums import AcquireMode
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.testing.virtual_time import ManualClock
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_share_fetch import (
    alter_group,
    produce,
    records,
    request,
    run,
    waiting,
)
from tests.support.limits import HANGING_SECONDS

LOCK_MS = 30_000
DAY_MS = 86_400_000


def acquired(live: LiveSharePartition) -> int:
    return live.state.snapshot().acquired_count


def test_a_hundred_thousand_locks_end_each_at_its_time(tmp_path: Path) -> None:
    """Ten records at a time by two members in turn, four times a millisecond.

    Ten thousand runs, whose locks end within 2.5 seconds; each tenth of a second there are as
    many left as were taken after the time thirty seconds before, or those of 20 ms more.
    """

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, "share.partition.max.record.locks", "100000")
        batch = encode_batch([SimpleRecord(None, b"", 1)] * 10_000)
        for _ in range(10):
            assert (await broker.produce("orders", 0, batch))[0] == 0
        share_partitions = broker.running.parts.share_partitions
        await broker.ask(request(member, max_records=0))
        [live] = share_partitions
        wanted = AcquireRequest(10, 10, AcquireMode.RECORD_LIMIT)
        members = MemberId("member-1"), MemberId("member-2")
        for number in range(10_000):
            fetched = share_partitions.fetch(live, members[number % 2], wanted, bytes_max=1 << 20)
            assert fetched is not None
            assert fetched.acquired == ((number * 10, number * 10 + 10, 1),)
            if number % 4 == 3:
                broker.clock.advance(0.001)
        assert acquired(live) == 100_000
        broker.clock.advance((LOCK_MS - 2_500) / 1_000 - 0.001)
        assert acquired(live) == 100_000
        left = []
        for _ in range(26):
            left.append(acquired(live))
            broker.clock.advance(0.1)
        late = [found - due for found, due in zip(left, range(100_000, -1, -4_000), strict=True)]
        assert min(late) == 0, f"given back early: {late}"
        assert max(late) <= PAUSE_MS * 40, f"given back late: {late}"
        assert live.state.snapshot().available_count == 100_000

    run(scenario, tmp_path)


class WallJumps(ManualClock):
    """A clock whose time of day somebody sets."""

    __slots__ = ("jump_ms",)

    def __init__(self) -> None:
        super().__init__()
        self.jump_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.jump_ms


def test_setting_the_time_of_day_moves_no_lock(tmp_path: Path) -> None:
    async def main() -> None:
        clock = WallJumps()
        values = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
        broker = Broker(await app.start(Config.parse(values), clock=clock), clock)
        try:
            await broker.create_topic("orders", 1)
            member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
            assert await member.heartbeat(broker) == 0
            assert await member.fetch(broker, records_max=10) == ([], {})
            await produce(broker)
            assert records(await broker.ask(request(member))) == [(0, 0, 1)]
            [live] = broker.running.parts.share_partitions
            for jump_ms in (DAY_MS, -DAY_MS):
                clock.jump_ms = jump_ms
                clock.advance(14.999)
                assert acquired(live) == 1
            clock.advance(0.001)
            assert acquired(live) == 1
            clock.advance(0.001)
            assert acquired(live) == 0
        finally:
            await broker.stop()

    asyncio.run(main())


class TakesTime:
    """A clock that stands still but while records are given back; timers come when asked for."""

    def __init__(self) -> None:
        self.ms = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return self.ms

    def call_at_ms(self, when_ms: int, callback: Callable[[], None]) -> TimerHandle:
        self.timers.append((when_ms, callback))
        return ClockTimer(callback)

    def turn(self) -> None:
        """Let the one timer fire that is set."""
        [(when_ms, callback)] = self.timers
        self.timers.clear()
        self.ms = max(self.ms, when_ms)
        callback()


def live_share_partition(
    log: PartitionLog, name: str, limits: SharePartitionLimits
) -> LiveSharePartition:
    """One with ten runs that are locked."""
    return LiveSharePartition(
        SharePartitionKey(GroupId("g"), log.key.topic_id, 0),
        TopicName(name),
        state=ten_locked(limits),
        log=log,
        state_epoch=0,
        last_write=None,
        check_writable=lambda: None,
    )


def test_unloaded_share_partitions_are_not_kept_until_their_locks_end(
    tmp_path: Path,
) -> None:
    """A member that opens and closes its session loads its share partitions each time."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        _, log = broker.running.parts.topics.named(TopicName("orders"), 0)
        limits = SharePartitionLimits(lock_ms=100)
        expiry = LockExpiry(TakesTime(), lambda live, now_ms: None)
        used = live_share_partition(log, "used", limits)
        expiry.watch(used, 0)
        unused = []
        for _ in range(3 * ENTRIES_MIN):
            live = live_share_partition(log, "unused", limits)
            expiry.watch(live, 0)
            live.fenced = True
            unused.append(ref(live))
            del live
        assert [reference for reference in unused if reference() is not None] == []
        assert 1 <= len(expiry) <= ENTRIES_MIN

    run(scenario, tmp_path)


def test_lock_that_ends_before_the_watched_ones_moves_the_check_forward(tmp_path: Path) -> None:
    """A group's lock duration may become shorter while records are locked."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        clock = TakesTime()
        _, log = broker.running.parts.topics.named(TopicName("orders"), 0)
        expiry = LockExpiry(clock, lambda live, now_ms: None)
        live = live_share_partition(log, "orders", SharePartitionLimits(lock_ms=100))
        expiry.watch(live, 100)
        found = LogBatches(10, [10], [11])
        shorter = SharePartitionLimits(lock_ms=40)
        live.state.acquire(
            MemberId("m"), found, request=AcquireRequest(1, 1), limits=shorter, now_ms=0
        )
        expiry.watch(live, 40)
        assert (live.expiry_ms, clock.timers[-1][0]) == (40, 40)
        # Later locks change nothing: the check that is due first schedules the next one.
        expiry.watch(live, 140)
        assert (live.expiry_ms, len(expiry)) == (40, 2)

    run(scenario, tmp_path)


def test_giving_back_takes_no_more_than_its_turn(tmp_path: Path) -> None:
    """Two share partitions of ten runs that are due, one run at a time, four milliseconds each.

    Three fit into a turn of ten milliseconds; both partitions have theirs in every turn.
    """

    async def scenario(broker: Broker, member: ShareMember) -> None:
        clock = TakesTime()
        _, log = broker.running.parts.topics.named(TopicName("orders"), 0)
        limits = SharePartitionLimits(lock_ms=100)
        given_back: list[str] = []

        def expire(live: LiveSharePartition, now_ms: int) -> None:
            live.state.expire(limits=limits, now_ms=now_ms, runs_max=1)
            clock.ms += 4
            given_back.append(live.topic_name)

        expiry = LockExpiry(clock, expire)
        lives = [live_share_partition(log, name, limits) for name in ("a", "b")]
        for live in lives:
            expiry.watch(live, 0)
        turns = []
        while clock.timers:
            clock.turn()
            turns.append("".join(given_back))
            given_back.clear()
        assert turns == ["aba", "bab", "aba", "bab", "aba", "bab", "ab"]

    run(scenario, tmp_path)


def ten_locked(limits: SharePartitionLimits) -> SharePartition:
    """Ten runs of one record, each of another member."""
    state = SharePartition(0)
    for offset in range(10):
        log = LogBatches(offset, [offset], [offset + 1])
        state.acquire(
            MemberId(f"m{offset}"), log, request=AcquireRequest(1, 1), limits=limits, now_ms=0
        )
    return state


def test_lock_that_ends_wakes_a_parked_fetch(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        holder = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await holder.heartbeat(broker) == 0
        assert len((await holder.fetch(broker, records_max=10))[0]) == 1
        broker.clock.advance(29.9)
        task = await waiting(broker, request(member))
        broker.clock.advance(0.099)
        await asyncio.sleep(0)
        assert not task.done()
        broker.clock.advance(0.001)
        assert records(await asyncio.wait_for(task, HANGING_SECONDS)) == [(0, 0, 2)]
        [live] = broker.running.parts.share_partitions
        assert [run.value.state for run in live.state.runs()] == [RecordState.ACQUIRED]

    run(scenario, tmp_path)
