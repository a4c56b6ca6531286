"""P13: Spark reads four partitions to their end: ``availableNow``, a sink that keeps nothing.

Ours is PySpark with the source ``kafka-share`` on our broker, a new share group each time with
200,000 locks a partition.  The rival is Spark 4.0.0 with its own Kafka source, in Scala and
without a share group, on Apache Kafka.  Each session lives through all rounds, and its first
query doesn't count.

A batch takes as long as Spark says, from the question for new offsets to the commit log; the
speed in the batches is their rows by the sum of their times, on both sides.  The speed of the
whole query is by the clock, from ``start()`` to its end, with all that happens once a query.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from functools import cache
from statistics import median
from typing import Any

from sharegroup.client import AdminClient
from sharegroup.errors import KafkaError
from tests.bench.equal_batches import fill
from tests.bench.failure import BenchError
from tests.bench.peers.brokers import FSYNC, KAFKA, OS, Broker, Peer
from tests.bench.peers.lines import Against, Line, Measured, Scale, measured, with_kafka
from tests.bench.peers.workloads.log import new_group
from tests.bench.spark_process import RIVAL_VERSION, SparkProcess, our_spark, rival_spark
from tests.support.confluent_calls import set_group
from tests.support.processes import cpu_seconds

MILLISECOND = dt.timedelta(milliseconds=1)
PARTITIONS = 4
LOCKS_MAX = 200_000
DEFAULT_LOCKS_MAX = 2_000
DEFAULT_LIMITS = f"Spark kafka-share at the default {DEFAULT_LOCKS_MAX:,} locks, 4 partitions"
CEILING = f"ceiling of that: {DEFAULT_LOCKS_MAX:,} locks x 4 partitions : median batch time"


class Spark:
    """Values of 100 B and of 1 KiB, in batches of about as many bytes."""

    name = "P13"
    title = "Spark"
    headline = False
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA)
    warms_up: tuple[str, ...] = (FSYNC, OS, KAFKA)
    lines = tuple(
        Line(
            what=f"Spark kafka-share : Spark {RIVAL_VERSION} kafka, 4 partitions, {size}, {part}",
            unit="rows/s",
            higher_is_better=True,
            against=with_kafka(reach, reach),
        )
        for size, reached in (("100 B", 0.9), ("1 KiB", 1.5))
        for part, reach in (("in the batches", reached), ("whole query", None))
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        with peer.awake() as broker:
            for topic, records, record_bytes, batch_records in topics(scale):
                fill(
                    broker.bootstrap_servers,
                    topic,
                    records=records,
                    record_bytes=record_bytes,
                    batch_records=batch_records,
                    partitions=PARTITIONS,
                )
        return ""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        found: list[Measured] = []
        for topic, records, _, _ in topics(scale):
            with peer.awake() as broker:
                ran = read_all(peer, broker, topic, records, locks_max=LOCKS_MAX)
            batch_s = sum(batch["milliseconds"] for batch in with_rows(ran)) / 1000
            batches = f"{len(with_rows(ran))} batches"
            found += (
                measured(records / batch_s, ran, peer, note=batches),
                measured(records / ran["seconds"], ran, peer),
            )
        return tuple(found)


class SparkDefaultLimits:
    """The locks bound a batch: are all batches full, and does one follow upon the other?"""

    name = "spark-default-limits"
    title = "Spark at the default limit of locks"
    headline = False
    peers: tuple[str, ...] = (FSYNC, OS)
    warms_up: tuple[str, ...] = (FSYNC, OS)
    lines = (
        Line(
            what=DEFAULT_LIMITS,
            unit="rows/s",
            higher_is_better=True,
            against=tuple(
                Against(ours=peer, rival=peer, line=CEILING, reach=0.9) for peer in (FSYNC, OS)
            ),
        ),
        Line(what=CEILING, unit="rows/s", higher_is_better=True, against=()),
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        with peer.awake() as broker:
            fill(
                broker.bootstrap_servers,
                "spark-default-limits",
                records=scale.spark_batches * PARTITIONS * DEFAULT_LOCKS_MAX,
                record_bytes=scale.record_bytes,
                batch_records=scale.batch_records,
                partitions=PARTITIONS,
            )
        return ""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        records = scale.spark_batches * PARTITIONS * DEFAULT_LOCKS_MAX
        with peer.awake() as broker:
            ran = read_all(
                peer, broker, "spark-default-limits", records, locks_max=DEFAULT_LOCKS_MAX
            )
        reached, ceiling = against_ceiling(with_rows(ran), PARTITIONS * DEFAULT_LOCKS_MAX)
        return (
            measured(reached, ran, peer, note=f"{len(with_rows(ran))} batches"),
            measured(ceiling, ran, peer),
        )


def topics(scale: Scale) -> tuple[tuple[str, int, int, int], ...]:
    """Name, records, bytes of a record, records of a batch."""
    return (
        ("spark-100", scale.records * 5 // 2, 100, 500),
        ("spark-1024", scale.records * 5 // 8, 1_024, 50),
    )


def read_all(
    peer: Peer,
    broker: Broker,
    topic: str,
    records: int,
    *,
    locks_max: int,
    session: SparkProcess | None = None,
) -> dict[str, Any]:
    """One query over the whole topic; every record must come once, and end acknowledged."""
    session = session or session_of(peer)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    broker_cpu_s = cpu_seconds(broker.pid)
    if peer.ours:
        group = new_group(broker.bootstrap_servers)
        set_group(broker.bootstrap_servers, group, partition_max_record_locks=str(locks_max))
        ran = session.run("kafka-share", {**options, "share.group": group})
    else:
        ran = session.run("kafka", {**options, "startingOffsets": "earliest"})
    ran["broker_cpu_s"] = cpu_seconds(broker.pid) - broker_cpu_s
    rows = sum(batch["rows"] for batch in ran["batches"])
    if rows != records:
        raise BenchError(f"expected {records} rows of {topic}, got {rows}")
    if peer.ours and (lag := asyncio.run(group_lag(broker.bootstrap_servers, group))):
        raise BenchError(f"group {group} read all of {topic}, and its lag is {lag}")
    return ran


@cache
def session_of(peer: Peer) -> SparkProcess:
    """The Spark that goes with a broker, warm from the second query on."""
    folder = peer.data.with_name(peer.data.name + "-spark").absolute()
    session = our_spark(folder) if peer.ours else rival_spark(folder)
    peer.company.callback(session.close)
    return session


def with_rows(ran: dict[str, Any]) -> list[dict[str, Any]]:
    return [batch for batch in ran["batches"] if batch["rows"]]


def against_ceiling(batches: list[dict[str, Any]], locks: int) -> tuple[float, float]:
    """Rows a second from the first batch's start to the last one's end, and at most possible.

    What is lost to the ceiling is lost in batches that aren't full, between the batches, and
    in the few that take longer than most.
    """
    first, last = batches[0], batches[-1]
    first_begun, last_begun = (
        dt.datetime.fromisoformat(query["started"]) for query in (first, last)
    )
    milliseconds = (last_begun - first_begun) // MILLISECOND + last["milliseconds"]
    reached = sum(batch["rows"] for batch in batches) * 1000 / milliseconds
    return reached, locks * 1000 / median(batch["milliseconds"] for batch in batches)


async def group_lag(bootstrap: str, group: str) -> int:
    """Records that the group has not settled, over all its partitions."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        offsets = (await admin.list_share_group_offsets({group: None}))[group]
    if isinstance(offsets, KafkaError):
        raise offsets
    lag = 0
    for partition, offset in offsets.items():
        if isinstance(offset, KafkaError) or offset.lag is None:
            raise BenchError(f"expected a lag of group {group} in {partition}, got {offset}")
        lag += offset.lag
    return lag
