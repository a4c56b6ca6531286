"""Brokers with two disks that lose one or both, under load.

The controllers are nodes of their own, so that a broker's disk holds no vote of the quorum.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from sharegroup.ids import uuid_text
from tests.cluster.conftest import VERSION, all_of_it
from tests.cluster.traffic import Traffic
from tests.support.kafka_cluster import KafkaCluster, why_missing

pytestmark = all_of_it

DISKS = ("data", "more")
"""The folders of a broker; the first one has the metadata as well."""
SOON = {
    # How often a broker writes to each disk, and notices that it cannot.
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
}


class TwoDisks(KafkaCluster):
    """A cluster whose brokers have two log directories."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, VERSION, SOON, separate_controllers=True, heap="300m")
        for node in self.nodes:
            process = self._processes[node]
            process.properties["log.dirs"] = ",".join(map(str, self.disks_of(node)))

    def _format(self) -> None:
        super()._format()
        for node in self.nodes:
            self.insert_disk(node, self.disks_of(node)[1])

    def disks_of(self, node: int) -> list[Path]:
        return [self.folder / f"node{node}" / name for name in DISKS]

    def insert_disk(self, node: int, disk: Path) -> None:
        """Put an empty disk in place, formatted as Kafka's tool does it."""
        controller = self.folder / f"node{self.controllers[0]}" / "data" / "meta.properties"
        lines = controller.read_text().splitlines()
        kept = [line for line in lines if not line.startswith(("node.id", "directory.id"))]
        disk.mkdir()
        text = "\n".join([*kept, f"node.id={node}", f"directory.id={uuid_text(uuid4())}", ""])
        (disk / "meta.properties").write_text(text)


@pytest.fixture(scope="module")
def two_disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoDisks]:
    missing = why_missing()
    if missing is not None:
        pytest.skip(missing)
    with TwoDisks(tmp_path_factory.mktemp("disks")) as cluster:
        yield cluster


def _replace_disks(cluster: TwoDisks, node: int) -> None:
    for disk in cluster.disks_of(node):
        shutil.rmtree(disk)
        cluster.insert_disk(node, disk)


def test_disks_that_are_replaced_while_the_broker_is_down(two_disks: TwoDisks) -> None:
    """It comes back empty, and copies what the others have."""
    cluster = two_disks

    async def run() -> None:
        topic = "replaced"
        async with Traffic(cluster, topic) as traffic:
            await traffic.goes_on()
            node = await asyncio.to_thread(cluster.leader_of, topic, 0)
            await asyncio.to_thread(cluster.kill, node)
            seconds = [await traffic.goes_on()]
            await asyncio.to_thread(_replace_disks, cluster, node)
            await asyncio.to_thread(cluster.mend)
            seconds.append(await traffic.goes_on())
            account = await traffic.settled()
        print("replaced: goes on after", [round(span, 1) for span in seconds])
        assert not account.problems
        assert not account.refused

    asyncio.run(run())


def test_disk_with_the_metadata_is_lost_while_the_broker_runs(two_disks: TwoDisks) -> None:
    """The broker ends by itself, at a moment of its own choice."""
    cluster = two_disks

    async def run() -> None:
        topic = "deleted"
        async with Traffic(cluster, topic) as traffic:
            await traffic.goes_on()
            node = await asyncio.to_thread(cluster.leader_of, topic, 0)
            first, _ = cluster.disks_of(node)
            await asyncio.to_thread(shutil.rmtree, first, ignore_errors=True)
            first.write_text("no disk")
            await asyncio.to_thread(
                cluster.wait_for, lambda: None if cluster.is_running(node) else True, "its end"
            )
            seconds = [await traffic.goes_on()]
            await asyncio.to_thread(cluster.kill, node)
            first.unlink()
            await asyncio.to_thread(cluster.insert_disk, node, first)
            await asyncio.to_thread(cluster.mend)
            seconds.append(await traffic.goes_on())
            account = await traffic.settled()
        print("deleted: goes on after", [round(span, 1) for span in seconds])
        assert not account.problems
        assert not account.refused

    asyncio.run(run())


def test_broker_continues_after_one_of_two_disks_fails(two_disks: TwoDisks) -> None:
    """Partitions on the failed disk return KAFKA_STORAGE_ERROR until other brokers lead them."""
    cluster = two_disks

    async def run() -> None:
        topic = "failing"
        async with Traffic(cluster, topic) as traffic:
            await traffic.goes_on()
            node, disk = await asyncio.to_thread(_disk_with_a_leader, cluster, topic)
            aside = disk.with_name("aside")
            disk.rename(aside)
            disk.write_text("no disk")
            await asyncio.to_thread(
                cluster.wait_for, lambda: _left(cluster, node, topic), "leaders elsewhere"
            )
            seconds = [await traffic.goes_on()]
            assert cluster.is_running(node)
            await asyncio.to_thread(cluster.stop, node)
            disk.unlink()
            aside.rename(disk)
            await asyncio.to_thread(cluster.mend)
            seconds.append(await traffic.goes_on())
            account = await traffic.settled()
        print("failing: goes on after", [round(span, 1) for span in seconds])
        assert not account.problems
        assert not account.refused

    asyncio.run(run())


def _disk_with_a_leader(cluster: TwoDisks, topic: str) -> tuple[int, Path]:
    """A broker that leads a partition of a topic on its second disk, and that disk."""
    for index, partition in cluster.view().topics[topic].items():
        _, second = cluster.disks_of(partition.leader)
        if (second / f"{topic}-{index}").is_dir():
            return partition.leader, second
    raise AssertionError(f"no leader of {topic} has its partition on a second disk")


def _left(cluster: TwoDisks, node: int, topic: str) -> bool | None:
    """Whether a broker is out of sync for what lay on its second disk."""
    partitions = cluster.view().topics[topic].values()
    return True if any(node not in partition.in_sync for partition in partitions) else None
