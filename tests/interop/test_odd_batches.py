"""Odd batches, read by all our readers as Java reads them.

The decoders are compared with Java itself, or with its answers in ``odd_batches.golden.txt`` if no
Java is here.  Then one log of such batches is read from a broker by each reader; Spark's are in
``tests/integration/spark/test_odd_batches.py``.

    python -m tests.interop.odd_readers SEED COUNT      compares more of them (``make odd-batches``)
    python -m tests.interop.odd_readers --golden        writes the golden file anew
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from sharegroup.client import Consumer, ShareConsumer, TopicPartition
from sharegroup.dead_letters.letter import letter_of
from sharegroup.errors import UnreadableBatch
from sharegroup.record_documents import json_line
from sharegroup.worker import App, Record, Reject
from tests.integration.cli.piping import at, sharegroup
from tests.integration.worker.dead import lying_in, until_there
from tests.interop.odd_log import (
    HAS_JAVA,
    SECONDS_MAX,
    SEED,
    SETTINGS,
    TIME_TYPES,
    TOPIC,
    OddLog,
    Ranges,
    Seen,
    covers,
    first_difference,
    odd_log,
    offset_of,
    offsets_in,
    ranges_told,
    raw,
    seen,
    seen_document,
    seen_row,
)
from tests.interop.odd_readers import GOLDEN, GOLDEN_COUNT, GOLDEN_SEED, differences, golden
from tests.support.java_batches import read_by_java
from tests.support.odd_batches import odd_batches

AHEAD = 2**41
"""A time in 2039: no clock is behind it."""
OWN = b"__sharegroup."
"""The beginning of header names that the worker reserves; a letter has others in their place."""


def test_each_decoder_reads_what_java_has_read() -> None:
    batches = list(odd_batches(GOLDEN_SEED, count=GOLDEN_COUNT))
    assert list(differences(batches, golden(GOLDEN.read_text()))) == []


@pytest.mark.skipif(not HAS_JAVA, reason="no Java compiler, or Kafka's jars are not here")
def test_each_decoder_reads_what_java_reads_now() -> None:
    batches = list(odd_batches(SEED + 1, count=GOLDEN_COUNT))
    assert list(differences(batches, read_by_java(batch.data for batch in batches))) == []


@pytest.fixture(scope="module", params=TIME_TYPES)
def log(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OddLog]:
    with odd_log(tmp_path_factory.mktemp("odd") / "data", request.param) as log:
        yield log


def seen_by_client(record: Any) -> Seen:
    return seen(record, record.timestamp_ms, int(record.has_append_time))


def rows(batch: Any) -> list[Seen]:
    # Python's dates end where timestamps do not.
    table = batch.set_column(
        batch.schema.get_field_index("timestamp"),
        "timestamp",
        batch.column("timestamp").cast("int64"),
    )
    return list(map(seen_row, table.to_pylist()))


async def _share(
    log: OddLog, group: str, take: Callable[[Any], Any], **options: str
) -> tuple[list[Seen], Ranges]:
    """Read the log with a share consumer; return its records and the ranges of its errors."""
    found: list[Seen] = []
    unread: Ranges = []
    async with (
        asyncio.timeout(SECONDS_MAX),
        ShareConsumer(
            TOPIC, group_id=log.group(group), bootstrap_servers=log.bootstrap, **options
        ) as consumer,
    ):
        while len(found) < len(log.records) or not covers(unread, log):
            try:
                found += await take(consumer)
                await consumer.commit()
            except UnreadableBatch as error:
                unread.append((error.first, error.end))
                consumer.reject(error)
    return found, unread


def test_share_consumer_gets_every_record(log: OddLog) -> None:
    async def take(consumer: ShareConsumer) -> list[Seen]:
        return [seen_by_client(record) for record in await consumer.poll(timeout=1)]

    found, _ = asyncio.run(_share(log, "poll", take))
    assert first_difference(found, log.records) is None


def test_share_consumer_gets_every_record_as_columns(log: OddLog) -> None:
    async def take(consumer: ShareConsumer) -> list[Seen]:
        batch = await consumer.poll_arrow(timeout=1)
        return [] if batch is None else rows(batch)

    found, _ = asyncio.run(_share(log, "arrow", take))
    assert first_difference(found, log.without("timestamp_type")) is None


@pytest.mark.slow
@pytest.mark.parametrize("arrow", [False, True])
def test_consumer_gets_every_record_and_goes_on_behind_what_it_cannot_read(
    log: OddLog, arrow: bool
) -> None:
    async def read() -> tuple[list[Seen], Ranges]:
        found: list[Seen] = []
        refused: Ranges = []
        options = {"bootstrap_servers": log.bootstrap, "auto_offset_reset": "earliest"}
        async with asyncio.timeout(SECONDS_MAX), Consumer(**options) as consumer:
            where = TopicPartition(TOPIC, 0)
            consumer.assign([where])
            while len(found) < len(log.records) or len(refused) < len(log.unreadable):
                try:
                    if arrow:
                        batch = await consumer.poll_arrow(timeout=1)
                        found += [] if batch is None else rows(batch)
                    else:
                        found += map(seen_by_client, await consumer.poll(timeout=1))
                except UnreadableBatch as error:
                    refused.append((await consumer.position(where), error.end))
                    consumer.seek(where, error.end)
        return found, refused

    found, refused = asyncio.run(read())
    expected = log.without("timestamp_type") if arrow else log.records
    assert first_difference(found, expected) is None
    assert [record.offset for record in found] == [record.offset for record in log.records]
    assert refused == log.unreadable


# The command line.


def test_tail_prints_every_record_and_a_pipe_copies_it(log: OddLog) -> None:
    tailed = sharegroup(*at(log.bootstrap, f"tail {TOPIC} -n 100000 --json"))
    documents = sorted(tailed.documents, key=itemgetter("offset"))
    found = map(seen_document, documents)
    assert first_difference(found, log.without("timestamp_type")) is None
    assert (tailed.code, ranges_told(tailed.err)) == (1, log.unreadable)
    log.broker.create_topic("copy", settings=SETTINGS)
    # A line with the time -1 is a record without a time: the producer stamps it.
    copied = [
        document | {"timestamp": 1 if document["timestamp"] == -1 else document["timestamp"]}
        for document in documents
    ]
    again = _piped(log, copied, "copy")
    written = [seen_document(document)[1:] for document in copied]
    assert [record[1:] for record in again] == written


def _piped(log: OddLog, documents: Sequence[dict[str, Any]], topic: str) -> list[Seen]:
    lines = b"".join(map(json_line, documents))
    options = "--command-property max.request.size=10000000"
    sent = sharegroup(*at(log.bootstrap, f"produce {topic} --json {options}"), stdin=lines)
    assert (sent.code, sent.err) == (0, "")
    tailed = sharegroup(*at(log.bootstrap, f"tail {topic} -n 100000 --json"))
    return sorted(map(seen_document, tailed.documents), key=offset_of)


def test_consume_prints_every_record_and_names_what_it_cannot_read(log: OddLog) -> None:
    log.group("consume")
    count = f"--max-messages {len(log.records)} --timeout-ms 20000 --reject-on-error"
    done = sharegroup(*at(log.bootstrap, f"consume {TOPIC} --group consume --json {count}"))
    found = map(seen_document, done.documents)
    assert first_difference(found, log.without("timestamp_type")) is None
    assert done.code == 1
    told = ranges_told(done.err)
    last = max(record.offset for record in log.records)
    # It ends with the last record, so it need not meet what is behind.
    expected = {offset for offset in log.unreadable_offsets if offset < last}
    assert expected <= set(offsets_in(told)) <= log.unreadable_offsets


def test_offline_tool_reads_every_record_of_a_stopped_broker(tmp_path: Path) -> None:
    with odd_log(tmp_path / "data", "LogAppendTime") as log:
        pass
    done = sharegroup("logs", str(log.data), "--topic", TOPIC, "--records")
    found = map(seen_document, done.documents)
    assert first_difference(found, log.without("timestamp_type")) is None
    assert (done.code, ranges_told(done.err)) == (1, log.unreadable)


# Worker and dead letters.


async def _work(log: OddLog, group: str, *, rejects: bool) -> list[Seen]:
    """Run a worker over the log until each record ran and what is unreadable has a letter."""
    found: list[Seen] = []
    app = App(group, bootstrap_servers=log.bootstrap)

    @app.share_group(log.group(group), topics=TOPIC)
    async def handle(value: bytes | None, record: Record) -> None:
        assert value == record.value
        found.append(seen(record.delivery, record.timestamp_ms, None))
        if rejects:
            raise Reject("not today")

    letters: Ranges = []
    for suffix in ("retry", "dead"):
        log.broker.create_topic(f"{group}.{suffix}", settings=SETTINGS)
    async with asyncio.timeout(SECONDS_MAX), app:
        while len(found) < len(log.records) or not covers(letters, log):
            await asyncio.sleep(0.05)
            letters = [
                (letter.story.origin.offset, int(letter.told["__sharegroup.dead.last.offset"]) + 1)
                for letter in await _letters(log, f"{group}.dead")
                if letter.is_raw_batch
            ]
    return found


async def _letters(log: OddLog, topic: str) -> list[Any]:
    return [letter_of(topic, 0, record) for record in await lying_in(log.bootstrap, topic)]


def own(records: Sequence[Seen]) -> list[Seen]:
    """Records without the headers that a worker reserves, and without a time and its type."""
    return [
        record._replace(
            timestamp=None,
            timestamp_type=None,
            headers=[header for header in record.headers if not header[0].startswith(OWN)],
        )
        for record in records
    ]


def test_handler_gets_every_record_and_a_letter_has_the_bytes_of_the_rest(log: OddLog) -> None:
    found = asyncio.run(_work(log, "worker", rejects=False))
    assert first_difference(found, log.without("timestamp_type")) is None
    letters = asyncio.run(_letters(log, "worker.dead"))
    assert {letter.death.reason for letter in letters} == {"damaged"}
    values = {letter.value for letter in letters if letter.value is not None}
    assert values == {batch.data[:921_600] for batch in log.batches if batch.fault is not None}


@pytest.mark.slow
def test_redrive_sends_back_every_record_that_a_worker_gave_up(log: OddLog) -> None:
    asyncio.run(_work(log, "redriven", rejects=True))
    asyncio.run(until_there(log.bootstrap, "redriven.dead", len(log.records)))
    target = "redriven.retry"
    words = f"--confirm {target}"
    assert _redriven(log, "redriven.dead", target, log.records, words) is None


def _redriven(
    log: OddLog, dead: str, target: str, records: Sequence[Seen], words: str = ""
) -> str | None:
    """Redrive the letters of these records; name the first that did not come back as it was."""
    # The broker copies a record that can be read alone out of a batch that nobody reads.  If such a
    # copy has no headers, no reader finds the original to tell whether it had any.
    bare = sum(
        letter.lacks_its_record and letter.has_payload
        for letter in asyncio.run(_letters(log, dead))
        if letter.story.origin.offset in log.unreadable_offsets
    )
    done = sharegroup(*at(log.bootstrap, f"dlq redrive {dead} {words} --json"))
    (result,) = done.documents
    assert (done.code, result["refused"], result["without_headers"]) == (0, [], bare), result
    assert list(result["sent"]) == [target]
    found = [
        _of_letter(copy)
        for copy in asyncio.run(_letters(log, target))
        if copy.story.origin.offset not in log.unreadable_offsets
    ]
    return first_difference(own(found), own(records))


def _of_letter(letter: Any) -> Seen:
    offset = letter.story.origin.offset
    return Seen(offset, None, None, letter.key, letter.value, raw(letter.headers))


def test_broker_copies_every_record_into_its_letter_and_redrive_sends_it_back(log: OddLog) -> None:
    dead, target = "dlq.broker", "broker.retry"
    log.broker.create_topic(
        dead, settings=SETTINGS | {"errors.deadletterqueue.group.enable": "true"}
    )
    log.broker.create_topic(target, settings=SETTINGS)
    log.broker.configure_group(
        log.group("broker"),
        {
            "errors.deadletterqueue.topic.name": dead,
            "errors.deadletterqueue.copy.record.enable": "true",
            "share.auto.offset.reset": "earliest",
        },
    )

    async def take(consumer: ShareConsumer) -> list[Seen]:
        records = await consumer.poll(timeout=1)
        for record in records:
            record.reject()
        return [seen_by_client(record) for record in records]

    asyncio.run(_share(log, "broker", take, share_acknowledgement_mode="explicit"))
    count = len(log.records) + len(log.unreadable_offsets)
    asyncio.run(until_there(log.bootstrap, dead, count))
    letters = list(map(_of_letter, asyncio.run(_letters(log, dead))))
    found = [letter for letter in letters if letter.offset not in log.unreadable_offsets]
    assert first_difference(own(found), own(log.records)) is None
    # Without key, value and headers nothing but its time says that a record is that of a letter.
    sure = [
        record
        for record in log.records
        if record[3:] != (None, None, []) or (record.timestamp or 0) < AHEAD
    ]
    assert _redriven(log, dead, target, sure) is None
