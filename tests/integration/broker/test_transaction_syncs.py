"""How many syncs, one after the other, readers of committed records wait for."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.add_partitions_to_txn.v3 import request as add_partitions
from kio.schema.end_txn.v4 import request as older_end_txn
from kio.schema.end_txn.v5 import request as end_txn
from kio.schema.init_producer_id.v5 import request as init_producer_id
from kio.schema.produce.v13 import request as produce

from sharegroup.ids import TopicName
from sharegroup.wire.records import encode_batch
from tests.faults.in_process import Broker

TOPIC, ID = "orders", "t"
SECOND = timedelta(seconds=1)


class Producing:
    """A transactional producer that writes one batch to each of some partitions."""

    def __init__(self, broker: Broker, topic_id: Any) -> None:
        self._broker = broker
        self._topic_id = topic_id
        self._identity = (-1, -1)

    async def init(self) -> None:
        answer = await self._broker.ask(
            init_producer_id.InitProducerIdRequest(
                transactional_id=ID, transaction_timeout=timedelta(seconds=60)
            )
        )
        self._identity = answer.producer_id, answer.producer_epoch

    async def add(self, partitions: int) -> None:
        """As producers do that do not know transaction version 2."""
        topic = add_partitions.AddPartitionsToTxnTopic(
            name=TOPIC, partitions=tuple(range(partitions))
        )
        answer = await self._broker.ask(
            add_partitions.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=self._identity[0],
                v3_and_below_producer_epoch=self._identity[1],
                v3_and_below_topics=(topic,),
            )
        )
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert [int(result.partition_error_code) for result in results] == [0] * partitions

    async def write(self, partitions: int) -> None:
        batch = encode_batch(
            [(None, b"value", 1, ())],
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=0,
            is_transactional=True,
        )
        entries = tuple(
            produce.PartitionProduceData(index=index, records=bytes(batch))
            for index in range(partitions)
        )
        topic = produce.TopicProduceData(topic_id=self._topic_id, partition_data=entries)
        answer = await self._broker.ask(
            produce.ProduceRequest(
                transactional_id=ID, acks=-1, timeout=SECOND, topic_data=(topic,)
            )
        )
        answers = answer.responses[0].partition_responses
        assert [int(entry.error_code) for entry in answers] == [0] * partitions

    async def commit(self) -> None:
        answer = await self._broker.ask(
            end_txn.EndTxnRequest(
                transactional_id=ID,
                producer_id=self._identity[0],
                producer_epoch=self._identity[1],
                committed=True,
            )
        )
        assert int(answer.error_code) == 0
        self._identity = answer.producer_id, answer.producer_epoch

    async def commit_and_keep_the_epoch(self) -> None:
        """As producers do that do not know transaction version 2."""
        answer = await self._broker.ask(
            older_end_txn.EndTxnRequest(
                transactional_id=ID,
                producer_id=self._identity[0],
                producer_epoch=self._identity[1],
                committed=True,
            )
        )
        assert int(answer.error_code) == 0


async def syncs_until_visible(broker: Broker, partitions: int, *, adds: bool) -> int:
    """The number of syncs from the first request of a transaction until its records are stable."""
    await broker.create_topic(TOPIC, partitions)
    producing = Producing(broker, await broker.topic_id(TOPIC))
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
        await producing.add(partitions)
    await producing.write(partitions)
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
            async with asyncio.timeout(10):
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
            async with asyncio.timeout(10):
                await broker.create_topic(TOPIC, 1)
                producing = Producing(broker, await broker.topic_id(TOPIC))
                await producing.init()
                await producing.add(1)
                await producing.write(1)
                await producing.commit_and_keep_the_epoch()
                await producing.add(1)
                log = broker.running.parts.topics.named(TopicName("__transaction_state"), 0)[1]
                return log.high_watermark, log.end_offset
        finally:
            await broker.stop()

    durable, end = asyncio.run(run())
    # The producer, its partition, the decision, the completion; the next partition.
    assert end == 5
    assert durable >= 4
