"""How many syncs, one after the other, readers of committed records wait for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sharegroup.ids import TopicName
from tests.faults.in_process import Broker
from tests.faults.transactional_producer import TransactionalProducer
from tests.support.limits import HANGING_SECONDS

TOPIC = "orders"


async def syncs_until_visible(broker: Broker, partitions: int, *, adds: bool) -> int:
    """The number of syncs from the first request of a transaction until its records are stable."""
    await broker.create_topic(TOPIC, partitions)
    producing = await TransactionalProducer.of(broker, TOPIC)
    await producing.init()
    directory = broker.running.directory
    visible: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    logs = [broker.running.parts.topics.named(TopicName(TOPIC), n)[1] for n in range(partitions)]

    def look() -> None:
        # Offset 0 is the record, offset 1 the marker.
        if all(log.last_stable_offset == 2 for log in logs) and not visible.done():
            visible.set_result(directory.sync_rounds)

    for log in logs:
        log.subscribe(look)
    before = directory.sync_rounds
    if adds:
        await producing.add(range(partitions))
    await producing.write(range(partitions))
    await producing.commit()
    return await visible - before


@pytest.mark.parametrize(
    ("partitions", "adds", "syncs"),
    [(1, False, 2), (1, True, 2), (2, False, 3)],
    ids=["one-partition", "one-partition-added-before", "two-partitions"],
)
def test_committed_records_wait_for_few_syncs(
    tmp_path: Path, partitions: int, adds: bool, syncs: int
) -> None:
    """One for the records, one for the decision, and one for the markers of several partitions."""

    async def run() -> int:
        broker = await Broker.start(None, str(tmp_path / "data"))
        try:
            async with asyncio.timeout(HANGING_SECONDS):
                return await syncs_until_visible(broker, partitions, adds=adds)
        finally:
            await broker.stop()

    assert asyncio.run(run()) == syncs


def test_next_transaction_of_an_epoch_waits_until_the_last_one_is_complete_on_disk(
    tmp_path: Path,
) -> None:
    """Otherwise a start could write the marker again, which would end the next transaction."""

    async def run() -> tuple[int, int]:
        settings = {"transaction_state_log_num_partitions": "1"}
        broker = await Broker.start(None, str(tmp_path / "data"), **settings)
        try:
            async with asyncio.timeout(HANGING_SECONDS):
                await broker.create_topic(TOPIC, 1)
                producing = await TransactionalProducer.of(broker, TOPIC)
                await producing.init()
                await producing.add([0])
                await producing.write([0])
                await producing.commit_and_keep_the_epoch()
                await producing.add([0])
                log = broker.running.parts.topics.named(TopicName("__transaction_state"), 0)[1]
                return log.high_watermark, log.end_offset
        finally:
            await broker.stop()

    durable, end = asyncio.run(run())
    # The producer, its partition, the decision, the completion; the next partition.
    assert end == 5
    assert durable >= 4
