"""Spark on a cluster: the streaming sink through elections.

The query reads one topic through a share group and writes another one with the sink.  Both ends
are at least once, so a copy may be there twice; none may be missing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from sharegroup.client import AdminClient, NewTopic, Producer
from tests.cluster.conftest import all_of_it
from tests.cluster.traffic import LIMIT_SECONDS
from tests.integration.spark.conftest import set_group_config, stream
from tests.integration.spark.conftest import spark as spark  # A fixture.
from tests.support.kafka_cluster import KafkaCluster

pytestmark = all_of_it

PARTITIONS = 6
RECORDS_OF_A_STEP = 300
LOOK_SECONDS = 0.5


def create(bootstrap: str, *names: str) -> None:
    async def run() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            made = await admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in names])
        assert made == dict.fromkeys(names)

    asyncio.run(run())


def send(bootstrap: str, topic: str, numbers: range) -> None:
    async def run() -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for number in numbers:
                await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)

    asyncio.run(run())


def copies(spark: SparkSession, bootstrap: str, topic: str) -> Counter[int]:
    frame = spark.read.format("kafka-share").option("kafka.bootstrap.servers", bootstrap)
    rows = frame.option("subscribe", topic).load().select("value").collect()
    return Counter(int(row["value"]) for row in rows)


def test_sink_writes_each_record_while_leaders_are_killed_frozen_and_moved(
    spark: SparkSession, cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    copy, bootstrap = f"{topic}.copy", cluster.bootstrap_servers
    create(bootstrap, topic, copy)
    set_group_config(bootstrap, f"{topic}.group", "share.auto.offset.reset", "earliest")
    query = (
        stream(spark, bootstrap, topic, f"{topic}.group", maxOffsetsPerTrigger=200)
        .writeStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", copy)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    faults: list[Callable[[int], None]] = [cluster.kill, cluster.freeze, cluster.stop]
    expected: set[int] = set()
    try:
        for step, fault in enumerate([None, *faults, None]):
            if fault is not None:
                fault(cluster.leader_of(copy, step % PARTITIONS))
            numbers = range(step * RECORDS_OF_A_STEP, (step + 1) * RECORDS_OF_A_STEP)
            send(bootstrap, topic, numbers)
            expected.update(numbers)
            began = time.monotonic()
            while expected - copies(spark, bootstrap, copy).keys():
                assert query.isActive, query.exception()
                assert time.monotonic() < began + LIMIT_SECONDS, f"step {step}: rows are missing"
                time.sleep(LOOK_SECONDS)
            print(f"step {step}: all copied after {time.monotonic() - began:.1f} s")
            cluster.mend()
    finally:
        query.stop()
    found = copies(spark, bootstrap, copy)
    print("copied more than once:", sum(found.values()) - len(found))
    assert found.keys() == expected
