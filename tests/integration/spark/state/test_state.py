"""Internal topics are rows: their records, and the present state of share partitions."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from sharegroup.client import (
    AcknowledgeType,
    AdminClient,
    OffsetAndMetadata,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from tests.support.chosen_broker import KAFKA, LONG_WITH_A_JVM, chosen, sample
from tests.support.limits import HANGING_SECONDS

ROOT = Path(__file__).resolve().parents[4]


def load(spark, bootstrap, **options):
    return (
        spark.read.format("kafka-share-state")
        .option("kafka.bootstrap.servers", bootstrap)
        .options(**options)
        .load()
    )


OUTCOMES = {
    0: AcknowledgeType.ACCEPT,
    1: AcknowledgeType.RELEASE,
    2: AcknowledgeType.RELEASE,
    3: AcknowledgeType.REJECT,
    4: AcknowledgeType.ACCEPT,
}


async def settle(bootstrap, topic, group):
    """Produce five records in one batch and settle them, so that the state has three runs."""
    async with Producer(bootstrap_servers=bootstrap, linger_ms=1000) as producer:
        for _ in OUTCOMES:
            await producer.send(topic, b"x", partition=0)
    async with ShareConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, share_acknowledgement_mode="explicit"
    ) as consumer:
        records = []
        async with asyncio.timeout(HANGING_SECONDS):
            while not records:
                records = await consumer.poll(timeout=1)
        for record in records:
            consumer.acknowledge(record, OUTCOMES[record.offset])
        await consumer.commit()


@pytest.mark.slow
def test_present_state_has_a_row_for_each_run(spark, bootstrap, topic, group):
    asyncio.run(settle(bootstrap, topic, group))
    frame = load(spark, bootstrap, view="sharePartitions").where(f"group = '{group}'")
    # Apache Kafka writes the new start offset with a later update; record 0 is acknowledged.
    rows = frame.where("partition = 0 and firstOffset > 0").orderBy("firstOffset").collect()
    assert {row["topic"] for row in rows} == {topic}
    assert {row["startOffset"] for row in rows} <= {0, 1}
    assert [tuple(row)[5:9] for row in rows] == [
        (1, 2, "available", 1),
        (3, 3, "archived", 1),
        (4, 4, "acknowledged", 1),
    ]


@pytest.mark.slow
def test_present_runs_of_a_group_have_the_member(spark, bootstrap, topic, group):
    """One of six records is accepted, and one is delayed. Apache Kafka does not list the runs."""

    async def browse():
        async with Producer(bootstrap_servers=bootstrap, linger_ms=1000) as producer:
            for partition in (0, 0, 0, 0, 0, 1):
                await producer.send(topic, b"x", partition=partition)
        async with ShareConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            share_acknowledgement_mode="explicit",
        ) as consumer:
            records = []
            async with asyncio.timeout(HANGING_SECONDS):
                while len(records) < 6:
                    records += await consumer.poll(timeout=1, max_records=6 - len(records))
            first = [record for record in records if record.partition == 0]
            first[0].accept()
            first[1].release(delay="1h")
            await consumer.commit()
            frame = load(spark, bootstrap, **{"view": "groupRuns", "share.group": group})
            return consumer.member_id, await asyncio.to_thread(frame.collect)

    if chosen() == KAFKA:
        asyncio.run(settle(bootstrap, topic, group))
        with pytest.raises(PySparkException, match="reads, and view=sharePartitions here"):
            load(spark, bootstrap, **{"view": "groupRuns", "share.group": group}).collect()
        return
    member, rows = asyncio.run(browse())
    assert {(row["group"], row["topic"]) for row in rows} == {(group, topic)}
    assert [tuple(row)[2:9] for row in sorted(rows, key=tuple)] == [
        (0, 1, 1, 1, "delayed", 1, None),
        (0, 1, 2, 4, "acquired", 1, member),
        (1, 0, 0, 0, "acquired", 1, member),
    ]
    assert all(0 < row["lockMsLeft"] <= 30_000 for row in rows if row["state"] == "acquired")


def test_share_state_has_a_row_for_each_record(spark, bootstrap, topic, group):
    asyncio.run(settle(bootstrap, topic, group))
    frame = load(spark, bootstrap).where(f"group = '{group}' and share.partition = 0")
    rows = frame.orderBy("partition", "offset").collect()
    assert rows[0]["type"] == "ShareSnapshot"
    assert {row["type"] for row in rows} <= {"ShareSnapshot", "ShareUpdate"}
    batches = [batch for row in rows for batch in row["share"]["batches"]]
    assert (3, 3, "archived", 1) in [tuple(batch) for batch in batches]
    assert all(row["unknown"] is None and not row["isTombstone"] for row in rows)
    assert f'"groupId":"{group}"' in rows[0]["key"]


@LONG_WITH_A_JVM
def test_offsets_and_transactions_are_columns(spark, bootstrap, topic):
    name = f"id-{topic}"

    async def commit():
        async with (
            Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer,
            producer.transaction(),
        ):
            await producer.send(topic, b"x", partition=1)
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            offsets = {TopicPartition(topic, 1): OffsetAndMetadata(1, metadata="done")}
            await admin.alter_consumer_group_offsets(name, offsets)

    asyncio.run(commit())
    both = "__consumer_offsets,__transaction_state"
    rows = load(spark, bootstrap, subscribe=both)
    committed = rows.where(f"group = '{name}' and committed is not null")
    (row,) = committed.select("committed.*").drop("time").collect()
    assert tuple(row) == (topic, 1, 1, "done")
    states = rows.where(f"transactionalId = '{name}'").orderBy("offset").collect()
    assert states[-1]["transaction"]["state"] == "CompleteCommit"
    ongoing = [row for row in states if row["transaction"]["state"] == "Ongoing"]
    assert [tuple(part) for part in ongoing[-1]["transaction"]["partitions"]] == [(topic, 1)]


@pytest.mark.parametrize(
    ("options", "message"),
    sample(
        [
            ({"subscribe": "orders"}, "topic 'orders' is no internal topic; expected"),
            ({"view": "live"}, "expected one of records, sharePartitions, groupRuns"),
            (
                {"view": "sharePartitions", "startingTimestamp": "1"},
                "needs all records; expected no",
            ),
            (
                {"view": "sharePartitions", "subscribe": "__consumer_offsets"},
                "shows the topic __share_group_state; expected no other topics",
            ),
        ]
    ),
)
def test_options_that_fit_no_internal_topic_are_named(spark, bootstrap, options, message):
    with pytest.raises(PySparkException) as caught:
        load(spark, bootstrap, **options).collect()
    assert message in str(caught.value)


@pytest.mark.slow
def test_example_finds_records_that_wait_for_another_delivery(spark, bootstrap, topic, group):
    asyncio.run(settle(bootstrap, topic, group))
    example = runpy.run_path(str(ROOT / "examples" / "spark" / "redeliveries.py"))
    found = example["redeliveries"](spark, bootstrap).where(f"group = '{group}'")
    rows = found.orderBy("offset").collect()
    assert [(row["topic"], row["offset"], row["deliveryCount"]) for row in rows] == [
        (topic, 1, 1),
        (topic, 2, 1),
    ]
    assert all(0 <= row["waitingSeconds"] < 600 for row in rows)
