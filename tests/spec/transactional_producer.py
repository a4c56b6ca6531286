"""A producer with a transactional id, at the wire; each call is one request."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from kio.schema.add_partitions_to_txn.v3 import request as add_partitions
from kio.schema.end_txn.v4 import request as old_end_txn
from kio.schema.end_txn.v5 import request as end_txn
from kio.schema.find_coordinator.v6 import request as find_coordinator
from kio.schema.init_producer_id.v5 import request as init_producer_id
from kio.schema.offset_fetch.v9 import request as offset_fetch
from kio.schema.produce.v10 import request as produce_v10
from kio.schema.produce.v11 import request as produce_v11
from kio.schema.produce.v12 import request as produce_v12
from kio.schema.txn_offset_commit.v5 import request as txn_offset_commit

from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from sharegroup.wire.messages import txn_offset_commit_v6
from tests.spec.messages import Topic
from tests.spec.scene import TIMEOUT, Scene
from tests.spec.waiting import wait_for

CONCURRENT_TRANSACTIONS = 51
NOT_YET = (6, 14, 15, 16, CONCURRENT_TRANSACTIONS)
"""Kafka's leaders and coordinators hear of topics a moment later, and its markers take a while."""

TRANSACTION = 1
PRODUCE: dict[int, Any] = {10: produce_v10, 11: produce_v11, 12: produce_v12}
Identity = tuple[int, int]


class TransactionalProducer:
    """A producer id, an epoch, and the sequences of the epoch."""

    def __init__(self, scene: Scene, transactional_id: str | None = None) -> None:
        self.scene = scene
        self.transactional_id = transactional_id or scene.new_name("transaction")
        self.identity: Identity = (-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}

    def init(self, expected: Identity = (-1, -1), *, timeout_ms: int = 60_000) -> Identity:
        """Become the producer of the id; asks again while Kafka aborts a transaction."""
        wait_for(lambda: self._coordinator_is_there(), "the coordinator of a transactional id")
        answer = wait_for(
            lambda: self._settled(self.init_once(expected, timeout_ms=timeout_ms)),
            "the id's transaction to end",
        )
        assert int(answer.error_code) == 0, answer
        self.identity = answer.producer_id, answer.producer_epoch
        self._sequences = {}
        return self.identity

    def init_once(self, expected: Identity = (-1, -1), *, timeout_ms: int = 60_000) -> Any:
        """The answer to one InitProducerId."""
        return self.scene.ask(
            init_producer_id.InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout=timedelta(milliseconds=timeout_ms),
                producer_id=expected[0],
                producer_epoch=expected[1],
            )
        )

    def _coordinator_is_there(self) -> bool:
        request = find_coordinator.FindCoordinatorRequest(
            key_type=TRANSACTION, coordinator_keys=(self.transactional_id,)
        )
        return int(self.scene.ask(request).coordinators[0].error_code) == 0

    def _settled(self, answer: Any) -> Any:
        return None if int(answer.error_code) in NOT_YET else answer

    def add(self, topic: Topic, *partitions: int) -> list[int]:
        """The error codes of AddPartitionsToTxn, which newer producers do not send."""
        wanted = add_partitions.AddPartitionsToTxnTopic(name=topic.name, partitions=partitions)
        request = add_partitions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity[0],
            v3_and_below_producer_epoch=self.identity[1],
            v3_and_below_topics=(wanted,),
        )

        def attempt() -> list[int] | None:
            [result] = self.scene.ask(request).results_by_topic_v3_and_below
            entries = sorted(result.results_by_partition, key=lambda entry: entry.partition_index)
            codes = [int(entry.partition_error_code) for entry in entries]
            return None if set(codes) & set(NOT_YET) else codes

        return wait_for(attempt, "the previous transaction to be complete")

    def produce(
        self,
        topic: Topic,
        size: int = 1,
        *,
        partition: int = 0,
        version: int = 12,
        sequence: int | None = None,
        transactional_id: str | None = "",
    ) -> Any:
        """The answer to a batch of so many records."""
        where = topic.name, partition
        first = self._sequences.get(where, 0) if sequence is None else sequence
        now = int(time.time() * 1000)
        batch = encode_batch(
            [SimpleRecord(None, b"%d" % (first + number), now) for number in range(size)],
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            base_sequence=first,
            is_transactional=True,
        )
        module = PRODUCE[version]
        data = module.PartitionProduceData(index=partition, records=bytes(batch))
        request = module.ProduceRequest(
            transactional_id=self.transactional_id if transactional_id == "" else transactional_id,
            acks=-1,
            timeout=TIMEOUT,
            topic_data=(module.TopicProduceData(name=topic.name, partition_data=(data,)),),
        )

        def attempt() -> Any:
            answer = self.scene.ask(request).responses[0].partition_responses[0]
            return None if int(answer.error_code) in NOT_YET else answer

        answer = wait_for(attempt, "the previous transaction to be complete")
        if int(answer.error_code) == 0:
            self._sequences[where] = first + size
        return answer

    def write(self, topic: Topic, size: int = 1, *, partition: int = 0) -> int:
        """Write a batch that must be accepted; its offset."""
        answer = self.produce(topic, size, partition=partition)
        assert int(answer.error_code) == 0, answer
        return int(answer.base_offset)

    def end(self, *, commit: bool, identity: Identity | None = None) -> Any:
        """The answer to one EndTxn of KIP-890."""
        producer_id, epoch = identity or self.identity
        answer = self.scene.ask(
            end_txn.EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=commit,
            )
        )
        if int(answer.error_code) == 0 and identity is None:
            self.identity = answer.producer_id, answer.producer_epoch
            self._sequences = {}
        return answer

    def old_end(self, *, commit: bool) -> int:
        """The error code of one EndTxn from before KIP-890."""
        answer = self.scene.ask(
            old_end_txn.EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.identity[0],
                producer_epoch=self.identity[1],
                committed=commit,
            )
        )
        return int(answer.error_code)

    def finish(self, *, commit: bool) -> None:
        """End the transaction, and wait until its markers are written."""
        assert int(self.end(commit=commit).error_code) == 0
        self.wait_until_complete()

    def wait_until_complete(self) -> None:
        wait_for(lambda: "Prepare" not in self.state(), "the transaction to be complete")

    def state(self) -> str:
        return str(self.described().transaction_state)

    def described(self) -> Any:
        from kio.schema.describe_transactions.v0 import request as describe_transactions

        request = describe_transactions.DescribeTransactionsRequest(
            transactional_ids=(self.transactional_id,)
        )
        return self.scene.ask(request).transaction_states[0]

    def commit_offset(self, group: str, topic: Topic, offset: int, *, partition: int = 0) -> int:
        """The error code of one TxnOffsetCommit."""
        wanted = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        topic_entry = txn_offset_commit.TxnOffsetCommitRequestTopic(
            name=topic.name, partitions=(wanted,)
        )
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            topics=(topic_entry,),
        )

        def attempt() -> tuple[int] | None:
            code = int(self.scene.ask(request).topics[0].partitions[0].error_code)
            return None if code in NOT_YET else (code,)

        return wait_for(attempt, "the previous transaction to be complete")[0]

    def commit_offset_by_id(self, group: str, topic_id: Any, *, generation: int = -1) -> int:
        """The error code of one TxnOffsetCommit that names the topic by its id."""
        module = txn_offset_commit_v6
        wanted = module.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=None
        )
        request = module.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            generation_id=generation,
            topics=(module.TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=(wanted,)),),
        )

        def attempt() -> tuple[int] | None:
            code = int(self.scene.ask(request).topics[0].partitions[0].error_code)
            return None if code in NOT_YET else (code,)

        return wait_for(attempt, "the previous transaction to be complete")[0]


def committed(scene: Scene, group: str, topic: Topic, *, stable: bool) -> tuple[int, int]:
    """The error code and the committed offset of partition 0."""
    wanted = offset_fetch.OffsetFetchRequestTopics(name=topic.name, partition_indexes=(0,))
    request = offset_fetch.OffsetFetchRequest(
        groups=(offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=(wanted,)),),
        require_stable=stable,
    )
    partition = scene.ask(request).groups[0].topics[0].partitions[0]
    return int(partition.error_code), partition.committed_offset
