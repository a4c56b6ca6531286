"""Read, process, write in transactions, by workers that die and come back: exactly once (E1).

Two topics of their own: `INPUTS`, which a feeder fills, and `OUTPUTS`.  Several workers have the
same input partition and the same transactional id.  Each believes to be the only one, as after a
restart that only seems complete, so they fence each other in the middle of their transactions.

    position of the group (if stable) ──▶ records ──▶ outputs and new position, in one transaction

E1  in what readers of committed records get of `OUTPUTS`, each input below the committed position
    is there exactly once, and none above it
E2  when faults are over, all inputs are processed
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.add_offsets_to_txn.v3 import request as add_offsets
from kio.schema.add_partitions_to_txn.v3 import request as add_partitions
from kio.schema.end_txn.v4 import request as old_end_txn
from kio.schema.end_txn.v5 import request as end_txn
from kio.schema.init_producer_id.v5 import request as init_producer_id
from kio.schema.offset_fetch.v9 import request as offset_fetch
from kio.schema.produce.v11 import request as old_produce
from kio.schema.produce.v13 import request as produce
from kio.schema.txn_offset_commit.v3 import request as old_txn_offset_commit
from kio.schema.txn_offset_commit.v5 import request as txn_offset_commit

from sharegroup.wire.batches.batches import scan
from sharegroup.wire.batches.records import decode_records, encode_batch
from tests.sim.board import Board, KnownTopic
from tests.sim.check_logs import LogChecks, committed_values
from tests.sim.client import Client, NoAnswer
from tests.sim.clock import WALL_START_MS
from tests.sim.messages import (
    SECOND,
    Partition,
    make_create_topic,
    make_fetch,
    make_metadata,
    make_produce,
)

INPUTS, OUTPUTS = "inputs", "outputs"
GROUP = "pipeline"
PARTITIONS = 2
READ_COMMITTED = 1
RECORDS_MAX = 4
TIMEOUT = timedelta(seconds=4)


class Restart(Exception):
    """The worker cannot go on with this transaction: it begins anew, as after a crash."""


class Identity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


@dataclass
class Pipelines:
    """The topics of the workers, and what must be true of them in the end."""

    board: Board
    logs: LogChecks
    inputs: KnownTopic | None = None
    outputs: KnownTopic | None = None

    async def learn(self, client: Client) -> bool:
        """Find the topics, or create them."""
        if self.outputs is not None:
            return True
        for name in (INPUTS, OUTPUTS):
            await client.ask(make_create_topic(name, PARTITIONS))
        answer = await client.ask(make_metadata(INPUTS, OUTPUTS))
        found = {
            str(topic.name): KnownTopic(str(topic.name), topic.topic_id, len(topic.partitions))
            for topic in answer.topics
            if int(topic.error_code) == 0
        }
        if len(found) < 2:
            return False
        self.inputs, self.outputs = found[INPUTS], found[OUTPUTS]
        for index in range(PARTITIONS):
            # There are markers, and values come again with another number.
            self.logs.view(Partition(self.outputs.topic_id, index)).has_markers = True
        return True

    async def position(self, client: Client, index: int) -> int | None:
        """The committed position; None while a transaction may change it."""
        topic = offset_fetch.OffsetFetchRequestTopics(name=INPUTS, partition_indexes=(index,))
        group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=(topic,))
        request = offset_fetch.OffsetFetchRequest(groups=(group,), require_stable=True)
        answer = await client.ask(request)
        if int(answer.groups[0].error_code) != 0:
            return None
        partition = answer.groups[0].topics[0].partitions[0]
        if int(partition.error_code) != 0:
            return None
        return max(0, partition.committed_offset)

    async def is_drained(self, client: Client) -> bool:
        """E2: everything that was fed is processed."""
        if self.inputs is None or self.outputs is None:
            return True
        for index in range(PARTITIONS):
            position = await self.position(client, index)
            answer = await client.ask(make_fetch(Partition(self.inputs.topic_id, index), 0))
            end = answer.responses[0].partitions[0].high_watermark
            if position is None or position < end:
                return False
        return True

    async def check(self, client: Client) -> list[str]:
        """E1: what does not hold."""
        if self.inputs is None or self.outputs is None:
            return []
        processed: Counter[tuple[int, int]] = Counter()
        for index in range(PARTITIONS):
            for value in await self._committed(client, Partition(self.outputs.topic_id, index)):
                where = value.split(b" ")[0].split(b"/")
                processed[int(where[0]), int(where[1])] += 1
        problems = []
        for index in range(PARTITIONS):
            position = await self.position(client, index)
            if position is None:
                problems.append(f"E1: the position in {INPUTS}-{index} is not stable in the end")
                continue
            wrong = {
                offset: processed[index, offset]
                for offset in range(position)
                if processed[index, offset] != 1
            }
            if wrong:
                problems.append(f"E1: {INPUTS}-{index} up to {position}: times processed {wrong}")
            beyond = [offset for part, offset in processed if part == index and offset >= position]
            if beyond:
                problems.append(f"E1: {INPUTS}-{index} is at {position}; {beyond} are processed")
        return problems

    async def _committed(self, client: Client, partition: Partition) -> list[bytes]:
        values: list[bytes] = []
        offset, end = 0, 1
        while offset < end:
            answer = await client.ask(make_fetch(partition, offset, isolation=READ_COMMITTED))
            read = answer.responses[0].partitions[0]
            end = read.last_stable_offset
            if read.high_watermark != end:
                raise NoAnswer(f"{partition}: a transaction is open at {end}")
            values += [value for at, value in committed_values(read) if at >= offset]
            ends = [header.end_offset for _, header in scan(read.records or b"")]
            if not ends:
                break
            offset = ends[-1]
        return values


@dataclass
class Feeder:
    """Fills the inputs; a record that is there twice is two inputs."""

    pipelines: Pipelines
    chance: random.Random
    count: int = 0

    async def run(self) -> None:
        client = Client("feeder")
        while True:
            await asyncio.sleep(self.chance.uniform(0, 0.6))
            if self.pipelines.board.is_settling:
                continue
            try:
                if await self.pipelines.learn(client):
                    await self._feed(client)
            except NoAnswer:
                continue

    async def _feed(self, client: Client) -> None:
        assert self.pipelines.inputs is not None
        partition = Partition(self.pipelines.inputs.topic_id, self.chance.randrange(PARTITIONS))
        values = []
        for _ in range(self.chance.randint(1, 5)):
            self.count += 1
            values.append(b"input/%d" % self.count)
        batch = encode_batch([(None, value, WALL_START_MS, ()) for value in values])
        await client.ask(make_produce(partition, bytes(batch), acks=-1))


@dataclass
class Worker:
    """Processes one input partition, and believes to be the only one; see the module's text.

    ``is_old`` makes it speak the protocol before KIP-890.
    """

    name: str
    index: int
    pipelines: Pipelines
    chance: random.Random
    is_old: bool
    attempts: int = 0
    sequences: dict[int, int] = field(default_factory=dict)

    async def run(self) -> None:
        while True:
            client = Client(self.name)
            try:
                await asyncio.sleep(self.chance.uniform(0, 0.5))
                if await self.pipelines.learn(client):
                    await self._work(client)
            except (NoAnswer, Restart):
                continue
            finally:
                client.close()

    async def _work(self, client: Client) -> None:
        identity = await self._init(client)
        # When faults are over, a worker stays: its twin must not fence it for ever.
        patience = 40 if self.pipelines.board.is_settling else self.chance.randint(1, 6)
        for _ in range(patience):
            if self.pipelines.board.is_settling and self.name.endswith("b"):
                await asyncio.sleep(1)
                continue
            identity = await self._transaction(client, identity)
            await asyncio.sleep(self.chance.uniform(0, 0.3))

    async def _init(self, client: Client) -> Identity:
        self.sequences = {}
        if self.pipelines.board.is_settling and self.name.endswith("b"):
            await asyncio.sleep(1)
            raise Restart
        answer = await client.ask(
            init_producer_id.InitProducerIdRequest(
                transactional_id=f"pipeline-{self.index}", transaction_timeout=TIMEOUT
            )
        )
        self._check(answer.error_code)
        return Identity(answer.producer_id, answer.producer_epoch)

    async def _transaction(self, client: Client, identity: Identity) -> Identity:
        position = await self.pipelines.position(client, self.index)
        inputs, outputs = self.pipelines.inputs, self.pipelines.outputs
        assert inputs is not None
        assert outputs is not None
        if position is None:
            return identity
        fetched = await client.ask(make_fetch(Partition(inputs.topic_id, self.index), position))
        data = fetched.responses[0].partitions[0].records or b""
        records = [record for record in decode_records(data) if record.offset >= position]
        records = records[: self.chance.randint(1, RECORDS_MAX)]
        if not records:
            return identity
        if self.is_old:
            await self._add(client, identity)
        for target in range(PARTITIONS):
            mine = [record.offset for record in records if record.offset % PARTITIONS == target]
            if mine:
                await self._produce(client, identity, target, mine)
        if self.chance.random() < 0.1:
            raise Restart  # A crash in the middle.
        if self.chance.random() < 0.85:
            await self._commit_position(client, identity, records[-1].offset + 1)
            return await self._end(client, identity, is_commit=True)
        return await self._end(client, identity, is_commit=False)

    async def _add(self, client: Client, identity: Identity) -> None:
        topic = add_partitions.AddPartitionsToTxnTopic(
            name=OUTPUTS, partitions=tuple(range(PARTITIONS))
        )
        answer = await client.ask(
            add_partitions.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._transactional_id,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=(topic,),
            )
        )
        for result in answer.results_by_topic_v3_and_below[0].results_by_partition:
            self._check(result.partition_error_code)

    @property
    def _transactional_id(self) -> str:
        return f"pipeline-{self.index}"

    async def _produce(
        self, client: Client, identity: Identity, target: int, offsets: list[int]
    ) -> None:
        assert self.pipelines.outputs is not None
        self.attempts += 1
        values = [
            b"%d/%d %s/%d" % (self.index, offset, self.name.encode(), self.attempts)
            for offset in offsets
        ]
        batch = encode_batch(
            [(None, value, WALL_START_MS, ()) for value in values],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=self.sequences.get(target, 0),
            is_transactional=True,
        )
        request = self._produce_request(self.pipelines.outputs.topic_id, target, bytes(batch))
        answer = await client.ask(request)
        self._check(answer.responses[0].partition_responses[0].error_code)
        self.sequences[target] = self.sequences.get(target, 0) + len(values)

    def _produce_request(self, topic_id: UUID, target: int, batch: bytes) -> Any:
        module: Any = old_produce if self.is_old else produce
        which = {"name": OUTPUTS} if self.is_old else {"topic_id": topic_id}
        data = module.PartitionProduceData(index=target, records=batch)
        topic = module.TopicProduceData(**which, partition_data=(data,))
        return module.ProduceRequest(
            transactional_id=self._transactional_id, acks=-1, timeout=SECOND, topic_data=(topic,)
        )

    async def _commit_position(self, client: Client, identity: Identity, position: int) -> None:
        if self.is_old:
            answer = await client.ask(
                add_offsets.AddOffsetsToTxnRequest(
                    transactional_id=self._transactional_id,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.epoch,
                    group_id=GROUP,
                )
            )
            self._check(answer.error_code)
        module: Any = old_txn_offset_commit if self.is_old else txn_offset_commit
        partition = module.TxnOffsetCommitRequestPartition(
            partition_index=self.index, committed_offset=position, committed_metadata=None
        )
        topic = module.TxnOffsetCommitRequestTopic(name=INPUTS, partitions=(partition,))
        answer = await client.ask(
            module.TxnOffsetCommitRequest(
                transactional_id=self._transactional_id,
                group_id=GROUP,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                topics=(topic,),
            )
        )
        self._check(answer.topics[0].partitions[0].error_code)

    async def _end(self, client: Client, identity: Identity, *, is_commit: bool) -> Identity:
        module: Any = old_end_txn if self.is_old else end_txn
        answer = await client.ask(
            module.EndTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=is_commit,
            )
        )
        self._check(answer.error_code)
        if self.is_old:
            return identity
        self.sequences = {}
        return Identity(answer.producer_id, answer.producer_epoch)

    def _check(self, code: Any) -> None:
        if int(code) != 0:
            raise Restart(f"{self.name}: error {int(code)}")
