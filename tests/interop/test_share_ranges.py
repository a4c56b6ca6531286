"""Ranges held by a member: what the brokers do at the edges, ours and Apache Kafka alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import confluent_kafka
import pytest

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
)
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.share.ranges.share_ranges import AcquiredRanges, ShareRanges
from sharegroup.client.share.session.acknowledgements import AckRun
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.client.share.session.offset_set import OffsetSet
from sharegroup.client.share.session.share_requests import FetchLimits
from sharegroup.client.share.session.share_session import ShareSession
from sharegroup.errors import InvalidRecordState, KafkaError
from sharegroup.ids import TopicIdPartition
from tests.support.chosen_broker import BOTH_IN_INTEROP, running
from tests.support.limits import HANGING_SECONDS

ACCEPT, RELEASE = 1, 2
WAIT_MS = 10_000


@pytest.fixture(scope="module", params=BOTH_IN_INTEROP)
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with running(request.param, tmp_path_factory.mktemp("ranges")) as there:
        yield there.bootstrap_servers


async def prepare(bootstrap: str, topic: str, group: str, *, records: int = 0) -> None:
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        assert await admin.create_topics([NewTopic(topic, 1)]) == {topic: None}
        resource = ConfigResource(ResourceType.GROUP, group)
        earliest = AlterConfig("share.auto.offset.reset", "earliest")
        assert await admin.incremental_alter_configs({resource: [earliest]}) == {resource: None}
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await asyncio.gather(*(producer.send(topic, b"%d" % number) for number in range(records)))


async def acquired(ranges: ShareRanges) -> AcquiredRanges:
    limit = time.monotonic() + WAIT_MS / 1000
    while not (acquisition := await ranges.acquire(wait_ms=500)).ranges:
        assert time.monotonic() < limit, f"nothing came: {acquisition.failure!r}"
    return acquisition


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(HANGING_SECONDS):
            await scenario()

    asyncio.run(run())


class Successor:
    """A second session of a member, as a restarted process with the same member id has it."""

    def __init__(self, before: ShareRanges) -> None:
        self.cluster = Cluster(before._cluster.config)
        self.topics = before._group.membership.subscription
        self.session = ShareSession(0, self.cluster, before.member, request_timeout_ms=10_000)

    async def acknowledge(self, key: TopicIdPartition, first: int, end: int) -> KafkaError | None:
        await self.cluster.refresh(self.topics)
        (self.session.node_id,) = self.cluster.nodes
        limits = FetchLimits(max_records=1, max_bytes=1_000, max_wait_ms=0)
        opened = await self.session.fetch([], {}, limits)
        assert opened.failure is None
        answer = await self.session.acknowledge({key: [AckRun(first, end, ACCEPT)]})
        return answer.results[key]


def test_new_session_of_a_member_acknowledges_records_of_its_former_session(
    bootstrap: str, topic: str, group: str
) -> None:
    """The former connection is silent, as after the loss of a host."""

    async def scenario() -> None:
        await prepare(bootstrap, topic, group, records=10)
        before = ShareRanges(
            ClientConfig(bootstrap_servers=bootstrap), group_id=group, topics=[topic]
        )
        (key,) = (await acquired(before)).ranges
        after = Successor(before)
        assert await after.acknowledge(key, 0, 10) is None
        after.cluster.close()
        await before.close()

    play(scenario)


def test_closed_connection_ends_the_locks_for_any_member_id(
    bootstrap: str, topic: str, group: str
) -> None:
    """As after kill -9, when the system closes the sockets."""

    async def scenario() -> None:
        await prepare(bootstrap, topic, group, records=10)
        before = ShareRanges(
            ClientConfig(bootstrap_servers=bootstrap), group_id=group, topics=[topic]
        )
        (key,) = (await acquired(before)).ranges
        await before._group.heartbeats.leave()  # Else the one partition stays assigned to it.
        before._cluster.close()
        other = ShareRanges(
            ClientConfig(bootstrap_servers=bootstrap), group_id=group, topics=[topic]
        )
        again = {key: (AcquiredRecords.of_range(0, 10, 2),)}
        assert (await acquired(other)).ranges == again
        after = Successor(before)
        assert isinstance(await after.acknowledge(key, 0, 10), InvalidRecordState)
        after.cluster.close()
        await other.close()

    play(scenario)


@pytest.mark.kafka
def test_transaction_markers_are_settled_as_gaps(bootstrap: str, topic: str, group: str) -> None:
    """Two transactions: records 0 to 2, marker 3, record 4, marker 5."""

    async def scenario() -> None:
        await prepare(bootstrap, topic, group)
        produce_transactions(bootstrap, topic, 3, 1)
        ranges = ShareRanges(
            ClientConfig(bootstrap_servers=bootstrap), group_id=group, topics=[topic]
        )
        acquisition = await acquired(ranges)
        (key,) = acquisition.ranges
        assert acquisition.ranges[key] == (AcquiredRecords.of_range(0, 6, 1),)
        (node,) = ranges._nodes.values()
        assert node._gaps == {key: OffsetSet(((3, 4), (5, 6)))}
        assert await ranges.acknowledge({key: [AckRun(0, 6, ACCEPT)]}) == {}
        assert [position.lag for position in (await ranges.positions()).values()] == [0]
        await ranges.close()

    play(scenario)


def produce_transactions(bootstrap: str, topic: str, *sizes: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(HANGING_SECONDS)
    for size in sizes:
        producer.begin_transaction()
        for _ in range(size):
            producer.produce(topic, b"x")
        producer.commit_transaction(30)
