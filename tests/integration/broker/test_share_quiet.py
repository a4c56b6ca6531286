"""A fetch looks where something may be: what it looks at, whose turn it is, and nothing is missed.

A topic of many partitions; how often each share partition was looked at is what a fetch costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.share_fetch.v2.request import FetchPartition, FetchTopic

from sharegroup.broker.cluster.catalog import SHARE_GROUP_STATE
from sharegroup.ids import GroupId, TopicId, TopicIdPartition
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import ACCEPT, RELEASE, Broker, ShareMember
from tests.integration.broker.test_share_fetch import alter_group, request, waiting
from tests.integration.broker.test_share_isolation import transactional
from tests.support.limits import HANGING_SECONDS

Scenario = Callable[[Broker, ShareMember], Awaitable[None]]

NOW = timedelta(0)
MANY = 200


def run(scenario: Scenario, path: Path, partitions: int, **settings: str) -> None:
    """A member whose session has so many partitions, in all of which it found nothing."""

    async def main() -> None:
        broker = await Broker.start(None, str(path), **settings)
        try:
            await broker.create_topic("orders", partitions)
            await scenario(broker, await joined(broker, "member-1", partitions))
        finally:
            await broker.stop()

    asyncio.run(main())


async def joined(
    broker: Broker, name: str, partitions: int, *, group: str = "g", connection_id: int = 1
) -> ShareMember:
    member = ShareMember(group, name, "orders", partitions, connection_id=connection_id)
    assert await member.heartbeat(broker) == 0
    assert await member.fetch(broker, records_max=10) == ([], {})
    return member


async def produce(broker: Broker, *partitions: int, count: int = 1) -> None:
    """A batch of so many records for each."""
    for partition in partitions:
        batch = encode_batch([SimpleRecord(None, b"x" * 100, 1)] * count)
        assert (await broker.produce("orders", partition, batch))[0] == 0


async def taken(broker: Broker, member: ShareMember, records_max: int = 10) -> list[int]:
    """The partitions of which the next fetch brings a record."""
    found, _ = await member.fetch(broker, records_max=records_max)
    return [lock.partition for lock in found]


def looks(broker: Broker) -> int:
    return sum(live.look_count for live in broker.running.parts.share_partitions)


def answered(answer: Any) -> list[tuple[int, int, int]]:
    """Partition, error, and how many records."""
    assert answer.error_code == 0
    return [
        (
            partition.partition_index,
            int(partition.error_code),
            sum(some.last_offset - some.first_offset + 1 for some in partition.acquired_records),
        )
        for topic in answer.responses
        for partition in topic.partitions
    ]


async def soon(task: asyncio.Task[Any]) -> list[tuple[int, int, int]]:
    """The answer to a fetch that waits, while the clock stands still."""
    return answered(await asyncio.wait_for(task, HANGING_SECONDS))


# What is looked at


def test_fetch_examines_one_quiet_partition_instead_of_all(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        before = looks(broker)
        assert before == MANY
        for _ in range(5):
            assert await taken(broker, member) == []
        assert looks(broker) == before + 5

    run(scenario, tmp_path, MANY)


def test_woken_fetch_examines_only_the_partition_with_the_event(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        task = await waiting(broker, request(member))
        before = looks(broker)
        await produce(broker, 120)
        assert await soon(task) == [(120, 0, 1)]
        assert looks(broker) == before + 1

    run(scenario, tmp_path, MANY)


def test_fetch_with_enough_records_examines_no_more_partitions(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, *range(20))
        before = looks(broker)
        assert await taken(broker, member, 3) == [0, 1, 2]
        assert looks(broker) == before + 3

    run(scenario, tmp_path, MANY)


def test_fetch_at_its_deadline_examines_all_partitions(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        task = await waiting(broker, request(member))
        before = looks(broker)
        broker.clock.advance(0.5)
        assert await soon(task) == []
        assert looks(broker) == before + MANY

    run(scenario, tmp_path, MANY)


# Whose turn it is


def test_partitions_with_records_take_turns(tmp_path: Path) -> None:
    """Three have a batch for every round; records of an empty partition wait for its turn."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        for _ in range(3):
            await produce(broker, 4, 1, 3)
        turns = [await taken(broker, member, 1) for _ in range(4)]
        await produce(broker, 0)
        turns += [await taken(broker, member, 1) for _ in range(6)]
        assert [turn for [turn] in turns] == [4, 1, 3, 4, 1, 3, 4, 0, 1, 3]

    run(scenario, tmp_path, 5)


def test_missing_partition_is_reported_in_every_response(tmp_path: Path) -> None:
    """It precedes all partitions with records, even if a fetch may return few."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        assert member.topic_id is not None
        named = FetchPartition(partition_index=9, acknowledgement_batches=())
        topic = FetchTopic(topic_id=member.topic_id, partitions=(named,))
        await produce(broker, 0, 1)
        for epoch, partition, topics in ((1, 0, (topic,)), (2, 1, ())):
            message = request(member, share_session_epoch=epoch, max_records=1, topics=topics)
            assert answered(await broker.ask(message)) == [(partition, 0, 1), (9, 3, 0)]

    run(scenario, tmp_path, 2)


# Nothing is missed


def test_records_written_without_a_waiting_fetch_are_found_by_the_next(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        for partition in (7, 150, 7, 199):
            await produce(broker, partition)
            assert await taken(broker, member) == [partition]
        other = await joined(broker, "member-2", MANY)
        await produce(broker, 42, 43)
        assert await taken(broker, member) == [42, 43]
        assert await member.acknowledge(broker, {43: [(0, RELEASE)]}) == {43: 0}
        assert await taken(broker, other) == [43]

    run(scenario, tmp_path, MANY)


def test_release_wakes_only_its_own_group(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 1)
        assert await taken(broker, member) == [1]
        stranger = ShareMember("h", "member-1", "orders", 3, connection_id=1)
        assert await stranger.heartbeat(broker) == 0
        assert await taken(broker, stranger) == []
        other = await joined(broker, "member-2", 3)
        tasks = [await waiting(broker, request(member)) for member in (stranger, other)]
        before = looks(broker)
        assert await member.acknowledge(broker, {1: [(0, RELEASE)]}) == {1: 0}
        assert await soon(tasks[1]) == [(1, 0, 1)]
        assert (tasks[0].done(), looks(broker)) == (False, before + 1)
        broker.clock.advance(0.5)
        assert await soon(tasks[0]) == []

    run(scenario, tmp_path, 3)


async def locks_end(broker: Broker, holder: ShareMember) -> None:
    broker.clock.advance(30)


async def settles(broker: Broker, holder: ShareMember) -> None:
    acks = [(offset, ACCEPT) for offset in range(100)]
    assert await holder.acknowledge(broker, {1: acks}) == {1: 0}


async def more_locks(broker: Broker, holder: ShareMember) -> None:
    await alter_group(broker, "share.partition.max.record.locks", "200")


async def leaves(broker: Broker, holder: ShareMember) -> None:
    message = request(holder, share_session_epoch=-1, max_wait=NOW)
    assert (await broker.ask(message)).error_code == 0


async def log_starts_later(broker: Broker, holder: ShareMember) -> None:
    partition = TopicIdPartition(TopicId(topic_of(holder)), 1)
    await broker.running.parts.topics.delete_before({partition: 50})


async def is_loaded_again(broker: Broker, holder: ShareMember) -> None:
    """As after a failed write: what was only in memory is gone, the locks with it."""
    broker.running.parts.share_partitions.drop_group(GroupId("g"))


def topic_of(member: ShareMember) -> Any:
    assert member.topic_id is not None
    return member.topic_id


@pytest.mark.parametrize("min_bytes", [1, 1_000])
@pytest.mark.parametrize(
    "happens", [settles, more_locks, leaves, log_starts_later, is_loaded_again, locks_end]
)
def test_every_source_of_records_completes_a_waiting_fetch(
    tmp_path: Path, happens: Callable[[Broker, ShareMember], Awaitable[None]], min_bytes: int
) -> None:
    """Another member holds all 100 records that the group may hold; ten more are in the log."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, "share.partition.max.record.locks", "100")
        holder = await joined(broker, "holder", 3)
        for _ in range(11):
            await produce(broker, 1, count=10)
        assert len(await taken(broker, holder, 100)) == 100
        message = request(member, max_wait=timedelta(seconds=60), min_bytes=min_bytes)
        task = await waiting(broker, message)
        assert not task.done()
        await happens(broker, holder)
        [(partition, error, count)] = await soon(task)
        assert (partition, error, count > 0) == (1, 0, True)

    run(scenario, tmp_path, 3)


def test_open_transactions_are_readable_after_a_change_to_read_uncommitted(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, "share.isolation.level", "read_committed")
        _, log = broker.running.parts.topics.identified(TopicId(topic_of(member)), 2)
        await log.append(bytearray(transactional(71)), now_ms=broker.clock.wall_ms())
        assert await taken(broker, member) == []
        task = await waiting(broker, request(member))
        assert not task.done()
        await alter_group(broker, "share.isolation.level", "read_uncommitted")
        assert await soon(task) == [(2, 0, 1)]

    run(scenario, tmp_path, 3)


def test_fetch_for_min_bytes_is_woken_by_partitions_that_had_some(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 0, 2)
        task = await waiting(broker, request(member, min_bytes=450))
        assert not task.done()
        await produce(broker, 2)
        assert await soon(task) == [(0, 0, 1), (2, 0, 2)]

    run(scenario, tmp_path, 3)


def test_partitions_keep_their_turns_while_the_disk_takes_no_state(
    tmp_path: Path,
) -> None:
    """Nobody tells when it works again: three partitions are there for the first fetch after."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 0, 1, 2)
        _, state_log = broker.running.parts.topics.named(SHARE_GROUP_STATE, 0)
        state_log.sync_failed(OSError(5, "Input/output error"))
        assert await taken(broker, member) == []
        while state_log.is_fenced:
            await asyncio.sleep(0)
        assert sorted(await taken(broker, member)) == [0, 1, 2]

    run(scenario, tmp_path, 3, share_coordinator_state_topic_num_partitions="1")


@pytest.mark.parametrize("waits", [True, False])
def test_missed_wake_up_delays_records_but_loses_none(tmp_path: Path, waits: bool) -> None:
    """They are found at the deadline, or when the partition is examined in its turn."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        broker.running.parts.topics.on_visible(lambda _: None)
        await produce(broker, 3)
        if waits:
            task = await waiting(broker, request(member))
            assert not task.done()
            broker.clock.advance(0.5)
            assert await soon(task) == [(3, 0, 1)]
        else:
            assert [await taken(broker, member) for _ in range(4)] == [[], [], [], [3]]

    run(scenario, tmp_path, 5)


# A session that ends under a fetch that waits


@pytest.mark.parametrize("epoch", [-1, 0], ids=["closed", "opened in place"])
def test_fetch_of_a_session_that_is_over_waits_no_more(tmp_path: Path, epoch: int) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        task = await waiting(broker, request(member))
        named = tuple(
            FetchPartition(partition_index=partition, acknowledgement_batches=())
            for partition in (0, 1)
        )
        topics = (FetchTopic(topic_id=topic_of(member), partitions=named),)
        message = request(member, share_session_epoch=epoch, topics=topics, max_wait=NOW)
        assert (await broker.ask(message)).error_code == 0
        assert await soon(task) == []

    run(scenario, tmp_path, 2)


def test_ended_sessions_leave_no_watched_partitions(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        sessions = broker.running.parts.share_sessions
        other = await joined(broker, "member-2", 3)
        assert sessions.watched_count == 3
        await leaves(broker, other)
        assert sessions.watched_count == 3
        await leaves(broker, member)
        assert (len(sessions), sessions.watched_count) == (0, 0)

    run(scenario, tmp_path, 3)
