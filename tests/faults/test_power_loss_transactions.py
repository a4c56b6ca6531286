"""500 losses of power under a producer of transactions, at operations that a seed draws.

Each transaction has a number and writes values with that number: to one partition, or to some of
three partitions, and then it commits the number for a group.  The power goes five times in the life
of a disk; after each loss another producer takes over.  At last it stays, and then

- a transaction whose commit was confirmed is there, in all of its partitions, once;
- a transaction that was aborted, or whose commit was not asked for, is not there;
- a transaction whose end nobody knows is there as a whole, or not at all;
- the group has the number of the last transaction that is there;
- no transaction is open: readers of committed records read up to the end.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.add_offsets_to_txn.v4 import request as add_offsets
from kio.schema.add_partitions_to_txn.v3 import request as add_partitions
from kio.schema.describe_transactions.v0 import request as describe_transactions
from kio.schema.end_txn.v4 import request as older_end_txn
from kio.schema.end_txn.v5 import request as end_txn
from kio.schema.fetch.v18 import request as fetch
from kio.schema.init_producer_id.v5 import request as init_producer_id
from kio.schema.offset_fetch.v9 import request as offset_fetch
from kio.schema.produce.v11 import request as older_produce
from kio.schema.produce.v13 import request as produce
from kio.schema.txn_offset_commit.v4 import request as older_txn_offset_commit
from kio.schema.txn_offset_commit.v5 import request as txn_offset_commit

from sharegroup.broker.transactions import transaction_coordinator
from sharegroup.broker.transactions.transaction_markers import TransactionMarkers
from sharegroup.errors import KafkaError
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.batches.records import encode_batch
from tests.faults.in_process import Broker, topic_id
from tests.sim.check_logs import committed_values
from tests.support.limits import ALL_DAMAGE, HANGING_SECONDS

DISKS = 65 if ALL_DAMAGE else 12
OLDER_SEEDS = (*range(33 if ALL_DAMAGE else 4), 68, 149)
"""The last two committed a transaction that nobody had ended, with the marker of the one before."""
POWER_LOSSES = 5
PARTITIONS = 3
TOPIC, GROUP, ID = "orders", "g", "t"
SECOND = timedelta(seconds=1)
SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "transaction_state_log_segment_bytes": "2048",
}
ONE_PARTITION = 0.4
"""The part of transactions whose marker is written together with the decision."""
OPERATIONS = (20, 200)
"""How many operations of the disk there are at least and at most before a loss."""

UNCONFIRMED_ENDS = (0, 1, 10, 103, 129)
"""Seeds with transactions whose end was not confirmed."""

PARTS_OF_A_COMMIT = (77, 94, 137)
"""Seeds with a loss that keeps some markers of a transaction, if none waits for the decision."""

COMPLETED_TOO_EARLY = (25, 50, 80, 96, 109, 117)
"""Seeds with a loss between a completion and its markers, if it does not wait for them."""

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


@dataclass
class History:
    """What the broker confirmed of each transaction, and where it wrote."""

    outcomes: dict[int, str] = field(default_factory=dict)
    partitions: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    of_group: set[int] = field(default_factory=set)
    by_marker_alone: int = 0
    """Commits whose marker survived a loss of power and whose decision did not."""
    last: int = 0


class Refused(Exception):
    """A request failed: the producer starts again."""


class Life:
    """A broker from its start to the loss of power, and the producer that works with it."""

    def __init__(self, broker: Broker, chance: random.Random, history: History) -> None:
        self.broker = broker
        self.chance = chance
        self.history = history
        self.producer = (-1, -1)
        self.topic_id: Any = None
        self.sequences: Counter[int] = Counter()

    async def set_up(self) -> None:
        self.topic_id = await topic_id(self.broker, TOPIC)
        if self.topic_id is None:
            await self.broker.create_topic(TOPIC, PARTITIONS)
            self.topic_id = await topic_id(self.broker, TOPIC)
        was_open = await self._state() == "Ongoing"
        await self.init()
        last = self.history.last
        if was_open and self.history.outcomes.get(last) == UNKNOWN:
            self.history.by_marker_alone += last in await self.visible()

    async def _state(self) -> str:
        """The state of the transactional id; empty if there is no such id yet."""
        answer = await self.broker.ask(
            describe_transactions.DescribeTransactionsRequest(transactional_ids=(ID,))
        )
        state: str = answer.transaction_states[0].transaction_state
        return state

    async def init(self) -> None:
        answer = await self.broker.ask(
            init_producer_id.InitProducerIdRequest(
                transactional_id=ID, transaction_timeout=timedelta(seconds=60)
            )
        )
        check(answer.error_code)
        self.producer = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    async def work(self) -> None:
        """One transaction."""
        self.history.last += 1
        number = self.history.last
        outcomes = self.history.outcomes
        outcomes[number] = ABORTED
        try:
            if self.chance.random() < ONE_PARTITION:
                await self._write(number, self.chance.randrange(PARTITIONS))
            else:
                for _ in range(self.chance.randint(1, 4)):
                    await self._write(number, self.chance.randrange(PARTITIONS))
                self.history.of_group.add(number)
                await self._commit_number(number)
            is_commit = self.chance.random() < 0.75
            if is_commit:
                outcomes[number] = UNKNOWN
            await self._end(is_commit=is_commit)
            if is_commit:
                outcomes[number] = COMMITTED
        except Refused:
            await self.init()

    async def _write(self, number: int, partition: int) -> None:
        first = self.sequences[partition]
        values = [b"%d/%d/%d" % (number, partition, first + n) for n in range(2)]
        await self._produce(partition, values)
        self.sequences[partition] += len(values)
        self.history.partitions[number].add(partition)

    def _batch(self, partition: int, values: list[bytes]) -> bytes:
        producer_id, epoch = self.producer
        batch = encode_batch(
            [(None, value, 1, ()) for value in values],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self.sequences[partition],
            is_transactional=True,
        )
        return bytes(batch)

    async def _produce(self, partition: int, values: list[bytes]) -> None:
        data = produce.PartitionProduceData(index=partition, records=self._batch(partition, values))
        topic = produce.TopicProduceData(topic_id=self.topic_id, partition_data=(data,))
        answer = await self.broker.ask(
            produce.ProduceRequest(
                transactional_id=ID, acks=-1, timeout=SECOND, topic_data=(topic,)
            )
        )
        check(answer.responses[0].partition_responses[0].error_code)

    async def _commit_number(self, number: int) -> None:
        partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=0, committed_metadata=str(number)
        )
        topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=(partition,))
        answer = await self.broker.ask(
            txn_offset_commit.TxnOffsetCommitRequest(
                transactional_id=ID,
                group_id=GROUP,
                producer_id=self.producer[0],
                producer_epoch=self.producer[1],
                topics=(topic,),
            )
        )
        check(answer.topics[0].partitions[0].error_code)

    async def _end(self, *, is_commit: bool) -> None:
        answer = await self.broker.ask(
            end_txn.EndTxnRequest(
                transactional_id=ID,
                producer_id=self.producer[0],
                producer_epoch=self.producer[1],
                committed=is_commit,
            )
        )
        check(answer.error_code)
        self.producer = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    # What is there in the end

    async def visible(self) -> dict[int, dict[int, list[bytes]]]:
        """The committed values by transaction and partition."""
        found: dict[int, dict[int, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        for partition in range(PARTITIONS):
            offset, end = 0, 1
            while offset < end:
                read = await self._fetch(partition, offset)
                end = read.high_watermark
                assert read.last_stable_offset == end, f"{partition}: a transaction is open"
                for _, value in committed_values(read):
                    number, written_to, _ = value.split(b"/")
                    assert int(written_to) == partition
                    found[int(number)][partition].append(value)
                ends = [header.end_offset for _, header in scan(read.records or b"")]
                offset = ends[-1] if ends else end
        return found

    async def _fetch(self, partition: int, offset: int) -> Any:
        wanted = fetch.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        answer = await self.broker.ask(
            fetch.FetchRequest(
                max_wait=timedelta(0),
                min_bytes=0,
                isolation_level=1,
                topics=(fetch.FetchTopic(topic_id=self.topic_id, partitions=(wanted,)),),
                forgotten_topics_data=(),
            )
        )
        return answer.responses[0].partitions[0]

    async def group_number(self) -> int:
        """The number that the group has; 0 if it has none."""
        topic = offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(0,))
        group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=(topic,))
        answer = await self.broker.ask(
            offset_fetch.OffsetFetchRequest(groups=(group,), require_stable=True)
        )
        partition = answer.groups[0].topics[0].partitions[0]
        assert int(partition.error_code) == 0, "the offset is not stable"
        return int(partition.metadata or 0)

    async def check(self) -> None:
        found = await self.visible()
        for number, outcome in self.history.outcomes.items():
            values = found.get(number, {})
            wanted = self.history.partitions[number]
            if outcome == COMMITTED or (outcome == UNKNOWN and values):
                assert set(values) == wanted, f"{number} is {outcome}: in {set(values)}, {wanted}"
                for of_partition in values.values():
                    assert len(of_partition) == len(set(of_partition)), f"{number} is there twice"
            else:
                assert not values, f"{number} is {outcome} and visible"
        committed = found.keys() & self.history.of_group
        assert await self.group_number() == max(committed, default=0)


class OlderLife(Life):
    """The same with a producer that keeps its epoch, and adds partitions before their records."""

    async def _produce(self, partition: int, values: list[bytes]) -> None:
        topic = add_partitions.AddPartitionsToTxnTopic(name=TOPIC, partitions=(partition,))
        added = await self.broker.ask(
            add_partitions.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=self.producer[0],
                v3_and_below_producer_epoch=self.producer[1],
                v3_and_below_topics=(topic,),
            )
        )
        results = added.results_by_topic_v3_and_below[0].results_by_partition
        check(results[0].partition_error_code)
        data = older_produce.PartitionProduceData(
            index=partition, records=self._batch(partition, values)
        )
        produced = older_produce.TopicProduceData(name=TOPIC, partition_data=(data,))
        answer = await self.broker.ask(
            older_produce.ProduceRequest(
                transactional_id=ID, acks=-1, timeout=SECOND, topic_data=(produced,)
            )
        )
        check(answer.responses[0].partition_responses[0].error_code)

    async def _commit_number(self, number: int) -> None:
        producer_id, epoch = self.producer
        added = await self.broker.ask(
            add_offsets.AddOffsetsToTxnRequest(
                transactional_id=ID, producer_id=producer_id, producer_epoch=epoch, group_id=GROUP
            )
        )
        check(added.error_code)
        partition = older_txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=0, committed_metadata=str(number)
        )
        topic = older_txn_offset_commit.TxnOffsetCommitRequestTopic(
            name=TOPIC, partitions=(partition,)
        )
        answer = await self.broker.ask(
            older_txn_offset_commit.TxnOffsetCommitRequest(
                transactional_id=ID,
                group_id=GROUP,
                producer_id=producer_id,
                producer_epoch=epoch,
                topics=(topic,),
            )
        )
        check(answer.topics[0].partitions[0].error_code)

    async def _end(self, *, is_commit: bool) -> None:
        answer = await self.broker.ask(
            older_end_txn.EndTxnRequest(
                transactional_id=ID,
                producer_id=self.producer[0],
                producer_epoch=self.producer[1],
                committed=is_commit,
            )
        )
        check(answer.error_code)


def check(code: Any) -> None:
    if int(code) != 0:
        raise Refused(int(code))


async def hurry(disk: PowerLossDisk, broker: Broker) -> None:
    """Let time pass when the power is gone: requests that wait for the disk give up."""
    while True:
        await asyncio.sleep(0.001)
        if not disk.has_power:
            broker.clock.advance(10)


async def live(
    disk: PowerLossDisk, chance: random.Random, history: History, kind: type[Life]
) -> None:
    """Work until the power goes."""
    disk.cut_power_after(chance.randrange(*OPERATIONS))
    broker = None
    try:
        broker = await Broker.start(disk, **SETTINGS)
        life = kind(broker, chance, history)
        async with asyncio.TaskGroup() as tasks:
            hurrying = tasks.create_task(hurry(disk, broker))
            try:
                await life.set_up()
                while disk.has_power:
                    await life.work()
            finally:
                hurrying.cancel()
    except* (OSError, KafkaError, AssertionError, Refused):
        if disk.has_power:
            raise
    finally:
        if broker is not None:
            await broker.crash()
        disk.cut_power()


async def live_and_die(seed: int, kind: type[Life] = Life) -> Counter[str]:
    """All the losses of one disk; how the transactions whose end was not confirmed ended."""
    disk, chance, history = PowerLossDisk(seed), random.Random(seed), History()
    async with asyncio.timeout(HANGING_SECONDS):
        for _ in range(POWER_LOSSES):
            await live(disk, chance, history, kind)
        broker = await Broker.start(disk, **SETTINGS)
        try:
            life = kind(broker, chance, history)
            await life.set_up()
            await life.check()
            found = await life.visible()
            ends = Counter(
                "there" if number in found else "not there"
                for number, outcome in history.outcomes.items()
                if outcome == UNKNOWN
            )
            ends["there by the marker alone"] = history.by_marker_alone
            return ends
        finally:
            await broker.stop()


@pytest.mark.parametrize("seed", range(DISKS))
def test_transactions_are_whole(seed: int) -> None:
    asyncio.run(live_and_die(seed))


@pytest.mark.parametrize("seed", OLDER_SEEDS)
def test_transactions_of_producers_that_keep_their_epoch_are_whole(seed: int) -> None:
    asyncio.run(live_and_die(seed, OlderLife))


def test_power_is_lost_before_and_after_decisions() -> None:
    """Otherwise the other tests would show less than they claim."""
    ends: Counter[str] = Counter()
    for seed in UNCONFIRMED_ENDS:
        ends += asyncio.run(live_and_die(seed))
    assert ends["there"]
    assert ends["not there"]
    assert ends["there by the marker alone"]


def test_markers_of_several_partitions_written_with_the_decision_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_coordinator, "may_mark_at_once", lambda *_: True)
    found = 0
    for seed in PARTS_OF_A_COMMIT:
        try:
            asyncio.run(live_and_die(seed))
        except AssertionError as error:
            found += "is unknown: in" in str(error)
    assert found


def test_completion_that_does_not_wait_for_the_markers_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append_all = TransactionMarkers.append_all

    def nothing_to_wait_for(markers: TransactionMarkers, *arguments: Any) -> list[Ticket]:
        append_all(markers, *arguments)
        return []

    monkeypatch.setattr(TransactionMarkers, "append_all", nothing_to_wait_for)
    found = 0
    for seed in COMPLETED_TOO_EARLY:
        try:
            asyncio.run(live_and_die(seed))
        except AssertionError as error:
            found += "is committed: in" in str(error) or "is open" in str(error)
    assert found
