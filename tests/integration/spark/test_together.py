"""Several at work on one share group: two queries, or a query and a plain consumer.

Each record is for one of them.  With nobody failing, "for one of them" is exactly once in the
union of what all of them saw.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from sharegroup.client import ShareConsumer
from tests.integration.spark.conftest import produce, set_group_config, stream
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.limits import HANGING_SECONDS

PAUSE_SECONDS = 0.2
"""Between loads: what piles up while Spark starts has to be read at 200 records a batch."""
COUNT = 1_000


class Seen:
    """Values in the order of arrival, by whoever saw them; many threads write."""

    def __init__(self) -> None:
        self._values: dict[str, list[bytes]] = {}

    def batches_of(self, name: str) -> Callable[[DataFrame, int], None]:
        """For `foreachBatch`; a batch is written once, for nothing fails here."""
        values = self._values[name] = []
        return lambda batch, _: values.extend(bytes(row.value) for row in batch.collect())

    def by(self, name: str) -> list[bytes]:
        return self._values.setdefault(name, [])

    @property
    def all(self) -> Counter[bytes]:
        return Counter(value for values in self._values.values() for value in values)


def start(frame: DataFrame, seen: Seen, name: str, folder: Path) -> StreamingQuery:
    return (
        frame.writeStream.foreachBatch(seen.batches_of(name))
        .option("checkpointLocation", str(folder / name))
        .start()
    )


def wait(reached: Callable[[], bool], what: str, *queries: StreamingQuery) -> None:
    limit = time.monotonic() + HANGING_SECONDS
    while not reached():
        for query in queries:
            assert query.isActive, query.exception()
        assert time.monotonic() < limit, what
        threading.Event().wait(0.05)


def load(bootstrap: str, topic: str, done: Callable[[], bool]) -> Counter[bytes]:
    """Produce, little by little, until ``COUNT`` records are there and ``done`` says so."""
    expected: Counter[bytes] = Counter()
    limit = time.monotonic() + HANGING_SECONDS
    while len(expected) < COUNT or not done():
        assert time.monotonic() < limit, f"{len(expected)} records, and one member has none"
        values = [b"%d" % number for number in range(len(expected), len(expected) + 20)]
        produce(bootstrap, topic, *values)
        expected.update(values)
        threading.Event().wait(PAUSE_SECONDS)
    return expected


@LONG_WITH_A_JVM
def test_two_queries_share_one_group(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    seen = Seen()
    queries = [
        start(
            stream(spark, bootstrap, topic, group, maxOffsetsPerTrigger=200), seen, name, tmp_path
        )
        for name in ("one", "two")
    ]
    try:
        expected = load(bootstrap, topic, lambda: bool(seen.by("one") and seen.by("two")))
        wait(lambda: len(seen.all) == len(expected), "records are missing", *queries)
    finally:
        for query in queries:
            query.stop()
    assert seen.all == expected


@pytest.mark.slow
def test_a_plain_consumer_shares_the_group_with_a_query(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    set_group_config(bootstrap, group, "share.record.lock.duration.ms", "30000")
    seen = Seen()
    stopping = threading.Event()

    async def consume() -> None:
        # A slow query would never find a record beside a consumer that polls all the time.
        while not (seen.by("query") or stopping.is_set()):
            await asyncio.sleep(0.05)
        async with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
            while not stopping.is_set():
                for record in await consumer.poll(0.1):
                    assert record.value is not None
                    seen.by("consumer").append(record.value)
                await consumer.commit()

    consuming = threading.Thread(target=lambda: asyncio.run(consume()))
    query = start(
        stream(spark, bootstrap, topic, group, maxOffsetsPerTrigger=200), seen, "query", tmp_path
    )
    consuming.start()
    try:
        expected = load(bootstrap, topic, lambda: bool(seen.by("query") and seen.by("consumer")))
        wait(lambda: len(seen.all) == len(expected), "records are missing", query)
    finally:
        # The consumer first: a query that stops gives back what it has done and not acknowledged.
        stopping.set()
        consuming.join(HANGING_SECONDS)
        query.stop()
    assert seen.all == expected
