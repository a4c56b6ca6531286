"""What the share coordinator keeps open and in memory."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from sharegroup.broker.share.share_coordinator import NUMBERS_MAX
from sharegroup.core.delivery.delivery import Delta, RecordState, StateBatch
from sharegroup.ids import GroupId, SharePartitionKey, TopicId, TopicName
from sharegroup.testing.power_loss import PowerLossDisk
from tests.faults.in_process import Broker


def test_logs_of_which_no_state_speaks_stay_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> list[bool]:
        broker = await Broker.start(PowerLossDisk(1))
        await broker.create_topic("quiet", 3)
        topics = broker.running.parts.topics
        coordinator = broker.running.parts.share_coordinator
        topic = topics.catalog.topic(TopicName("quiet"))
        keys = [SharePartitionKey(GroupId("g"), topic.topic_id, number) for number in range(3)]
        for key in keys:
            ticket = coordinator.initialize(key, state_epoch=1, start_offset=0)
            assert ticket is not None
            await ticket
        beyond = StateBatch(0, 5, RecordState.ACKNOWLEDGED, 1)
        await coordinator.write(keys[2], 1, Delta(0, 5, (beyond,)))
        coordinator.load()
        opened = [topics.opened_log(topic, key.partition) is not None for key in keys]
        assert coordinator.read(keys[2]).batches == (), "the log ends before what was said"
        await broker.stop()
        return opened

    assert asyncio.run(scenario()) == [False, False, True]
    assert "event=share_state_cut" in caplog.text


def test_keys_that_have_no_state_do_not_stay_in_memory() -> None:
    async def scenario() -> None:
        broker = await Broker.start(PowerLossDisk(1))
        coordinator = broker.running.parts.share_coordinator
        numbers = [
            coordinator.partition_of(SharePartitionKey(GroupId("g"), TopicId(uuid4()), 0))
            for _ in range(2 * NUMBERS_MAX)
        ]
        assert len(set(numbers)) > 1
        assert coordinator._partition.cache_info().currsize == NUMBERS_MAX
        await broker.stop()

    asyncio.run(scenario())
