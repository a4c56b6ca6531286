"""`make bench-cluster`: our share consumer, confluent's and Java's on three real brokers, in turn.

Throughput: each client reads a log of 12 partitions (100-byte records, batches of 500, three
replicas, min ISR 2) with a new group; the clock starts with the first records.  Latency: from
produce() of confluent's Producer (linger 0, acks=all) to the record in the application's hand, at
steady rates on four partitions, after a second that does not count.  All clients in each round, in
an order that turns.  Medians, and ratios of ours to each of the others, pair by pair.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import click

from tests.bench.client_process import in_process
from tests.bench.cluster import consumers
from tests.bench.equal_batches import fill
from tests.bench.failure import BenchError
from tests.bench.peers.ratios import ratio_of
from tests.bench.peers.workloads import java_tools
from tests.bench.peers.workloads.log import new_group
from tests.support.confluent_calls import create_topic, produce
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_peer import SERVER_JVM, java
from tests.support.kafka_tools import tool_libs

FOLDER = Path(__file__).parent
PACED_PRODUCER = "tests.bench.peers.workloads.latency"
"""Not imported: it is run as a program."""
LOG_TOPIC, PARTITIONS, BATCH_RECORDS, RECORD_BYTES = "log", 12, 500, 100
PACED_PARTITIONS = 4
REPLICAS = 3
TRIES_MAX = 3
RATES = (100, 1_000)
UNCOUNTED_SECONDS = 1
CONSUMER_SECONDS_MAX = 300.0
# Fast elections are for tests; what is measured here must not be taken for dead.
PROPERTIES = {"broker.session.timeout.ms": "18000", "replica.lag.time.max.ms": "30000"}

_numbers = count(1)

Measure = Callable[[KafkaCluster], float]


def throughput(function: Callable[..., dict[str, Any]], how: str, records: int) -> Measure:
    """Records per second of a Python client."""

    def measure(cluster: KafkaCluster) -> float:
        result = in_process(
            function,
            bootstrap=cluster.bootstrap_servers,
            broker_pid=cluster.pid_of(1),
            group=new_group(cluster.bootstrap_servers),
            topic=LOG_TOPIC,
            records=records,
            how=how,
        )
        return float(result["counted"] / result["seconds"])

    return measure


def java_throughput(records: int) -> Measure:
    """Records per second of Kafka's performance tool, which accepts implicitly."""

    def measure(cluster: KafkaCluster) -> float:
        broker = _AsBroker(cluster)
        group = new_group(cluster.bootstrap_servers)
        result = java_tools.share_consume(broker, group, LOG_TOPIC, records)
        return float(result["counted"] / result["seconds"])

    return measure


class _AsBroker:
    """What the runner of Java's tools asks of a broker; CPU time is that of the first node."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.bootstrap_servers = cluster.bootstrap_servers
        self.pid = cluster.pid_of(1)


def delays_ms(cluster: KafkaCluster, client: str, rate: int, seconds: int) -> list[float]:
    """The delays of a client at one rate, sorted, in milliseconds."""
    topic = f"paced-{next(_numbers)}"
    bootstrap, group = cluster.bootstrap_servers, new_group(cluster.bootstrap_servers)
    create_topic(bootstrap, topic, partitions=PACED_PARTITIONS, replicas=REPLICAS)
    for partition in range(PACED_PARTITIONS):
        produce(bootstrap, topic, [b"0"], partition=partition)
    uncounted, counted = rate * UNCOUNTED_SECONDS, rate * seconds
    arguments = [bootstrap, group, topic, *map(str, (PACED_PARTITIONS, uncounted, counted))]
    command = [sys.executable, "-m", consumers.__name__, client]
    if client == "java":
        source = str(FOLDER / "PacedConsumer.java")
        command = [str(java()), java_tools.HEAP, "-cp", f"{tool_libs()}/*", source]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as consumer:
        try:
            assert consumer.stdout is not None
            if consumer.stdout.readline() != "ready\n":
                raise BenchError(f"the {client} consumer did not get ready")
            paced = [topic, str(PACED_PARTITIONS), str(uncounted + counted), str(rate)]
            producer = [sys.executable, "-m", PACED_PRODUCER, bootstrap, *paced]
            subprocess.run(producer, check=True, timeout=CONSUMER_SECONDS_MAX)
            printed, _ = consumer.communicate(timeout=CONSUMER_SECONDS_MAX)
        finally:
            consumer.kill()
    found = sorted(int(line) / 1e6 for line in printed.split())
    if len(found) < counted:
        raise BenchError(f"{len(found)} of {counted} delays of the {client} consumer")
    return found


def measurements(records: int, seconds: int) -> dict[str, dict[str, Callable[[KafkaCluster], Any]]]:
    """By what is measured: the clients that take part, ours first."""
    found: dict[str, dict[str, Callable[[KafkaCluster], Any]]] = {
        "implicit, records/s": {
            "ours": throughput(consumers.ours, "implicit", records),
            "confluent": throughput(consumers.confluents, "implicit", records),
            "java": java_throughput(records),
        },
        "explicit accept of each, records/s": {
            "ours": throughput(consumers.ours, "explicit", records),
            "confluent": throughput(consumers.confluents, "explicit", records),
        },
        "poll_arrow() against implicit, records/s": {
            "ours": throughput(consumers.ours, "columns", records),
            "confluent": throughput(consumers.confluents, "implicit", records),
        },
    }
    for rate in RATES:
        found[f"delay at {rate:,} records/s, ms"] = {
            client: lambda cluster, client=client, rate=rate: delays_ms(  # type: ignore[misc]
                cluster, client, rate, seconds
            )
            for client in ("ours", "confluent", "java")
        }
    return found


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=6, show_default=True)
@click.option("--records", type=click.IntRange(6_000), default=240_000, show_default=True)
@click.option("--seconds", type=click.IntRange(1), default=5, show_default=True, help="Of delays.")
@click.option("--only", default="", help="Measurements whose name has this in it.")
def main(*, rounds: int, records: int, seconds: int, only: str) -> None:
    """Measure share consumers on a cluster of three real Kafka brokers."""
    records -= records % (PARTITIONS * BATCH_RECORDS)
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaCluster(
            Path(folder), properties=PROPERTIES, jvm=SERVER_JVM, heap="700m", proxied=False
        ) as cluster,
    ):
        fill(
            cluster.bootstrap_servers,
            LOG_TOPIC,
            records=records,
            record_bytes=RECORD_BYTES,
            batch_records=BATCH_RECORDS,
            partitions=PARTITIONS,
            replicas=REPLICAS,
        )
        for name, clients in measurements(records, seconds).items():
            if only in name:
                _measure(cluster, name, clients, rounds)


def _measure(
    cluster: KafkaCluster,
    name: str,
    clients: dict[str, Callable[[KafkaCluster], Any]],
    rounds: int,
) -> None:
    """Once uncounted, for the brokers' sake, and then so many rounds."""
    found: dict[str, list[Any]] = {client: [] for client in clients}
    order = list(clients)
    clients[order[0]](cluster)
    for number in range(rounds):
        turned = order[number % len(order) :] + order[: number % len(order)]
        for client in turned:
            found[client].append(_tried(name, client, clients[client], cluster))
    if isinstance(found["ours"][0], float):
        _say(name, found, higher_is_better=True)
        return
    for label, part in (("p50", 0.5), ("p99", 0.99)):
        values = {
            client: [delays[int(len(delays) * part)] for delays in runs]
            for client, runs in found.items()
        }
        _say(f"{label} of {name}", values, higher_is_better=False)


def _tried(
    name: str, client: str, measure: Callable[[KafkaCluster], Any], cluster: KafkaCluster
) -> Any:
    """Measure once; a round that fails is reported and repeated, so that the others are kept."""
    for _ in range(TRIES_MAX - 1):
        try:
            return measure(cluster)
        except (BenchError, subprocess.SubprocessError) as error:
            click.echo(f"{name}, {client}: repeated, because this round failed: {error}", err=True)
    return measure(cluster)


def _say(name: str, found: dict[str, list[float]], *, higher_is_better: bool) -> None:
    click.echo(name)
    for client, values in found.items():
        text = f"  {client:10} {median(values):12,.2f}  [{min(values):,.2f}, {max(values):,.2f}]"
        if client != "ours":
            ratio = ratio_of(found["ours"], values, higher_is_better=higher_is_better)
            text += f"  ours/{client} {ratio.ratio:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
        click.echo(text)


if __name__ == "__main__":
    main()
