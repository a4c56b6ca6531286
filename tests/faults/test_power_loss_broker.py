"""500 losses of power under a whole broker in ``fsync`` mode.

Two idempotent producers and two share groups of two members each work on a topic of two
partitions.  The power goes at an operation of the disk that the seed draws, also while the
broker starts, four times in the life of a disk; what was not synced is kept, lost or torn.
After each loss the broker starts on what is left and must have everything that it confirmed:

- a produced record at its offset, once, with its value (L1, L2, L3);
- an accept or a reject: the record is never delivered to that group again (S2);
- the group, its members' partitions and its start offset: no record before it that was
  neither settled nor delivered as often as is allowed (S5), and a restart in order changes
  nothing (S8).

At last the power stays, and all that is left is consumed: every record settles, lag 0 (S3).
A failure names its seed; ``pytest -k 'seed[12]'`` runs it again.  The last tests take the
syncs away and expect that losses are found: they hold the checker itself.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from sharegroup.broker.share.share_coordinator import ShareCoordinator
from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.errors import KafkaError
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import encode_batch
from tests.faults.in_process import ACCEPT, REJECT, RELEASE, Acks, Broker, ShareMember, Taken
from tests.support.limits import ALL_DAMAGE, HANGING_SECONDS

DISKS = 125 if ALL_DAMAGE else 20
POWER_LOSSES = 4
TOPIC = "orders"
PARTITIONS = 2
GROUPS = ("billing", "shipping")
DELIVERIES_MAX = 5
LOCK_SECONDS = 30
SPARE_BYTES = 256
"""Less than in a broker, so that small logs are pruned, too."""
KAFKA_STORAGE_ERROR = 56
SETTINGS = {
    "offsets_topic_num_partitions": "2",
    "share_coordinator_state_topic_num_partitions": "2",
    "share_coordinator_state_topic_segment_bytes": "4096",
    "share_coordinator_snapshot_update_records_per_snapshot": "20",
    "share_coordinator_cold_partition_snapshot_interval_ms": "1",
    "log_segment_bytes": "2048",
    "group_share_delivery_count_limit": str(DELIVERIES_MAX),
    "group_share_record_lock_duration_ms": str(LOCK_SECONDS * 1000),
    "group_share_min_record_lock_duration_ms": str(15 * 1000),
}

Where = tuple[str, int, int]
"""Group, partition, offset."""


@dataclass
class History:
    """What the broker confirmed, and what it was asked without an answer."""

    produced: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By partition and offset."""
    settled: dict[Where, int] = field(default_factory=dict)
    """Confirmed accepts and rejects."""
    settling: set[Where] = field(default_factory=set)
    """Accepts and rejects that were sent, with whatever outcome."""
    deliveries: Counter[Where] = field(default_factory=Counter)
    """The highest delivery count seen."""
    topic_id: object = None
    groups: set[str] = field(default_factory=set)
    """Those that a member's heartbeat was confirmed for."""

    def delivered(self, group: str, record: Taken) -> None:
        where = (group, record.partition, record.offset)
        assert where not in self.settled, f"{where} was {self.settled[where]}, and comes again"
        assert 1 <= record.delivery_count <= DELIVERIES_MAX
        confirmed = self.produced.get((record.partition, record.offset))
        assert confirmed in (None, record.value), f"{where} has another value"
        self.deliveries[where] = max(self.deliveries[where], record.delivery_count)

    def sent(self, group: str, acks: Acks) -> None:
        self.settling.update(
            (group, partition, offset)
            for partition, own in acks.items()
            for offset, kind in own
            if kind != RELEASE
        )

    def answered(self, group: str, acks: Acks, outcomes: dict[int, int]) -> None:
        for partition, own in acks.items():
            if outcomes[partition] == 0:
                self.settled |= {
                    (group, partition, offset): kind for offset, kind in own if kind != RELEASE
                }

    def may_be_over(self, where: Where) -> bool:
        """Whether the group may have no use for the record any more."""
        return where in self.settling or self.deliveries[where] >= DELIVERIES_MAX


@dataclass
class IdempotentProducer:
    """Writes one partition; what was not confirmed is sent again as it was."""

    partition: int
    producer_id: int = -1
    sequence: int = 0
    count: int = 0
    unconfirmed: bytearray | None = None
    values: list[bytes] = field(default_factory=list)

    async def step(self, broker: Broker, history: History, chance: random.Random) -> None:
        if self.producer_id < 0:
            error, producer_id = await broker.new_producer_id()
            if error == 0:
                self.producer_id = producer_id
            return
        if self.unconfirmed is None:
            self._make_batch(chance)
        assert self.unconfirmed is not None
        error, base_offset = await broker.produce(TOPIC, self.partition, self.unconfirmed)
        if error:
            assert error == KAFKA_STORAGE_ERROR
            return
        for index, value in enumerate(self.values):
            history.produced[self.partition, base_offset + index] = value
        self.sequence += len(self.values)
        self.unconfirmed = None

    def _make_batch(self, chance: random.Random) -> None:
        many = chance.randrange(1, 5)
        self.values = [
            b"%d-%d-" % (self.partition, self.count + index) + bytes(chance.randrange(150))
            for index in range(many)
        ]
        self.count += many
        self.unconfirmed = encode_batch(
            [(None, value, 1, ()) for value in self.values],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence,
        )


class Worker:
    """Consumes as a share member and settles what it took, in one of the ways there are."""

    def __init__(self, group: str, number: int, connection_id: int) -> None:
        self.member = ShareMember(group, f"{group}-{number}", TOPIC, PARTITIONS, connection_id)
        self.held: list[Taken] = []

    def broker_restarted(self) -> None:
        self.member.broker_restarted()
        self.held.clear()

    async def step(self, broker: Broker, history: History, chance: random.Random) -> None:
        group = self.member.group
        if not self.member.member_epoch or chance.random() < 0.1:
            if await self.member.heartbeat(broker) == 0:
                history.groups.add(group)
            return
        acks = self._choose(chance)
        history.sent(group, acks)
        if acks and chance.random() < 0.5:
            history.answered(group, acks, await self.member.acknowledge(broker, acks))
            return
        count = chance.randrange(1, 12)
        taken, outcomes = await self.member.fetch(broker, records_max=count, acks=acks)
        history.answered(group, acks, outcomes)
        for record in taken:
            history.delivered(group, record)
        self.held += taken

    def _choose(self, chance: random.Random) -> dict[int, list[tuple[int, int]]]:
        """Settle all that is held, but forget some of it: its lock has to end by itself."""
        acks: dict[int, list[tuple[int, int]]] = {}
        for record in sorted(self.held):
            kind = chance.choices((ACCEPT, RELEASE, REJECT, None), (70, 15, 10, 5))[0]
            if kind is not None:
                acks.setdefault(record.partition, []).append((record.offset, kind))
        self.held.clear()
        return acks


@dataclass
class World:
    """One disk and everybody who outlives the broker on it."""

    disk: PowerLossDisk
    chance: random.Random
    settings: dict[str, str]
    history: History = field(default_factory=History)
    broker: Broker | None = None
    producers: list[IdempotentProducer] = field(
        default_factory=lambda: [IdempotentProducer(number) for number in range(PARTITIONS)]
    )
    workers: list[Worker] = field(
        default_factory=lambda: [
            Worker(group, number, 10 * index + number)
            for index, group in enumerate(GROUPS, start=1)
            for number in range(2)
        ]
    )

    async def start(self) -> Broker | None:
        """A broker on the disk; None if the power went before it was ready."""
        for worker in self.workers:
            worker.broker_restarted()
        try:
            self.broker = await Broker.start(self.disk, **self.settings)
        except (OSError, KafkaError):
            assert not self.disk.has_power
        return self.broker

    async def stop(self) -> None:
        assert self.broker is not None
        await self.broker.stop()
        self.broker = None

    async def crash(self) -> None:
        if self.broker is not None:
            await self.broker.crash()
        self.broker = None

    async def live(self, operations: int) -> None:
        """Work until the power goes, after this many operations of the disk from now on."""
        self.disk.cut_power_after(operations)
        broker = await self.start()
        if broker is not None:
            await self._work(broker, lambda: self.disk.has_power)
        await self.crash()
        self.disk.cut_power()

    async def settle(self) -> None:
        """With power again: everything that is left settles, and a restart changes nothing."""
        broker = await self.check()
        rounds = 0
        while await self._lag(broker):
            rounds += 1
            assert rounds < 200, f"lag {await self._lag(broker)} does not become 0"
            broker.clock.advance(LOCK_SECONDS / 2 + 1)
            for worker in self.workers:
                await self._accept_all(broker, worker)
        await self._check_records(broker)
        self._check_all_is_over(broker)
        before = [await broker.group_offsets(group, TOPIC, PARTITIONS) for group in GROUPS]
        await self.stop()
        again = await self.start()
        assert again is not None
        after = [await again.group_offsets(group, TOPIC, PARTITIONS) for group in GROUPS]
        assert after == before
        await self.stop()

    async def check(self) -> Broker:
        """A broker that has all that was confirmed."""
        broker = await self.start()
        assert broker is not None
        if self.history.topic_id is None:
            assert await broker.create_topic(TOPIC, PARTITIONS) in (0, 36)
            self.history.topic_id = await broker.topic_id(TOPIC)
        assert await broker.topic_id(TOPIC) == self.history.topic_id
        await self._check_records(broker)
        known = {
            group.group_id for group in broker.running.parts.share_group_coordinator.list_groups()
        }
        assert known >= self.history.groups
        for group in self.history.groups:
            offsets = await broker.group_offsets(group, TOPIC, PARTITIONS)
            for partition, (start, _) in enumerate(offsets):
                for offset in range(start):
                    where = (group, partition, offset)
                    assert self.history.may_be_over(where), f"{where} is before {start}"
        return broker

    async def _check_records(self, broker: Broker) -> None:
        for partition in range(PARTITIONS):
            values = await broker.read_all(TOPIC, partition)
            assert sorted(values) == list(range(len(values)))
            assert len(set(values.values())) == len(values), "a record is there twice"
            for (where, offset), value in self.history.produced.items():
                if where == partition:
                    assert values.get(offset) == value, f"{partition}-{offset} is lost"

    def _check_all_is_over(self, broker: Broker) -> None:
        for partition, offset in self.history.produced:
            for group in GROUPS:
                assert self.history.may_be_over((group, partition, offset))

    async def _work(self, broker: Broker, goes_on: Callable[[], bool]) -> None:
        ended = await asyncio.gather(
            *(self._repeat(actor, broker, goes_on) for actor in (*self.producers, *self.workers)),
            self._tend(broker, goes_on),
            return_exceptions=True,
        )
        for error in ended:
            if error is not None:
                raise error

    async def _repeat(
        self, actor: IdempotentProducer | Worker, broker: Broker, goes_on: Callable[[], bool]
    ) -> None:
        try:
            while goes_on():
                if self.history.topic_id is not None:
                    await actor.step(broker, self.history, self.chance)
                await asyncio.sleep(0)
        except BaseException:
            self.disk.cut_power_after(0)  # So that the others come to an end, too.
            raise

    async def _tend(self, broker: Broker, goes_on: Callable[[], bool]) -> None:
        """Make the topic; now and then prune, let recovery points move, let locks end."""
        while goes_on():
            if self.history.topic_id is None:
                if await broker.create_topic(TOPIC, PARTITIONS) in (0, 36):
                    self.history.topic_id = await broker.topic_id(TOPIC)
            elif self.chance.random() < 0.05:
                await broker.running.directory.checkpoint()
            elif self.chance.random() < 0.1:
                pruning = broker.pruning(spare_bytes=SPARE_BYTES)
                await pruning.snapshot_cold()
                await pruning.prune()
            elif self.chance.random() < 0.05:
                broker.clock.advance(LOCK_SECONDS)
            await asyncio.sleep(0)

    async def _accept_all(self, broker: Broker, worker: Worker) -> None:
        member, history = worker.member, self.history
        assert await member.heartbeat(broker) in (0, 25, 110, 111, 113)
        if not member.member_epoch:
            assert await member.heartbeat(broker) == 0
            history.groups.add(member.group)
        taken, _ = await member.fetch(broker, records_max=100)
        acks: dict[int, list[tuple[int, int]]] = {}
        for record in sorted(taken):
            history.delivered(member.group, record)
            acks.setdefault(record.partition, []).append((record.offset, ACCEPT))
        if acks:
            history.sent(member.group, acks)
            outcomes = await member.acknowledge(broker, acks)
            assert set(outcomes.values()) == {0}
            history.answered(member.group, acks, outcomes)

    async def _lag(self, broker: Broker) -> int:
        """Of all groups; a group that does not know a partition yet lags by one at least."""
        lags = [
            lag
            for group in GROUPS
            for _, lag in await broker.group_offsets(group, TOPIC, PARTITIONS)
        ]
        return sum(1 if lag is None or lag < 0 else lag for lag in lags)


async def live_and_die(seed: int, disk: PowerLossDisk, settings: dict[str, str]) -> History:
    """All the losses of one disk."""
    world = World(disk, random.Random(seed), settings)
    try:
        async with asyncio.timeout(HANGING_SECONDS):
            for _ in range(POWER_LOSSES):
                await world.live(world.chance.randrange(1, 250))
                await world.check()
                await world.stop()
            await world.settle()
    finally:
        await world.crash()
    return world.history


@pytest.mark.parametrize("seed", range(DISKS))
def test_nothing_that_was_confirmed_is_lost(seed: int) -> None:
    asyncio.run(live_and_die(seed, PowerLossDisk(seed), SETTINGS))


def test_without_syncs_a_lost_record_is_found() -> None:
    assert finds("is lost", {**SETTINGS, "sharegroup_durability": "os"})


def test_an_accept_that_is_confirmed_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(*_: object) -> None:
        """Confirm before the disk has it."""

    monkeypatch.setattr(SharePartitions, "_durable", at_once)
    assert finds("comes again", SETTINGS)


def test_share_state_that_is_pruned_too_far_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_it(_: object, keys: object, *, log_end: int) -> int:
        """Nobody needs his last snapshot."""
        return log_end

    monkeypatch.setattr(ShareCoordinator, "needless_before", all_of_it)
    assert finds("comes again", SETTINGS)


def finds(loss: str, settings: dict[str, str], disks: int = 12) -> bool:
    """Whether the checker says this of one of some disks."""
    for seed in range(disks):
        try:
            asyncio.run(live_and_die(seed, PowerLossDisk(seed), settings))
        except AssertionError as error:
            if loss in str(error).partition("\n")[0]:
                return True
    return False
