"""Two nodes of Apache Kafka: a session with each, and what happens when one of them goes.

Ours is a single node, so this runs on Apache Kafka alone.  It takes most of a minute.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.client import (
    AcknowledgementResult,
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    Record,
    ResourceType,
    ShareConsumer,
)
from sharegroup.errors import NetworkException, NotLeaderOrFollower, ShareSessionNotFound
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.kafka_peer import KafkaPeer, why_missing
from tests.support.limits import HANGING_SECONDS

pytestmark = [
    pytest.mark.kafka,
    LONG_WITH_A_JVM,
    pytest.mark.skipif(why_missing() is not None, reason=why_missing() or ""),
]

REPLICATED = {
    "offsets.topic.replication.factor": "2",
    "share.coordinator.state.topic.replication.factor": "2",
    "share.coordinator.state.topic.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "controlled.shutdown.enable": "true",
}
LOST = (ShareSessionNotFound, NetworkException, NotLeaderOrFollower)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaPeer, KafkaPeer]]:
    """A node that is also the controller, and a broker beside it."""
    first = KafkaPeer(tmp_path_factory.mktemp("first"), REPLICATED, heap="400m")
    second_folder = tmp_path_factory.mktemp("second")
    second = KafkaPeer(second_folder, heap="400m")
    second.properties |= {
        **REPLICATED,
        "process.roles": "broker",
        "node.id": "2",
        "listeners": f"PLAINTEXT://127.0.0.1:{second.port}",
        "controller.quorum.voters": first.properties["controller.quorum.voters"],
    }
    second.format()
    with first:
        _join(second_folder, first.folder)
        with second:
            yield first, second


def _join(node: Path, other: Path) -> None:
    """Give a formatted folder the cluster id of another."""
    line = re.compile(r"^cluster\.id=.*$", re.MULTILINE)
    found = line.search((other / "data" / "meta.properties").read_text())
    assert found is not None
    path = node / "data" / "meta.properties"
    path.write_text(line.sub(found[0], path.read_text()))


async def prepare(bootstrap: str) -> None:
    """A topic with a partition on each node and copies on the other; both nodes are up."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        async with asyncio.timeout(HANGING_SECONDS):
            while len((await admin.describe_cluster()).nodes) < 2:
                await asyncio.sleep(0.1)
        made = await admin.create_topics([NewTopic("t", 2, replication_factor=2)])
        assert made == {"t": None}
        group = ConfigResource(ResourceType.GROUP, "g")
        change = AlterConfig("share.auto.offset.reset", "earliest")
        assert await admin.incremental_alter_configs({group: [change]}) == {group: None}


async def produce(bootstrap: str, numbers: range) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in numbers:
            await producer.send_and_wait("t", b"%d" % number, partition=number % 2)


async def take(member: ShareConsumer, values: set[int]) -> list[Record]:
    """Records until all these values came; all are accepted."""
    records: list[Record] = []
    async with asyncio.timeout(HANGING_SECONDS):
        while not values <= {int(record.value) for record in records}:
            polled = await member.poll(1.0)
            member.accept(polled)
            records += polled
    return records


def test_stopped_node_ends_only_its_own_locks(
    nodes: tuple[KafkaPeer, KafkaPeer],
) -> None:
    """Four records are read, two from each node. Some of the next ones are held when a node stops.
    Records settled before stay settled; the held records of that node are redelivered.
    """
    first, second = nodes

    async def scenario() -> None:
        bootstrap = f"{first.bootstrap_servers},{second.bootstrap_servers}"
        await prepare(bootstrap)
        await produce(bootstrap, range(4))
        heard: list[AcknowledgementResult] = []
        async with ShareConsumer(
            "t",
            bootstrap_servers=bootstrap,
            group_id="g",
            share_acknowledgement_mode="explicit",
            in_flight_max=100,
        ) as member:
            member.set_acknowledgement_commit_callback(heard.append)
            await take(member, {0, 1, 2, 3})
            assert set((await member.commit()).values()) == {None}
            assert len(member._member._nodes) == 2, "a session with each node"
            await produce(bootstrap, range(4, 8))
            held: list[Record] = []
            while len(held) < 4:
                held += await member.poll(10.0)
            await asyncio.to_thread(second.stop)
            heard.clear()
            member.accept(held)
            await member.commit(30)
            refused = [result for result in heard if result.error is not None]
            assert all(isinstance(result.error, LOST) for result in refused), refused
            assert sum(len(result.offsets) for result in refused) == 2, "what the second node held"
            await produce(first.bootstrap_servers, range(8, 12))
            again = await take(member, {int(r.value) for r in held if _is_in(r, refused)})
            more = {8, 9, 10, 11} - {int(record.value) for record in again}
            later = await take(member, more) if more else []
            assert set((await member.commit(30)).values()) == {None}
            values = sorted(int(record.value) for record in (*again, *later))
            assert set(values) >= {8, 9, 10, 11}
            assert len(values) == 6, "the four, and the two that came again"

    asyncio.run(scenario())


def _is_in(record: Record, results: list[AcknowledgementResult]) -> bool:
    return any(
        result.topic_partition == record.topic_partition and record.offset in list(result.offsets)
        for result in results
    )
