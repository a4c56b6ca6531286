"""A transactional producer that speaks the protocol by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from kio.schema.add_partitions_to_txn.v3 import request as add_partitions
from kio.schema.end_txn.v4 import request as older_end_txn
from kio.schema.end_txn.v5 import request as end_txn
from kio.schema.init_producer_id.v5 import request as init_producer_id
from kio.schema.produce.v13 import request as produce

from sharegroup.wire.batches.records import encode_batch
from tests.faults.in_process import Broker

SECOND = timedelta(seconds=1)


class TransactionalProducer:
    """A producer whose transactions have one batch in each of some partitions.

    A refused request is an AssertionError, unless the method returns error codes.
    """

    def __init__(self, broker: Broker, transactional_id: str, topic: str, topic_id: Any) -> None:
        self._broker = broker
        self._transactional_id = transactional_id
        self._topic = topic
        self._topic_id = topic_id
        self._identity = (-1, -1)

    @classmethod
    async def of(
        cls, broker: Broker, topic: str, transactional_id: str = "t"
    ) -> TransactionalProducer:
        return cls(broker, transactional_id, topic, await broker.topic_id(topic))

    async def init(self) -> None:
        answer = await self._broker.ask(
            init_producer_id.InitProducerIdRequest(
                transactional_id=self._transactional_id, transaction_timeout=timedelta(seconds=60)
            )
        )
        self._identity = answer.producer_id, answer.producer_epoch

    async def add(self, partitions: Sequence[int]) -> None:
        """As producers do that do not know transaction version 2."""
        topic = add_partitions.AddPartitionsToTxnTopic(
            name=self._topic, partitions=tuple(partitions)
        )
        answer = await self._broker.ask(
            add_partitions.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._transactional_id,
                v3_and_below_producer_id=self._identity[0],
                v3_and_below_producer_epoch=self._identity[1],
                v3_and_below_topics=(topic,),
            )
        )
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert [int(result.partition_error_code) for result in results] == [0] * len(partitions)

    async def write(self, partitions: Sequence[int]) -> None:
        assert await self.try_to_write(partitions) == [0] * len(partitions)

    async def try_to_write(self, partitions: Sequence[int]) -> list[int]:
        """The error code of each partition."""
        batch = encode_batch(
            [(None, b"value", 1, ())],
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=0,
            is_transactional=True,
        )
        entries = tuple(
            produce.PartitionProduceData(index=index, records=bytes(batch)) for index in partitions
        )
        topic = produce.TopicProduceData(topic_id=self._topic_id, partition_data=entries)
        answer = await self._broker.ask(
            produce.ProduceRequest(
                transactional_id=self._transactional_id,
                acks=-1,
                timeout=SECOND,
                topic_data=(topic,),
            )
        )
        answers = answer.responses[0].partition_responses
        return [int(entry.error_code) for entry in answers]

    async def commit(self) -> None:
        answer = await self._broker.ask(
            end_txn.EndTxnRequest(
                transactional_id=self._transactional_id,
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
                transactional_id=self._transactional_id,
                producer_id=self._identity[0],
                producer_epoch=self._identity[1],
                committed=True,
            )
        )
        assert int(answer.error_code) == 0
