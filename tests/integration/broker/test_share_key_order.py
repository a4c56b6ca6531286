"""Share groups whose records are ordered by key (``sharegroup.order.by=key``)."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sharegroup.broker.share import key_orders
from sharegroup.errors import KafkaStorageError
from sharegroup.ids import GroupId
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.wire.batches.compression import GZIP, NONE
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_consumer_group_requests import delete_topic
from tests.integration.broker.test_metrics import scrape
from tests.integration.broker.test_record_jobs import sealed
from tests.integration.broker.test_share_fetch import (
    alter_group,
    records,
    request,
    run,
    waiting,
)
from tests.integration.broker.test_share_gaps import (
    compacted,
    run as run_compacted,
    write as write_compacted,
)
from tests.integration.broker.test_share_isolation import log_of, write
from tests.unit.storage.logs import abort, transactional

ORDER_BY = "sharegroup.order.by"
DELAY = "sharegroup.redelivery.delay.ms"
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


async def produce(broker: Broker, keys: str, *, codec: int = NONE) -> None:
    """One batch with a record of each key; - stands for none."""
    values = [SimpleRecord(None if k == "-" else k.encode(), b"x" * 50, 1) for k in keys]
    assert (await broker.produce("orders", 0, encode_batch(values, codec=codec)))[0] == 0


async def ordered(broker: Broker, *batches: str) -> None:
    """A group that is ordered by key, and these batches."""
    await alter_group(broker, ORDER_BY, "key")
    for keys in batches:
        await produce(broker, keys)


async def offsets(broker: Broker, member: ShareMember, records_max: int = 10) -> list[int]:
    """The offsets of what a member gets when the keys were read."""
    while True:
        message = request(member, max_wait=timedelta(0), max_records=records_max)
        taken = records(await broker.ask(message, member.connection_id))
        member.session_epoch += 1
        if taken or not is_learning(broker):
            return [offset for first, last, _ in taken for offset in range(first, last + 1)]
        await all_learnt(broker)


async def all_learnt(broker: Broker) -> None:
    while is_learning(broker):
        await asyncio.sleep(0.001)


async def waits_for(
    broker: Broker, member: ShareMember, expected: list[int], *, seconds: float
) -> None:
    """A fetch waits for delayed records, does not look again and again, and gets them when due."""
    task = await waiting(broker, request(member, max_wait=timedelta(seconds=5)))
    [live] = broker.running.parts.share_partitions
    await turns()
    look_count = live.look_count
    broker.clock.advance(seconds - 0.101)
    await turns()
    assert (task.done(), live.look_count) == (False, look_count)
    broker.clock.advance(0.101)
    taken = records(await task)
    assert [offset for first, last, _ in taken for offset in range(first, last + 1)] == expected
    member.session_epoch += 1


async def turns() -> None:
    """Twenty turns of the event loop, in which a fetch that looks again and again would do so."""
    for _ in range(20):
        await asyncio.sleep(0)


def is_learning(broker: Broker) -> bool:
    return any(
        live.key_order is not None and live.key_order.is_learning
        for live in broker.running.parts.share_partitions
    )


async def settle(broker: Broker, member: ShareMember, *acks: tuple[int, AcknowledgeType]) -> None:
    assert await member.acknowledge(broker, {0: acks}) == {0: 0}


async def joined(broker: Broker, number: int = 2) -> ShareMember:
    """Another member of the group."""
    member = ShareMember("g", f"member-{number}", "orders", 1, connection_id=number)
    assert await member.heartbeat(broker) == 0
    assert await member.fetch(broker, records_max=0) == ([], {})
    return member


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_records_of_a_key_come_one_at_a_time_in_order(tmp_path: Path, codec: int) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker)
        await produce(broker, "aba-b", codec=codec)
        await produce(broker, "ca", codec=codec)
        other = await joined(broker)
        assert await offsets(broker, member) == [0, 1, 3, 5]
        assert await offsets(broker, other) == []
        await settle(broker, member, (0, ACCEPT), (1, REJECT))
        assert await offsets(broker, other) == [2, 4]
        await settle(broker, other, (2, ACCEPT))
        assert await offsets(broker, member) == [6]

    run(scenario, tmp_path)


def test_keys_are_read_by_another_thread_than_the_one_that_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch may have megabytes to decompress, and no request may hold the event loop for long."""
    readers: set[int] = set()
    read_keys = key_orders._keys

    def noted(*arguments: Any) -> bytes:
        readers.add(threading.get_ident())
        return read_keys(*arguments)

    monkeypatch.setattr(key_orders, "_keys", noted)

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker, "ab")
        assert await offsets(broker, member) == [0, 1]
        assert readers
        assert threading.get_ident() not in readers

    run(scenario, tmp_path)


def test_settled_record_answers_the_fetch_that_waits_for_its_key(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker, "aa")
        other = await joined(broker)
        assert await offsets(broker, other) == [0]
        task = await waiting(broker, request(member))
        assert not task.done()
        await settle(broker, other, (0, ACCEPT))
        assert records(await task) == [(1, 1, 1)]

    run(scenario, tmp_path)


def test_new_record_of_a_free_key_answers_a_waiting_fetch(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker, "a")
        other = await joined(broker)
        assert await offsets(broker, other) == [0]
        task = await waiting(broker, request(member))
        await produce(broker, "ab")
        assert records(await task) == [(2, 2, 1)]

    run(scenario, tmp_path)


def test_released_and_expired_records_come_again_before_the_next_of_their_key(
    tmp_path: Path,
) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker, "aaa")
        assert await offsets(broker, member) == [0]
        await settle(broker, member, (0, RELEASE))
        assert await offsets(broker, member) == [0]
        broker.clock.advance(30.001)
        assert await member.heartbeat(broker) == 0
        assert await offsets(broker, member) == [0]

    run(scenario, tmp_path)


def test_record_limit_and_batch_optimized_take_only_free_records(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker, "abacd", "ef")
        assert await offsets(broker, member, 2) == [0, 1, 3, 4], "to the end of the batch"
        task = await waiting(broker, request(member, max_records=1, share_acquire_mode=1))
        assert records(await task) == [(5, 5, 1)]

    run(scenario, tmp_path)


def test_order_is_kept_by_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        await alter_group(broker, "share.auto.offset.reset", "earliest")
        member = await joined(broker)
        await ordered(broker, "abab", "ac")
        assert await offsets(broker, member) == [0, 1, 5]
        await settle(broker, member, (1, ACCEPT), (5, ACCEPT))
        await broker.stop()
        broker = await Broker.start(None, str(tmp_path))
        try:
            member = await joined(broker)
            assert await offsets(broker, member) == [0, 3]
            await settle(broker, member, (0, ACCEPT))
            assert await offsets(broker, member) == [2]
        finally:
            await broker.stop()

    asyncio.run(scenario())


def test_setting_can_change_while_records_are_held(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, "aaa")
        await produce(broker, "ab")
        assert await offsets(broker, member, 3) == [0, 1, 2]
        await alter_group(broker, ORDER_BY, "key")
        assert await offsets(broker, member) == [4]
        await settle(broker, member, (0, ACCEPT), (1, RELEASE), (2, RELEASE))
        assert await offsets(broker, member) == [1]
        await alter_group(broker, ORDER_BY, "none")
        assert await offsets(broker, member) == [2, 3]
        assert broker.running.parts.share_partitions.key_orders.record_count == 0

    run(scenario, tmp_path)


def test_delayed_record_blocks_its_key_until_it_is_due(tmp_path: Path) -> None:
    """Whoever waits for it is not asked to look again and again, and gets it when it is due."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, DELAY, "1000")
        await ordered(broker, "aab", "-")
        assert await offsets(broker, member) == [0, 2, 3]
        await settle(broker, member, (0, RELEASE), (3, RELEASE))
        assert await offsets(broker, member) == []
        await waits_for(broker, member, [0, 3], seconds=1.1)
        await settle(broker, member, (0, ACCEPT))
        assert await offsets(broker, member) == [1]

    run(scenario, tmp_path)


@pytest.mark.parametrize("ending", ["restart", "unload", "setting"])
def test_delayed_record_blocks_its_key_when_keys_are_learnt_anew(
    tmp_path: Path, ending: str
) -> None:
    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        await alter_group(broker, "share.auto.offset.reset", "earliest")
        await alter_group(broker, DELAY, "1000")
        member = await joined(broker)
        await ordered(broker, "aab")
        assert await offsets(broker, member) == [0, 2]
        await settle(broker, member, (0, RELEASE), (2, ACCEPT))
        if ending == "restart":
            await broker.stop()
            broker = await Broker.start(None, str(tmp_path))
            member = await joined(broker)
        elif ending == "unload":
            [live] = broker.running.parts.share_partitions
            broker.running.parts.share_partitions.unload(live.key)
        else:
            await alter_group(broker, DELAY, "2000")
        try:
            assert await offsets(broker, member) == []
            broker.clock.advance(1.1)
            assert await offsets(broker, member) == [0]
            await settle(broker, member, (0, ACCEPT))
            assert await offsets(broker, member) == [1]
        finally:
            await broker.stop()

    asyncio.run(scenario())


def test_records_that_were_delayed_before_they_were_ordered_come_in_order(tmp_path: Path) -> None:
    """The delay of the second ends after the first is settled, that of the third before."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, DELAY, "1000")
        await produce(broker, "aaa")
        assert await offsets(broker, member) == [0, 1, 2]
        await settle(broker, member, (1, RELEASE), (2, RELEASE))
        await produce(broker, "b")
        await alter_group(broker, ORDER_BY, "key")
        assert await offsets(broker, member) == [3]
        await settle(broker, member, (0, ACCEPT))
        await waits_for(broker, member, [1], seconds=1.1)
        await settle(broker, member, (1, ACCEPT))
        assert await offsets(broker, member) == [2]

    run(scenario, tmp_path)


def test_no_keys_are_learnt_while_too_many_records_are_delayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_orders, "READ_BYTES", 1)

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, DELAY, "1000")
        await ordered(broker, "a-", "-a", "--")
        settings = broker.running.parts.share_partitions._settings
        limits = replace(settings.limits(GroupId("g")), delayed_max=2)
        monkeypatch.setattr(type(settings), "limits", lambda *_: limits)
        assert await offsets(broker, member, 1) == [0, 1]
        await settle(broker, member, (0, RELEASE), (1, RELEASE))
        assert await offsets(broker, member) == [2], "it was learnt before"
        assert await offsets(broker, member) == []
        broker.clock.advance(1.1)
        assert await offsets(broker, member) == [0, 1]
        assert await offsets(broker, member) == [4, 5]

    run(scenario, tmp_path)


def test_log_start_that_moves_frees_the_next_record_of_a_key(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker, "a", "a", "b")
        assert await offsets(broker, member) == [0, 2]
        await log_of(broker).delete_before(1)
        assert await offsets(broker, member) == [1]

    run(scenario, tmp_path)


def test_full_share_partition_delivers_nothing_behind_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_orders, "KEYS_MAX", 4)
    monkeypatch.setattr(key_orders, "ROOM_PART", 2)

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker, "aaa", "aab")
        assert await offsets(broker, member) == [0]
        with caplog.at_level(logging.WARNING):
            assert await offsets(broker, member) == []
            assert await offsets(broker, member) == []
        assert caplog.text.count("event=key_order_full group='g'") == 1
        metrics = await scrape(broker)
        assert metrics.all("sharegroup_key_order_records") == {(): 4}
        assert metrics.all("sharegroup_share_partitions")["keys_full",] == 1
        for offset in (0, 1):
            await settle(broker, member, (offset, ACCEPT))
            found = await offsets(broker, member)
        assert found == [2, 5] or await offsets(broker, member) == [5]
        assert (await scrape(broker)).all("sharegroup_share_partitions")["keys_full",] == 0

    run(scenario, tmp_path)


def test_share_partition_learns_some_records_although_all_others_are_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_orders, "ALL_KEYS_MAX", 0)
    monkeypatch.setattr(key_orders, "KEYS_MIN", 2)

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker, "abc")
        assert await offsets(broker, member) == [0, 1]
        await settle(broker, member, (0, ACCEPT), (1, ACCEPT))
        assert await offsets(broker, member) == [2]

    run(scenario, tmp_path)


def test_aborted_records_of_a_key_are_not_waited_for(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, "share.isolation.level", "read_committed")
        await ordered(broker)
        aborted = transactional(2, producer=7)
        await write(broker, aborted, batch_of_key(), abort(7), batch_of_key())
        assert await offsets(broker, member) == [2]
        await settle(broker, member, (2, ACCEPT))
        assert await offsets(broker, member) == [4]

    run(scenario, tmp_path)


def batch_of_key() -> bytearray:
    """A record of the key that `transactional` has."""
    return encode_batch([SimpleRecord(b"key", b"x", 1)])


def test_batch_that_cannot_be_decompressed_has_no_keys(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker, "a")
        batch = encode_batch([SimpleRecord(b"a", b"x" * 100, 1)] * 2, codec=GZIP)
        batch[-20:] = bytes(20)
        await write(broker, sealed(batch))
        await produce(broker, "ab")
        assert await offsets(broker, member) == [0, 1, 2, 4]

    run(scenario, tmp_path)


def test_batch_of_more_than_is_decompressed_at_a_time_is_ordered(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker, "b")
        big = [SimpleRecord(key, bytes(400_000), 1) for key in (b"a", b"b", b"a", b"c")]
        assert (await broker.produce("orders", 0, encode_batch(big, codec=GZIP)))[0] == 0
        assert await offsets(broker, member) == [0, 1, 4]

    run(scenario, tmp_path, sharegroup_decompressed_max_bytes="1048576")


def test_disk_that_cannot_be_read_delays_the_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise KafkaStorageError("the disk does not answer")

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker, "aa")
        with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
            patched.setattr(PartitionLog, "read_range", fail)
            assert await member.fetch(broker, records_max=10) == ([], {})
            await all_learnt(broker)
        assert "event=keys_not_read group='g'" in caplog.text
        assert await offsets(broker, member) == [0]

    run(scenario, tmp_path)


def test_compacted_record_blocks_no_other_of_its_key(tmp_path: Path) -> None:
    """0 to 8 go when their newer versions are compacted; 2, 5 and 8 end their segments, empty."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker)
        for number in range(15):
            await write_compacted(broker, b"%d" % (number % 3))
        assert await offsets(broker, member) == [0, 1, 2]
        assert await offsets(broker, member) == [], "all keys are known"
        await settle(broker, member, *((offset, RELEASE) for offset in range(3)))
        await compacted(broker)
        assert await offsets(broker, member) == [2]
        assert await offsets(broker, member) == [9, 10]
        await settle(broker, member, (2, AcknowledgeType.GAP), (9, ACCEPT), (10, ACCEPT))
        assert await offsets(broker, member) == [5]
        assert await offsets(broker, member) == [12, 13]

    run_compacted(tmp_path, scenario)


def test_thousands_of_records_are_learnt_in_pieces(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker)
        values = [SimpleRecord(b"%d" % (n % 2_500), b"x", 1) for n in range(5_000)]
        assert (await broker.produce("orders", 0, encode_batch(values)))[0] == 0
        found: list[int] = []
        while more := await offsets(broker, member, 500):
            found += more
            await settle(broker, member, *((offset, ACCEPT) for offset in more))
        assert sorted(found) == list(range(5_000))
        places = {offset: place for place, offset in enumerate(found)}
        assert all(places[n] < places[n + 2_500] for n in range(2_500))
        assert broker.running.parts.share_partitions.key_orders.record_count == 0

    run(scenario, tmp_path)


def test_batch_with_many_blocked_records_is_sent_when_they_are_free(tmp_path: Path) -> None:
    """Half of the records of the second of three batches wait for those of the first."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker)
        for first in (0, 32, 96):
            values = [SimpleRecord(b"%d" % key, b"x", 1) for key in range(first, first + 64)]
            assert (await broker.produce("orders", 0, encode_batch(values)))[0] == 0
        found = await offsets(broker, member, 200)
        assert found == [*range(64), *range(128, 192)]
        await settle(broker, member, *((offset, ACCEPT) for offset in found))
        assert await offsets(broker, member, 200) == [*range(64, 128)]

    run(scenario, tmp_path)


def test_batches_of_one_record_are_not_held_back(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        keys = [*map(chr, range(0x100, 0x13C))]
        for number in range(20):
            keys += [keys[number], chr(0x200 + number)]
        await ordered(broker, *keys)
        assert len(await offsets(broker, member, 100)) == 80, "the different keys"

    run(scenario, tmp_path)


def test_deleted_topic_leaves_no_keys(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await ordered(broker, "aa", "b")
        assert await offsets(broker, member) == [0, 2]
        orders = broker.running.parts.share_partitions.key_orders
        assert orders.record_count == 3
        await delete_topic(broker, "orders")
        assert orders.record_count == 0

    run(scenario, tmp_path)
