"""Starts on a full disk that have something to write: the broker starts, and writes it later."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from sharegroup.broker.cluster.catalog import SHARE_GROUP_STATE, TRANSACTION_STATE
from sharegroup.broker.transactions.transaction_coordinator import RETRY_MS
from sharegroup.errors import KafkaError, NotCoordinator
from sharegroup.ids import GroupId, SharePartitionKey, TopicName
from sharegroup.wire.batches.records import encode_batch
from tests.faults.bad_folders import INTERNAL, BadFolders, commit_all, fail_syncs_of
from tests.faults.in_process import Broker
from tests.faults.transactional_producer import TransactionalProducer
from tests.support.limits import HANGING_SECONDS

TOPIC = "orders"
GROUP = GroupId("g")


async def restarted(broker: Broker, disk: BadFolders, **settings: str) -> Broker:
    """Start again on a disk that is full."""
    await broker.stop()
    disk.fill_up()
    return await Broker.start(disk, clock=broker.clock, **(INTERNAL | settings))


def key_of(broker: Broker) -> SharePartitionKey:
    topic = broker.running.parts.topics.catalog.topic(TopicName(TOPIC))
    return SharePartitionKey(GROUP, topic.topic_id, 0)


def test_offsets_behind_the_end_of_a_log_are_cut_later(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        disk = BadFolders()
        broker = await Broker.start(disk, **INTERNAL)
        await broker.create_topic(TOPIC, 1)
        await commit_all(broker, GROUP, TOPIC, 1, 5)
        await commit_all(broker, "h", TOPIC, 1, 5)
        broker = await restarted(broker, disk)
        assert "offsets_not_cut" in caplog.text
        coordinator = broker.running.parts.classic_group_coordinator
        with pytest.raises(NotCoordinator):
            coordinator.offsets(GROUP)

        disk.make_room()
        async with asyncio.timeout(HANGING_SECONDS):
            while True:
                try:
                    offsets = coordinator.offsets(GROUP)
                except NotCoordinator:
                    await asyncio.sleep(0)  # The probe of the disk is in another thread.
                else:
                    break
        assert offsets[TopicName(TOPIC)][0].offset == 0
        assert coordinator.offsets(GroupId("h"))[TopicName(TOPIC)][0].offset == 0
        await broker.stop()

    asyncio.run(main())


@pytest.mark.parametrize("start_offset", [0, 5])
def test_states_of_share_partitions_are_corrected_later(
    start_offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A state that no group knows is deleted; one that says of records behind the log is cut."""

    async def main() -> None:
        disk = BadFolders()
        broker = await Broker.start(disk, **INTERNAL)
        await broker.create_topic(TOPIC, 1)
        states = broker.running.parts.share().coordinator
        ticket = states.initialize(key_of(broker), state_epoch=0, start_offset=start_offset)
        assert ticket is not None
        await ticket
        broker = await restarted(broker, disk)
        assert "coordinators_in_doubt" in caplog.text
        assert ("share_state_not_corrected" in caplog.text) is (start_offset > 0)
        parts = broker.running.parts.share()
        assert parts.coordinator.known() == (key_of(broker),)

        disk.make_room()
        async with asyncio.timeout(HANGING_SECONDS):
            while parts.coordinator.known():
                with contextlib.suppress(KafkaError):  # Any command; there is no such group.
                    parts.groups.delete(GROUP)
                await asyncio.sleep(0)
        await broker.stop()

    asyncio.run(main())


def test_open_transaction_is_taken_in_later(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        disk = BadFolders()
        broker = await Broker.start(disk, **INTERNAL)
        await broker.create_topic(TOPIC, 1)
        producer = await TransactionalProducer.of(broker, TOPIC)
        await producer.init()
        fail_syncs_of(broker, disk, TRANSACTION_STATE)
        assert await producer.try_to_write([0]) != [0]
        disk.failing = None
        broker = await restarted(broker, disk)
        assert "open_transactions_not_written" in caplog.text
        transactions = broker.running.parts.transaction_coordinator.transactions
        assert transactions.ongoing_count == 0

        disk.make_room()
        async with asyncio.timeout(HANGING_SECONDS):
            while transactions.ongoing_count == 0:
                broker.clock.advance(RETRY_MS / 1000)
                await asyncio.sleep(0)
        await broker.stop()

    asyncio.run(main())


def test_settings_of_internal_topics_are_written_by_a_later_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        disk = BadFolders()
        broker = await Broker.start(disk, **INTERNAL)
        setting = {"share_coordinator_state_topic_segment_bytes": "2097152"}
        broker = await restarted(broker, disk, **setting)
        assert "settings_not_written" in caplog.text
        topic = broker.running.parts.topics.catalog.topic(SHARE_GROUP_STATE)
        assert topic.settings["segment.bytes"] != "2097152"
        disk.make_room()
        await broker.stop()
        broker = await Broker.start(disk, **INTERNAL, **setting)
        topic = broker.running.parts.topics.catalog.topic(SHARE_GROUP_STATE)
        assert topic.settings["segment.bytes"] == "2097152"
        await broker.stop()

    asyncio.run(main())


@pytest.mark.parametrize("partitions", [3, 10])
def test_partitions_were_added_before_a_start(
    partitions: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The folders name their number; only a longer one needs space."""

    async def main() -> None:
        disk = BadFolders()
        broker = await Broker.start(disk, **INTERNAL)
        await broker.create_topic(TOPIC, 1)
        batch = encode_batch([(None, b"value", 1, ())])
        assert await broker.produce(TOPIC, 0, batch) == (0, 0)
        await broker.running.parts.topics.grow(TopicName(TOPIC), partitions)
        broker = await restarted(broker, disk, node_id="7")
        assert ("partition_metadata_not_written" in caplog.text) is (partitions == 10)
        assert "meta_properties_not_written" in caplog.text
        assert await broker.read_all(TOPIC, 0) == {0: b"value"}
        disk.make_room()
        caplog.clear()
        await broker.stop()
        broker = await Broker.start(disk, node_id="7", **INTERNAL)
        assert "not_written" not in caplog.text
        assert await broker.read_all(TOPIC, 0) == {0: b"value"}
        await broker.stop()

    asyncio.run(main())
