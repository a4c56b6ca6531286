"""A group that is behind has its next records in the answer before the sync begins."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kio.schema.share_fetch.v2 import request as messages

from sharegroup.core.delivery import Ack
from sharegroup.errors import KafkaStorageError
from sharegroup.testing.power_loss import PowerLossDisk
from tests.faults.in_process import Broker, ShareMember
from tests.unit.broker.test_share_fetch import produce, records, request, run


def accepting_and_fetching(member: ShareMember, offset: int, records_max: int) -> Any:
    batch = messages.AcknowledgementBatch(
        first_offset=offset, last_offset=offset, acknowledge_types=(Ack.ACCEPT,)
    )
    partition = messages.FetchPartition(partition_index=0, acknowledgement_batches=(batch,))
    topic = messages.FetchTopic(topic_id=member.topic_id, partitions=(partition,))
    return request(
        member,
        share_session_epoch=member.session_epoch + 1,
        topics=(topic,),
        max_records=records_max,
    )


async def decided(broker: Broker, message: Any) -> asyncio.Task[Any]:
    """The request, with its acknowledgement decided and no sync begun."""
    task = asyncio.create_task(broker.ask(message))
    await asyncio.sleep(0)
    assert not task.done()
    return task


def locked_count(broker: Broker) -> int:
    [live] = broker.running.parts.share_partitions
    return live.state.snapshot().acquired_count


def test_as_many_records_as_asked_for_are_taken_before_the_sync(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        for _ in range(3):
            await produce(broker)
        assert records(await broker.ask(request(member, max_records=1))) == [(0, 0, 1)]
        task = await decided(broker, accepting_and_fetching(member, 0, records_max=2))
        assert locked_count(broker) == 2, "offset 0 is accepted, 1 and 2 are taken"
        assert records(await task) == [(1, 2, 1)]

    run(scenario, tmp_path)


def test_fewer_are_taken_after_it_with_what_it_brings(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        for _ in range(3):
            await produce(broker)
        assert records(await broker.ask(request(member, max_records=1))) == [(0, 0, 1)]
        task = await decided(broker, accepting_and_fetching(member, 0, records_max=3))
        assert locked_count(broker) == 0
        assert records(await task) == [(1, 2, 1)]

    run(scenario, tmp_path)


def test_records_whose_locks_were_lost_with_the_sync_are_not_handed_out() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        broker = await Broker.start(disk)
        await broker.create_topic("orders", 1)
        member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
        assert await member.heartbeat(broker) == 0
        assert await member.fetch(broker, records_max=10) == ([], {})
        for _ in range(2):
            await produce(broker)
        assert records(await broker.ask(request(member, max_records=1))) == [(0, 0, 1)]
        task = await decided(broker, accepting_and_fetching(member, 0, records_max=1))
        assert locked_count(broker) == 1
        disk.fail_next_sync(100)
        answer = await task
        [partition] = answer.responses[0].partitions
        assert partition.acknowledge_error_code == KafkaStorageError.code
        assert records(answer) == []
        assert not partition.records
        await broker.crash()

    asyncio.run(main())
