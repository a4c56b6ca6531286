"""The group coordinator on a disk that fails: what was not written must never have happened."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sharegroup.broker.cluster.catalog import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from sharegroup.broker.groups.state_preparations import AT_ONCE
from sharegroup.errors import KafkaStorageError
from sharegroup.ids import GroupId, SharePartitionKey, TopicId, TopicIdPartition, TopicName
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.bad_folders import BadFolders, fail_syncs_of, fill_up
from tests.faults.in_process import Broker, ShareMember
from tests.support.limits import HANGING_SECONDS

NOT_COORDINATOR = 16


async def on_a_disk_with_one_bad_folder(
    scenario: Callable[[Broker, BadFolders], Awaitable[None]],
) -> None:
    disk = BadFolders()
    broker = await Broker.start(disk)
    await broker.create_topic("orders", 1)
    await scenario(broker, disk)
    await broker.stop()


async def key_of(broker: Broker, group: str) -> SharePartitionKey:
    topic_id = await broker.topic_id("orders")
    assert topic_id is not None
    return SharePartitionKey(GroupId(group), TopicId(topic_id), 0)


def members(broker: Broker, group: str) -> list[str]:
    described = broker.running.parts.share_group_coordinator.describe(GroupId(group))
    return [str(member.member_id) for member in described.members]


async def all_expire(broker: Broker, group: str) -> None:
    async with asyncio.timeout(HANGING_SECONDS):
        while members(broker, group):
            broker.clock.advance(1)
            await asyncio.sleep(0)


async def joined(broker: Broker, member: ShareMember) -> None:
    async with asyncio.timeout(HANGING_SECONDS):
        while await member.heartbeat(broker) != 0:
            await asyncio.sleep(0)


def test_expiry_of_members_does_not_hide_a_lost_write() -> None:
    """A member joins with a topic that is new to the group, and the disk loses all of that.

    The expiry timer is the next to write to the group's log.  It must notice the loss; otherwise
    the group still records a state of the topic's partitions.
    """

    async def run() -> None:
        disk = PowerLossDisk(1)
        broker = await Broker.start(disk)
        await broker.create_topic("orders", 1)
        await broker.create_topic("returns", 1)
        await joined(broker, ShareMember("g", "silent", "orders", 1, connection_id=1))
        member = ShareMember("g", "member", "returns", 1, connection_id=2)
        disk.fail_next_sync(20)
        assert await member.heartbeat(broker) != 0
        disk.fail_next_sync(0)
        await all_expire(broker, "g")
        await joined(broker, member)
        await broker.produce("returns", 0, encode_batch([SimpleRecord(None, b"one", 1)]))
        taken, _ = await member.fetch(broker, records_max=1)
        assert [(record.offset, record.value) for record in taken] == [(0, b"one")]
        await broker.stop()

    asyncio.run(run())


def test_offsets_are_not_deleted_by_half_while_the_groups_log_takes_no_records() -> None:
    async def run() -> None:
        disk = PowerLossDisk(1)
        broker = await Broker.start(disk, probe_seconds=3_600.0)
        await broker.create_topic("orders", 1)
        coordinator = broker.running.parts.share_group_coordinator
        await joined(broker, ShareMember("g", "silent", "orders", 1, connection_id=1))
        await all_expire(broker, "g")
        disk.fill_up()
        ghost = ShareMember("g", "ghost", "no-such-topic", 1, connection_id=2)
        assert await ghost.heartbeat(broker) != 0
        disk.make_room()
        with pytest.raises(KafkaStorageError):
            coordinator.delete_offsets(
                GroupId("g"), broker.running.parts.topics.catalog.topic(TopicName("orders"))
            )
        with pytest.raises(KafkaStorageError):
            coordinator.delete(GroupId("g"))
        assert await broker.group_offsets("g", "orders", 1) == [(0, 0)]
        await broker.stop()

    asyncio.run(run())


def test_unwritten_join_does_not_stop_the_expiry_of_other_members() -> None:
    async def run() -> None:
        disk = PowerLossDisk(1)
        broker = await Broker.start(disk)
        await broker.create_topic("orders", 1)
        disk.fill_up()
        given_up = ShareMember("never", "ghost", "no-such-topic", 1, connection_id=2)
        assert await given_up.heartbeat(broker) != 0
        disk.make_room()
        await joined(broker, ShareMember("g", "silent", "orders", 1, connection_id=1))
        await all_expire(broker, "g")
        await broker.stop()

    asyncio.run(run())


@pytest.mark.parametrize("lost", [SHARE_GROUP_STATE, CONSUMER_OFFSETS])
def test_member_gets_records_after_one_write_of_its_join_was_lost(
    lost: TopicName,
) -> None:
    """Either the group records a state that does not exist, or a state exists unrecorded."""

    async def scenario(broker: Broker, disk: BadFolders) -> None:
        member = ShareMember("g", "member", "orders", 1, connection_id=1)
        fail_syncs_of(broker, disk, lost)
        for _ in range(3):
            assert await member.heartbeat(broker) == NOT_COORDINATOR
        disk.failing = None
        await joined(broker, member)
        await broker.produce("orders", 0, encode_batch([SimpleRecord(None, b"one", 1)]))
        taken, _ = await member.fetch(broker, records_max=1)
        assert [(record.offset, record.value) for record in taken] == [(0, b"one")]

    asyncio.run(on_a_disk_with_one_bad_folder(scenario))


def test_deletion_of_a_group_is_completed_after_a_failed_state_deletion() -> None:
    """The group's deletion is durable, that of its state is not; the next command completes it."""

    async def scenario(broker: Broker, disk: BadFolders) -> None:
        parts = broker.running.parts
        await joined(broker, ShareMember("g", "silent", "orders", 1, connection_id=1))
        await all_expire(broker, "g")
        fail_syncs_of(broker, disk, SHARE_GROUP_STATE)
        with pytest.raises(KafkaStorageError):
            await parts.share_group_coordinator.delete(GroupId("g"))
        disk.failing = None
        await joined(broker, ShareMember("other", "member", "orders", 1, connection_id=2))
        parts.share_coordinator.forget_what_failed()
        assert parts.share_coordinator.known() == (await key_of(broker, "other"),)

    asyncio.run(on_a_disk_with_one_bad_folder(scenario))


def test_group_whose_deletion_was_not_written_gets_its_states_again() -> None:
    async def scenario(broker: Broker, disk: BadFolders) -> None:
        parts = broker.running.parts
        await joined(broker, ShareMember("g", "silent", "orders", 1, connection_id=1))
        await all_expire(broker, "g")
        fail_syncs_of(broker, disk, CONSUMER_OFFSETS)
        with pytest.raises(KafkaStorageError):
            await parts.share_group_coordinator.delete(GroupId("g"))
        disk.failing = None
        await joined(broker, ShareMember("g", "member", "orders", 1, connection_id=2))
        assert parts.share_coordinator.known() == (await key_of(broker, "g"),)

    asyncio.run(on_a_disk_with_one_bad_folder(scenario))


PARTITIONS = 4
"""Share partitions whose states are in several partitions of ``__share_group_state``."""

FETCHES = 200
"""Fetches until the disk was probed, which is done in another thread."""


async def is_written(change: Callable[[], Awaitable[None]]) -> None:
    """Repeat a change until the disk is probed, which is done in another thread."""
    async with asyncio.timeout(HANGING_SECONDS):
        while True:
            with contextlib.suppress(KafkaStorageError):
                return await change()
            await asyncio.sleep(0)


async def gets_records_of_all_partitions(broker: Broker, member: ShareMember) -> bool:
    for partition in range(PARTITIONS):
        await broker.produce("wide", partition, encode_batch([SimpleRecord(None, b"new", 1)]))
    partitions: set[int] = set()
    for _ in range(FETCHES):
        taken, _ = await member.fetch(broker, records_max=100)
        partitions.update(record.partition for record in taken)
        if partitions == set(range(PARTITIONS)):
            return True
        await asyncio.sleep(0)
    return False


async def delete_group(broker: Broker) -> None:
    await broker.running.parts.share_group_coordinator.delete(GroupId("g"))


async def delete_offsets(broker: Broker) -> None:
    parts = broker.running.parts
    topic = parts.topics.catalog.topic(TopicName("wide"))
    await parts.share_group_coordinator.delete_offsets(GroupId("g"), topic)


async def alter_offsets(broker: Broker) -> None:
    parts = broker.running.parts
    topic = parts.topics.catalog.topic(TopicName("wide"))
    offsets = {TopicIdPartition(topic.topic_id, index): 0 for index in range(PARTITIONS)}
    coordinator = parts.share_group_coordinator
    await coordinator.alter_offsets(GroupId("g"), offsets, [topic], user=None)


async def join(broker: Broker) -> None:
    if await ShareMember("g", "refused", "wide", PARTITIONS, connection_id=3).heartbeat(broker):
        raise KafkaStorageError("the member was refused")


FULL = pytest.mark.parametrize(
    ("full", "writes_left"), [(SHARE_GROUP_STATE, 1), (SHARE_GROUP_STATE, 0), (CONSUMER_OFFSETS, 0)]
)
"""The disk is full after the first state, before it, or when all states are written."""


@FULL
@pytest.mark.parametrize("delete", [delete_group, delete_offsets])
def test_member_gets_records_after_states_were_deleted_by_half(
    delete: Callable[[Broker], Awaitable[None]], full: TopicName, writes_left: int
) -> None:
    """The group keeps its record of share partitions, of which some have no state any more."""

    async def scenario(broker: Broker, disk: BadFolders) -> None:
        await broker.create_topic("wide", PARTITIONS)
        await joined(broker, ShareMember("g", "silent", "wide", PARTITIONS, connection_id=1))
        await all_expire(broker, "g")
        fill_up(broker, disk, full, writes_left=writes_left)
        with pytest.raises(KafkaStorageError):
            await delete(broker)
        disk.full = None
        member = ShareMember("g", "member", "wide", PARTITIONS, connection_id=2)
        await joined(broker, member)
        assert await gets_records_of_all_partitions(broker, member)

    asyncio.run(on_a_disk_with_one_bad_folder(scenario))


@FULL
@pytest.mark.parametrize("make_states", [alter_offsets, join])
def test_states_that_were_made_by_half_do_not_fence_a_new_group_with_the_same_id(
    make_states: Callable[[Broker], Awaitable[None]], full: TopicName, writes_left: int
) -> None:
    """A group makes states that its record does not have, and begins anew with lower epochs."""

    async def scenario(broker: Broker, disk: BadFolders) -> None:
        await broker.create_topic("wide", PARTITIONS)
        await joined(broker, ShareMember("g", "silent", "orders", 1, connection_id=1))
        await all_expire(broker, "g")
        fill_up(broker, disk, full, writes_left=writes_left)
        with pytest.raises(KafkaStorageError):
            await make_states(broker)
        disk.full = None
        await is_written(lambda: delete_group(broker))
        member = ShareMember("g", "member", "wide", PARTITIONS, connection_id=2)
        await joined(broker, member)
        assert await gets_records_of_all_partitions(broker, member)

    asyncio.run(on_a_disk_with_one_bad_folder(scenario))


def test_states_that_were_prepared_in_vain_do_not_fence_a_new_group_with_the_same_id() -> None:
    """The states of a large topic are prepared in slices; the group's record is refused after."""

    async def scenario(broker: Broker, disk: BadFolders) -> None:
        partitions = AT_ONCE + 1
        await broker.create_topic("large", partitions)
        await joined(broker, ShareMember("g", "silent", "orders", 1, connection_id=1))
        await all_expire(broker, "g")
        fill_up(broker, disk, CONSUMER_OFFSETS)
        refused = ShareMember("g", "refused", "large", partitions, connection_id=2)
        assert await refused.heartbeat(broker) == NOT_COORDINATOR
        disk.full = None
        await is_written(lambda: delete_group(broker))
        member = ShareMember("g", "member", "large", partitions, connection_id=3)
        assert await member.heartbeat(broker) == 0

    asyncio.run(on_a_disk_with_one_bad_folder(scenario))


def test_join_writes_no_state_while_the_groups_log_takes_no_records() -> None:
    async def run() -> None:
        disk = PowerLossDisk(1)
        broker = await Broker.start(disk, probe_seconds=3_600.0)
        await broker.create_topic("orders", 1)
        disk.fill_up()
        ghost = ShareMember("g", "ghost", "no-such-topic", 1, connection_id=2)
        assert await ghost.heartbeat(broker) == NOT_COORDINATOR
        disk.make_room()
        member = ShareMember("g", "member", "orders", 1, connection_id=1)
        assert await member.heartbeat(broker) == NOT_COORDINATOR
        assert broker.running.parts.share_coordinator.known() == ()
        await broker.stop()

    asyncio.run(run())


async def assigned(broker: Broker, member: ShareMember) -> list[int]:
    """The partitions that a heartbeat of a member that is in the group leaves it with."""
    assert await member.heartbeat(broker) == 0
    described = broker.running.parts.share_group_coordinator.describe(GroupId(member.group))
    [found] = [
        described_member
        for described_member in described.members
        if described_member.member_id == member.member_id
    ]
    return sorted(partition for _, partition in found.assignment)


def test_created_grown_and_deleted_topic_changes_the_assignment(tmp_path: Path) -> None:
    """A member subscribes to a missing topic and sends heartbeats while the topic changes."""

    async def run() -> None:
        broker = await Broker.start(None, str(tmp_path))
        member = ShareMember("g", "member", "later", 1, connection_id=1)
        assert await assigned(broker, member) == []
        await broker.create_topic("later", 1)
        assert await assigned(broker, member) == [0]
        topics = broker.running.parts.topics
        await topics.grow(TopicName("later"), 3)
        assert await assigned(broker, member) == [0, 1, 2]
        await broker.produce("later", 2, encode_batch([SimpleRecord(None, b"first of 2", 1)]))
        assert await broker.group_offsets("g", "later", 3) == [(0, 0), (0, 0), (0, 1)]
        await topics.delete(topics.catalog.topic(TopicName("later")))
        assert await assigned(broker, member) == []
        await broker.create_topic("later", 1)
        assert await assigned(broker, member) == [0]
        await broker.stop()

    asyncio.run(run())


@pytest.mark.parametrize("kills", [False, True])
def test_stopped_broker_does_not_expire_members(
    kills: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """In a program that embeds it, the event loop and its clock go on."""

    async def scenario() -> None:
        broker = await Broker.start(PowerLossDisk(1))
        await broker.create_topic("orders", 1)
        member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
        assert await member.heartbeat(broker) == 0
        await broker.produce("orders", 0, encode_batch([SimpleRecord(None, b"x", 1)]))
        taken, _ = await member.fetch(broker, records_max=10)
        assert len(taken) == 1
        if kills:
            await broker.running.abandon()
        else:
            await broker.stop()
        caplog.clear()
        broker.clock.advance(3_600)

    asyncio.run(scenario())
    assert caplog.messages == []
