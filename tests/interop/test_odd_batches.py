"""Odd batches, read by all our readers as Java reads them.

The decoders are compared with Java itself, or with its answers in ``odd_batches.golden.txt`` if no
Java is here.  Then one log of such batches is read from a broker by each reader.

    python -m tests.interop.odd_readers SEED COUNT      compares more of them (``make odd-batches``)
    python -m tests.interop.odd_readers --golden        writes the golden file anew
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import pytest

from sharegroup.cli.formats.writing import json_line
from sharegroup.client import Consumer, ShareConsumer, TopicPartition
from sharegroup.errors import CorruptMessage, UnreadableBatch
from sharegroup.testing import TestBroker, run_broker
from sharegroup.wire.batches import parse_header
from sharegroup.wire.header_columns import headers_of
from sharegroup.wire.header_names import name_bytes
from sharegroup.wire.record_pieces import UnreadableRange, read_pieces
from sharegroup.wire.records import DecodedRecord
from tests.integration.cli.piping import at, sharegroup
from tests.interop.odd_readers import BYTES_MAX, GOLDEN, GOLDEN_COUNT, differences, golden
from tests.support.java_batches import read_by_java
from tests.support.java_shell import javac
from tests.support.kafka_peer import installed_libs
from tests.support.odd_batches import OddBatch, odd_batches
from tests.support.unreadable import produce_batches

LOG_BATCHES = 60
SEED = 4
TOPIC = "odd"
GROUPS = ("poll", "arrow", "consume")
SETTINGS = {"max.message.bytes": 10_000_000, "message.timestamp.after.max.ms": 2**63 - 1}
SECONDS_MAX = 60.0
"""Only to end a test that hangs."""

Shown = tuple[int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]
"""Offset, key, value and headers with the bytes of their names."""


def test_each_decoder_reads_what_java_has_read() -> None:
    batches = list(odd_batches(SEED, count=GOLDEN_COUNT))
    assert list(differences(batches, golden(GOLDEN.read_text()))) == []


@pytest.mark.skipif(javac() is None, reason="no Java compiler")
@pytest.mark.skipif(installed_libs() is None, reason="Kafka's jars are not here: make interop")
def test_each_decoder_reads_what_java_reads_now() -> None:
    batches = list(odd_batches(SEED + 1, count=GOLDEN_COUNT))
    assert list(differences(batches, read_by_java(batch.data for batch in batches))) == []


class OddLog(NamedTuple):
    """A topic of odd batches in a broker, and what a reader finds in it."""

    broker: TestBroker
    batches: Sequence[OddBatch]
    records: Sequence[Shown]

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def unreadable(self) -> list[tuple[int, int]]:
        """The ranges of batches that Java refuses."""
        return [(b.base_offset, b.end_offset) for b in self.batches if b.fault is not None]

    @property
    def unreadable_offsets(self) -> set[int]:
        return {offset for first, end in self.unreadable for offset in range(first, end)}


@pytest.fixture(scope="module")
def log() -> Iterator[OddLog]:
    batches = list(odd_batches(SEED, count=LOG_BATCHES, by_producer=True))
    with run_broker() as broker:
        broker.create_topic(TOPIC, settings=SETTINGS)
        for group in GROUPS:
            broker.configure_group(group, {"share.auto.offset.reset": "earliest"})
        produce_batches(broker.bootstrap_servers, TOPIC, *(batch.data for batch in batches))
        records = [record for batch in batches for record in _records_of(batch)]
        assert len(records) > 100
        assert any(b"\xff" in name for record in records for name, _ in record[3])
        yield OddLog(broker, batches, records)


def _records_of(batch: OddBatch) -> Iterator[Shown]:
    header = parse_header(batch.data)
    for piece in read_pieces(
        batch.data, 0, header, list[DecodedRecord], decompressed_bytes_max=BYTES_MAX
    ):
        assert isinstance(piece, UnreadableRange) == (batch.fault is not None)
        if not isinstance(piece, UnreadableRange):
            yield from map(_shown, piece)


def _shown(record: Any) -> Shown:
    names = [(name_bytes(name), content) for name, content in record.headers]
    return record.offset, record.key, record.value, names


def _shown_row(row: dict[str, Any]) -> Shown:
    names = [(name_bytes(name), content) for name, content in headers_of(row["headers"])]
    return row["offset"], row["key"], row["value"], names


def _rows(batch: Any) -> list[dict[str, Any]]:
    # Python's dates end where timestamps do not.
    rows: list[dict[str, Any]] = batch.drop_columns("timestamp").to_pylist()
    return rows


async def _share(
    log: OddLog, group: str, take: Callable[[Any], Any]
) -> tuple[list[Shown], set[int]]:
    """Read the log with a share consumer; return its records and the offsets of its errors."""
    found: list[Shown] = []
    unread: set[int] = set()
    async with (
        asyncio.timeout(SECONDS_MAX),
        ShareConsumer(TOPIC, group_id=group, bootstrap_servers=log.bootstrap) as consumer,
    ):
        while len(found) < len(log.records) or unread < log.unreadable_offsets:
            try:
                found += await take(consumer)
                await consumer.commit()
            except UnreadableBatch as error:
                unread.update(range(error.first, error.end))
                consumer.reject(error)
    return found, unread


def test_share_consumer_gets_every_record(log: OddLog) -> None:
    async def take(consumer: ShareConsumer) -> list[Shown]:
        return [_shown(record) for record in await consumer.poll(timeout=1)]

    found, unread = asyncio.run(_share(log, "poll", take))
    assert (sorted(found), unread) == (sorted(log.records), log.unreadable_offsets)


def test_share_consumer_gets_every_record_as_columns(log: OddLog) -> None:
    async def take(consumer: ShareConsumer) -> list[Shown]:
        batch = await consumer.poll_arrow(timeout=1)
        return [] if batch is None else list(map(_shown_row, _rows(batch)))

    found, unread = asyncio.run(_share(log, "arrow", take))
    assert (sorted(found), unread) == (sorted(log.records), log.unreadable_offsets)


@pytest.mark.parametrize("arrow", [False, True])
def test_consumer_gets_every_record_and_goes_on_behind_what_it_cannot_read(
    log: OddLog, arrow: bool
) -> None:
    async def read() -> tuple[list[Shown], list[tuple[int, int]]]:
        found: list[Shown] = []
        refused: list[tuple[int, int]] = []
        ends = dict(log.unreadable)
        options = {"bootstrap_servers": log.bootstrap, "auto_offset_reset": "earliest"}
        async with asyncio.timeout(SECONDS_MAX), Consumer(**options) as consumer:
            where = TopicPartition(TOPIC, 0)
            consumer.assign([where])
            while len(found) < len(log.records) or len(refused) < len(log.unreadable):
                try:
                    if arrow:
                        batch = await consumer.poll_arrow(timeout=1)
                        found += [] if batch is None else map(_shown_row, _rows(batch))
                    else:
                        found += [_shown(record) for record in await consumer.poll(timeout=1)]
                except CorruptMessage:
                    first = await consumer.position(where)
                    refused.append((first, ends[first]))
                    consumer.seek(where, ends[first])
        return found, refused

    found, refused = asyncio.run(read())
    assert (found, refused) == (list(log.records), log.unreadable)


def _of_json(document: dict[str, Any]) -> Shown:
    headers = [
        (_bytes(header, "name") or b"", _bytes(header, "value")) for header in document["headers"]
    ]
    return document["offset"], _bytes(document, "key"), _bytes(document, "value"), headers


def _bytes(document: dict[str, Any], name: str) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded)
    content = document.get(name)
    return None if content is None else str(content).encode()


def test_tail_prints_every_record_and_a_pipe_copies_it(log: OddLog) -> None:
    tailed = sharegroup(*at(log.bootstrap, f"tail {TOPIC} -n 100000 --json"))
    documents = sorted(tailed.documents, key=itemgetter("offset"))
    assert [_of_json(document) for document in documents] == list(log.records)
    assert tailed.err.count("cannot be read and are omitted") == len(log.unreadable)
    log.broker.create_topic("copy", settings=SETTINGS)
    copied = [document | {"timestamp": 1} for document in documents]
    again = _piped(log, copied, "copy")
    assert [record[1:] for record in again] == [record[1:] for record in log.records]


def _piped(log: OddLog, documents: Sequence[dict[str, Any]], topic: str) -> list[Shown]:
    lines = b"".join(map(json_line, documents))
    options = "--command-property max.request.size=10000000"
    sent = sharegroup(*at(log.bootstrap, f"produce {topic} --json {options}"), stdin=lines)
    assert (sent.code, sent.err) == (0, "")
    tailed = sharegroup(*at(log.bootstrap, f"tail {topic} -n 100000 --json"))
    return [_of_json(found) for found in sorted(tailed.documents, key=itemgetter("offset"))]
