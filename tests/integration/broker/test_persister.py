"""The two persisters: the one that keeps everything, and the one that keeps nothing."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from sharegroup.broker.cluster.catalog import SHARE_GROUP_STATE
from sharegroup.broker.configuration.group_config import DEFAULT_PERSISTER, NO_OP_PERSISTER
from sharegroup.broker.share.persister import NoPersister, Persister
from sharegroup.core.delivery.delivery import Delta, RecordState, StateBatch
from sharegroup.core.delivery.stored.share_states import NO_SUMMARY, PersistedState, StateSummary
from sharegroup.errors import InvalidRequest
from sharegroup.ids import GroupId, SharePartitionKey, TopicId
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import ACCEPT, Broker, ShareMember
from tests.integration.broker.test_share_fetch import alter_group

KEY = SharePartitionKey(GroupId("g"), TopicId(UUID(int=7)), 0)
SETTINGS = {"share_coordinator_state_topic_num_partitions": "1"}


def test_without_a_persister_only_the_start_is_remembered() -> None:
    persister: Persister = NoPersister()
    assert persister.summary(KEY) == NO_SUMMARY
    with pytest.raises(InvalidRequest, match=r"group 'g'.* partition 0: .* never initialized"):
        persister.read(KEY)
    ticket = persister.initialize(KEY, state_epoch=3, start_offset=10)
    assert ticket is None or ticket.done
    settled = StateBatch(12, 13, RecordState.ACKNOWLEDGED, 1)
    assert persister.write(KEY, 3, Delta(11, 1, (settled,))).done
    assert persister.read(KEY) == PersistedState(3, 11, 0, ())
    assert persister.summary(KEY) == StateSummary(3, 0, 11, 1)
    assert (persister.known(), persister.keys_of_topic(KEY.topic_id)) == ((KEY,), (KEY,))
    assert persister.last_write(KEY) is None
    persister.writable_check(KEY)()
    persister.forget_what_failed()
    assert persister.delete([KEY]) == []
    assert persister.known() == ()


@pytest.mark.parametrize(
    ("name", "again"), [(DEFAULT_PERSISTER, []), (NO_OP_PERSISTER, [0, 1]), ("", [0, 1])]
)
def test_persister_setting_decides_which_state_survives_a_restart(
    name: str, again: list[int]
) -> None:
    """The class names are Kafka's; an empty name means the persister that keeps nothing."""

    async def run() -> None:
        disk = PowerLossDisk(1)
        settings = {**SETTINGS, "group_share_persister_class_name": name}
        broker = await Broker.start(disk, **settings)
        await broker.create_topic("orders", 1)
        await broker.produce("orders", 0, encode_batch([SimpleRecord(None, b"x", 1)] * 2))
        await alter_group(broker, "share.auto.offset.reset", "earliest")
        member = ShareMember("g", "member", "orders", 1, connection_id=1)
        assert await member.heartbeat(broker) == 0
        taken, _ = await member.fetch(broker, records_max=10)
        assert [record.offset for record in taken] == [0, 1]
        assert await member.acknowledge(broker, {0: [(0, ACCEPT), (1, ACCEPT)]}) == {0: 0}
        written = broker.running.parts.topics.named(SHARE_GROUP_STATE, 0)[1].end_offset
        assert (written > 0) == (name == DEFAULT_PERSISTER)
        await broker.stop()
        broker = await Broker.start(disk, **settings)
        member.broker_restarted()
        taken, _ = await member.fetch(broker, records_max=10)
        assert [record.offset for record in taken] == again
        await broker.stop()

    asyncio.run(run())
