"""The group coordinator on a disk that fails: what was not written must never have happened."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.errors import KafkaStorageError
from sharegroup.ids import GroupId, TopicName
from sharegroup.storage import fence
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.records import NewRecord, encode_batch
from tests.faults.in_process import Broker, ShareMember


@pytest.fixture(autouse=True)
def probes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fenced log tries the disk again at every append: these tests have no time to wait."""
    monkeypatch.setattr(fence, "PROBE_SECONDS", 0.0)


def members(broker: Broker, group: str) -> list[str]:
    described = broker.running.parts.share_group_coordinator.describe(GroupId(group))
    return [str(member.member_id) for member in described.members]


async def all_expire(broker: Broker, group: str) -> None:
    async with asyncio.timeout(10):
        while members(broker, group):
            broker.clock.advance(1)
            await asyncio.sleep(0)


async def joined(broker: Broker, member: ShareMember) -> None:
    async with asyncio.timeout(10):
        while await member.heartbeat(broker) != 0:
            await asyncio.sleep(0)


def test_expiry_of_members_does_not_hide_a_write_that_was_lost() -> None:
    """A member joins with a topic that is new to the group, and the disk loses all of that.

    The next to write to the group's log is the timer.  It must notice, or the group goes on
    believing that the topic's partitions have a state.
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
        await broker.produce("returns", 0, encode_batch([NewRecord(None, b"one", 1)]))
        taken, _ = await member.fetch(broker, records_max=1)
        assert [(one.offset, one.value) for one in taken] == [(0, b"one")]
        await broker.stop()

    asyncio.run(run())


def test_offsets_are_not_deleted_by_half_while_the_groups_log_takes_no_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fence, "PROBE_SECONDS", 3_600.0)

    async def run() -> None:
        disk = PowerLossDisk(1)
        broker = await Broker.start(disk)
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


def test_join_that_was_never_written_does_not_stop_the_expiry_of_others() -> None:
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
