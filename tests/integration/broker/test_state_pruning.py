"""The topic of delivery state stays small, and nothing that is needed goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from sharegroup.broker.cluster.catalog import SHARE_GROUP_STATE
from sharegroup.broker.share.state_pruning import SPARE_BYTES
from sharegroup.core.delivery.delivery import Delta, RecordState, StateBatch
from sharegroup.core.delivery.stored.share_states import (
    PersistedState,
    ShareSnapshot,
    ShareStateRecord,
)
from sharegroup.ids import GroupId, SharePartitionKey, TopicName, share_state_partition
from sharegroup.internal_topics.share_state_codec import decode
from sharegroup.storage.disk.folders import folder_name
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch
from tests.faults.in_process import Broker
from tests.support.limits import HANGING_SECONDS

STATE_PARTITIONS = 2
TOPIC_PARTITIONS = 4
SETTINGS = {
    "share_coordinator_state_topic_num_partitions": str(STATE_PARTITIONS),
    "share_coordinator_snapshot_update_records_per_snapshot": "50",
}
FIVE_MINUTES = 300.0

Scenario = Callable[[Broker, PowerLossDisk], Awaitable[None]]


def run(scenario: Scenario, disk: PowerLossDisk | None = None, **settings: str) -> None:
    async def whole() -> None:
        used = disk or PowerLossDisk(1)
        broker = await Broker.start(used, **{**SETTINGS, **settings})
        await broker.create_topic("orders", TOPIC_PARTITIONS)
        for partition in range(TOPIC_PARTITIONS):
            await broker.produce("orders", partition, encode_batch([RECORD] * 10_000))
        try:
            await scenario(broker, used)
        finally:
            await broker.stop()

    asyncio.run(whole())


RECORD = SimpleRecord(None, None, 1)


def keys(broker: Broker) -> list[SharePartitionKey]:
    topic_id = broker.running.parts.topics.catalog.topic(TopicName("orders")).topic_id
    return [SharePartitionKey(GroupId("g"), topic_id, number) for number in range(TOPIC_PARTITIONS)]


async def begin(broker: Broker, *some: SharePartitionKey) -> None:
    for key in some:
        ticket = broker.running.parts.share_coordinator.initialize(
            key, state_epoch=1, start_offset=0
        )
        assert ticket is not None
        await ticket


async def acknowledge(broker: Broker, key: SharePartitionKey, *, count: int) -> None:
    """So many single records more, every second one, so that none is joined to another."""
    coordinator = broker.running.parts.share_coordinator
    done = len(coordinator.read(key).batches)
    for number in range(done, done + count):
        batch = StateBatch(2 * number + 1, 2 * number + 2, RecordState.ACKNOWLEDGED, 1)
        await coordinator.write(key, 1, Delta(0, number + 1, (batch,)))


def states(broker: Broker) -> Mapping[SharePartitionKey, PersistedState]:
    coordinator = broker.running.parts.share_coordinator
    return {key: coordinator.read(key) for key in coordinator.known()}


def state_log(broker: Broker, partition: int) -> PartitionLog:
    return broker.running.parts.topics.named(SHARE_GROUP_STATE, partition)[1]


def log_of(broker: Broker, key: SharePartitionKey) -> PartitionLog:
    return state_log(broker, share_state_partition(key, STATE_PARTITIONS))


def stored(log: PartitionLog) -> list[ShareStateRecord | None]:
    """What a start would read."""
    if log.start_offset == log.high_watermark:
        return []
    found = decode_records(log.read(log.start_offset, bytes_max=1 << 30))
    return [
        decode(bytes(record.key or b""), record.value)
        for record in found
        if record.offset >= log.start_offset
    ]


def neighbours(broker: Broker) -> tuple[SharePartitionKey, SharePartitionKey]:
    """Two share partitions in one partition of the topic."""
    kept, *others = keys(broker)
    wanted = share_state_partition(kept, STATE_PARTITIONS)
    for number in range(20):
        other = kept._replace(group_id=GroupId(f"other-{number}"))
        if share_state_partition(other, STATE_PARTITIONS) == wanted:
            return kept, other
    raise AssertionError(others)


def test_pruning_frees_disk_space_and_keeps_the_state() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        await begin(broker, *keys(broker))
        for key in keys(broker):
            await acknowledge(broker, key, count=400)
        before = states(broker)
        sizes = [state_log(broker, number).size for number in range(STATE_PARTITIONS)]
        assert sum(sizes) > 200_000
        await broker.running.parts.state_pruning.prune()
        live = sum(map(broker.running.parts.share_coordinator.snapshot_bytes, keys(broker)))
        sizes = [state_log(broker, number).size for number in range(STATE_PARTITIONS)]
        assert sum(sizes) <= 2 * live
        assert states(broker) == before
        broker.running.parts.share_coordinator.load()
        assert states(broker) == before

    run(scenario)


def test_pruning_removes_the_files_of_old_segments() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        [key, *_] = keys(broker)
        await begin(broker, key)
        await acknowledge(broker, key, count=400)
        folder = f"/top/data/{folder_name(log_of(broker, key).key)}"
        assert segments(disk, folder) == ["00000000000000000000.log"]
        end = log_of(broker, key).end_offset
        await broker.running.parts.state_pruning.prune()
        await broker.running.directory.drain()
        assert segments(disk, folder) == [f"{end:020d}.log"]

    run(scenario)


def segments(disk: PowerLossDisk, folder: str) -> list[str]:
    return sorted(name for name in disk.names(folder) if name.endswith(".log"))


def test_a_small_partition_of_the_topic_only_begins_later() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        [key, *_] = keys(broker)
        await begin(broker, key)
        await acknowledge(broker, key, count=60)
        log = log_of(broker, key)
        end = log.end_offset
        assert log.size < SPARE_BYTES
        await broker.running.parts.state_pruning.prune()
        assert log.end_offset == end, "nothing was written"
        [first, *others] = stored(log)
        assert isinstance(first, ShareSnapshot)
        assert first.snapshot_epoch == 1
        assert len(others) == 9

    run(scenario)


def test_pruning_removes_all_records_of_a_deleted_state() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        [key, *_] = keys(broker)
        await begin(broker, key)
        await acknowledge(broker, key, count=60)
        for ticket in broker.running.parts.share_coordinator.delete([key]):
            await ticket
        await broker.running.parts.state_pruning.prune()
        log = log_of(broker, key)
        assert (log.size, log.start_offset) == (0, log.end_offset)

    run(scenario)


def test_cold_share_partition_that_blocks_pruning_is_snapshotted() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        cold, busy = neighbours(broker)
        log = log_of(broker, cold)
        await begin(broker, cold, busy)
        await acknowledge(broker, cold, count=1)
        created = broker.clock.wall_ms()
        broker.clock.advance(FIVE_MINUTES)
        await acknowledge(broker, busy, count=60)  # One of these is a snapshot.
        before, end = states(broker), log.end_offset
        await broker.running.parts.state_pruning.snapshot_cold()
        assert log.end_offset == end + 1
        again = stored(log)[-1]
        assert isinstance(again, ShareSnapshot)
        assert (again.key, again.snapshot_epoch) == (cold, 1)
        assert again.create_timestamp == created
        assert again.write_timestamp == created + 300_000
        assert states(broker) == before
        await broker.running.parts.state_pruning.prune()
        first = stored(log)[0]
        assert isinstance(first, ShareSnapshot)
        assert first.key == busy, "the cold one holds it back no more"

    run(scenario)


def test_snapshots_are_written_in_slices() -> None:
    """So that a move of many, or of large ones, holds nobody up for long."""

    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        key, other = neighbours(broker)
        await begin(broker, key, other)
        await acknowledge(broker, key, count=300)
        await acknowledge(broker, other, count=300)
        await broker.pruning(snapshot_batch_bytes=2_500).prune()
        log = log_of(broker, key)
        batches = scan(log.read(log.start_offset, bytes_max=1 << 20))
        assert [header.record_count for _, header in batches] == [1, 1]

    run(scenario)


def test_where_nothing_happens_nothing_is_snapshotted_again() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        await begin(broker, *neighbours(broker))
        log = log_of(broker, neighbours(broker)[0])
        for _ in range(3):
            broker.clock.advance(FIVE_MINUTES)
            await broker.running.parts.state_pruning.snapshot_cold()
        assert log.end_offset == 2

    run(scenario)


def test_share_partition_is_snapshotted_each_time_it_becomes_cold() -> None:
    """Kafka stops permanently once every share partition has been cold."""

    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        [key, *_] = keys(broker)
        await begin(broker, key)
        log = log_of(broker, key)
        for epoch in (1, 2):
            await acknowledge(broker, key, count=10)
            broker.clock.advance(FIVE_MINUTES)
            # The job began at that time, too, and may be at this share partition.
            await broker.running.parts.state_pruning.snapshot_cold()
            async with asyncio.timeout(HANGING_SECONDS):
                while not isinstance(last := stored(log)[-1], ShareSnapshot):
                    await asyncio.sleep(0)
            assert last.snapshot_epoch == epoch

    run(scenario)


def test_jobs_run_at_their_intervals_while_share_groups_are_enabled() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        [key, *_] = keys(broker)
        await begin(broker, key)
        await acknowledge(broker, key, count=60)
        log = log_of(broker, key)
        catalog = broker.running.parts.topics.catalog
        await asyncio.sleep(0)  # The jobs are on their way since the start.
        catalog.replay({"event": "features", "levels": {"share.version": 0}, "epoch": 2})
        broker.clock.advance(FIVE_MINUTES + 1)
        await turns(50)
        assert log.start_offset == 0
        catalog.replay({"event": "features", "levels": {"share.version": 1}, "epoch": 3})
        broker.clock.advance(FIVE_MINUTES + 1)
        async with asyncio.timeout(HANGING_SECONDS):
            while log.start_offset == 0:
                await asyncio.sleep(0)

    run(scenario)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_snapshot_that_the_disk_loses_replaces_nothing() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        [key, *_] = keys(broker)
        await begin(broker, key)
        await acknowledge(broker, key, count=400)
        before = states(broker)
        disk.fail_next_sync(20)
        await broker.running.parts.state_pruning.prune()
        assert log_of(broker, key).start_offset == 0
        disk.fail_next_sync(0)
        broker.running.parts.share_coordinator.forget_what_failed()
        assert states(broker) == before

    run(scenario)


def test_a_full_disk_puts_pruning_off() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        [key, *_] = keys(broker)
        await begin(broker, key)
        await acknowledge(broker, key, count=400)
        before = states(broker)
        disk.fill_up()
        await broker.running.parts.state_pruning.prune()
        assert states(broker) == before
        disk.make_room()
        async with asyncio.timeout(HANGING_SECONDS):
            while log_of(broker, key).size > SPARE_BYTES:  # The log is tried first.
                await broker.running.parts.state_pruning.prune()
                await asyncio.sleep(0)
        assert states(broker) == before

    run(scenario)


@pytest.mark.parametrize("operations", range(12))
@pytest.mark.parametrize("seed", range(4))
def test_pruning_waits_until_every_last_snapshot_is_durable(seed: int, operations: int) -> None:
    """The log could begin at the oldest last snapshot, which is durable. A later one is not,
    and the power is cut after the given number of disk operations.
    """
    disk = PowerLossDisk(seed)

    async def scenario() -> None:
        broker = await Broker.start(disk, **SETTINGS)
        await broker.create_topic("orders", TOPIC_PARTITIONS)
        await broker.produce("orders", 0, encode_batch([RECORD] * 100))
        coordinator = broker.running.parts.share_coordinator
        key, other = neighbours(broker)
        await begin(broker, other, key)
        await acknowledge(broker, other, count=3)
        ticket = coordinator.snapshot([key])
        assert ticket is not None
        await ticket
        coordinator.snapshot([other])
        disk.cut_power_after(operations)
        await broker.running.parts.state_pruning.prune()
        await broker.crash()
        disk.cut_power()
        again = await Broker.start(disk, **SETTINGS)
        found = stored(log_of(again, key))
        known = {entry.key: entry for entry in found if isinstance(entry, ShareSnapshot)}
        assert sorted(known) == sorted([key, other])
        await again.stop()

    asyncio.run(scenario())


def test_share_partition_created_during_pruning_is_kept() -> None:
    """Its state partition was empty when pruning began."""

    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        coordinator = broker.running.parts.share_coordinator
        old, _ = neighbours(broker)
        new = next(key for key in keys(broker) if log_of(broker, key) is not log_of(broker, old))
        await begin(broker, old, new)
        await acknowledge(broker, old, count=400)
        for ticket in coordinator.delete([new]):
            await ticket
        pruning = asyncio.ensure_future(broker.running.parts.state_pruning.prune())
        await asyncio.sleep(0)
        assert not pruning.done()
        await begin(broker, new)
        await pruning
        assert log_of(broker, new).start_offset == 2, "its own snapshot is where the log begins"
        coordinator.load()
        assert sorted(states(broker)) == sorted([old, new])

    run(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_pruning_without_syncs_waits_for_a_checkpoint(seed: int) -> None:
    """With durability=os a power loss removes the newest state, but never all of it."""
    disk = PowerLossDisk(seed)

    async def scenario() -> None:
        settings = {**SETTINGS, "sharegroup_durability": "os"}
        broker = await Broker.start(disk, **settings)
        await broker.create_topic("orders", TOPIC_PARTITIONS)
        await broker.produce("orders", 0, encode_batch([RECORD] * 10_000))
        [key, *_] = keys(broker)
        await begin(broker, key)
        await acknowledge(broker, key, count=400)
        await broker.running.parts.state_pruning.prune()
        assert log_of(broker, key).start_offset > 400
        disk.cut_power()
        await broker.crash()
        again = await Broker.start(disk, **settings)
        records = stored(log_of(again, key))
        assert isinstance(records[0], ShareSnapshot)
        assert len(records[0].batches) == 400
        await again.stop()

    asyncio.run(scenario())


def test_pruning_without_syncs_deletes_nothing_if_the_checkpoint_fails() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        [key, *_] = keys(broker)
        await begin(broker, key)
        await acknowledge(broker, key, count=400)
        disk.fail_next_sync()
        await broker.running.parts.state_pruning.prune()
        assert log_of(broker, key).start_offset == 0

    run(scenario, sharegroup_durability="os")


def test_unknown_share_partition_has_no_snapshot() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk) -> None:
        coordinator = broker.running.parts.share_coordinator
        [key, *_] = keys(broker)
        assert coordinator.snapshot([key]) is None
        assert coordinator.snapshot_bytes(key) == 0

    run(scenario)
