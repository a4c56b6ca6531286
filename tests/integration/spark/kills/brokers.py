"""The brokers that a trial can kill: ours, a real Apache Kafka, or a cluster of three."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cluster.conftest import SHORT_TIMES
from tests.integration.spark.kills.pipeline import Pipeline
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_peer import KafkaPeer, free_ports
from tests.support.processes import ServeProcess

BROKERS = ("ours", "kafka", "cluster")
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.session.timeout.ms": "1500",
}
"""Of the broker: what a member that was killed leaves behind is over soon."""
STATE_TOPIC = "__share_group_state"


class Broker(NamedTuple):
    """What a trial does with a broker."""

    bootstrap_servers: str
    kill: Callable[[], None]
    start: Callable[[], None]
    replicas: int = 1
    """Of each topic.  With several, queries have to go on between `kill` and `start`."""


@contextmanager
def running_broker(
    name: str,
    folder: Path,
    pipeline: Pipeline,
    *,
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Broker]:
    """The broker of one of the names of `BROKERS`, over an empty folder."""
    if name == "cluster":
        settings = {**SHORT_TIMES, **SETTINGS}
        with KafkaCluster(folder / "cluster", properties=settings) as cluster:
            yield _of_cluster(cluster, pipeline, random.Random(seed), say)
    elif name == "kafka":
        with KafkaPeer(folder / "kafka", SETTINGS, heap="512m") as kafka:
            yield Broker(kafka.bootstrap_servers, kafka.kill, kafka.start)
    else:
        (port,) = free_ports(1)
        with ServeProcess(folder / "data", port=port, settings=SETTINGS) as process:
            yield Broker(process.bootstrap_servers, process.kill9, process.start)


def _of_cluster(
    cluster: KafkaCluster, pipeline: Pipeline, chance: random.Random, say: Callable[[str], None]
) -> Broker:
    """The broker that is killed leads or coordinates something that the queries need."""

    def leader(topic: str) -> Callable[[], int]:
        partitions = cluster.view().topics[topic]
        return lambda: cluster.leader_of(topic, chance.choice(sorted(partitions)))

    def coordinator(group: str) -> Callable[[], int]:
        return lambda: cluster.coordinator_of(group)

    def kill() -> None:
        roles = {f"leader of {topic}": leader(topic) for topic in (*pipeline.topics, STATE_TOPIC)}
        roles |= {f"coordinator of {group}": coordinator(group) for group in pipeline.groups}
        role = chance.choice(sorted(roles))
        node = roles[role]()
        say(f"  node {node}, the {role}")
        cluster.kill(node)

    return Broker(cluster.bootstrap_servers, kill, cluster.mend, replicas=len(cluster.nodes))
