"""One Spark session and one broker for all tests of Spark; each test has topics of its own.

A session costs four seconds and its first query two; every query after that about one.
``SHAREGROUP_INTEROP=kafka`` runs the same tests against a real Apache Kafka.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
)
from sharegroup.spark import ensure_java, ensure_python
from tests.support.chosen_broker import chosen, running

CONFS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
QUERY_SECONDS_MAX = 60
_names = count(1)

Records = Sequence[tuple[bytes | None, bytes | None]]


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """``local[2,3]``: two tasks at once, each tried three times."""
    ensure_java()
    # Spark starts a dozen of Pythons, and each would compile again all that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    bytecode = str(tmp_path_factory.getbasetemp().parent / "bytecode")
    os.environ.setdefault("PYTHONPYCACHEPREFIX", bytecode)
    ensure_python()
    folder: Path = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2,3]").appName("sharegroup tests")
    for name, value in {
        **CONFS,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="package")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the broker listens: ours, or a real Kafka if the environment says so."""
    with running(chosen(), tmp_path_factory.mktemp("broker")) as there:
        yield there.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic of two partitions."""
    return create_topic(bootstrap, partitions=2)


@pytest.fixture
def group(bootstrap: str) -> str:
    """A new share group that starts with the oldest records."""
    name = f"group{next(_names)}"
    set_group_config(bootstrap, name, "share.auto.offset.reset", "earliest")
    return name


def create_topic(bootstrap: str, *, partitions: int) -> str:
    name = f"topic{next(_names)}"

    async def create() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            assert await admin.create_topics([NewTopic(name, partitions)]) == {name: None}

    asyncio.run(create())
    return name


def set_group_config(bootstrap: str, group: str, name: str, value: str) -> None:
    async def alter() -> None:
        resource = ConfigResource(ResourceType.GROUP, group)
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            change = AlterConfig(name, value)
            assert await admin.incremental_alter_configs({resource: [change]}) == {resource: None}

    asyncio.run(alter())


def produce(bootstrap: str, topic: str, *values: bytes, partition: int | None = None) -> None:
    async def send() -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for index, value in enumerate(values):
                await producer.send(
                    topic, value, partition=index % 2 if partition is None else partition
                )

    asyncio.run(send())


def stream(
    spark: SparkSession, bootstrap: str, topic: str, group: str, **options: Any
) -> DataFrame:
    """A streaming DataFrame over the topic."""
    return (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("share.group", group)
        .options(**options)
        .load()
    )


def run_available(
    frame: DataFrame, checkpoint: Path, work: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """A whole ``availableNow`` query whose batches go to ``work``."""
    query = (
        frame.writeStream.foreachBatch(work)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(QUERY_SECONDS_MAX), "the query does not end"
    finally:
        query.stop()
    return query
