"""What Produce refuses: batches that claim too much, and timestamps out of range."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from crc32c import crc32c
from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.schema.produce.v12.request import PartitionProduceData
from kio.static.primitive import i8

from sharegroup.faults.faulty_files import FaultyFiles
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import Broker

CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR = 2, 3, 56
INVALID_TIMESTAMP, INVALID_RECORD = 32, 87
HOUR_MS = 3_600_000
TOPIC = 2


def run(scenario: Callable[[Broker], Awaitable[None]], path: Path, **settings: str) -> None:
    """A broker with a topic of one partition, for a scenario."""

    async def main() -> None:
        broker = await Broker.start(None, str(path), **settings)
        try:
            await broker.create_topic("orders", 1)
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(main())


async def set_config(broker: Broker, key: str, value: str) -> None:
    config = alter_configs.AlterableConfig(name=key, config_operation=i8(0), value=value)
    resource = alter_configs.AlterConfigsResource(
        resource_type=i8(TOPIC), resource_name="orders", configs=(config,)
    )
    request = alter_configs.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=False
    )
    assert int((await broker.ask(request)).responses[0].error_code) == 0


async def produce_at(broker: Broker, *timestamps: int, codec: int = 0) -> int:
    """Produce a batch of records with these timestamps; the error code."""
    batch = encode_batch([SimpleRecord(b"k", b"v", time) for time in timestamps], codec=codec)
    return (await broker.produce("orders", 0, batch))[0]


def lying_batch(record_count: int = 2**31 - 1, body: bytes = bytes(8)) -> bytearray:
    """A batch with a right checksum that claims so many records."""
    batch = encode_batch([SimpleRecord(None, None, 0)])[:61] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = (record_count - 1).to_bytes(4, "big")
    batch[57:61] = record_count.to_bytes(4, "big")
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return batch


def test_batch_that_claims_more_records_than_fit_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert await broker.produce("orders", 0, lying_batch()) == (INVALID_RECORD, -1)
        assert await broker.produce("orders", 0, lying_batch(1, bytes(7))) == (0, 0)

    run(scenario, tmp_path)


def kept_batches() -> int:
    """The produced batches that are still in memory."""
    return sum(isinstance(found, PartitionProduceData) for found in gc.get_objects())


@pytest.mark.parametrize("reason", ["no such topic", "checksum", "no key", "sync"])
def test_refused_batch_is_freed_with_its_answer(tmp_path: Path, reason: str) -> None:
    """Without a garbage collection, which looks at objects of a busy broker late (ADR 0025)."""
    batch = encode_batch([SimpleRecord(None, bytes(1_000), 0)])
    files = FaultyFiles()
    topic, code = {
        "no such topic": ("missing", UNKNOWN_TOPIC_OR_PARTITION),
        "checksum": ("orders", CORRUPT_MESSAGE),
        "no key": ("orders", INVALID_RECORD),
        "sync": ("orders", KAFKA_STORAGE_ERROR),
    }[reason]
    if reason == "checksum":
        batch[-1] ^= 1

    async def main() -> None:
        broker = await Broker.start(files, str(tmp_path))
        await broker.create_topic("orders", 1)
        if reason == "no key":
            await set_config(broker, "cleanup.policy", "compact")
        if reason == "sync":
            files.fail_next_sync()
        gc.collect()
        gc.disable()
        try:
            assert await broker.produce(topic, 0, batch) == (code, -1)
            assert kept_batches() == 0
        finally:
            gc.enable()
        await broker.stop()

    asyncio.run(main())


def test_timestamp_more_than_an_hour_ahead_is_refused_by_default(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        now_ms = broker.clock.wall_ms()
        for codec in range(5):
            assert await produce_at(broker, now_ms, now_ms + HOUR_MS, codec=codec) == 0
            refused = await produce_at(broker, now_ms, now_ms + HOUR_MS + 1, codec=codec)
            assert refused == INVALID_TIMESTAMP
        assert await produce_at(broker, now_ms + HOUR_MS + 1, now_ms) == INVALID_TIMESTAMP
        assert await produce_at(broker, 0) == 0
        assert await produce_at(broker, -1) == 0

    run(scenario, tmp_path)


def test_timestamp_range_is_configurable_per_topic(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        now_ms = broker.clock.wall_ms()
        assert await produce_at(broker, now_ms - 1_001) == INVALID_TIMESTAMP
        await set_config(broker, "message.timestamp.before.max.ms", "5000")
        await set_config(broker, "message.timestamp.after.max.ms", "9223372036854775807")
        assert await produce_at(broker, now_ms - 5_000) == 0
        assert await produce_at(broker, now_ms - 5_001, now_ms) == INVALID_TIMESTAMP
        assert await produce_at(broker, now_ms + 10**12) == 0
        assert await produce_at(broker, -1) == 0

    run(scenario, tmp_path, log_message_timestamp_before_max_ms="1000")


def test_timestamps_are_not_checked_with_log_append_time(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await set_config(broker, "message.timestamp.type", "LogAppendTime")
        assert await produce_at(broker, broker.clock.wall_ms() + 10 * HOUR_MS) == 0

    run(scenario, tmp_path)
