"""Spark on a cluster: the streaming sink through elections, and a query without a live leader.

The query of the sink reads one topic through a share group and writes another one.  Both ends are
at least once, so a copy may be there twice; none may be missing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.spark import ShareGroupListener
from tests.cluster.conftest import all_of_it
from tests.cluster.traffic import LIMIT_SECONDS
from tests.integration.spark.conftest import (
    set_group_config,
    spark as spark,  # A fixture.
    stream,
)
from tests.support.kafka_cluster import KafkaCluster

pytestmark = all_of_it

PARTITIONS = 6
RECORDS_OF_A_STEP = 300
LOOK_SECONDS = 0.5
IDLE_INTERVAL = "spark.sql.streaming.noDataProgressEventInterval"


def create(bootstrap: str, *names: str, partitions: int = PARTITIONS, replicas: int = 3) -> None:
    async def run() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            made = await admin.create_topics(
                [NewTopic(name, partitions, replicas) for name in names]
            )
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


def test_query_without_a_live_leader_says_so_in_its_log_and_its_progress(
    spark: SparkSession,
    cluster: KafkaCluster,
    topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A topic of one replica is read, its broker is killed, and started again."""
    caplog.set_level(logging.WARNING, "sharegroup.spark.query")
    bootstrap = cluster.bootstrap_servers
    create(bootstrap, topic, partitions=1, replicas=1)
    set_group_config(bootstrap, f"{topic}.group", "share.auto.offset.reset", "earliest")
    send(bootstrap, topic, range(1))
    listener = ShareGroupListener(spark)
    spark.conf.set(IDLE_INTERVAL, "100")
    spark.streams.addListener(listener)
    query = (
        stream(spark, bootstrap, topic, f"{topic}.group")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        until(query, lambda figures: figures["accepted"] == 1)
        cluster.kill(cluster.leader_of(topic, 0))
        idle = until(query, lambda figures: figures["idleSeconds"] > 0)
        assert idle["idleSeconds"] >= 15
        assert "assigned=1" in idle["idleCause"]
        cluster.mend()
        until(query, lambda figures: figures["idleSeconds"] == 0)
        send(bootstrap, topic, range(1))
        until(query, lambda figures: figures["accepted"] == 2)
        assert query.lastProgress is not None
        # Spark fills this for no Python source (docs/spark-monitoring.md).
        assert query.lastProgress["sources"][0]["metrics"] == {}
    finally:
        query.stop()
        spark.streams.removeListener(listener)
        spark.conf.unset(IDLE_INTERVAL)
    said = [line for line in caplog.messages if line.startswith("event=query.idle")]
    assert said
    assert f"group={topic}.group" in said[0]


def until(query: StreamingQuery, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The figures of the first progress report for which ``reached`` is true."""
    limit = time.monotonic() + LIMIT_SECONDS
    while True:
        assert query.isActive, query.exception()
        progress = query.lastProgress
        latest = progress and progress["sources"][0]["latestOffset"]
        figures: dict[str, Any] = json.loads(latest) if latest else {}
        if figures and reached(figures):
            return figures
        assert time.monotonic() < limit, f"last figures: {figures}"
        time.sleep(LOOK_SECONDS)
