"""200 losses of power under a broker that writes dead letters.

One member accepts, releases and rejects what a topic has; the power goes at an operation of the
disk that the seed draws, five times in the life of a disk.  At last it stays, and then

- every record whose reject was confirmed has its letter, with the record's value;
- no record whose accept was confirmed has one;
- a record has more than one letter only where the power went between the letter and the state
  that says so: never more than one for each loss besides its own;
- all records are settled: none waits for ever.

A failure names its seed.  The last test writes the state first and the letter then, and expects
to be found out: it holds the checker itself.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from sharegroup.broker.share.dead_letters import DeadLetters
from sharegroup.errors import KafkaError
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import ACCEPT, REJECT, RELEASE, Broker, ShareMember
from tests.integration.broker.dead_letter_scene import Scene
from tests.support.limits import ALL_DAMAGE, HANGING_SECONDS

DISKS = 40 if ALL_DAMAGE else 8
DISKS_FOR_SECOND_LETTERS = 12
POWER_LOSSES = 5
ROUNDS_MAX = 400
SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "1",
    "share_coordinator_snapshot_update_records_per_snapshot": "5",
    "group_share_delivery_count_limit": "2",
    "errors_deadletterqueue_auto_create_topics_enable": "true",
}


@dataclass
class History:
    """What the broker confirmed."""

    settled: dict[int, int] = field(default_factory=dict)
    """Accepts and rejects by offset."""
    is_set_up: bool = False
    losses: int = 0


def value_of(offset: int) -> bytes:
    return b"value %d" % offset


class Life:
    """A broker from its start to the loss of power, and the member that works with it."""

    def __init__(self, broker: Broker, chance: random.Random, history: History) -> None:
        self.scene = Scene(broker)
        self.broker = broker
        self.chance = chance
        self.history = history

    async def set_up(self) -> None:
        """Topic, group and its queue; whatever of it was confirmed before is confirmed again."""
        if not self.history.is_set_up:
            await self.scene.set_up(auto_create=False)
            self.history.is_set_up = True
        else:
            await self.scene.join()

    async def work(self) -> None:
        """Some records are produced; some that are there are settled one way or another."""
        chance, history = self.chance, self.history
        if chance.random() < 0.5:
            await self._produce(chance.randrange(1, 6))
        taken, _ = await self.scene.member.fetch(self.broker, records_max=10)
        kinds = chance.choices((ACCEPT, RELEASE, REJECT, None), (3, 3, 3, 1), k=len(taken))
        acks = []
        for record, kind in zip(taken, kinds, strict=True):
            assert record.offset not in history.settled, f"{record} comes again"
            assert record.value == value_of(record.offset)
            if kind is not None:
                acks.append((record.offset, kind))
        if acks:
            outcomes = await self.scene.member.acknowledge(self.broker, {0: acks})
            if outcomes == {0: 0}:
                history.settled |= {offset: kind for offset, kind in acks if kind != RELEASE}
        if chance.random() < 0.1:
            self.broker.clock.advance(31)
        await asyncio.sleep(0)

    async def settle(self) -> None:
        """Accept what is left; then everything ends, letters included."""
        for _ in range(ROUNDS_MAX):
            self.broker.clock.advance(16)
            self.scene.member = ShareMember("g", "member-2", "orders", 1, connection_id=2)
            await self.scene.join()
            taken = await self.scene.take(100)
            if taken:
                await self.scene.settle(*((offset, ACCEPT) for offset, _ in taken))
                self.history.settled |= {offset: ACCEPT for offset, _ in taken}
            [(_, lag)] = await self.broker.group_offsets("g", "orders", 1)
            if lag == 0:
                return
            await asyncio.sleep(0.001)
        raise AssertionError("some records wait for ever")

    def check_letters(self) -> None:
        letters = Counter(self.scene.origins())
        for letter in self.scene.letters():
            offset = int(dict(letter.headers)["__dlq.errors.offset"] or b"")
            assert letter.value == value_of(offset)
        for offset, kind in self.history.settled.items():
            if kind == REJECT:
                assert letters[offset] >= 1, f"the letter of {offset} is lost"
            else:
                assert letters[offset] == 0, f"{offset} was accepted and has a letter"
        for offset, count in letters.items():
            assert count <= 1 + self.history.losses, f"{count} letters of {offset}"

    async def _produce(self, count: int) -> None:
        """The values say at which offset they must be."""
        values = await self.broker.read_all("orders", 0)
        assert values == {offset: value_of(offset) for offset in range(len(values))}
        batch = encode_batch(
            [SimpleRecord(None, value_of(len(values) + n), 1) for n in range(count)]
        )
        await self.broker.produce("orders", 0, batch)


async def live(disk: PowerLossDisk, chance: random.Random, history: History) -> None:
    """Work until the power goes."""
    disk.cut_power_after(chance.randrange(20, 200))
    broker = None
    try:
        broker = await Broker.start(disk, **SETTINGS)
        life = Life(broker, chance, history)
        await life.set_up()
        while disk.has_power:
            await life.work()
    except (OSError, KafkaError, AssertionError) as error:
        if disk.has_power or "comes again" in str(error):
            raise
    finally:
        if broker is not None:
            await broker.crash()
        disk.cut_power()
        history.losses += 1


async def live_and_die(seed: int) -> Counter[int]:
    """All the losses of one disk; how many letters each record has at last."""
    disk, chance, history = PowerLossDisk(seed), random.Random(seed), History()
    async with asyncio.timeout(HANGING_SECONDS):
        for _ in range(POWER_LOSSES):
            await live(disk, chance, history)
        broker = await Broker.start(disk, **SETTINGS)
        try:
            life = Life(broker, chance, history)
            await life.set_up()
            await life.settle()
            life.check_letters()
            return Counter(life.scene.origins())
        finally:
            await broker.stop()


@pytest.mark.parametrize("seed", range(DISKS))
def test_no_letter_is_lost(seed: int) -> None:
    asyncio.run(live_and_die(seed))


def test_power_is_sometimes_lost_between_a_letter_and_its_state() -> None:
    """Otherwise the other tests would show less than they claim."""
    found = (asyncio.run(live_and_die(seed)) for seed in range(DISKS_FOR_SECOND_LETTERS))
    assert any(count > 1 for letters in found for count in letters.values())


def test_letter_that_is_written_after_its_record_was_archived_is_found_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def later(*_: object) -> None:
        """Let the record be archived first, and have no chance to write it then."""

    monkeypatch.setattr(DeadLetters, "_append", later)
    lost = 0
    for seed in range(4):
        try:
            asyncio.run(live_and_die(seed))
        except AssertionError as error:
            lost += "is lost" in str(error)
    assert lost
