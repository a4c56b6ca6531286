"""Spark keeps the bytes of header names that are not UTF-8, and reads large batches."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from sharegroup.client.fetch.record_reading import partition_ranges, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.dead_letters.letter import letter_of
from sharegroup.spark import executor_fetch
from sharegroup.spark.batch_read import KafkaShareBatchReader
from sharegroup.spark.letters.rows import COLUMNS
from sharegroup.spark.options import batch_options, sink_options
from sharegroup.spark.sink import write_rows
from sharegroup.testing import run_broker
from sharegroup.wire.batches.header_names import NAMES, header_name, name_bytes
from sharegroup.wire.batches.records import (
    DecodedRecord,
    SimpleRecord,
    decode_records,
    encode_batch,
)
from tests.support.unreadable import produce_batches

RAW = [b"caf\xe9", b"\xef\xbf\xbd", "café".encode(), b"\xff"]
SHOWN = ["caf\ufffd", "\ufffd", "café", "\ufffd"]
HEADERS = [(header_name(name), b"%d" % number) for number, name in enumerate(RAW)]
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def bootstrap():
    with run_broker() as broker:
        for topic in ("odd", "copy", "large"):
            broker.create_topic(topic)
        yield broker.bootstrap_servers
    executor_fetch.close()


def rows(bootstrap: str, topic: str) -> list[pa.RecordBatch]:
    options = {
        "kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true",
    }  # fmt: skip
    reader = KafkaShareBatchReader(batch_options(options))
    return [batch for partition in reader.partitions() for batch in reader.read(partition)]


def records_of(bootstrap: str, topic: str) -> list[DecodedRecord]:
    async def read() -> list[DecodedRecord]:
        cluster = Cluster(ClientConfig(bootstrap_servers=bootstrap))
        try:
            (wanted,) = await partition_ranges(cluster, topic)
            return [record async for part in read_records(cluster, wanted) for record in part]
        finally:
            cluster.close()

    return asyncio.run(read())


def test_sink_writes_the_original_names_of_the_source(bootstrap: str) -> None:
    records = [SimpleRecord(b"k", b"v", 1, HEADERS), SimpleRecord(None, b"plain", 2, [("h", b"")])]
    produce_batches(bootstrap, "odd", bytes(encode_batch(records)))
    read = rows(bootstrap, "odd")
    first, second = pa.Table.from_batches(read).column("headers").to_pylist()
    assert [header["key"] for header in first] == [*SHOWN, NAMES]
    assert second == [{"key": "h", "value": b""}]
    options = sink_options({"kafka.bootstrap.servers": bootstrap, "topic": "copy"})
    assert write_rows(options, iter(read)) == 2
    names = [
        [(name_bytes(name), content) for name, content in record.headers]
        for record in records_of(bootstrap, "copy")
    ]
    assert names == [[(raw, b"%d" % n) for n, raw in enumerate(RAW)], [(b"h", b"")]]


def test_letters_are_rows_with_the_original_names() -> None:
    (record,) = decode_records(encode_batch([SimpleRecord(None, b"v", 1, HEADERS)]))
    row = COLUMNS["headers"].value(letter_of("dead", 0, record), False)
    column = pa.array([row], type=COLUMNS["headers"].kind)
    assert [header["key"] for header in column.to_pylist()[0]] == [*SHOWN, NAMES]


def test_batch_that_is_too_large_for_memory_is_read(bootstrap: str) -> None:
    records = [SimpleRecord(None, b"%02d" % n + bytes(900_000), n) for n in range(90)]
    produce_batches(bootstrap, "large", bytes(encode_batch(records, codec=4)))
    values = [
        value[:2].as_py() if isinstance(value, bytes) else value.as_py()[:2]
        for batch in rows(bootstrap, "large")
        for value in batch.column("value")
    ]
    assert values == [b"%02d" % n for n in range(90)]
