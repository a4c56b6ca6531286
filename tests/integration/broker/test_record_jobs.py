"""Large batches are walked in slices, one at a time, while the broker serves others."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import tracemalloc
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from crc32c import crc32c
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.produce.v12 import request as produce
from kio.static.primitive import i8

from sharegroup.broker import app
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.load.produced_batches import WAITING_BYTES_MAX
from sharegroup.broker.load.record_jobs import NICE, _in_thread
from sharegroup.errors import CorruptMessage, KafkaStorageError
from sharegroup.ids import TopicName
from sharegroup.testing.virtual_time import ManualClock
from sharegroup.wire.batches.compression import ZSTD, compress
from sharegroup.wire.batches.record_walk import Walk, WalkStep
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import Broker
from tests.integration.broker.test_produce_checks import INVALID_RECORD, lying_batch
from tests.integration.broker.test_user_parts import SECURED, peer_of
from tests.support.limits import HANGING_SECONDS

SECOND = timedelta(seconds=1)
UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT, INVALID_REQUEST = 3, 7, 42
PARTITIONS = 4
MAX_TIMESTAMP = -3
KEYED = bytes.fromhex("0c 00 00 00 00 01 00")
"""The smallest record with a key, which is empty: 1 of 300,000 in a bomb."""
COUNT = 300_000
SOME = 20_000


def run(scenario: Callable[[Broker], Awaitable[None]], path: Path, **settings: str) -> None:
    """A broker with an ordinary topic and a compacted one, for a scenario."""

    async def main() -> None:
        values = {key.replace("_", "."): value for key, value in settings.items()}
        values |= {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(path)}
        # On the system's clock, because slices of work end with it.
        broker = Broker(await app.start(Config.parse(values)), ManualClock())
        try:
            assert await broker.create_topic("plain", PARTITIONS) == 0
            await create_compacted(broker)
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(main())


async def create_compacted(broker: Broker) -> None:
    policy = create_topics.CreatableTopicConfig(name="cleanup.policy", value="compact")
    topic = create_topics.CreatableTopic(
        name="compacted", num_partitions=1, replication_factor=1, assignments=(), configs=(policy,)
    )
    await broker.ask(create_topics.CreateTopicsRequest(topics=(topic,), timeout=SECOND))


def sealed(batch: bytearray) -> bytearray:
    """The batch with its length and checksum made anew."""
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return batch


def bomb(record: bytes = KEYED, count: int = COUNT, *, max_timestamp: int = 5) -> bytearray:
    """A small batch of so many equal records; its largest timestamp is that of none of them."""
    batch = lying_batch(count, compress(ZSTD, record * count))
    batch[21:23] = ZSTD.to_bytes(2, "big")
    batch[35:43] = max_timestamp.to_bytes(8, "big")
    return sealed(batch)


def append(broker: Broker, batch: bytearray, partition: int = 0) -> None:
    """Write a batch as a broker would have done that did not look at claims."""
    topics = broker.running.parts.topics
    topics.named(TopicName("plain"), partition)[1].append(batch, now_ms=broker.clock.wall_ms())


async def durable(broker: Broker) -> None:
    log = broker.running.parts.topics.named(TopicName("plain"), 0)[1]
    while log.high_watermark < log.end_offset:
        await asyncio.sleep(0)


async def ask_offsets(
    broker: Broker, *wanted: tuple[int, int], peer: Peer | None = None
) -> list[tuple[int, int, int]]:
    """(error, timestamp, offset) for each (partition, timestamp)."""
    partitions = tuple(
        list_offsets.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        for index, timestamp in wanted
    )
    topic = list_offsets.ListOffsetsTopic(name="plain", partitions=partitions)
    request = list_offsets.ListOffsetsRequest(replica_id=-1, isolation_level=i8(0), topics=(topic,))
    answer = await broker.ask(request, peer=peer)
    return [
        (int(partition.error_code), partition.timestamp, partition.offset)
        for partition in answer.topics[0].partitions
    ]


async def turns_during(work: Awaitable[Any]) -> tuple[int, Any]:
    """How many turns the event loop gave to others until the work was done, and its result."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return turns, task.result()


def test_lookup_in_a_bomb_leaves_the_loop_to_others(tmp_path: Path) -> None:
    """The attack: one ListOffsets(-3) held the loop for 10 s and took 1.56 GB."""

    async def scenario(broker: Broker) -> None:
        append(broker, bomb())
        await durable(broker)
        tracemalloc.start()
        turns, answer = await turns_during(ask_offsets(broker, (0, MAX_TIMESTAMP)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert answer == [(0, -1, -1)], "no record has the timestamp that the header claims"
        assert turns >= 10
        assert peak < 10_000_000, "no object for each of 300,000 records"

    run(scenario, tmp_path)


def test_partition_that_is_named_twice_is_refused_without_a_lookup(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        append(broker, bomb())
        await durable(broker)
        answer = await ask_offsets(broker, *[(0, MAX_TIMESTAMP)] * 500)
        assert answer == [(INVALID_REQUEST, -1, -1)] * 500
        answer = await ask_offsets(broker, (0, 4), (1, -1), (0, -1))
        assert [code for code, _, _ in answer] == [INVALID_REQUEST, 0, INVALID_REQUEST]
        assert broker.running.parts.record_jobs.job_count == 0

    run(scenario, tmp_path)


def test_batch_that_cannot_be_read_is_skipped(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        lying = lying_batch(1_000_000)
        lying[35:43] = (10**6).to_bytes(8, "big")
        append(broker, sealed(lying))
        append(broker, bomb(b"\x03" * 7, max_timestamp=10**6))
        append(broker, encode_batch([SimpleRecord(b"k", b"v", time) for time in (4, 7)]))
        await durable(broker)
        assert await ask_offsets(broker, (0, 5)) == [(0, 7, 1_000_000 + COUNT + 1)]

    run(scenario, tmp_path)


def test_lookups_of_one_request_decode_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        for partition in (0, 1):
            append(broker, bomb(), partition)
        await durable(broker)
        append(broker, encode_batch([SimpleRecord(b"k", b"v", 9)]), 1)
        await durable(broker)
        answers = await ask_offsets(broker, (0, 4), (1, 4), (2, -1), (3, -2))
        assert answers[0] == (0, -1, -1)
        assert answers[1][0] == REQUEST_TIMED_OUT, "the first has used up what there is"
        assert answers[2:] == [(0, -1, 0), (0, -1, 0)], "nothing is decoded for them"
        assert await ask_offsets(broker, (1, 4)) == [(0, 9, COUNT)]

    run(scenario, tmp_path, sharegroup_decompressed_max_bytes=str(2 * 2**20))


def test_bomb_larger_than_the_limit_is_skipped(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        append(broker, bomb())
        append(broker, encode_batch([SimpleRecord(b"k", b"v", 9)]))
        await durable(broker)
        assert await ask_offsets(broker, (0, 4)) == [(0, 9, COUNT)]

    run(scenario, tmp_path, sharegroup_decompressed_max_bytes=str(2**20))


def test_lookups_over_many_partitions_are_sliced(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        wanted = [(partition, 4) for partition in range(2_000)]
        turns, answers = await turns_during(ask_offsets(broker, *wanted))
        assert answers[:PARTITIONS] == [(0, -1, -1)] * PARTITIONS
        assert {code for code, _, _ in answers[PARTITIONS:]} == {UNKNOWN_TOPIC_OR_PARTITION}
        assert turns >= 3

    run(scenario, tmp_path)


def test_lookup_ends_with_its_connection(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        append(broker, bomb())
        await durable(broker)
        jobs = broker.running.parts.record_jobs
        lookups = [asyncio.ensure_future(ask_offsets(broker, (0, MAX_TIMESTAMP))) for _ in range(3)]
        while jobs.waiting_count < 2:
            await asyncio.sleep(0)
        jobs.drop(1)
        await asyncio.wait(lookups)
        assert all(lookup.cancelled() for lookup in lookups)
        assert (jobs.job_count, jobs.waiting_count) == (1, 0)
        assert await ask_offsets(broker, (0, MAX_TIMESTAMP)) == [(0, -1, -1)]

    run(scenario, tmp_path)


async def produce_to(broker: Broker, *batches: bytearray) -> list[tuple[int, int]]:
    """Send all batches at once, one request each; error code and offset of each."""
    return list(await asyncio.gather(*(broker.produce("compacted", 0, batch) for batch in batches)))


def test_keys_of_a_bomb_are_checked_beside_other_requests(tmp_path: Path) -> None:
    """The attack: such a batch, produced to a compacted topic, held the loop for 12 s."""

    async def scenario(broker: Broker) -> None:
        noise = bytes(encode_batch([SimpleRecord(b"k", Random(1).randbytes(1_000), 0)]))[61:]
        batch = lying_batch(60_001, compress(ZSTD, KEYED * 60_000 + noise))
        batch[21:23] = ZSTD.to_bytes(2, "big")
        turns, answer = await turns_during(produce_to(broker, sealed(batch)))
        assert answer == [(0, 0)]
        assert turns >= 3

    run(scenario, tmp_path)


def test_record_without_a_key_is_found_in_a_large_batch(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        records = [SimpleRecord(b"k", bytes(100), 0)] * 2_000
        assert await produce_to(broker, encode_batch(records)) == [(0, 0)]
        records[1_900] = SimpleRecord(None, b"v", 0)
        for codec in (0, 4):
            refused = await produce_to(broker, encode_batch(records, codec=codec))
            assert refused == [(INVALID_RECORD, -1)]
        damaged = sealed(encode_batch(records[:1_000])[:-50])
        assert await produce_to(broker, damaged) == [(INVALID_RECORD, -1)]

    run(scenario, tmp_path)


def test_batches_of_a_partition_keep_their_order_after_a_large_one(tmp_path: Path) -> None:
    """An idempotent producer sends three pipelined batches; the first needs a record check."""

    async def scenario(broker: Broker) -> None:
        _, producer_id = await broker.new_producer_id()

        def batch(count: int, sequence: int) -> bytearray:
            records = [SimpleRecord(b"k", bytes(100), 0)] * count
            return encode_batch(
                records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
            )

        answers = await produce_to(broker, batch(2_000, 0), batch(1, 2_000), batch(2_000, 2_001))
        assert answers == [(0, 0), (0, 2_000), (0, 2_001)]
        assert broker.running.parts.produced_batches.last == {}
        assert broker.running.parts.produced_batches.waiting_bytes == 0

    run(scenario, tmp_path)


def test_bytes_that_wait_for_a_check_are_bounded(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        batch = encode_batch([SimpleRecord(b"k", bytes(1_000), 0)] * 1_000)
        fit = WAITING_BYTES_MAX // len(batch)
        answers = await produce_to(broker, *[batch] * (fit + 2))
        assert [error for error, _ in answers] == [0] * fit + [REQUEST_TIMED_OUT] * 2

    run(scenario, tmp_path)


async def produce_as(broker: Broker, user: str, batch: bytearray) -> int:
    """Send a batch as a user of a broker with an authorizer; return the error code."""
    data = produce.PartitionProduceData(index=0, records=bytes(batch))
    topic = produce.TopicProduceData(name="compacted", partition_data=(data,))
    request = produce.ProduceRequest(
        transactional_id=None, acks=-1, timeout=SECOND, topic_data=(topic,)
    )
    answer = await broker.ask(request, peer=peer_of(broker, user))
    return int(answer.responses[0].partition_responses[0].error_code)


def test_one_user_takes_only_a_part_of_the_bytes_that_wait_for_a_check(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        batch = encode_batch([SimpleRecord(b"k", bytes(1_000), 0)] * 1_000)
        part = WAITING_BYTES_MAX // 2 // len(batch)
        batches = broker.running.parts.produced_batches
        for _ in range(2):  # The part of a user is free again when its batches are appended.
            users = ["alice"] * (part + 2) + ["bob"] * part + ["carol"]
            answers = await asyncio.gather(*(produce_as(broker, user, batch) for user in users))
            assert answers == [0] * part + [REQUEST_TIMED_OUT] * 2 + [0] * part + [
                REQUEST_TIMED_OUT
            ]
        assert (batches.user_refused_count, batches.waiting_bytes) == (4, 0)

    run(scenario, tmp_path, **SECURED)


def test_first_batch_of_a_user_may_be_larger_than_its_part(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        batch = encode_batch([SimpleRecord(b"k", bytes(1_000), 0)] * 1_000)
        answers = await asyncio.gather(*(produce_as(broker, "alice", batch) for _ in range(2)))
        assert answers == [0, REQUEST_TIMED_OUT]

    run(scenario, tmp_path, **SECURED, sharegroup_user_limits_percent="1")


def test_user_with_many_large_lookups_delays_another_one_by_one_lookup(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        append(broker, bomb(count=SOME))
        await durable(broker)
        order: list[str] = []

        async def ask(user: str) -> None:
            await ask_offsets(broker, (0, MAX_TIMESTAMP), peer=peer_of(broker, user))
            order.append(user)

        await asyncio.gather(*map(ask, ["alice"] * 5 + ["bob"]))
        assert order == ["alice", "bob"] + ["alice"] * 4

    run(scenario, tmp_path, **SECURED)


def test_produce_with_acks_0_does_not_wait(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        batch = bytes(encode_batch([SimpleRecord(b"k", bytes(100), 0)] * 2_000))
        data = produce.PartitionProduceData(index=0, records=batch)
        request = produce.ProduceRequest(
            transactional_id=None,
            acks=0,
            timeout=SECOND,
            topic_data=(produce.TopicProduceData(name="compacted", partition_data=(data,)),),
        )
        log = broker.running.parts.topics.named(TopicName("compacted"), 0)[1]
        waiting = asyncio.ensure_future(broker.ask(request))
        while log.end_offset == 0:
            await asyncio.sleep(0)
        assert log.end_offset == 2_000
        await asyncio.wait((waiting,))  # There is no answer to decode.

    run(scenario, tmp_path)


def test_failure_of_a_dropped_decompression_is_not_logged() -> None:
    """The peer closed its connection while a thread still decompressed its damaged batch.

    asyncio logs an exception that was never retrieved when its task is collected.
    """

    async def scenario() -> list[dict[str, Any]]:
        unseen: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        began, may_end = threading.Event(), threading.Event()

        def decompress() -> bytes:
            began.set()
            may_end.wait(HANGING_SECONDS)
            raise CorruptMessage("damaged")

        dropped = asyncio.create_task(_in_thread(ThreadPoolExecutor(1), decompress))
        assert await asyncio.to_thread(began.wait, HANGING_SECONDS)
        dropped.cancel()
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.wait((dropped,))
        assert dropped.cancelled()
        del dropped
        gc.collect()
        return unseen

    assert asyncio.run(scenario()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own there")
def test_decompression_thread_has_low_priority_and_ends_with_the_broker(tmp_path: Path) -> None:
    def nice() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    threads: list[threading.Thread] = []

    async def scenario(broker: Broker) -> None:
        jobs = broker.running.parts.record_jobs
        assert jobs._thread.submit(nice).result() == min(19, nice() + NICE)
        # Not all threads of the process, because other tests may have a broker in it.
        threads.extend(jobs._thread._threads)

    run(scenario, tmp_path)
    (thread,) = threads
    thread.join(HANGING_SECONDS)
    assert not thread.is_alive()


def test_record_check_after_the_broker_stopped_fails_with_a_kafka_error(
    tmp_path: Path,
) -> None:
    async def scenario(broker: Broker) -> None:
        def walk() -> Walk[None]:
            yield WalkStep.BEGIN
            yield lambda: b"decompressed"

        jobs = broker.running.parts.record_jobs
        jobs.close()
        with pytest.raises(KafkaStorageError):
            await jobs.complete(walk(), None)

    run(scenario, tmp_path)
