"""Records that wait are moved on in time and in order, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sharegroup.dead_letters.story_headers import story_of
from sharegroup.errors import KafkaError, MessageTooLarge, NetworkException
from sharegroup.testing import virtual_time
from sharegroup.worker.decisions.tiers import LATE_SHARE
from sharegroup.worker.events import Event, Events
from sharegroup.worker.retrying.scheduler import Scheduler
from sharegroup.worker.retrying.tier_log import Committed, TierPartition
from sharegroup.worker.retrying.tier_mover import Moving, SchedulerLimits
from tests.unit.worker.retrying.cluster import (
    START_MS,
    Cluster,
    LoopClock,
    Lying,
    Outbox,
    Process,
)

HOUR_MS = 60 * 60 * 1000
YEAR_MS = 365 * 24 * HOUR_MS
LATE_MS_MAX = 20
"""Of what comes through `due`: some writes and commits, of 3 and 1 ms."""


def play(
    scene: Callable[[Cluster], Awaitable[None]], *, steered: bool = True, **cluster: int
) -> None:
    """Run a scene on a cluster of its own; unless it says otherwise, in a steered group, too."""

    async def run(*, is_steered: bool) -> None:
        before = asyncio.all_tasks()
        await scene(Cluster(is_steered=is_steered, **cluster))
        for task in asyncio.all_tasks() - before:
            task.cancel()

    virtual_time.run(run(is_steered=False))
    if steered:
        virtual_time.run(run(is_steered=True))


async def arrived(cluster: Cluster, count: int, *, seconds: float) -> None:
    """Wait until so many records lie in the group's own topic."""
    await cluster.grown(lambda: len(cluster.values()) >= count, seconds=seconds)


def lateness_ms(cluster: Cluster) -> list[int]:
    """Of each record in the group's own topic, by a clock that is right."""
    return [
        record.timestamp_ms - (story_of(record.headers).due_ms or 0) - cluster.clock.ahead_ms
        for record in cluster.lying("g.retry")
    ]


@pytest.mark.parametrize("seconds", [0.05, 1, 4.9, 5, 8, 30, 37, 60, 120, 155, 300.25])
def test_record_is_moved_after_its_delay(seconds: float) -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        await process.later(b"a", seconds)
        await arrived(cluster, 1, seconds=seconds + 1)
        assert 0 <= lateness_ms(cluster)[0] <= LATE_MS_MAX
        await process.stop()

    play(scene)


def test_records_of_one_delay_are_moved_in_the_order_of_arrival() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        for number in range(50):
            await process.later(b"%d" % number, 30)
        assert len(cluster.values("g.retry.30s")) == 50
        await arrived(cluster, 50, seconds=31)
        assert cluster.values() == [b"%d" % number for number in range(50)]
        await process.stop()

    play(scene)


def test_records_of_short_delays_are_moved_in_the_order_of_their_due_times() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        for tenths in (40, 10, 30, 20):
            await process.later(b"%d" % tenths, tenths / 10)
        await arrived(cluster, 4, seconds=5)
        assert cluster.values() == [b"10", b"20", b"30", b"40"]
        assert max(lateness_ms(cluster)) <= LATE_MS_MAX
        await process.stop()

    play(scene)


def test_a_stop_ends_when_the_scheduler_has_left_its_group() -> None:
    """A process that ended before would keep its partitions until its session ends."""

    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        await process.later(b"a", 30)
        leaving = asyncio.Event()
        close = process.member.close

        async def close_slowly() -> None:
            leaving.set()
            await asyncio.sleep(2)
            await close()

        process.member.close = close_slowly  # type: ignore[method-assign]
        stops = [asyncio.create_task(process.scheduler.stop())]
        await leaving.wait()
        stops.append(asyncio.create_task(process.scheduler.stop()))
        await asyncio.wait(stops, return_when=asyncio.FIRST_COMPLETED)
        assert cluster.members == []
        await process.task
        await process.scheduler.stop()  # It has ended.

    play(scene)


def test_a_stop_ends_if_leaving_the_group_fails() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        await process.later(b"a", 30)

        async def fail() -> None:
            raise NetworkException("cut")

        process.member.close = fail  # type: ignore[method-assign]
        await process.scheduler.stop()
        await asyncio.wait([process.task])
        assert isinstance(process.task.exception(), NetworkException)

    play(scene)


def test_nothing_is_written_before_the_head_is_due() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        await process.later(b"a", 30)
        await asyncio.sleep(29.9)
        assert cluster.values() == []
        assert cluster.commits == []
        await arrived(cluster, 1, seconds=0.2)
        await process.stop()

    play(scene)


def test_moved_record_keeps_its_headers_and_has_none_of_the_tier() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        headers = [("trace", b"1"), ("trace", None), ("trace", b"\xff")]
        await process.postponer.send_later(
            "orders", b"a", key=b"k", headers=headers, due_ms=START_MS + 8_000
        )
        await arrived(cluster, 1, seconds=9)
        (record,) = cluster.lying("g.retry")
        assert record.key == b"k"
        assert record.headers[:-1] == (
            *headers,
            ("__sharegroup.origin.topic", b"orders"),
            ("__sharegroup.origin.partition", b"-1"),
            ("__sharegroup.origin.offset", b"-1"),
            ("__sharegroup.origin.timestamp", b"%d" % START_MS),
            ("__sharegroup.due", b"%d" % (START_MS + 8_000)),
        )
        assert record.headers[-1][0] == "__sharegroup.id"
        await process.stop()

    play(scene)


@pytest.mark.parametrize("ahead_ms", [-5_000, 5_000, -3_600_000, 3_600_000])
def test_clock_of_the_broker_does_not_matter(ahead_ms: int) -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        for seconds in (3, 5, 37, 64):
            await process.later(b"%d" % seconds, seconds)
        await arrived(cluster, 4, seconds=65)
        assert all(0 <= late <= LATE_MS_MAX for late in lateness_ms(cluster))
        steps = sum(len(cluster.values(topic)) for topic in cluster.topics)
        assert steps == 12, "3 s: due; 5 s: 5s; 37 s: 30s, 5s, due; 64 s: 30s, 30s, due; and own"
        await process.stop()

    play(scene, ahead_ms=ahead_ms)


@pytest.mark.parametrize("ahead_ms", [-2_000, -50_000])
def test_clock_of_a_writer_that_is_a_little_behind_shortens_a_delay_by_as_much(
    ahead_ms: int,
) -> None:
    async def scene(cluster: Cluster) -> None:
        writer = Process(cluster, ahead_ms=ahead_ms)
        await writer.later(b"a", 67)
        await writer.stop()
        mover = Process(cluster)
        await arrived(cluster, 1, seconds=68)
        assert 0 <= mover.clock.now() * 1000 - 67_000 - ahead_ms <= LATE_MS_MAX
        steps = sum(len(cluster.values(topic)) for topic in cluster.topics)
        assert steps <= 6, "a difference of clocks must not send it round in a tier"
        await mover.stop()

    play(scene)


@pytest.mark.parametrize("seconds", [3, 37, 155])
@pytest.mark.parametrize(
    ("writer_ms", "mover_ms"),
    [
        (2_000, 0), (50_000, 0), (3 * HOUR_MS, 0), (YEAR_MS, 0),  # The writer's is ahead.
        (0, -2_000), (0, -50_000), (0, -3 * HOUR_MS), (0, -YEAR_MS),  # The mover's is behind.
        (-3 * HOUR_MS, 0), (-YEAR_MS, 0),  # The writer's is behind, as the broker's tells.
        (YEAR_MS, -YEAR_MS), (-3 * HOUR_MS, -4 * HOUR_MS),
    ],
)  # fmt: skip
def test_wrong_clock_of_a_worker_does_not_change_a_delay(
    seconds: int, writer_ms: int, mover_ms: int
) -> None:
    async def scene(cluster: Cluster) -> None:
        writer = Process(cluster, ahead_ms=writer_ms)
        await writer.later(b"a", seconds)
        await writer.stop()
        mover = Process(cluster, ahead_ms=mover_ms)
        await arrived(cluster, 1, seconds=seconds + 1)
        assert 0 <= mover.clock.now() * 1000 - seconds * 1000 <= 2 * LATE_MS_MAX
        (record,) = cluster.lying("g.retry")
        due_ms = story_of(record.headers).due_ms or 0
        assert abs(due_ms - mover.clock.wall_ms()) <= 2 * LATE_MS_MAX
        await mover.stop()

    play(scene)


@pytest.mark.parametrize("step_ms", [YEAR_MS, 3 * HOUR_MS, -3 * HOUR_MS, -YEAR_MS])
@pytest.mark.parametrize("for_seconds", [5, 1_000])
def test_step_of_the_clock_while_records_wait_changes_no_delay(
    step_ms: int, for_seconds: int
) -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        delays = (2, 4.5, 8, 37, 64, 160)
        for seconds in delays:
            await process.later(b"%d" % (10 * seconds), seconds)
        await asyncio.sleep(1)
        process.clock.ahead_ms = step_ms
        asyncio.get_running_loop().call_later(for_seconds, setattr, process.clock, "ahead_ms", 0)
        for count, seconds in enumerate(delays, 1):
            await arrived(cluster, count, seconds=200)
            late = process.clock.now() - seconds
            assert 0 <= late <= 0.1 + LATE_SHARE * seconds
        assert cluster.values() == [b"%d" % (10 * seconds) for seconds in delays]
        await process.stop()

    play(scene)


@pytest.mark.parametrize("step_ms", [YEAR_MS, -YEAR_MS])
def test_step_of_the_clock_does_not_delay_a_write_that_was_refused(step_ms: int) -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        await process.later(b"a", 3)
        cluster.refuses = lambda topic, value: NetworkException("away")
        await asyncio.sleep(3.2)
        process.clock.ahead_ms = step_ms
        cluster.refuses = lambda topic, value: None
        await arrived(cluster, 1, seconds=1)
        await process.stop()

    play(scene)


DUE, DELAY, WRITTEN = "__sharegroup.due", "__sharegroup.delay", "__sharegroup.written"
EXTREME = (
    b"253402300799999", b"-1", b"-9223372036854775808", b"9223372036854775807",
    b"9223372036854775808", b"1" * 5_000, b"0", b"soon", b"1e3", b"", None, b"\xff",
)  # fmt: skip


@pytest.mark.parametrize("topic", ["g.retry.120s", "g.retry.30s", "g.retry.5s", "g.retry.due"])
@pytest.mark.parametrize("name", [DUE, DELAY, WRITTEN])
def test_header_with_any_value_holds_no_record_longer_than_its_tier(topic: str, name: str) -> None:
    """Neither its own one, nor one behind it in the partition."""

    async def scene(cluster: Cluster) -> None:
        topic_ = topic.replace("120s", "2m")
        process = Process(cluster)
        good = {
            DUE: b"%d" % (START_MS + 30_000), DELAY: b"30000", WRITTEN: b"%d" % START_MS,
        }  # fmt: skip
        for number, value in enumerate(EXTREME):
            headers = [*(good | {name: value}).items()]
            cluster.append(topic_, b"%d" % number, None, headers)
        cluster.append(topic_, b"behind", None, [*good.items()])
        await cluster.grown(lambda: b"behind" in cluster.values(), seconds=31)
        await arrived(cluster, len(EXTREME) + 1, seconds=121)
        await process.stop()

    play(scene)


def test_thousands_of_records_of_a_writer_that_is_ahead_wait_no_longer_than_one() -> None:
    """Not one read-ahead after the other, each as long as the tier's delay."""

    async def scene(cluster: Cluster) -> None:
        writer = Process(cluster, ahead_ms=YEAR_MS)
        for number in range(5_000):
            due_ms = writer.clock.wall_ms() + 30_000
            write = writer.postponer.send_later("orders", b"%d" % number, due_ms=due_ms)
        await write
        await writer.stop()
        began = writer.clock.now()
        mover = Process(cluster, limits=SchedulerLimits(ahead_records=500))
        await arrived(cluster, 5_000, seconds=31)
        assert mover.clock.now() - began >= 29
        await mover.stop()

    play(scene)


def test_foreign_record_in_a_tier_is_moved_immediately() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        cluster.append("g.retry.30s", b"foreign", None, [("a", b"1")])
        await arrived(cluster, 1, seconds=1)
        assert cluster.lying("g.retry")[0].headers == (("a", b"1"),)
        await process.stop()

    play(scene)


def test_tier_without_the_header_of_its_writer_waits_by_the_brokers_time() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        due = ("__sharegroup.due", b"%d" % (START_MS + 35_000))
        cluster.append("g.retry.30s", b"a", None, [due])
        await asyncio.sleep(29.9)
        assert cluster.values("g.retry.5s") == []
        await arrived(cluster, 1, seconds=6)
        assert cluster.values("g.retry.5s") == [b"a"]
        await process.stop()

    play(scene)


def test_record_in_the_due_topic_that_is_due_much_later_is_moved_to_a_tier() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        due = ("__sharegroup.due", b"%d" % (START_MS + 30_500))
        cluster.append("g.retry.due", b"a", None, [due])
        await asyncio.sleep(1)
        assert cluster.values("g.retry.30s") == [b"a"]
        await arrived(cluster, 1, seconds=30)
        await process.stop()

    play(scene)


# Restarts.


@pytest.mark.parametrize("at_ms", [*range(29_990, 30_030, 1), 10, 36_990, 37_010])
def test_killed_process_loses_no_record_and_repeats_only_records_in_flight(
    at_ms: int,
) -> None:
    async def scene(cluster: Cluster) -> None:
        process, other = Process(cluster), None
        await asyncio.gather(*(process.later(b"%d" % number, 37) for number in range(20)))
        await asyncio.sleep(at_ms / 1000 - asyncio.get_running_loop().time())
        process.cut()
        other = Process(cluster)
        await asyncio.sleep(60)
        counts = Counter(cluster.values())
        assert set(counts) == {b"%d" % number for number in range(20)}
        assert max(counts.values()) <= 2
        await other.stop()

    play(scene)


def test_records_moved_out_of_order_are_not_moved_again_after_a_crash() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        await process.later(b"last", 4)
        for number in range(300):
            await process.later(b"%d" % number, 1)
        await arrived(cluster, 300, seconds=3)
        await asyncio.sleep(0.1)
        partition = TierPartition("g.retry.due", 0)
        assert cluster.committed[partition].offset == 0, "the first record is still there"
        process.cut()
        other = Process(cluster)
        await asyncio.sleep(5)
        assert Counter(cluster.values()).most_common(1)[0][1] == 1
        assert cluster.values()[-1] == b"last"
        await asyncio.sleep(0.1)
        assert cluster.committed[partition] == Committed(301, "")
        await other.stop()

    play(scene)


def test_clean_stop_finishes_and_commits_pending_writes() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        for number in range(10):
            await process.later(b"%d" % number, 1)
        await asyncio.sleep(1.001 - 0.03)
        while not process.outbox.under_way:
            await asyncio.sleep(0.0005)
        await process.stop()
        written = len(cluster.values())
        assert written
        assert cluster.commits, "written records are committed before the end"
        other = Process(cluster)
        await asyncio.sleep(3)
        assert sorted(cluster.values()) == [b"%d" % number for number in range(10)]
        await other.stop()

    play(scene, steered=False)


def test_stop_before_the_first_read_ends_immediately() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.is_up.clear()
        process = Process(cluster)
        await asyncio.sleep(0.01)
        await process.stop()
        assert asyncio.get_running_loop().time() < 0.1

    play(scene)


# Several processes.


def test_partitions_have_one_owner_and_rebalances_move_no_record_twice() -> None:
    async def scene(cluster: Cluster) -> None:
        processes = [Process(cluster)]
        for number in range(600):
            await processes[0].later(b"%d" % number, 5 + number % 7, key=b"%d" % number)
            if number in (100, 250):
                processes.append(Process(cluster))
            if number == 400:
                await processes.pop(1).stop()
        owned = [state.partition for process in processes for state in process.scheduler.snapshot()]
        assert sorted(owned) == sorted(set(owned))
        assert len(owned) == 12, "three tiers and `due`, of three partitions each"
        await arrived(cluster, 600, seconds=15)
        await asyncio.sleep(5)
        assert Counter(cluster.values()).most_common(1)[0][1] == 1
        assert max(lateness_ms(cluster)) <= LATE_MS_MAX * 2
        for process in processes:
            await process.stop()

    play(scene, partitions=3)


def test_records_of_a_dead_process_are_moved_within_the_session_timeout() -> None:
    async def scene(cluster: Cluster) -> None:
        first, second = Process(cluster), Process(cluster)
        await asyncio.sleep(0.1)
        for number in range(40):
            await first.later(b"%d" % number, 5, key=b"%d" % number)
        await first.kill()
        await arrived(cluster, 40, seconds=1)
        assert max(lateness_ms(cluster)) <= 10_000 + LATE_MS_MAX
        await second.stop()

    play(scene, partitions=2)


@pytest.mark.parametrize("stops", [False, True])
def test_failed_commit_is_repeated_when_nothing_more_is_moved(stops: bool) -> None:
    """Otherwise the next owner of the partition moves the record again, and it runs twice."""

    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        await process.later(b"a", 1)
        cluster.refused_commits = 1
        await arrived(cluster, 1, seconds=3)
        await asyncio.sleep(0.1 if stops else 2)
        assert cluster.refused_commits == 0
        if not stops:
            assert len(cluster.commits) == 1
        await process.stop()
        assert len(cluster.commits) == 1
        Process(cluster)
        await asyncio.sleep(3)
        assert cluster.values() == [b"a"]

    play(scene, steered=False)


def test_refused_commit_gives_up_the_partition_and_the_scheduler_continues() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        await asyncio.sleep(0.1)
        await process.later(b"a", 1)
        await asyncio.sleep(0.5)
        process.member.lose()  # The group removed the member, which does not know it yet.
        await arrived(cluster, 1, seconds=1)
        await asyncio.sleep(0.1)
        assert not process.task.done()
        await (
            cluster.share_out()
        )  # It rejoins, and moves the record that it could not commit again.
        await process.later(b"b", 1)
        await arrived(cluster, 3, seconds=2)
        assert cluster.values() == [b"a", b"a", b"b"]
        await process.stop()

    play(scene, steered=False)


# Limits.


def test_full_heap_pauses_reading() -> None:
    async def scene(cluster: Cluster) -> None:
        process, held = Process(cluster, limits=SchedulerLimits(due_records=1_000)), 0
        due_ms = process.clock.wall_ms() + 2_000
        for number in range(4_000):
            due = ("__sharegroup.due", b"%d" % due_ms)
            cluster.append("g.retry.due", b"%d" % number, None, [due])
        while len(cluster.values()) < 4_000:
            await asyncio.sleep(0.01)
            states = [
                state for state in process.scheduler.snapshot() if "due" in state.partition.topic
            ]
            held = max(held, *(state.held for state in states), 0)
        assert 1_000 <= held <= 1_700, "the limit, and one answer of the broker on top"
        assert asyncio.get_running_loop().time() < 2.5
        await process.stop()
        assert cluster.committed[TierPartition("g.retry.due", 0)] == Committed(4_000, "")

    play(scene)


def test_records_kept_of_a_tier_are_limited_by_the_read_ahead() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster, limits=SchedulerLimits(ahead_records=200))
        due = ("__sharegroup.due", b"%d" % (START_MS + 30_000))
        for number in range(5_000):
            cluster.append("g.retry.30s", b"%d" % number, None, [due])
        await asyncio.sleep(1)
        (state,) = [
            state for state in process.scheduler.snapshot() if "30s" in state.partition.topic
        ]
        assert state.held == 700
        assert state.waiting == 5_000
        assert state.ready_ms == 30_000
        await arrived(cluster, 5_000, seconds=31)
        assert cluster.values() == [b"%d" % number for number in range(5_000)]
        await process.stop()

    play(scene)


# Faults.


def test_failed_write_is_tried_again_and_nothing_is_committed_before() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        for number in range(5):
            await process.later(b"%d" % number, 5)
        tried = []

        def refuses(topic: str, value: bytes | None) -> KafkaError:
            tried.append(value)
            return NetworkException("no leader")

        cluster.refuses = refuses
        await asyncio.sleep(20)
        assert 10 <= len(tried) <= 40, "five records, each time after twice as long"
        assert cluster.values() == []
        assert cluster.commits == []
        cluster.refuses = lambda topic, value: None
        await arrived(cluster, 5, seconds=30)
        await asyncio.sleep(0.1)
        assert cluster.committed[TierPartition("g.retry.5s", 0)] == Committed(5, "")
        await process.stop()

    play(scene)


def test_record_that_cannot_be_written_does_not_delay_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuses(topic: str, value: bytes | None) -> KafkaError | None:
        bad = topic == "g.retry" and value == b"1"
        return MessageTooLarge("1,048,600 bytes") if bad else None

    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        cluster.refuses = refuses
        for number in range(4):
            await process.later(b"%d" % number, 5)
        await arrived(cluster, 3, seconds=6)
        assert cluster.values() == [b"0", b"2", b"3"]
        await asyncio.sleep(1)
        assert cluster.committed[TierPartition("g.retry.5s", 0)].offset == 1
        process.cut()
        other = Process(cluster)
        await asyncio.sleep(20)
        assert cluster.values() == [b"0", b"2", b"3"], "what is done above it is known"
        cluster.refuses = lambda topic, value: None
        await arrived(cluster, 4, seconds=31)
        await other.stop()

    with caplog.at_level(logging.WARNING):
        play(scene)
    line = next(
        record.getMessage() for record in caplog.records if "tier_write_failed" in record.msg
    )
    assert line == (
        "event=tier_write_failed group=g topic=g.retry.5s partition=0 offset=1 records=1 "
        'error="MessageTooLarge: 1,048,600 bytes"'
    )


def test_broker_that_is_away_for_a_minute_delays_and_loses_nothing() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        for seconds in (2, 10, 30, 70, 100):
            await process.later(b"%d" % seconds, seconds)
        await asyncio.sleep(1)
        await cluster.down_for(60)
        await arrived(cluster, 5, seconds=41)
        assert sorted(cluster.values()[:3]) == [b"10", b"2", b"30"]
        assert cluster.values()[3:] == [b"70", b"100"]
        assert lateness_ms(cluster)[3] <= LATE_MS_MAX
        assert lateness_ms(cluster)[4] <= LATE_MS_MAX
        await process.stop()

    play(scene)


def test_topic_created_later_is_read() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.missing.add("g.retry.30s")
        process = Process(cluster)
        await process.later(b"a", 30)
        await asyncio.sleep(5)
        cluster.missing.clear()
        await cluster.share_out()
        await arrived(cluster, 1, seconds=26)
        assert lateness_ms(cluster)[0] <= LATE_MS_MAX
        await process.stop()

    play(scene)


def test_log_with_a_later_start_offset_is_read_from_its_start() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.first_offset = 1_000
        process = Process(cluster)
        await process.later(b"a", 1)
        await arrived(cluster, 1, seconds=2)
        await asyncio.sleep(0.1)
        assert cluster.committed[TierPartition("g.retry.due", 0)] == Committed(1_001, "")
        await process.stop()

    play(scene)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("end", [0, 2])
def test_topic_that_lost_records_or_was_made_anew_keeps_no_later_retry(
    end: int, restarts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        for number in range(5):
            await process.later(b"%d" % number, 1)
        await arrived(cluster, 5, seconds=3)
        await asyncio.sleep(0.1)
        assert cluster.committed[TierPartition("g.retry.due", 0)] == Committed(5, "")
        if restarts:
            await process.stop()
        cluster.cut("g.retry.due", end)
        if restarts:
            process = Process(cluster)
            await asyncio.sleep(0.1)
            cluster.cut("g.retry.due", end)  # Nobody reads behind the end.
        for value in (b"new", b"newer"):
            await process.later(value, 1)
            await asyncio.sleep(3)
        assert cluster.values()[-2:] == [b"new", b"newer"]
        assert cluster.committed[TierPartition("g.retry.due", 0)] == Committed(end + 2, "")
        assert caplog.text.count("event=tier_begun_again group=g topic=g.retry.due") == 1
        assert "position=5 first=0" in caplog.text
        await process.stop()

    play(scene, steered=False)


def test_failure_to_read_is_logged_and_the_group_joined_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        await asyncio.sleep(0.5)
        process.member.read_errors += [NetworkException("gone")] * 3
        await process.later(b"a", 12)
        await arrived(cluster, 1, seconds=13)
        assert process.member.starts == 4
        assert lateness_ms(cluster)[0] <= LATE_MS_MAX
        await process.stop()

    with caplog.at_level(logging.WARNING):
        play(scene, steered=False)
    assert [record.getMessage() for record in caplog.records if "unreadable" in record.msg] == [
        'event=tiers_unreadable group=g error="NetworkException: gone"'
    ] * 3


def test_hanging_write_does_not_delay_the_next_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(cluster: Cluster) -> None:
        first = Process(cluster)
        await asyncio.sleep(0.1)
        await first.later(b"a", 1)
        await asyncio.sleep(0.5)
        first.outbox.is_cut = True  # Its connection hangs, but its heartbeats continue.
        await asyncio.sleep(1)
        before = asyncio.get_running_loop().time()
        second = Process(cluster)
        await arrived(cluster, 1, seconds=5)
        assert asyncio.get_running_loop().time() - before <= 3.1
        await second.stop()

    play(scene)


def test_each_due_record_emits_an_event() -> None:
    async def scene(cluster: Cluster) -> None:
        told: list[Event] = []
        events = Events()
        events.on("record.due", told.append)
        process = Process(cluster)
        process.task.cancel()
        await asyncio.wait([process.task])
        scheduler = Scheduler(
            Moving("g", process.clock, process.outbox, process.member, events=events)
        )
        running = asyncio.ensure_future(scheduler.run())
        await process.later(b"a", 8)
        await arrived(cluster, 1, seconds=9)
        await asyncio.sleep(0.1)
        (event,) = told
        assert (event.group, event.topic, event.offset) == ("g", "g.retry", 0)
        assert event.details == {"tier": "g.retry.due"}
        await scheduler.stop()
        await running

    play(scene)


def test_batches_are_bounded() -> None:
    async def scene(cluster: Cluster) -> None:
        process, most = Process(cluster, limits=SchedulerLimits(batch_records=100)), 0
        for number in range(1_000):
            cluster.append("g.retry.5s", b"%d" % number, None, [])
        while len(cluster.values()) < 1_000:
            await asyncio.sleep(0.0005)
            most = max(most, len(process.outbox.under_way))
        assert most == 100
        await process.stop()

    play(scene, steered=False)


class LazyOutbox(Outbox):
    """An outbox that sends a record when it is awaited."""

    def send(self, topic: str, value: bytes | None, **more: Any) -> Awaitable[Lying]:
        eager = super().send

        async def send() -> Lying:
            return await eager(topic, value, **more)

        if value == b"bad":
            raise MessageTooLarge("known before it is sent")
        return send()


def test_outbox_that_begins_when_awaited_is_not_awaited_one_by_one() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster, outbox=LazyOutbox)
        for number in range(100):
            cluster.append("g.retry.5s", b"%d" % number, None, [])
        cluster.append("g.retry.5s", b"bad", None, [])
        await arrived(cluster, 100, seconds=0.05)
        await process.stop()

    play(scene)


# The order of what is due, and topics that take nothing.


def test_records_that_are_due_at_once_come_back_in_the_order_in_which_they_failed() -> None:
    """An odd delay, over three topics, and a broker that is away when all of them are due."""

    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        expected = [b"%d" % number for number in range(300)]
        for value in expected:
            await process.later(value, 37)
            await asyncio.sleep(0.0013)
        await asyncio.sleep(36)
        assert len(cluster.values("g.retry.due")) == 300, "the last of three"
        await cluster.down_for(20)
        await arrived(cluster, 300, seconds=1)
        assert cluster.values() == expected
        await process.stop()

    play(scene)


class RoundingClock(LoopClock):
    """A clock whose two times are rounded at other fractions of a millisecond."""

    def wall_ms(self) -> int:
        return START_MS + int(self.now() * 1000 + 0.1) + self.ahead_ms


def test_rounding_of_the_clocks_changes_no_order() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.clock = RoundingClock()
        process = Process(cluster)
        expected = [b"%d" % number for number in range(300)]
        for value in expected:
            await process.later(value, 4)
            await asyncio.sleep(0.0004)
        await arrived(cluster, 300, seconds=5)
        assert cluster.values() == expected
        await process.stop()

    play(scene)


def test_records_that_a_topic_refused_come_back_in_order_with_those_that_were_due_later() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster)
        expected = [b"%d" % number for number in range(50)]
        for value in expected:
            await process.later(value, 3)
            await asyncio.sleep(0.1)
        cluster.refuses = lambda topic, value: NetworkException("no leader")
        await asyncio.sleep(4)
        before = cluster.values()
        cluster.refuses = lambda topic, value: None
        await arrived(cluster, 50, seconds=10)
        assert 0 < len(before) < 30, "some were refused, and some due while others waited"
        assert cluster.values() == expected
        await process.stop()

    play(scene)


class StuckOutbox(Outbox):
    """An outbox whose writes to one topic get no answer until it is told so."""

    stuck = "g.retry.30s"

    def send(self, topic: str, value: bytes | None, **more: Any) -> Awaitable[Lying]:
        if topic != self.stuck:
            return super().send(topic, value, **more)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Lying] = loop.create_future()
        self.waiting.append((answer, value))
        return answer

    waiting: list[tuple[asyncio.Future[Lying], bytes | None]]


def test_topic_that_does_not_answer_delays_no_record_for_another_topic() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster, outbox=StuckOutbox)
        outbox = process.outbox
        assert isinstance(outbox, StuckOutbox)
        outbox.waiting = []
        for seconds in (150, 151):  # The second part of both is in the tier that is stuck.
            await process.later(b"%d" % seconds, seconds)
        for seconds in (120, 121, 122):
            await process.later(b"%d" % seconds, seconds)
        await asyncio.sleep(119)
        assert not outbox.waiting
        await arrived(cluster, 3, seconds=5)
        assert cluster.values() == [b"120", b"121", b"122"]
        assert max(lateness_ms(cluster)) <= 1_000 + LATE_MS_MAX, "as it waits once for the other"
        assert [value for _, value in outbox.waiting] == [b"150"], "one at a time is pending"
        # The second one waits here until it is due, as no other topic is left for it.
        await arrived(cluster, 4, seconds=40)
        assert cluster.values()[3:] == [b"151"]
        assert lateness_ms(cluster)[3] <= LATE_MS_MAX
        partition = TierPartition("g.retry.2m", 0)
        assert cluster.committed[partition].offset == 0, "the next owner begins with the first"
        outbox.waiting[0][0].set_exception(NetworkException("no leader"))
        await arrived(cluster, 5, seconds=1)
        await asyncio.sleep(0.1)
        assert cluster.committed[partition] == Committed(5)
        await process.stop()

    play(scene, steered=False)


def test_stop_does_not_wait_for_a_topic_that_does_not_answer() -> None:
    async def scene(cluster: Cluster) -> None:
        process = Process(cluster, outbox=StuckOutbox)
        outbox = process.outbox
        assert isinstance(outbox, StuckOutbox)
        outbox.waiting = []
        await process.later(b"a", 150)
        await asyncio.sleep(125)
        assert outbox.waiting
        before = asyncio.get_running_loop().time()
        await process.stop()
        assert asyncio.get_running_loop().time() - before <= 3.1
        assert outbox.waiting[0][0].cancelled()

    play(scene, steered=False)
