"""`make cluster-groups`: new groups around the deaths of brokers, ours beside the Java client's.

For each death, new groups of three kinds join, one after the other: our consumer, our holder of
ranges, and Kafka's Java share consumer.  A broker is killed in the middle.  A group is stuck when
its only member has no record after `STUCK_SECONDS`.  The brokers have Kafka's own timings, but
for those that are named here.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from tests.cluster.clients import (
    begin_at_the_start,
    broken,
    create_topic,
    first_range,
    first_record,
    produce_to_each,
)
from tests.support import kafka_peer
from tests.support.java_shell import java_command
from tests.support.kafka_cluster import KafkaCluster, why_missing
from tests.support.kafka_peer import KAFKA_VERSION

STUCK_SECONDS = 120.0
BETWEEN_SECONDS = 0.2
PARTITIONS = 6
STOCK = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "replica.lag.time.max.ms": "30000",
}
"""What a `KafkaCluster` sets to shorter times, as Kafka has it."""
OURS: Mapping[str, Callable[[KafkaCluster, str, str], Awaitable[float]]] = {
    "consumer": first_record,
    "ranges": first_range,
}
JAVA = "java"


class JavaGroups:
    """The Java client's groups, in one process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[str, asyncio.Future[float]] = {}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, bootstrap: str, topic: str) -> JavaGroups:
        """The client of `KAFKA_VERSION`, whatever the brokers are."""
        command = java_command(kafka_peer.kafka_libs(), "NewGroups", bootstrap, topic)
        return cls(
            await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        )

    def join(self, group: str) -> asyncio.Future[float]:
        """Seconds until a new consumer of this group has its first record."""
        assert self._process.stdin is not None
        self._waiting[group] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(f"{group}\n".encode())
        return self._waiting[group]

    async def close(self) -> None:
        self._process.kill()
        await self._process.wait()
        self._reader.cancel()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            group, _, told = line.decode().strip().partition(" ")
            waiting = self._waiting.get(group)
            if waiting is None or waiting.done():
                continue
            if told.isdigit():
                waiting.set_result(int(told) / 1000)
            else:
                waiting.set_exception(RuntimeError(told))


async def run(cluster: KafkaCluster, kills: int, groups_each: int) -> int:
    """Play all deaths and print a table; how many of our groups were stuck."""
    topic = "events"
    await create_topic(cluster, topic, partitions=PARTITIONS)
    await produce_to_each(cluster, topic, range(PARTITIONS), "early")
    java = await JavaGroups.start(cluster.bootstrap_servers, topic)
    seconds: dict[str, list[float]] = defaultdict(list)
    stuck: dict[str, int] = defaultdict(int)
    try:
        for kill in range(kills):
            found = await one_death(cluster, topic, kill, groups_each, java)
            for kind, results in found.items():
                seconds[kind] += [result for result in results if result is not None]
                stuck[kind] += results.count(None)
            await broken(cluster.mend)
    finally:
        await java.close()
    print(f"{'client':10} {'groups':>6} {'stuck':>5} {'median s':>9} {'p90 s':>7} {'worst s':>8}")
    for kind, some in seconds.items():
        ordered = sorted(some) or [float("nan")]
        print(
            f"{kind:10} {len(some) + stuck[kind]:6} {stuck[kind]:5} "
            f"{statistics.median(ordered):9.1f} {ordered[len(ordered) * 9 // 10]:7.1f} "
            f"{ordered[-1]:8.1f}"
        )
    return sum(stuck[kind] for kind in OURS)


async def one_death(
    cluster: KafkaCluster, topic: str, kill: int, groups_each: int, java: JavaGroups
) -> dict[str, list[float | None]]:
    """Let groups join around one death: by kind the seconds to the first record, None: stuck."""
    kinds = (*OURS, JAVA)
    groups = {kind: [f"{kind}-{kill}-{i}" for i in range(groups_each)] for kind in kinds}
    await begin_at_the_start(cluster, [group for some in groups.values() for group in some])
    victim = cluster.nodes[kill % len(cluster.nodes)]
    members: dict[str, list[asyncio.Future[float]]] = defaultdict(list)
    for index in range(groups_each):
        for kind, joins in OURS.items():
            joining = joins(cluster, topic, groups[kind][index])
            members[kind].append(asyncio.ensure_future(joining))
        members[JAVA].append(java.join(groups[JAVA][index]))
        if index == groups_each // 2:
            await broken(cluster.kill, victim)
        await asyncio.sleep(BETWEEN_SECONDS)
    everybody = [member for some in members.values() for member in some]
    _, waiting = await asyncio.wait(everybody, timeout=STUCK_SECONDS)
    for member in waiting:
        member.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    found = {
        kind: [None if member in waiting else member.result() for member in some]
        for kind, some in members.items()
    }
    medians = {
        kind: round(statistics.median(STUCK_SECONDS if took is None else took for took in some), 1)
        for kind, some in found.items()
    }
    print(f"death {kill + 1} of node {victim}: stuck {len(waiting)}, medians {medians}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.new_groups")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--groups", type=int, default=14, help="of each kind, for each death")
    parser.add_argument("--version", default=KAFKA_VERSION)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)  # What is measured here, members warn of.
    missing = why_missing()
    if missing:
        print(f"missing: {missing}", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="cluster-") as folder,
        KafkaCluster(Path(folder), arguments.version, STOCK) as cluster,
    ):
        print(f"Apache Kafka {arguments.version}", flush=True)
        stuck = asyncio.run(run(cluster, arguments.kills, arguments.groups))
    return 1 if stuck else 0


if __name__ == "__main__":
    sys.exit(main())
