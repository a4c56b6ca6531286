"""Kafka's tools and clients read what compaction leaves: holes, empty batches, markers, indexes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, TopicPartition

from sharegroup.client import ShareConsumer
from sharegroup.ids import TopicName
from sharegroup.storage.log.compaction import CompactionLimits
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.testing import TestBroker, broker
from sharegroup.wire.batches.markers import encode_marker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.interop.foreign_clients import LEAVES_SOCKETS
from tests.support.kafka_tools import run_tool, why_missing

pytestmark = LEAVES_SOCKETS

TOPIC = TopicName("balances")
NOW_MS = 1_700_000_000_000
SECONDS = 10.0
KEYS = 40
ROUNDS = 25
PRODUCER, FORGOTTEN = 91, 92
LAST = KEYS * ROUNDS
"""The offset of the abort marker; the records of the last round lie right below the marker's."""
EXPECTED = [(b"key-%d" % number, b"round-%d" % (ROUNDS - 1)) for number in range(KEYS)]


async def compacted(running: TestBroker) -> PartitionLog:
    """Rounds of one record for each key, of which the last stays; then what was aborted.

    Numbered batches of a producer are among the old ones, and the last of them stays empty.
    """
    topics = running.running.parts.topics
    await topics.create(TOPIC, partitions=1, settings={"cleanup.policy": "compact"})
    _, log = topics.named(TOPIC, 0)
    for number in range(ROUNDS):
        for key in range(KEYS):
            is_numbered = (number, key) in ((0, 0), (0, 1))
            record = SimpleRecord(b"key-%d" % key, b"round-%d" % number, NOW_MS + number)
            numbers = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": key}
            log.append(encode_batch([record], **(numbers if is_numbered else {})), now_ms=NOW_MS)
    aborted = encode_batch(
        [SimpleRecord(b"key-0", b"aborted", NOW_MS)],
        producer_id=FORGOTTEN,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
        codec=4,
    )
    log.append(aborted, now_ms=NOW_MS)
    marker = encode_marker(
        is_commit=False, producer_id=FORGOTTEN, producer_epoch=0, timestamp=NOW_MS
    )
    log.append(marker, now_ms=NOW_MS)
    log.roll()
    await log.append(encode_batch([SimpleRecord(b"end", b"end", NOW_MS)]), now_ms=NOW_MS)
    await running.running.directory.checkpoint()
    found = log.compactable(now_ms=NOW_MS, lag_ms=0)
    await topics.compact(log, found, CompactionLimits(1 << 20, 1_000, 1 << 20))
    assert log.size < 5_000
    return log


def with_kafka_python(bootstrap: str, level: str) -> list[tuple[bytes, bytes]]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=level, consumer_timeout_ms=5_000
    )
    try:
        place = TopicPartition(TOPIC, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        return [
            (record.key, record.value) for _, record in zip(range(KEYS + 1), consumer, strict=False)
        ]
    finally:
        consumer.close()


def with_confluent(bootstrap: str, level: str) -> list[tuple[bytes, bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": level}
    )
    try:
        consumer.assign([ConfluentPartition(TOPIC, 0, OFFSET_BEGINNING)])
        messages = consumer.consume(num_messages=KEYS + 1, timeout=SECONDS)
        return [(message.key(), message.value()) for message in messages if message.error() is None]
    finally:
        consumer.close()


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("read", [with_kafka_python, with_confluent])
def test_consumers_read_a_compacted_log(
    read: Callable[[str, str], list[tuple[bytes, bytes]]], level: str
) -> None:
    async def main() -> None:
        async with broker() as running:
            await compacted(running)
            found = await asyncio.to_thread(read, running.bootstrap_servers, level)
            assert found == [*EXPECTED, (b"end", b"end")]

    asyncio.run(main())


def test_share_group_reads_and_settles_a_whole_compacted_log() -> None:
    async def main() -> None:
        async with broker() as running:
            log = await compacted(running)
            settings = {"share.auto.offset.reset": "earliest"}
            await running.running.parts.topics.alter(
                lambda: {"event": "group_settings", "group": "readers", "settings": settings}
            )
            consumer = ShareConsumer(
                TOPIC,
                bootstrap_servers=running.bootstrap_servers,
                group_id="readers",
                share_acknowledgement_mode="explicit",
            )
            async with consumer, asyncio.timeout(SECONDS):
                found = []
                async for record in consumer:
                    found.append((record.key, record.value))
                    record.accept()
                    if record.key == b"end":
                        break
                await consumer.commit()
                (live,) = running.running.parts.share_partitions
                assert live.state.start_offset == log.end_offset
            assert found == [*EXPECTED, (b"end", b"end")]

    asyncio.run(main())


@pytest.mark.kafka
@pytest.mark.skipif(why_missing() is not None, reason=str(why_missing()))
def test_kafka_dump_log_reads_compacted_files(tmp_path: Path) -> None:
    async def main() -> Path:
        async with broker(data=str(tmp_path)) as running:
            await compacted(running)
        return next(path.parent for path in tmp_path.rglob("*.log") if b"end" in path.read_bytes())

    folder = asyncio.run(main())
    files = [path for path in folder.iterdir() if path.suffix in DUMPED]
    names = ",".join(str(path) for path in sorted(files))
    printed = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", names)
    batches = re.findall(
        r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*isvalid: (\w+)", printed
    )
    first = LAST - KEYS
    assert batches == [
        ("1", "1", "0", "true"),
        *((str(offset), str(offset), "1", "true") for offset in range(first, LAST)),
        (str(LAST), str(LAST), "0", "true"),
        (str(LAST + 1), str(LAST + 1), "1", "true"),
        (str(LAST + 2), str(LAST + 2), "1", "true"),
    ]
    assert f"firstOffset: {LAST} lastOffset: {LAST + 1}" in printed
    assert f"producerId: {PRODUCER}" in printed
    for problem in ("Index Sanity check failed", "Found timestamp mismatch", "out of order"):
        assert problem not in printed


DUMPED = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}


@pytest.mark.kafka
@pytest.mark.skipif(why_missing() is not None, reason=str(why_missing()))
def test_the_console_consumer_reads_a_compacted_log() -> None:
    async def main() -> None:
        async with broker() as running:
            await compacted(running)
            printed = await asyncio.to_thread(
                run_tool,
                "org.apache.kafka.tools.consumer.ConsoleConsumer",
                *("--bootstrap-server", running.bootstrap_servers, "--topic", TOPIC),
                *("--partition", "0", "--offset", "earliest"),
                *("--max-messages", str(KEYS + 1), "--timeout-ms", "20000"),
                *("--isolation-level", "read_committed", "--formatter-property", "print.key=true"),
            )
            lines = [line.split("\t") for line in printed.splitlines() if "\t" in line]
            expected = [[key.decode(), value.decode()] for key, value in EXPECTED]
            assert lines == [*expected, ["end", "end"]]

    asyncio.run(main())
