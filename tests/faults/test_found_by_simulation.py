"""What the simulation found, each as small as it could be made."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import encode_batch
from tests.faults.in_process import ACCEPT, Broker, ShareMember
from tests.sim.messages import GROUP_RESOURCE, make_alter_config

TOPIC, GROUP = "orders", "billing"
KAFKA_STORAGE_ERROR = 56
SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "1",
}


async def broker_with_records(disk: PowerLossDisk, count: int) -> tuple[Broker, ShareMember]:
    """A broker, and a member of a group that begins at the first record."""
    broker = await Broker.start(disk, **SETTINGS)
    assert await broker.create_topic(TOPIC, 1) == 0
    member = ShareMember(GROUP, "m", TOPIC, 1, 1)
    assert await member.heartbeat(broker) == 0
    for number in range(count):
        batch = encode_batch([(None, b"%d" % number, 1, ())])
        assert await broker.produce(TOPIC, 0, batch) == (0, number)
    return broker, member


def test_start_offset_is_not_reported_before_it_is_durable() -> None:
    """It is requested while the write of an acknowledgement to a failing disk is pending."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        broker, member = await broker_with_records(disk, 2)
        taken, _ = await member.fetch(broker, records_max=10)
        assert [record.offset for record in taken] == [0, 1]
        disk.fail_next_sync(3)
        acknowledged, told = await asyncio.gather(
            member.acknowledge(broker, {0: [(0, ACCEPT), (1, ACCEPT)]}),
            broker.group_offsets(GROUP, TOPIC, 1),
        )
        assert acknowledged == {0: KAFKA_STORAGE_ERROR}
        assert told == [(0, 2)]
        await broker.crash()

    asyncio.run(main())


def test_deleted_records_on_a_full_disk_do_not_keep_a_waiting_fetch_busy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The new log start cannot be written. That is tried once, not in a loop."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        broker, member = await broker_with_records(disk, 2)
        await member.fetch(broker, records_max=2)
        waiting = asyncio.create_task(member.fetch(broker, records_max=1, wait_ms=1000))
        await asyncio.sleep(0)
        topic = await broker.topic_id(TOPIC)
        assert topic is not None
        log = broker.running.directory.get(topic, 0)
        assert log is not None
        await log.delete_before(2)  # This wakes the fetch, which finds...
        disk.fill_up()
        for _ in range(100):
            await asyncio.sleep(0)
        broker.clock.advance(1)
        await waiting
        await broker.crash()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    failed = [
        message for message in caplog.messages if message.startswith("event=state_write_failed")
    ]
    assert len(failed) <= 2


def test_committed_records_are_read_where_the_log_begins_in_the_middle_of_a_batch() -> None:
    """The group got OFFSET_OUT_OF_RANGE, for ever."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        broker, member = await broker_with_records(disk, 0)
        await broker.ask(
            make_alter_config(GROUP_RESOURCE, GROUP, {"share.isolation.level": "read_committed"})
        )
        batch = encode_batch([(None, b"%d" % number, 1_795_000_000_000, ()) for number in range(5)])
        assert await broker.produce(TOPIC, 0, batch) == (0, 0)
        topic = await broker.topic_id(TOPIC)
        assert topic is not None
        log = broker.running.directory.get(topic, 0)
        assert log is not None
        assert await log.delete_before(2) == 2
        taken, _ = await member.fetch(broker, records_max=10)
        assert [record.offset for record in taken] == [2, 3, 4]
        await broker.stop()

    asyncio.run(main())
