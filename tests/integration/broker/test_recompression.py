"""Topics with a ``compression.type``: batches are stored in that codec, in order, unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.create_topics.v7 import request as create
from kio.schema.fetch.v12 import request as fetch
from kio.schema.produce.v9 import request as produce

from sharegroup.wire.batches.batches import BatchHeader, checksum, header_bytes, parse_header
from sharegroup.wire.batches.compression import CODECS
from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch
from tests.faults.in_process import Broker

TOPIC = "orders"
INVALID_RECORD, MESSAGE_TOO_LARGE, INVALID_CONFIG = 87, 10, 40
SECOND = timedelta(seconds=1)

Scenario = Callable[[Broker], Awaitable[None]]


def run(scenario: Scenario, path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(path / "data"))
        await scenario(broker)
        await broker.stop()

    asyncio.run(main())


async def create_topic(broker: Broker, **settings: str) -> int:
    """The error code; ``settings`` have ``_`` for the dots of Kafka's names."""
    topic = create.CreatableTopic(
        name=TOPIC,
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=tuple(
            create.CreatableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in settings.items()
        ),
    )
    answer = await broker.ask(create.CreateTopicsRequest(topics=(topic,), timeout=SECOND))
    return int(answer.topics[0].error_code)


async def produced(broker: Broker, batch: bytearray) -> Any:
    """The answer for the partition."""
    data = produce.PartitionProduceData(index=0, records=bytes(batch))
    topic = produce.TopicProduceData(name=TOPIC, partition_data=(data,))
    request = produce.ProduceRequest(
        transactional_id=None, acks=-1, timeout=SECOND, topic_data=(topic,)
    )
    return (await broker.ask(request)).responses[0].partition_responses[0]


async def stored(broker: Broker) -> bytes:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
    request = fetch.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(0),
        min_bytes=0,
        topics=(fetch.FetchTopic(topic=TOPIC, partitions=(partition,)),),
        forgotten_topics_data=(),
    )
    answer = (await broker.ask(request)).responses[0].partitions[0]
    assert int(answer.error_code) == 0
    return bytes(answer.records or b"")


def records(count: int, first: int = 0) -> list[SimpleRecord]:
    return [
        SimpleRecord(b"k%d" % number, b"some value " * 9, 1_000 + number, [("h", b"v")])
        for number in range(first, first + count)
    ]


def content(batch: bytes) -> list[tuple[object, ...]]:
    return [
        (record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in decode_records(batch, check_crc=True)
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sent", CODECS)
def test_batch_is_stored_in_the_codec_of_the_topic(tmp_path: Path, codec: str, sent: str) -> None:
    async def scenario(broker: Broker) -> None:
        kind = "uncompressed" if codec == "none" else codec
        assert await create_topic(broker, compression_type=kind) == 0
        _, producer_id = await broker.new_producer_id()
        batch = encode_batch(
            records(50),
            codec=CODECS[sent],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
        answer = await produced(broker, batch)
        assert (int(answer.error_code), answer.base_offset) == (0, 0)
        found = await stored(broker)
        before, after = parse_header(bytes(batch)), parse_header(found)
        assert after.codec == CODECS[codec]
        assert plain(after) == plain(before)
        assert content(found) == content(bytes(batch))
        if codec == sent:
            assert found[61:] == batch[61:]

    run(scenario, tmp_path)


def plain(header: BatchHeader) -> BatchHeader:
    """A header without what another codec and the log change."""
    return header._replace(length=0, crc=0, leader_epoch=0, attributes=header.attributes & ~7)


def test_producers_codec_is_kept_by_default(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert await create_topic(broker, compression_type="producer") == 0
        await produced(broker, encode_batch(records(5), codec=CODECS["snappy"]))
        assert parse_header(await stored(broker)).codec == CODECS["snappy"]

    run(scenario, tmp_path)


def test_level_of_the_codec_counts(tmp_path: Path) -> None:
    async def size(path: Path, level: str) -> int:
        broker = await Broker.start(None, str(path))
        level_key = {"compression_zstd_level": level}
        assert await create_topic(broker, compression_type="zstd", **level_key) == 0
        await produced(broker, encode_batch(records(2_000)))
        found = len(await stored(broker))
        await broker.stop()
        return found

    async def main() -> None:
        sizes = [await size(tmp_path / level, level) for level in ("-1000", "1", "19")]
        assert sizes[0] > sizes[1] > sizes[2]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("compression_gzip_level", "0", INVALID_CONFIG),
        ("compression_gzip_level", "-1", 0),
        ("compression_gzip_level", "10", INVALID_CONFIG),
        ("compression_lz4_level", "17", 0),
        ("compression_lz4_level", "18", INVALID_CONFIG),
        ("compression_zstd_level", "-131072", 0),
        ("compression_type", "brotli", INVALID_CONFIG),
    ],
)
def test_levels_have_kafkas_ranges(tmp_path: Path, name: str, value: str, expected: int) -> None:
    async def scenario(broker: Broker) -> None:
        assert await create_topic(broker, **{name: value}) == expected

    run(scenario, tmp_path)


def test_batches_of_an_idempotent_producer_keep_their_order(tmp_path: Path) -> None:
    """The first batch takes the longest, and one in the middle needs no compression."""

    async def scenario(broker: Broker) -> None:
        await create_topic(broker, compression_type="gzip", compression_gzip_level="9")
        _, producer_id = await broker.new_producer_id()

        def batch(first: int, count: int, codec: int = 0) -> bytearray:
            return encode_batch(
                records(count, first),
                codec=codec,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=first,
            )

        sent = (batch(0, 5_000), batch(5_000, 1, CODECS["gzip"]), batch(5_001, 10))
        answers = await asyncio.gather(*(produced(broker, batch_) for batch_ in sent))
        assert [(int(answer.error_code), answer.base_offset) for answer in answers] == [
            (0, 0),
            (0, 5_000),
            (0, 5_001),
        ]
        assert [key for _, _, key, *_ in content(await stored(broker))] == [
            b"k%d" % number for number in range(5_011)
        ]

    run(scenario, tmp_path)


def test_batch_that_gets_too_large_without_compression_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await create_topic(broker, compression_type="uncompressed", max_message_bytes="2000")
        answer = await produced(broker, encode_batch(records(50), codec=CODECS["zstd"]))
        assert int(answer.error_code) == MESSAGE_TOO_LARGE
        assert "max.message.bytes is 2000" in answer.error_message
        assert await stored(broker) == b""

    run(scenario, tmp_path)


def test_append_time_is_set_in_a_batch_that_is_compressed_again(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await create_topic(broker, compression_type="lz4", message_timestamp_type="LogAppendTime")
        answer = await produced(broker, encode_batch(records(5)))
        found = await stored(broker)
        header = parse_header(found)
        assert (header.codec, header.has_log_append_time) == (CODECS["lz4"], True)
        assert answer.log_append_time.timestamp() * 1000 == header.max_timestamp
        assert {timestamp for _, timestamp, *_ in content(found)} == {header.max_timestamp}

    run(scenario, tmp_path)


def test_damaged_records_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await create_topic(broker, compression_type="gzip")
        batch = encode_batch(records(5), codec=CODECS["zstd"])
        header = parse_header(bytes(batch))
        broken = sealed(batch[:-5], header)
        answer = await produced(broker, broken)
        assert int(answer.error_code) == INVALID_RECORD
        short = sealed(bytearray(encode_batch(records(5)))[:-20], header._replace(attributes=0))
        assert int((await produced(broker, short)).error_code) == INVALID_RECORD
        assert await stored(broker) == b""

    run(scenario, tmp_path)


def sealed(batch: bytearray, header: BatchHeader) -> bytearray:
    """A batch with the right length and checksum for its body."""

    changed = header._replace(length=len(batch) - 12)
    whole = bytearray(header_bytes(changed)) + batch[61:]
    crc = checksum(whole, 0, changed)
    return bytearray(header_bytes(changed._replace(crc=crc))) + batch[61:]


def test_record_above_the_decompressed_limit_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await create_topic(broker, max_decompressed_message_bytes="1000")
        large = [SimpleRecord(b"k", b"x" * 1_001, 0)]
        assert int((await produced(broker, encode_batch(large))).error_code) == 0
        answer = await produced(broker, encode_batch(large, codec=CODECS["zstd"]))
        assert int(answer.error_code) == INVALID_RECORD
        assert "max.decompressed.message.bytes is 1000" in answer.error_message
        small = encode_batch(records(50), codec=CODECS["zstd"])
        assert int((await produced(broker, small)).error_code) == 0

    run(scenario, tmp_path)
