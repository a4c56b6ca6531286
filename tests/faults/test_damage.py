"""A disk that is damaged, full or failing under a broker, and a broker that was stopped.

What a broker may lose is what nobody had confirmed; what it must not do is to serve wrong bytes,
to confirm what it could not write, or to deliver the same records again and again because their
acknowledgements cannot be written.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sharegroup.core.delivery.delivery import AckBatch
from sharegroup.errors import CorruptMessage, KafkaStorageError
from sharegroup.ids import (
    GroupId,
    MemberId,
    SharePartitionKey,
    TopicId,
    TopicIdPartition,
    share_state_partition,
)
from sharegroup.storage.disk.folders import folder_name
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import encode_batch
from tests.faults.in_process import ACCEPT, DATA, RELEASE, Broker, ShareMember
from tests.faults.served import ServedBroker
from tests.support.confluent_calls import admin, create_topic, produce as produce_to
from tests.support.limits import HANGING_SECONDS
from tests.support.processes import ServeProcess

TOPIC = "orders"
GROUP = "billing"
CORRUPT_MESSAGE, NOT_COORDINATOR, INVALID_RECORD_STATE, KAFKA_STORAGE_ERROR = 2, 16, 121, 56
PAUSE_SECONDS = 1.5
TRIES_MAX = 2_000
LOCK_SECONDS = 30
SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "1",
    "group_share_delivery_count_limit": "2",
}


def batch(*values: bytes) -> bytearray:
    return encode_batch([(None, value, 1, ()) for value in values])


def member(number: int = 1, **fields: Any) -> ShareMember:
    values: dict[str, Any] = {"topic": TOPIC, "partitions": 1, **fields}
    return ShareMember(GROUP, f"member-{number}", connection_id=100 + number, **values)


async def produce(broker: Broker, *values: bytes) -> None:
    """A batch for each value."""
    for value in values:
        error, _ = await broker.produce(TOPIC, 0, batch(value))
        assert error == 0


async def joined(broker: Broker, number: int = 1) -> ShareMember:
    joined_member = member(number)
    assert await joined_member.heartbeat(broker) == 0
    return joined_member


async def offsets(member: ShareMember, broker: Broker, records_max: int = 100) -> list[int]:
    """What a fetch acquires."""
    taken, _ = await member.fetch(broker, records_max=records_max)
    return [record.offset for record in taken]


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """The storage thread tries the disk in its own time."""
    for _ in range(TRIES_MAX):
        if await condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"not true after {TRIES_MAX} tries")


def accepting(*settled: int) -> dict[int, list[tuple[int, int]]]:
    return {0: [(offset, ACCEPT) for offset in settled]}


def log_file(data: Path, topic_id: UUID) -> Path:
    folder = folder_name(TopicIdPartition(TopicId(topic_id), 0))
    return data / folder / "00000000000000000000.log"


async def five_batches(data: Path, *, checkpoint: bool) -> Path:
    """A broker writes five records, each a batch, and crashes; the file that they are in."""
    broker = await Broker.start(None, str(data), **SETTINGS)
    assert await broker.create_topic(TOPIC, 1) == 0
    member = await joined(broker)
    await produce(broker, b"zero", b"one", b"two", b"three", b"four")
    assert await offsets(member, broker) == [0, 1, 2, 3, 4]
    assert await member.acknowledge(broker, accepting(4)) == {0: 0}
    if checkpoint:
        await broker.running.directory.checkpoint()
    topic_id = await broker.topic_id(TOPIC)
    assert topic_id is not None
    await broker.crash()
    return log_file(data, topic_id)


# Bytes that are not what was written


def test_a_torn_last_batch_is_cut_and_its_offset_inherits_no_acknowledgement(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        path = await five_batches(tmp_path, checkpoint=False)
        path.write_bytes(path.read_bytes()[:-10])
        broker = await Broker.start(None, str(tmp_path), **SETTINGS)
        left = {0: b"zero", 1: b"one", 2: b"two", 3: b"three"}
        assert await broker.read_all(TOPIC, 0) == left
        await produce(broker, b"another four")
        joined_members = await joined(broker, 2)
        taken, _ = await joined_members.fetch(broker, records_max=100)
        assert {record.offset: record.value for record in taken} == {**left, 4: b"another four"}
        await broker.stop()

    asyncio.run(scenario())


def test_a_flipped_byte_above_the_recovery_point_ends_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        flip(await five_batches(tmp_path, checkpoint=False), batch_number=2)
        broker = await Broker.start(None, str(tmp_path), **SETTINGS)
        assert await broker.read_all(TOPIC, 0) == {0: b"zero", 1: b"one"}
        await broker.stop()

    asyncio.run(scenario())


def test_flipped_byte_below_the_recovery_point_damages_only_its_batch(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = await five_batches(tmp_path, checkpoint=True)
        flip(path, batch_number=2)
        damaged = path.read_bytes()
        broker = await Broker.start(None, str(tmp_path), **SETTINGS)
        assert await broker.fetch(TOPIC, 0, 2) == (CORRUPT_MESSAGE, {})
        assert await broker.fetch(TOPIC, 0, 3) == (0, {3: b"three", 4: b"four"})
        assert await broker.produce(TOPIC, 0, batch(b"five")) == (0, 5)
        assert path.read_bytes()[: len(damaged)] == damaged
        await broker.stop()

    asyncio.run(scenario())


def test_share_group_skips_a_damaged_batch(tmp_path: Path) -> None:
    async def scenario() -> None:
        flip(await five_batches(tmp_path, checkpoint=True), batch_number=2)
        broker = await Broker.start(None, str(tmp_path), **SETTINGS)
        member = await joined(broker, 2)
        seen: list[int] = []
        for _ in range(5):
            found = await offsets(member, broker)
            seen += found
            if found:
                assert await member.acknowledge(broker, accepting(*found)) == {0: 0}
        assert sorted(seen) == [0, 1, 3]
        assert await broker.group_offsets(GROUP, TOPIC, 1) == [(5, 0)]
        await broker.stop()

    asyncio.run(scenario())


def test_a_damaged_state_log_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    """With half of a group's state the broker would deliver accepted records again."""

    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path), **SETTINGS)
        assert await broker.create_topic(TOPIC, 1) == 0
        member = await joined(broker)
        await produce(broker, b"zero", b"one", b"two")
        for offset in (0, 1, 2):
            assert await offsets(member, broker, 1) == [offset]
            assert await member.acknowledge(broker, accepting(offset)) == {0: 0}
        state = await broker.topic_id("__share_group_state")
        assert state is not None
        await broker.stop()
        flip(log_file(tmp_path, state), batch_number=1)
        with pytest.raises(CorruptMessage, match="offset=1: a batch on disk does not match"):
            await Broker.start(None, str(tmp_path), **SETTINGS)

    asyncio.run(scenario())


def flip(path: Path, *, batch_number: int) -> None:
    """Turn one bit in the last byte of a batch."""
    data = bytearray(path.read_bytes())
    position = 0
    for _ in range(batch_number):
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    data[end - 1] ^= 1
    path.write_bytes(data)


# A disk that takes nothing


def on_disk(scenario: Callable[[Broker, PowerLossDisk, ShareMember], Awaitable[None]]) -> None:
    """Run with a broker that has one topic, a member that joined, and a sound disk so far."""

    async def run() -> None:
        disk = PowerLossDisk(seed=1)
        broker = await Broker.start(disk, **SETTINGS)
        try:
            assert await broker.create_topic(TOPIC, 1) == 0
            joined_member = await joined(broker)
            await produce(broker, b"zero", b"one", b"two")
            await scenario(broker, disk, joined_member)
        finally:
            await broker.crash()

    asyncio.run(run())


def test_full_disk_refuses_records_and_serves_readers() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk, member: ShareMember) -> None:
        disk.fill_up(20)
        for _ in range(3):
            assert await broker.produce(TOPIC, 0, batch(b"no room")) == (KAFKA_STORAGE_ERROR, -1)
        assert await broker.read_all(TOPIC, 0) == {0: b"zero", 1: b"one", 2: b"two"}
        assert await offsets(member, broker) == [0, 1, 2]
        disk.make_room()

        async def goes_on() -> bool:
            return await broker.produce(TOPIC, 0, batch(b"three")) == (0, 3)

        await eventually(goes_on)
        assert (await broker.read_all(TOPIC, 0))[3] == b"three"

    on_disk(scenario)


def test_full_disk_refuses_acknowledgements_and_stops_deliveries() -> None:
    """Records that cannot be settled are not delivered, or their work would be repeated."""

    async def scenario(broker: Broker, disk: PowerLossDisk, member: ShareMember) -> None:
        assert await offsets(member, broker) == [0, 1, 2]
        assert await member.acknowledge(broker, accepting(0)) == {0: 0}
        disk.fill_up()
        assert await member.acknowledge(broker, accepting(1, 2)) == {0: KAFKA_STORAGE_ERROR}
        for _ in range(20):
            assert await offsets(member, broker) == []
        disk.make_room()
        again: list[int] = []

        async def delivered() -> bool:
            again.extend(await offsets(member, broker))
            return bool(again)

        await eventually(delivered)
        assert again == [1, 2]
        assert await member.acknowledge(broker, accepting(1, 2)) == {0: 0}
        assert await broker.group_offsets(GROUP, TOPIC, 1) == [(3, 0)]

    on_disk(scenario)


# A sync that fails


def test_a_failed_sync_refuses_the_records_and_heals() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk, member: ShareMember) -> None:
        disk.fail_next_sync()
        assert await broker.produce(TOPIC, 0, batch(b"lost")) == (KAFKA_STORAGE_ERROR, -1)
        assert await broker.read_all(TOPIC, 0) == {0: b"zero", 1: b"one", 2: b"two"}

        async def goes_on() -> bool:
            return await broker.produce(TOPIC, 0, batch(b"three")) == (0, 3)

        await eventually(goes_on)
        disk.cut_power()

    on_disk(scenario)


def test_a_failed_sync_of_an_acknowledgement_delivers_the_records_once_more() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk, member: ShareMember) -> None:
        assert await offsets(member, broker) == [0, 1, 2]
        disk.fail_next_sync()
        assert await member.acknowledge(broker, accepting(0, 1, 2)) == {0: KAFKA_STORAGE_ERROR}
        again: list[int] = []

        async def delivered() -> bool:
            again.extend(await offsets(member, broker))
            return bool(again)

        await eventually(delivered)
        assert again == [0, 1, 2]
        assert await member.acknowledge(broker, accepting(0, 1, 2)) == {0: 0}
        assert await offsets(member, broker) == []

    on_disk(scenario)


def test_share_partition_loaded_before_a_failed_write_is_not_used_again() -> None:
    """Its last session ends while an acknowledgement is being written, and another member connects.
    The share partition loaded for that member contains the acknowledgement, and must not write
    after it is lost.
    """

    async def scenario(broker: Broker, disk: PowerLossDisk, member: ShareMember) -> None:
        assert await offsets(member, broker) == [0, 1, 2]
        share_partitions = broker.running.parts.share_partitions
        [live] = share_partitions
        disk.fail_next_sync()
        accepted = share_partitions.acknowledge(
            live, MemberId(member.member_id), [AckBatch(0, 3, (ACCEPT,))]
        )
        share_partitions.unload(live.key)
        later = share_partitions.get(live.key)
        assert (later.state.start_offset, later.fenced) == (3, False)
        with pytest.raises(KafkaStorageError):
            await accepted
        assert later.fenced
        assert share_partitions.loaded(live.key) is None

    on_disk(scenario)


def test_late_accept_is_confirmed_only_after_the_records_archiving_is_durable() -> None:
    """The lock of one member ended, another archived the record: there is nothing to write for
    the first one's accept, but the archiving may still be lost."""

    async def scenario(broker: Broker, disk: PowerLossDisk, member: ShareMember) -> None:
        other = await joined(broker, 2)
        assert await offsets(member, broker, 1) == [0]
        broker.clock.advance(LOCK_SECONDS + 1)
        assert await offsets(other, broker, 1) == [0]
        await broker.running.directory.drain()  # The sync that fails is that of the release.
        disk.fail_next_sync()
        archived, accepted = await asyncio.gather(
            other.acknowledge(broker, {0: [(0, RELEASE)]}), member.acknowledge(broker, accepting(0))
        )
        assert archived == {0: KAFKA_STORAGE_ERROR}
        assert accepted == {0: KAFKA_STORAGE_ERROR}

    on_disk(scenario)


def test_a_state_log_that_cannot_be_read_again_stops_its_groups() -> None:
    """After a failed write the state is read again; with damage in it, never just a part of it."""

    async def scenario() -> None:
        disk = PowerLossDisk(seed=1)
        broker = await Broker.start(disk, **SETTINGS)
        assert await broker.create_topic(TOPIC, 1) == 0
        member = await joined(broker)
        await produce(broker, b"zero", b"one", b"two", b"three")
        for offset in (0, 1, 2):
            assert await offsets(member, broker, 1) == [offset]
            assert await member.acknowledge(broker, accepting(offset)) == {0: 0}
        state = await broker.topic_id("__share_group_state")
        assert state is not None
        await broker.stop()
        broker = await Broker.start(disk, **SETTINGS)
        member.broker_restarted()
        assert await offsets(member, broker) == [3]
        path = str(log_file(Path(DATA), state))
        disk.flip_bit(path, disk.size(disk.open(path)) - 1)
        disk.fail_next_sync()
        assert await member.acknowledge(broker, accepting(3)) == {0: KAFKA_STORAGE_ERROR}
        for _ in range(50):
            assert await offsets(member, broker) == []
            await asyncio.sleep(0.001)
        await broker.crash()

    asyncio.run(scenario())


def test_a_failed_sync_of_one_state_partition_forgets_nothing_of_another() -> None:
    """The states of two groups are in different partitions. One write fails, and the state of its
    group is read again while the accept of the other is being written.  Every write is a snapshot
    here, so state lost from memory would be lost permanently by the next one.
    """

    async def scenario() -> None:
        disk = PowerLossDisk(seed=1)
        settings = {
            **SETTINGS,
            "share_coordinator_state_topic_num_partitions": "2",
            "share_coordinator_snapshot_update_records_per_snapshot": "0",
        }
        broker = await Broker.start(disk, **settings)
        assert await broker.create_topic(TOPIC, 1) == 0
        failing, going_on = await members_apart(broker)
        await produce(broker, b"zero", b"one", b"two")
        for log in (failing, going_on):
            assert await offsets(log, broker) == [0, 1, 2]
        disk.fail_next_sync()
        assert await failing.acknowledge(broker, accepting(1)) == {0: KAFKA_STORAGE_ERROR}
        on_its_way = asyncio.ensure_future(going_on.acknowledge(broker, accepting(1)))
        reads_again = asyncio.ensure_future(failing.fetch(broker, records_max=1))
        assert await on_its_way == {0: 0}
        await reads_again
        assert await going_on.acknowledge(broker, accepting(2)) == {0: 0}
        await broker.stop()
        broker = await Broker.start(disk, **settings)
        going_on.broker_restarted()
        assert await going_on.heartbeat(broker) == 0
        assert await offsets(going_on, broker) == [0]
        await broker.stop()

    asyncio.run(scenario())


async def members_apart(broker: Broker) -> tuple[ShareMember, ShareMember]:
    """Members of two groups whose states are in the first and in the second partition."""
    topic_id = await broker.topic_id(TOPIC)
    assert topic_id is not None
    found: dict[int, ShareMember] = {}
    for number in range(100):
        group = f"group-{number}"
        where = share_state_partition(SharePartitionKey(GroupId(group), TopicId(topic_id), 0), 2)
        found.setdefault(where, ShareMember(group, "member", TOPIC, 1, connection_id=number))
    for record in found.values():
        assert await record.heartbeat(broker) == 0
    return found[0], found[1]


def test_a_failed_sync_of_a_new_topic_leaves_no_topic() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk, member: ShareMember) -> None:
        disk.fail_next_sync()
        assert await broker.create_topic("returns", 2) == KAFKA_STORAGE_ERROR
        assert await broker.topic_id("returns") is None

        async def created() -> bool:
            return await broker.create_topic("returns", 2) == 0

        await eventually(created)
        assert await broker.topic_id("returns") is not None

    on_disk(scenario)


def test_failed_sync_of_a_join_adds_no_member() -> None:
    async def scenario(broker: Broker, disk: PowerLossDisk, share_member: ShareMember) -> None:
        other = member(2)
        disk.fail_next_sync()
        assert await other.heartbeat(broker) == NOT_COORDINATOR

        async def the_first_goes_on() -> bool:
            return await share_member.heartbeat(broker) == 0

        await eventually(the_first_goes_on)
        described = broker.running.parts.share_group_coordinator.describe(GROUP)
        assert [known.member_id for known in described.members] == ["member-1"]

        async def joins() -> bool:
            return await other.heartbeat(broker) == 0

        await eventually(joins)

    on_disk(scenario)


# Processes


def test_a_second_broker_on_the_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "data") as broker:
        command = [sys.executable, "-m", "sharegroup", "serve", "--port", "0"]
        second = subprocess.run(
            [*command, "--data", str(tmp_path / "data"), "--log-level", "warning"],
            capture_output=True,
            text=True,
            timeout=HANGING_SECONDS,
            check=False,
        )
        assert second.returncode == 1
        assert second.stdout == ""
        (line,) = second.stderr.splitlines()
        assert f"in use by process {broker.pid}" in line
        assert str(tmp_path / "data") in line


def test_a_broker_that_was_stopped_frees_no_lock_early_and_takes_no_late_acknowledgement(
    tmp_path: Path,
) -> None:
    """The acknowledgement waits in the socket when the broker continues after the lock's end."""
    settings = {
        "group.share.record.lock.duration.ms": "1000",
        "group.share.min.record.lock.duration.ms": "1000",
    }
    with ServeProcess(tmp_path / "data", settings=settings) as broker, ServedBroker(broker) as asks:

        async def scenario() -> None:
            first, other = member(1), member(2)
            create_topic(broker.bootstrap_servers, TOPIC)
            for log in (first, other):
                assert await log.heartbeat(asks) == 0
            produce_to(broker.bootstrap_servers, TOPIC, [b"zero"])
            taken, _ = await first.fetch(asks, records_max=1)
            assert [record.offset for record in taken] == [0]
            assert await other.fetch(asks, records_max=1) == ([], {})
            broker.pause()
            late = asyncio.create_task(first.acknowledge(asks, accepting(0)))
            await asyncio.sleep(PAUSE_SECONDS)  # Another process's time: it can't be moved.
            broker.resume()
            assert await late == {0: INVALID_RECORD_STATE}
            taken, _ = await other.fetch(asks, records_max=1)
            assert [(record.offset, record.delivery_count) for record in taken] == [(0, 2)]

        asyncio.run(scenario())
        admin.cache_clear()
